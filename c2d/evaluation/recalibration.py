"""Laws corrected by what came of them: three numbers, fitted to games whose returns are known.

A law of mean m becomes one of mean `offset + slope·m`, with its atoms' distances to the mean multiplied by `spread`:

    z ↦ offset + slope·m + spread·(z − m)        in real returns

Offset and slope are those of the line from predicted means to realized returns, spread minimizes the CRPS that is left.
The same line with a slope above 0 maps the means of all actions, so that greedy play stays what it is. A correction
belongs to one network and to its own greedy play; it has to be judged on other games than those it was fitted to.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from c2d.errors import UserError
from c2d.evaluation.calibration import crps
from c2d.evaluation.prediction_log import Sample

LEAST_SLOPE = 0.01  # keeps the order of actions where predictions say nothing about returns
WIDEST = 100.0  # times narrower or wider
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0


@dataclass(frozen=True)
class Recalibration:
    """A correction of laws; by default none."""

    offset: float = 0.0
    slope: float = 1.0
    spread: float = 1.0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if type(value) not in (int, float) or not math.isfinite(value):
                raise UserError(f"recalibration has {name} {value}; accepted: a finite number")
        for name in ("slope", "spread"):
            if getattr(self, name) <= 0.0:
                raise UserError(f"recalibration has {name} {getattr(self, name)}; accepted: above 0")

    def laws(self, returns: np.ndarray, probs: np.ndarray) -> np.ndarray:
        """Corrected real returns of laws with these atoms and probabilities. [..., N], [..., N] -> [..., N]"""
        mean = (probs * returns).sum(-1, keepdims=True) / probs.sum(-1, keepdims=True)  # [..., 1]
        return np.asarray(self.offset + self.slope * mean + self.spread * (returns - mean))

    def sample(self, sample: Sample) -> Sample:
        """The same games with corrected predictions."""
        return sample._replace(returns=self.laws(sample.returns, sample.probs))

    def line(self) -> str:
        """For the terminal."""
        return f"mean ↦ {self.offset:.4g} + {self.slope:.4g}·mean, spread × {self.spread:.4g}"

    @classmethod
    def from_json(cls, value: Any, source: str) -> Recalibration:
        """Of a file that may be anybody's."""
        try:
            return cls(**{name: value[name] for name in ("offset", "slope", "spread")})
        except (TypeError, KeyError):
            raise UserError(f"{source} is not a recalibration: it needs offset, slope and spread") from None


def fit(sample: Sample) -> Recalibration:
    """Of at least two games."""
    if len(np.unique(sample.game)) < 2:
        raise UserError("recalibration needs at least two games with steps that count")
    means = (sample.probs * sample.returns).sum(-1) / sample.probs.sum(-1)  # [n]
    spread_of_means = float(means.var())
    slope = 1.0
    if spread_of_means > 1e-12 * max(1.0, float(np.abs(means).max()) ** 2):
        slope = float(((means - means.mean()) * (sample.realized - sample.realized.mean())).mean()) / spread_of_means
        slope = max(slope, LEAST_SLOPE)
    offset = float(sample.realized.mean() - slope * means.mean())
    if float(np.abs(sample.returns - means[:, None]).max()) == 0.0:
        return Recalibration(offset, slope)  # points have no spread

    def score(log_spread: float) -> float:
        corrected = Recalibration(offset, slope, math.exp(log_spread)).laws(sample.returns, sample.probs)
        return float(crps(corrected, sample.probs, sample.realized).mean())

    return Recalibration(offset, slope, math.exp(_least(score, -math.log(WIDEST), math.log(WIDEST))))


def _least(function: Callable[[float], float], low: float, high: float, steps: int = 40) -> float:
    """Where a function with one minimum has it, by golden sections: the CRPS is convex in the spread."""
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = function(left), function(right)
    for _ in range(steps):
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - _GOLDEN * (high - low)
            at_left = function(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + _GOLDEN * (high - low)
            at_right = function(right)
    return (low + high) / 2.0
