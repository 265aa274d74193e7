"""Gathers runs, selects the games and frames at which agents can be compared fairly, and computes every number.

Published agents are compared on the 55 games at 200M frames. With runs of your own, everything is compared on their
games and at the frames they have reached. Environments without published agents get raw scores, one at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from c2d.envs.games import BENCHMARK, GAMES
from c2d.errors import UserError, unknown_name
from c2d.reporting.local_runs import LocalRun
from c2d.reporting.published import bundled_runs, read_published
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
from c2d.reporting.scores import COMMON, NOMINAL, Convention, Dataset, common_length, frame_count, normalize

Array = NDArray[np.float64]
Interval = tuple[float, float] | None
THRESHOLDS = np.round(np.concatenate([np.arange(0, 2, 0.05), np.arange(2, 8.01, 0.1)]), 6)
TABLE_POINTS = (10.0, 50.0, 100.0, 150.0, 200.0)  # millions of frames of the bundled table
RAW = "raw"  # instead of a reference table: scores as recorded
PROGRESS = ("iqm", "mean", "median")
_BAND_REPLICATIONS = 1_000  # a band needs fewer than a single number
PAPER_AGENTS = ("DQN", "C51", "QR-DQN", "IQN", "Rainbow", "C2D")  # the order of legends and tables
CURVE_SOURCES = (
    "Dopamine's curves are in baselines/atari/data of github.com/google/dopamine, C2D's in data of "
    "github.com/bjliaa/c2d: copy them into one directory and pass it with --published (docs/reports.md)"
)


def gather(
    own: Sequence[LocalRun] = (),
    notes: Sequence[str] = (),
    published: Path | None = None,
    agents: Sequence[str] = (),
) -> Dataset:
    """The published agents, from the bundled table and from `published` if given, and your own runs."""
    runs = {run.key: run for run in bundled_runs()}
    all_notes = list(notes)
    if published is not None:
        read, more = read_published(published)
        all_notes += more
        for run in read:
            runs[run.key] = run.joined(runs[run.key]) if run.key in runs else run
    known = dict.fromkeys(key.agent for key in runs)
    for name in agents:
        if name not in known:
            others = "" if published else "; --published PATH may add others"
            raise unknown_name("published agent", name, known, ", ".join(known) + others)
    shown = tuple(agents) or PAPER_AGENTS
    mine = tuple(sorted({one.run.key.agent for one in own}))
    runs = {key: run for key, run in runs.items() if key.agent in shown}
    runs |= {one.run.key: one.run for one in own}
    return Dataset(runs, shown + mine, mine, tuple(all_notes))


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
        estimates = {}
        for agent in self.agents:
            scores = self.scores(agent)
            spread = intervals(scores, AGGREGATES, self.scoring.replications, self.scoring.seed)
            estimates[agent] = {
                name: IntervalEstimate(float(f(scores)), spread[name]) for name, f in AGGREGATES.items()
            }
        return estimates

    @cached_property
    def profiles(self) -> dict[str, Band]:
        """agent -> fraction of runs above each threshold, at the last iteration that every agent has."""
        at = COMMON if self.frames >= NOMINAL else self.frames
        bands = {}
        for agent in self.agents:
            scores = self.scores(agent, at)
            low, high = None, None
            if resolvable(scores):
                drawn = replicate(
                    scores, {"p": lambda m: profile(m, THRESHOLDS)}, _BAND_REPLICATIONS, self.scoring.seed
                )
                low, high = interval(drawn["p"])
            bands[agent] = Band(THRESHOLDS, profile(scores, THRESHOLDS), low, high)
        return bands

    @cached_property
    def progress(self) -> dict[str, dict[str, Band]]:
        """aggregate -> agent -> its curve over training, without points at which the agent lacks a game."""
        bands: dict[str, dict[str, Band]] = {name: {} for name in PROGRESS}
        for agent in self.agents:
            matrices = self._matrices(agent)
            rows = {name: [_row(at, scores, name, spreads) for at, scores, spreads in matrices] for name in PROGRESS}
            for name, points in rows.items():
                if points:
                    at, line, low, high = np.array(points).T
                    band = not np.isnan(low).any()
                    bands[name][agent] = Band(at, line, low if band else None, high if band else None)
        return bands

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


# ------------------------------------------------------------------------------------------------ fair comparison


class NoScores(UserError):
    """The runs are too short to be compared."""


@dataclass(frozen=True)
class Alignment:
    """A fair comparison, and notes on what it leaves out."""

    analysis: Analysis
    notes: tuple[str, ...]


def align(dataset: Dataset, scoring: ScoringOptions, at: float | None = None) -> Alignment:
    """Published agents on the 55 games at 200M frames; with your own runs, on their games and frames only."""
    if not dataset.own:
        frames = NOMINAL if at is None else at
        return _aligned(dataset, scoring, BENCHMARK, frames, dataset.agents, [])
    games = human_games(game for agent in dataset.own for game in dataset.games_of(agent))
    own = tuple(agent for agent in dataset.own if human_games(dataset.games_of(agent)))
    if not games:
        raise UserError("no run is on an Atari game with random and human scores")
    frames = _frames(dataset, own, games) if at is None else at
    covered = {agent: dataset.covered(agent, games, frames, scoring.convention) for agent in own}
    notes = [
        f"{agent} is left out: it has no score at {frame_count(frames)} frames ({_reach(dataset, agent, games)})"
        for agent in own
        if not covered[agent]
    ]
    together, shared = _sharing({agent: some for agent, some in covered.items() if some}, games, notes)
    if not together:
        raise NoScores(f"none of your Atari runs has a score at {frame_count(frames)} frames: {'; '.join(notes)}")
    for agent in together:
        if lacking := [game for game in games if game not in covered[agent]]:
            notes.append(f"{agent} has no score at {frame_count(frames)} frames on {_some(lacking)}")
    if len(shared) < len(games):
        notes.append(f"compared on the games that all of your agents share: {_some(shared)}")
    notes += _shorter(dataset, together, shared, frames, scoring.convention)
    return _aligned(dataset, scoring, shared, frames, (*dataset.published, *together), notes)


def align_atari(dataset: Dataset, scoring: ScoringOptions, at: float | None, notes: list[str]) -> Alignment | None:
    """Like `align`; None if no run is on Atari, or if only runs on other environments have scores."""
    if dataset.own and not human_games(game for agent in dataset.own for game in dataset.games_of(agent)):
        return None
    try:
        aligned = align(dataset, scoring, at)
    except NoScores as error:
        if not dataset.other_games:
            raise
        notes.append(str(error))
        return None
    notes += aligned.notes
    return aligned


def _sharing(
    covered: dict[str, tuple[str, ...]], games: Sequence[str], notes: list[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Agents that can be compared, and the games they share. An agent that shares none with the others is left out."""
    together: list[str] = []
    shared = set(games)
    for agent in sorted(covered, key=lambda agent: -len(covered[agent])):
        if common := shared & set(covered[agent]):
            together.append(agent)
            shared = common
        else:
            notes.append(f"{agent} is left out: it shares no game with {', '.join(together)}; report it separately")
    return tuple(agent for agent in covered if agent in together), tuple(game for game in games if game in shared)


