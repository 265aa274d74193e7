"""Are the predicted laws right? Predictions at visited states against the returns that came.

PIT: F(y), uniform on [0, 1] if y follows the predicted law. Coverage: how often y lies in central intervals. CRPS:
∫ (F(w) − 1{w ≥ y})² dw, the squared Cramér distance to what came, smaller is better; beside it that of the
climatology, one law for all states made of all realized returns. Steps of a game depend on each other, so intervals
come from drawing whole games anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from c2d.evaluation.prediction_log import Sample
from c2d.evaluation.statistics import percentile_interval
from c2d.returns.losses import cramer
from c2d.types import ReturnDist

BINS = 10
LEVELS = (0.5, 0.8, 0.95)
CURVE = tuple(round(0.05 * k, 2) for k in range(1, 20))
EQUAL = 0.01  # returns nearer than this share of the standard deviation of realized returns count as equal
SPREAD = 0.02  # a PIT between atoms is spread by half the mass beside it, at most this

_CHUNK = 100  # resamples at once: bounds memory


@dataclass(frozen=True)
class Estimate:
    """A number and its 95 % bootstrap interval over games; none from one game."""

    value: float
    interval: tuple[float, float] | None


@dataclass(frozen=True)
class Calibration:
    games: int
    steps: int  # that count, after thinning
    stride: int
    dropped: int  # too near to the earliest cut, before thinning
    cut_after: int | None
    horizon: int
    equal: float  # returns nearer than this count as equal
    predicted: Estimate  # mean of the laws' means
    realized: Estimate
    bias: Estimate  # predicted less realized
    crps: Estimate
    climatology: Estimate  # its CRPS
    skill: Estimate | None  # 1 − CRPS / CRPS of climatology; None if all returns are equal
    coverage: dict[str, Estimate]  # by level, of LEVELS
    curve: dict[str, Estimate]  # the same at the levels of CURVE
    histogram: list[Estimate]  # share of PIT values in each of BINS equal bins
    groups: list[tuple[float, float, float, float]]  # mean prediction, then realized: mean, 10 % and 90 % quantile


def pit(
    returns: np.ndarray, probs: np.ndarray, realized: np.ndarray, rng: np.random.Generator, equal: float = 0.0
) -> np.ndarray:
    """Randomized probability integral transform. [n, N], [n, N], [n] -> [n] in [0, 1]

    If atoms lie within `equal` of y, the value is drawn from the mass they cover (Czado et al. 2009), so that a
    law with its atoms in the right places is uniform. Otherwise y is between atoms, which stand for the returns
    around them: F(y) is spread over half of the mass on either side, but by no more than SPREAD, so that laws of
    many small atoms leave no stripes and a point is not taken for a wide law.
    """
    order = returns.argsort(-1, kind="stable")
    z, p = np.take_along_axis(returns, order, -1), np.take_along_axis(probs, order, -1)
    p = p / p.sum(-1, keepdims=True)
    y = realized[:, None]
    first, last = (z < y - equal).sum(-1), (z <= y + equal).sum(-1)  # atoms below, and not above
    masses = np.concatenate((np.zeros((len(z), 1)), p.cumsum(-1)), -1)  # [n, N + 1]
    low, high = (np.take_along_axis(masses, count[:, None], -1)[:, 0] for count in (first, last))
    padded = np.pad(p, ((0, 0), (1, 1)))  # [n, N + 2]
    beside = [np.take_along_axis(padded, at[:, None], -1)[:, 0] for at in (first, first + 1)]
    between = first == last
    low = low - np.where(between, np.minimum(beside[0] / 2, SPREAD), 0.0)
    high = high + np.where(between, np.minimum(beside[1] / 2, SPREAD), 0.0)
    return np.asarray(np.clip(low + (high - low) * rng.random(len(z)), 0.0, 1.0))


def crps(returns: np.ndarray, probs: np.ndarray, realized: np.ndarray) -> np.ndarray:
    """[n, N], [n, N], [n] -> [n]"""
    p = torch.from_numpy(probs / probs.sum(-1, keepdims=True))
    point = torch.from_numpy(realized)[:, None]
    law, came = ReturnDist(torch.from_numpy(returns), p.log()), ReturnDist(point, torch.zeros_like(point))
    return np.asarray(cramer(law, came))


def covered(values: np.ndarray, level: float) -> np.ndarray:
    """Whether each PIT lies in the central interval of this probability. [n] -> [n] bool"""
    return np.asarray(np.abs(values - 0.5) <= level / 2)


def climatology(realized: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Mean CRPS of the law that gives each return its weight, on these same returns. [n], [R, n] -> [R]

    ∫ F (1 − F) dw, which is half the mean distance of two returns.
    """
    order = realized.argsort(kind="stable")
    below = weights[:, order].cumsum(-1)
    below /= below[:, -1:]
    return np.asarray((below * (1 - below))[:, :-1] @ np.diff(realized[order]))


