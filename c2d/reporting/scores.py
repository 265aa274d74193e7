"""From learning curves to human-normalized scores.

`RunCurve` is one run of one agent on one game, published or your own. A `Convention` says which iterations make its
score. `normalize` turns raw scores into human-normalized ones with a named table of reference scores. A `Dataset` holds
all runs of a report and gives the score matrices that statistics are computed from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from c2d.envs.games import GAMES
from c2d.errors import UserError, unknown_name

Array = NDArray[np.float64]
_CLOSE = 1e-6  # millions of frames: iterations end on whole frames
_ROUNDING = 1e-5  # published curves come with seven digits or more
_NONE = np.zeros(0)


class RunKey(NamedTuple):
    """Identifies a run."""

    agent: str
    game: str  # a key of `c2d.envs.games`, or an environment's name as in a config
    seed: int


@dataclass(frozen=True)
class RunCurve:
    """Mean score of the episodes that ended in each iteration; NaN where none did."""

    key: RunKey
    ends: Array = field(default_factory=lambda: _NONE)  # [iterations] millions of frames, increasing
    values: Array = field(default_factory=lambda: _NONE)  # [iterations]
    points: dict[tuple[float, float], float] = field(default_factory=dict)  # (window, end) -> score, without a curve
    atom_ends: Array = field(default_factory=lambda: _NONE)  # [records] millions of frames; empty without atoms
    low: Array = field(default_factory=lambda: _NONE)  # [records] smallest predicted atom of the iteration, in φ-space
    high: Array = field(default_factory=lambda: _NONE)  # [records] largest
    source: str = ""
    finished: bool = True  # False: still running, or stopped early

    @property
    def length(self) -> float:
        """Length of the curve in millions of frames; 0 without a curve."""
        return float(self.ends[-1]) if self.ends.size else 0.0

    @property
    def has_scores(self) -> bool:
        """Whether any iteration has a score."""
        return not bool(np.isnan(self.values).all())

    def moving_averages(self, ends: Array, window: float) -> Array:
        """Mean over the `window` million frames before each end; NaN beyond the curve or if no episode ended."""
        if not self.ends.size:
            return np.full(len(ends), np.nan)
        return _windowed(self.ends, self.values, np.asarray(ends, dtype=np.float64), window)

    def smoothed(self, ends: Array, window: float) -> Array:
        """Like `moving_averages`, but with `points` where the curve has no value or the same value in fewer digits."""
        values = self.moving_averages(ends, window)
        for place, end in enumerate(ends) if self.points else ():
            point = self.points.get((window, float(end)), np.nan)
            if np.isnan(values[place]) or abs(values[place] - point) <= _ROUNDING * max(abs(point), 1.0):
                values[place] = point
        return values

    def score(self, end: float, window: float) -> float:
        """The mean over `window` ending at `end` million frames, from the curve or else from `points`."""
        return float(self.smoothed(np.array([end]), window)[0])

    def joined(self, other: RunCurve) -> RunCurve:
        """Merge two sources of the same run: each fills the gaps of the other."""
        curve = self if self.length >= other.length else other
        atoms = self if self.atom_ends.size >= other.atom_ends.size else other
        source = "; ".join(dict.fromkeys(part for part in (self.source, other.source) if part))
        return replace(
            curve,
            points={**other.points, **self.points},
            atom_ends=atoms.atom_ends,
            low=atoms.low,
            high=atoms.high,
            source=source,
        )


def frame_count(millions: float) -> str:
    """ "199M", "2.5M", "80,000": to stand before the word frames."""
    return f"{millions:g}M" if millions >= 0.1 else f"{millions * 1e6:,.0f}"


def common_length(runs: Sequence[RunCurve]) -> float:
    """Millions of frames at which to compare runs: what all finished runs (or all, if none is finished) have reached.

    A run that was stopped early does not hold the others back, nor does a run without scores.
    """
    scored = [run for run in runs if run.has_scores] or list(runs)
    return min(run.length for run in [run for run in scored if run.finished] or scored)


def _windowed(at: Array, values: Array, ends: Array, window: float) -> Array:
    """Means of the values in (end - window, end] for each end."""
    present = ~np.isnan(values)
    total = np.concatenate([[0.0], np.where(present, values, 0.0).cumsum()])
    count = np.concatenate([[0], present.cumsum()])
    first = np.searchsorted(at, ends - window + _CLOSE, side="right")
    last = np.searchsorted(at, ends + _CLOSE, side="right")
    held = count[last] - count[first]
    usable = (held > 0) & (ends <= at[-1] + _CLOSE)
    return np.where(usable, (total[last] - total[first]) / np.maximum(held, 1), np.nan)


def mean_atoms(runs: Sequence[RunCurve]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(ends, mean smallest, mean largest atom) over the runs with recorded atoms, at the ends that all of them have."""
    runs = [run for run in runs if run.atom_ends.size]
    if not runs:
        return np.zeros(0), np.zeros(0), np.zeros(0)
    ends = runs[0].atom_ends
    for run in runs[1:]:
        ends = np.intersect1d(ends, run.atom_ends)
    chosen = [np.searchsorted(run.atom_ends, ends) for run in runs]
    low = np.mean([run.low[at] for run, at in zip(runs, chosen, strict=True)], axis=0)
    high = np.mean([run.high[at] for run, at in zip(runs, chosen, strict=True)], axis=0)
    return ends, low, high