def _reach(dataset: Dataset, agent: str, games: Sequence[str]) -> str:
    runs = [run for game in games for run in dataset.runs_of(agent, game)]
    if not any(run.has_scores for run in runs):
        return "none of its episodes has ended yet"
    return f"it has reached {max(run.length for run in runs):g}M"


def _aligned(
    dataset: Dataset,
    scoring: ScoringOptions,
    games: Sequence[str],
    frames: float,
    agents: Sequence[str],
    notes: list[str],
) -> Alignment:
    """Agents that lack a game at that point are left out and named in the notes."""
    if at_nominal := frames >= COMMON:
        frames = NOMINAL
    complete: list[str] = []
    absent: dict[int, list[str]] = {}  # games covered -> agents
    for agent in agents:
        covered = dataset.covered(agent, games, frames, scoring.convention)
        if len(covered) == len(games):
            complete.append(agent)
        else:
            absent.setdefault(len(covered), []).append(agent)
    for count, names in absent.items():
        source = "" if at_nominal or dataset.has_curves else f". {CURVE_SOURCES}"
        notes.append(
            f"left out at {frame_count(frames)} frames, with scores on {count} of {len(games)} games: "
            f"{', '.join(names)}{source}"
        )
    if not complete:
        raise UserError(f"no agent has scores at {frame_count(frames)} frames: {'; '.join(notes)}")
    return Alignment(Analysis(dataset, tuple(complete), tuple(games), frames, scoring), tuple(notes))


