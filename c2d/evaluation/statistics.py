"""Statistics of scores, and the percentile bootstrap of the whole package."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

_CHUNK = 1_000  # resamples per block: bounds memory


@dataclass(frozen=True)
class Summary:
    """Statistics of scores. With one score there is no spread and no interval."""

    games: int
    mean: float
    median: float
    min: float
    max: float
    std: float | None  # with n - 1
    interval: tuple[float, float] | None  # 95 % bootstrap interval of the mean


def summarize(scores: Sequence[float]) -> Summary:
    """The statistics of at least one score."""
    values = np.asarray(scores, dtype=np.float64)
    several = len(values) > 1
    return Summary(
        games=len(values),
        mean=float(values.mean()),
        median=float(np.median(values)),
        min=float(values.min()),
        max=float(values.max()),
        std=float(values.std(ddof=1)) if several else None,
        interval=bootstrap_interval(values) if several else None,
    )


def bootstrap_interval(
    scores: Sequence[float] | np.ndarray, level: float = 0.95, resamples: int = 10_000, seed: int = 0
) -> tuple[float, float]:
    """Percentile bootstrap interval of the mean: the middle `level` of the means of resampled scores."""
    values = np.asarray(scores, dtype=np.float64)
    means = np.concatenate([values[picks].mean(1) for picks in resampled_indices(len(values), resamples, seed)])
    low, high = percentile_interval(means, (1 - level) / 2)
    return float(low), float(high)


def resampled_indices(count: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """Indices of `count` values drawn with replacement, in blocks [<=1000, count]."""
    rng = np.random.default_rng(seed)
    for done in range(0, resamples, _CHUNK):
        yield rng.integers(count, size=(min(_CHUNK, resamples - done), count))


def percentile_interval(draws: np.ndarray, tail: float = 0.025) -> np.ndarray:
    """The central interval of bootstrap draws, without a fraction `tail` at each end: [draws, ...] -> [2, ...]"""
    return np.asarray(np.quantile(draws, [tail, 1 - tail], axis=0))