# --------------------------------------------------------------------------------------------------- conventions
#
# Which iterations of a run make its score. Both conventions come from the paper. An iteration is 1M frames; the
# published baselines have 199 of them, the published C2D runs 200.
#
# * `table`: the mean of the 5 iterations up to a point: 5-9 (10M), 45-49 (50M), 95-99 (100M), 194-198 (200M), counted
#   from 0. With n - 1 in the standard deviation it gives every cell of the paper's score table.
# * `figures`: one raw iteration, as in the paper's figures: the last of each agent (199 for C2D, 198 for the others)
#   for the aggregates, 198 for profiles and the end of curves, and a human score of -9.3 for Tennis.


NOMINAL = 200.0  # what the literature calls the end of training
COMMON = 199.0  # millions of frames that every published run has
CHECKPOINTS = (10.0, 50.0, 100.0, 200.0)  # of the paper's score table


@dataclass(frozen=True)
class Convention:
    """How a score is read from a curve."""

    name: str
    window: float  # millions of frames averaged
    own_last: bool  # at 200M use each run's last iteration, instead of the last one that all runs have
    references: str  # its default table of reference scores
    words: str

    def score(self, run: RunCurve, frames: float) -> float:
        """The score at a nominal number of frames; NaN if the run has none there."""
        if frames < NOMINAL:
            return run.score(frames, self.window)
        if self.own_last:
            last = run.score(NOMINAL, self.window)
            return run.score(COMMON, self.window) if last != last else last
        return run.score(COMMON, self.window)


CONVENTIONS = {
    "table": Convention("table", 5.0, False, "dqn-zoo", "mean of the last 5M frames (5 iterations)"),
    "figures": Convention("figures", 1.0, True, "paper-figures", "one raw iteration of 1M frames"),
}


def convention(name: str) -> Convention:
    if name not in CONVENTIONS:
        raise unknown_name("convention", name, CONVENTIONS)
    return CONVENTIONS[name]


# --------------------------------------------------------------------------------------------------- references
#
# The scores of random play and of a human tester, which normalize game scores. Public tables agree except for two
# entries, so there are three named tables:
#
# * `dqn-zoo`: DQN Zoo (google-deepmind/dqn_zoo, `atari_data.py`, commit 45061f4), the project's default;
# * `rliable`: random play scores 0 on Video Pinball, as in the notebook of google-research/rliable;
# * `paper-figures`: the human tester scores -9.3 on Tennis. Only with this value does every point of the paper's
#   figures agree.


DEFAULT_REFERENCES = "dqn-zoo"
_DIFFERENCES: dict[str, dict[str, tuple[float, float]]] = {  # table -> game -> (random, human)
    "dqn-zoo": {},
    "rliable": {"videopinball": (0.0, 17667.9)},
    "paper-figures": {"tennis": (-23.8, -9.3)},
}
REFERENCE_TABLES = tuple(_DIFFERENCES)