def calibrate(sample: Sample, seed: int = 0, resamples: int = 2_000) -> Calibration:
    """All of it. Needs at least one step."""
    games, place = np.unique(sample.game, return_inverse=True)
    equal = EQUAL * float(sample.realized.std())
    values = pit(sample.returns, sample.probs, sample.realized, np.random.default_rng(seed), equal)
    means = (sample.probs * sample.returns).sum(-1) / sample.probs.sum(-1)
    bins = np.minimum((values * BINS).astype(int), BINS - 1)
    columns = {
        "predicted": means,
        "realized": sample.realized,
        "crps": crps(sample.returns, sample.probs, sample.realized),
        **{f"coverage {level}": covered(values, level) for level in (*LEVELS, *CURVE)},
        **{f"bin {k}": bins == k for k in range(BINS)},
    }
    sums = np.stack([np.bincount(place, column.astype(float), len(games)) for column in columns.values()])  # [Q, G]
    counts = np.bincount(place, minlength=len(games))
    parts = []
    for weights in _weights(len(games), resamples, seed):  # [R, G]
        climate = climatology(sample.realized, weights[:, place])
        parts.append(np.concatenate(((weights @ sums.T) / (weights @ counts)[:, None], climate[:, None]), 1))
    found = dict(zip((*columns, "climatology"), np.concatenate(parts).T, strict=True))  # each [1 + resamples]
    climate = found["climatology"]
    skill = 1 - np.divide(found["crps"], climate, out=np.full_like(climate, np.nan), where=climate > 0)
    several = len(games) > 1

    def estimate(draws: np.ndarray) -> Estimate:
        return _estimate(draws, several)

    return Calibration(
        games=len(games),
        steps=len(values),
        stride=sample.stride,
        dropped=sample.dropped,
        cut_after=sample.cut_after,
        horizon=sample.horizon,
        equal=equal,
        predicted=estimate(found["predicted"]),
        realized=estimate(found["realized"]),
        bias=estimate(found["predicted"] - found["realized"]),
        crps=estimate(found["crps"]),
        climatology=estimate(climate),
        skill=estimate(skill) if climate[0] > 0 else None,
        coverage={f"{level:g}": estimate(found[f"coverage {level}"]) for level in LEVELS},
        curve={f"{level:g}": estimate(found[f"coverage {level}"]) for level in CURVE},
        histogram=[estimate(found[f"bin {k}"]) for k in range(BINS)],
        groups=_groups(means, sample.realized),
    )


def _weights(games: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """How often each game counts: once as it was, then in games drawn anew. [R, G] at a time"""
    yield np.ones((1, games))
    rng = np.random.default_rng([seed, 1])
    for done in range(0, resamples if games > 1 else 0, _CHUNK):
        yield rng.multinomial(games, np.full(games, 1 / games), size=min(_CHUNK, resamples - done)).astype(float)


def _estimate(draws: np.ndarray, several: bool) -> Estimate:
    """The first is of the games as they were."""
    value = float(draws[0])
    if not several or not np.isfinite(draws).all():
        return Estimate(value, None)
    low, high = percentile_interval(draws[1:])
    return Estimate(value, (float(low), float(high)))


def _groups(means: np.ndarray, realized: np.ndarray, count: int = 8) -> list[tuple[float, float, float, float]]:
    """Steps by their predicted mean, in groups of equal size."""
    found = []
    for part in np.array_split(means.argsort(kind="stable"), min(count, len(means))):
        low, high = np.quantile(realized[part], [0.1, 0.9])
        found.append((float(means[part].mean()), float(realized[part].mean()), float(low), float(high)))
    return found
