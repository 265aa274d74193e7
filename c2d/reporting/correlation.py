"""Rank correlation with an interval over games."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from c2d.reporting.bootstrap import interval

Array = NDArray[np.float64]


def ranks(values: Array) -> Array:
    """Ranks from 1; equals share the mean of theirs. [..., n] -> [..., n]"""
    below = (values[..., None, :] < values[..., :, None]).sum(-1)
    equal = (values[..., None, :] == values[..., :, None]).sum(-1)
    return np.asarray(below + (equal + 1) / 2)


def spearman(one: Array, other: Array) -> Array:
    """Pearson's correlation of ranks: [..., n], [..., n] -> [...]. 0 if either does not vary."""
    a, b = (ranked - ranked.mean(-1, keepdims=True) for ranked in (ranks(one), ranks(other)))
    scale = np.sqrt((a * a).sum(-1) * (b * b).sum(-1))
    return np.asarray(np.divide((a * b).sum(-1), scale, out=np.zeros_like(scale), where=scale > 0))


def spearman_interval(one: Array, other: Array, replications: int = 4_000, seed: int = 0) -> tuple[float, float]:
    """95 % percentile interval, games drawn anew."""
    drawn = np.random.default_rng(seed).integers(len(one), size=(replications, len(one)))
    low, high = interval(np.concatenate([spearman(one[part], other[part]) for part in np.array_split(drawn, 8)]))
    return float(low), float(high)