def reference(game: str, table: str = DEFAULT_REFERENCES) -> tuple[float, float] | None:
    """(random, human) scores of a game; None if the tables have none."""
    if table not in _DIFFERENCES:
        raise unknown_name("table of reference scores", table, REFERENCE_TABLES)
    if game in _DIFFERENCES[table]:
        return _DIFFERENCES[table][game]
    row = GAMES.get(game)
    return None if row is None or row.random is None or row.human is None else (row.random, row.human)


def normalize(scores: Array, games: tuple[str, ...], table: str = DEFAULT_REFERENCES) -> Array:
    """(score - random) / (human - random): [..., games] raw to [..., games] human-normalized."""
    pairs = [reference(game, table) for game in games]
    if None in pairs:
        name = games[pairs.index(None)]
        raise UserError(f"{name} has no published random and human scores; accepted: games that have both")
    random, human = np.array(pairs, dtype=np.float64).T
    return np.asarray((scores - random) / (human - random))


# ---------------------------------------------------------------------------------------------------- all runs


@dataclass(frozen=True)
class Dataset:
    """Runs by agent, game and seed."""

    runs: dict[RunKey, RunCurve]
    agents: tuple[str, ...]  # those to show: published ones first, then your own
    own: tuple[str, ...] = ()  # agents of your own runs
    notes: tuple[str, ...] = ()

    @property
    def published(self) -> tuple[str, ...]:
        return tuple(agent for agent in self.agents if agent not in self.own)

    @property
    def has_curves(self) -> bool:
        """Whether published curves were read, beyond the few bundled iterations."""
        return any(run.length > 10 for run in self.runs.values() if run.key.agent in self.published)

    @cached_property
    def _index(self) -> dict[tuple[str, str], list[RunCurve]]:
        index: dict[tuple[str, str], list[RunCurve]] = {}
        for key in sorted(self.runs):
            index.setdefault(key[:2], []).append(self.runs[key])
        return index

    def runs_of(self, agent: str, game: str) -> list[RunCurve]:
        """The runs of an agent on a game, ordered by seed."""
        return self._index.get((agent, game), [])

    def games_of(self, agent: str) -> tuple[str, ...]:
        games = {key.game for key in self.runs if key.agent == agent}
        return tuple(sorted(games, key=lambda game: (game not in GAMES, game)))

    @property
    def other_games(self) -> tuple[str, ...]:
        """Environments of your runs without published scores."""
        games = {game for agent in self.own for game in self.games_of(agent)}
        return tuple(sorted(game for game in games if game not in GAMES or GAMES[game].human is None))

    def matrix(self, agent: str, games: Sequence[str], score: Callable[[RunCurve], float]) -> Array:
        """[runs, games] of raw scores; NaN where a game has fewer runs or a run has no score."""
        columns = [[value for run in self.runs_of(agent, game) if (value := score(run)) == value] for game in games]
        rows = max((len(column) for column in columns), default=0)
        return np.array([column + [np.nan] * (rows - len(column)) for column in columns]).reshape(len(columns), rows).T

    def scores(self, agent: str, games: Sequence[str], frames: float, convention: Convention, references: str) -> Array:
        """[runs, games] human-normalized."""
        raw = self.matrix(agent, games, lambda run: convention.score(run, frames))
        return normalize(raw, tuple(games), references)

    def smoothed(self, agent: str, games: Sequence[str], ends: Array, window: float) -> Array:
        """[ends, runs, games] of raw moving averages; NaN where a run has no score."""
        columns = [[run.smoothed(ends, window) for run in self.runs_of(agent, game)] for game in games]
        rows = max(map(len, columns), default=0)
        blank = np.full(len(ends), np.nan)
        return np.array([column + [blank] * (rows - len(column)) for column in columns]).transpose(2, 1, 0)

    def covered(self, agent: str, games: Iterable[str], frames: float, convention: Convention) -> tuple[str, ...]:
        """The games on which an agent has a score at that point."""
        return tuple(
            game
            for game in games
            if any((score := convention.score(run, frames)) == score for run in self.runs_of(agent, game))
        )
