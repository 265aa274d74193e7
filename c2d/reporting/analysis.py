"""Every number of a report, computed from the score matrices of a dataset."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from c2d.reporting.dataset import Dataset
from c2d.reporting.run_statistics import (
    AGGREGATES,
    game_means,
    interval,
    intervals,
    paired_interval,
    probability_of_improvement,
    profile,
    replicate,
    resolvable,
)
from c2d.reporting.scores import COMMON, NOMINAL, Convention, normalize

Array = NDArray[np.float64]
Interval = tuple[float, float] | None
THRESHOLDS = np.round(np.concatenate([np.arange(0, 2, 0.05), np.arange(2, 8.01, 0.1)]), 6)
TABLE_POINTS = (10.0, 50.0, 100.0, 150.0, 200.0)  # millions of frames of the bundled table
RAW = "raw"  # instead of a reference table: scores as recorded
PROGRESS = ("iqm", "mean", "median")
_BAND_REPLICATIONS = 1_000  # a band needs fewer than a single number


class IntervalEstimate(NamedTuple):
    """A number and its 95 % interval; the interval is None where there are too few runs."""

    point: float
    interval: Interval


class Band(NamedTuple):
    """A line and its pointwise 95 % band."""

    at: Array
    line: Array
    low: Array | None
    high: Array | None


@dataclass(frozen=True)
class ScoringOptions:
    """How scores are read, and how intervals are computed."""

    convention: Convention
    references: str
    replications: int = 10_000
    seed: int = 0


@dataclass(frozen=True)
class Analysis:
    """Agents compared on the same games at the same frames."""

    dataset: Dataset
    agents: tuple[str, ...]
    games: tuple[str, ...]  # every agent has a score on each
    frames: float  # nominal millions
    scoring: ScoringOptions

    def scores(self, agent: str, frames: float | None = None) -> Array:
        """[runs, games] human-normalized, or raw if there are no human scores."""
        at = self.frames if frames is None else frames
        if self.scoring.references == RAW:
            return self.raw(agent, at)
        return self.dataset.scores(agent, self.games, at, self.scoring.convention, self.scoring.references)

    def raw(self, agent: str, frames: float) -> Array:
        """[runs, games] raw."""
        return self.dataset.matrix(agent, self.games, lambda run: self.scoring.convention.score(run, frames))

    @cached_property
    def aggregates(self) -> dict[str, dict[str, IntervalEstimate]]:
        """agent -> aggregate -> estimate."""
        found = {}
        for agent in self.agents:
            scores = self.scores(agent)
            spread = intervals(scores, AGGREGATES, self.scoring.replications, self.scoring.seed)
            found[agent] = {name: IntervalEstimate(float(f(scores)), spread[name]) for name, f in AGGREGATES.items()}
        return found

    @cached_property
    def profiles(self) -> dict[str, Band]:
        """agent -> fraction of runs above each threshold, at the last iteration that every agent has."""
        at = COMMON if self.frames >= NOMINAL else self.frames
        found = {}
        for agent in self.agents:
            scores = self.scores(agent, at)
            low, high = None, None
            if resolvable(scores):
                drawn = replicate(
                    scores, {"p": lambda m: profile(m, THRESHOLDS)}, _BAND_REPLICATIONS, self.scoring.seed
                )
                low, high = interval(drawn["p"])
            found[agent] = Band(THRESHOLDS, profile(scores, THRESHOLDS), low, high)
        return found

    @cached_property
    def progress(self) -> dict[str, dict[str, Band]]:
        """aggregate -> agent -> its curve over training, without points at which the agent lacks a game."""
        found: dict[str, dict[str, Band]] = {name: {} for name in PROGRESS}
        for agent in self.agents:
            matrices = self._matrices(agent)
            rows = {name: [_row(at, scores, name, spreads) for at, scores, spreads in matrices] for name in PROGRESS}
            for name, points in rows.items():
                if points:
                    at, line, low, high = np.array(points).T
                    band = not np.isnan(low).any()
                    found[name][agent] = Band(at, line, low if band else None, high if band else None)
        return found

    def _matrices(self, agent: str) -> list[tuple[float, Array, dict[str, Interval]]]:
        """(end, scores [runs, games], intervals) at each end where every game has a score."""
        ends = np.array(self.ends)
        stacked = self.dataset.smoothed(agent, self.games, ends, self.scoring.convention.window)  # [ends, runs, games]
        if self.scoring.references != RAW:
            stacked = normalize(stacked, self.games, self.scoring.references)
        functions = {name: AGGREGATES[name] for name in PROGRESS}
        whole = [(float(end), rows) for end, rows in zip(ends, stacked, strict=True) if (rows == rows).any(0).all()]
        return [(end, rows, intervals(rows, functions, _BAND_REPLICATIONS, self.scoring.seed)) for end, rows in whole]

    @property
    def ends(self) -> tuple[float, ...]:
        """Where progress is evaluated: the points of the bundled table and, if there are curves, every 5M frames."""
        last = min(self.frames, COMMON)
        known = [min(end, COMMON) for end in TABLE_POINTS if min(end, COMMON) <= last]
        if not self.dataset.has_curves and not self.dataset.own:
            return tuple(known)
        step = 5.0 if last >= 50 else 1.0 if last >= 5 else last / 10
        every = [round(float(end), 6) for end in np.arange(step, last - step / 2, step)]
        return tuple(sorted({*every, *known, last}))

    def improvement(self, ours: str, theirs: str) -> IntervalEstimate:
        """P(a run of ours beats a run of theirs on a game)."""
        a, b = self.scores(ours), self.scores(theirs)
        spread = paired_interval(a, b, probability_of_improvement, self.scoring.replications, self.scoring.seed)
        return IntervalEstimate(float(probability_of_improvement(a, b)), spread)

    def differences(self, ours: str, theirs: str) -> dict[str, IntervalEstimate]:
        """game -> difference of mean human-normalized scores."""
        a, b = self.scores(ours), self.scores(theirs)
        points = game_means(a) - game_means(b)
        one, two = (_resampled_means(scores, self.scoring.seed + place) for place, scores in enumerate((a, b)))
        low, high = interval(one - two)  # [games]
        enough = ((a == a).sum(0) > 1) & ((b == b).sum(0) > 1)
        return {
            game: IntervalEstimate(float(point), (float(left), float(right)) if known else None)
            for game, point, left, right, known in zip(self.games, points, low, high, enough, strict=True)
        }

    @cached_property
    def ranks(self) -> dict[str, dict[int, int]]:
        """agent -> rank -> on how many games its mean score has that rank (1 is best; ties share the better rank)."""
        means = np.stack([game_means(self.scores(agent)) for agent in self.agents])  # [agents, games]
        places = 1 + (means[None] > means[:, None]).sum(1)  # [agents, games]
        count = len(self.agents)
        return {
            agent: {place: int((places[row] == place).sum()) for place in range(1, count + 1)}
            for row, agent in enumerate(self.agents)
        }

    def mean_rank(self, agent: str) -> float:
        table = self.ranks[agent]
        return sum(place * games for place, games in table.items()) / max(len(self.games), 1)


def _resampled_means(scores: Array, seed: int) -> Array:
    """Game means of resampled runs: [replications, games]."""
    return replicate(scores, {"mean": game_means}, 2_000, seed)["mean"]


def _row(at: float, scores: Array, name: str, spreads: dict[str, Interval]) -> tuple[float, float, float, float]:
    low, high = spreads[name] or (np.nan, np.nan)
    return at, float(AGGREGATES[name](scores)), low, high