def _frames(dataset: Dataset, own: Sequence[str], games: Sequence[str]) -> float:
    """The frames that every finished run has reached and at which published scores are known."""
    shortest = common_length([run for agent in own for game in games for run in dataset.runs_of(agent, game)])
    if shortest >= COMMON:
        return NOMINAL
    if not dataset.has_curves and dataset.published:
        return max((point for point in TABLE_POINTS if point <= shortest), default=_whole(shortest))
    return _whole(shortest)


def _whole(frames: float) -> float:
    return float(math.floor(frames + 1e-9)) if frames >= 1 else frames


def _shorter(
    dataset: Dataset, own: Sequence[str], games: Sequence[str], frames: float, convention: Convention
) -> list[str]:
    """Notes on your runs that do not reach the point of comparison."""
    return [
        f"{run.source} stops at {frame_count(run.length)} frames and is not used at {frame_count(frames)}"
        for agent in own
        for game in games
        for run in dataset.runs_of(agent, game)
        if math.isnan(convention.score(run, frames))
    ]


def _some(games: Sequence[str]) -> str:
    return ", ".join(games) if len(games) <= 8 else f"{', '.join(games[:8])} and {len(games) - 8} more"


# ----------------------------------------------------------------------------------------- other environments


def align_environment(dataset: Dataset, game: str, scoring: ScoringOptions, notes: list[str]) -> Analysis | None:
    """Your agents on one environment, at the frames that every finished run has reached; notes name shorter runs."""
    runs = [run for agent in dataset.own for run in dataset.runs_of(agent, game)]
    frames = common_length(runs)
    scoring = raw_scoring(dataset, game, frames, scoring)
    lacking = [run for run in runs if math.isnan(run.score(frames, scoring.convention.window))]
    for run in lacking:
        why = f"stops at {run.length * 1e6:,.0f} frames" if run.has_scores else "has no finished episode yet"
        notes.append(f"{run.source} {why} and is not used on {game} at {frames * 1e6:,.0f}")
    agents = tuple(agent for agent in dataset.own if any(run not in lacking for run in dataset.runs_of(agent, game)))
    return Analysis(dataset, agents, (game,), frames, scoring) if agents else None


def smoothing_window(dataset: Dataset, games: Sequence[str], window: float) -> float:
    """`window`, or the longest iteration if that is longer: a moving average needs one in its window."""
    runs = [run for agent in dataset.own for game in games for run in dataset.runs_of(agent, game)]
    return max(window, *(float(np.diff(run.ends, prepend=0.0).max()) for run in runs))


def raw_scoring(dataset: Dataset, game: str, frames: float, scoring: ScoringOptions) -> ScoringOptions:
    """Raw scores: the mean over the last fifth of training, or over the convention's window if that is shorter."""
    window = smoothing_window(dataset, (game,), min(scoring.convention.window, frames / 5))
    return replace(scoring, references=RAW, convention=replace(scoring.convention, window=window))


def human_games(games: Iterable[str]) -> tuple[str, ...]:
    """The games with reference scores, in the order of the table."""
    wanted = set(games)
    return tuple(key for key, row in GAMES.items() if key in wanted and row.human is not None)
