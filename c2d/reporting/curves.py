"""One run of one agent on one game, as a curve of scores over frames, whether published or one's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
_CLOSE = 1e-6  # millions of frames: iterations end on whole frames
_ROUNDING = 1e-5  # published curves come with seven digits or more
_NONE = np.zeros(0)


class Key(NamedTuple):
    """What tells runs apart."""

    agent: str
    game: str  # a key of `c2d.envs.games`, or an environment's name as in a config
    seed: int


@dataclass(frozen=True)
class Run:
    """Mean score of the games that ended in each iteration; NaN where none did."""

    key: Key
    ends: Array = field(default_factory=lambda: _NONE)  # [iterations] millions of frames, increasing
    values: Array = field(default_factory=lambda: _NONE)  # [iterations]
    points: dict[tuple[float, float], float] = field(default_factory=dict)  # (window, end) -> score, where no curve is
    atom_ends: Array = field(default_factory=lambda: _NONE)  # [records] millions of frames; empty: no atoms recorded
    low: Array = field(default_factory=lambda: _NONE)  # [records] smallest predicted atom of the iteration, in φ-space
    high: Array = field(default_factory=lambda: _NONE)  # [records] largest
    source: str = ""
    finished: bool = True  # False: it goes on, or was stopped before its end

    @property
    def length(self) -> float:
        """Millions of frames up to which the curve goes; 0 without one."""
        return float(self.ends[-1]) if self.ends.size else 0.0

    @property
    def told(self) -> bool:
        """Whether any iteration has a score."""
        return not bool(np.isnan(self.values).all())

    def averages(self, ends: Array, window: float) -> Array:
        """Moving average over the `window` million frames before each end; NaN beyond the curve or without games."""
        if not self.ends.size:
            return np.full(len(ends), np.nan)
        return _windowed(self.ends, self.values, np.asarray(ends, dtype=np.float64), window)

    def course(self, ends: Array, window: float) -> Array:
        """As `averages`, with the table of points where the curve does not tell, or tells the same in fewer digits."""
        told = self.averages(ends, window)
        for place, end in enumerate(ends) if self.points else ():
            point = self.points.get((window, float(end)), np.nan)
            if np.isnan(told[place]) or abs(told[place] - point) <= _ROUNDING * max(abs(point), 1.0):
                told[place] = point
        return told

    def score(self, end: float, window: float) -> float:
        """The average that ends at `end` million frames, from the curve or, beyond it, from the table of points."""
        return float(self.course(np.array([end]), window)[0])

    def joined(self, other: Run) -> Run:
        """The same run known from two sources: each fills what this one lacks."""
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


def common_length(runs: Sequence[Run]) -> float:
    """Millions of frames at which to compare runs: what all finished ones have reached, or all, if none is finished.

    One that was stopped early does not hold the others back; nor does one without any score.
    """
    told = [run for run in runs if run.told] or list(runs)
    return min(run.length for run in [run for run in told if run.finished] or told)


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
