"""Intervals by the stratified bootstrap: runs are drawn anew within each game, games stay (Agarwal et al. 2021).

One draw serves every aggregate. Draws come in blocks of fixed size from one seeded generator, so that the same
seed gives the same interval everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from c2d.reporting.aggregate import Aggregate, Matrix

LEVEL = 0.95
REPLICATIONS = 10_000
_BLOCK = 512  # replications at once: bounds memory, and keeps a block of 5 x 55 scores in the cache


def resamples(scores: Matrix, replications: int, rng: np.random.Generator) -> Iterator[Matrix]:
    """Blocks [<=512, runs, games] of matrices whose columns are drawn anew from the runs of their game."""
    runs, games = scores.shape
    present = ~np.isnan(scores)
    counts = present.sum(0)  # [games]
    packed = np.take_along_axis(scores, np.argsort(~present, axis=0, kind="stable"), 0).ravel()  # runs first, NaN after
    even = bool((counts == runs).all())
    column = np.arange(games, dtype=np.intp)
    for done in range(0, replications, _BLOCK):
        size = (min(_BLOCK, replications - done), runs, games)
        if even:
            row = rng.integers(runs, size=size, dtype=np.uint8 if runs < 256 else np.intp)
            yield packed[row * np.intp(games) + column]
        else:
            row = np.floor(rng.random(size) * counts).astype(np.intp)
            drawn = packed[row * games + column]
            drawn[:, np.arange(runs)[:, None] >= counts] = np.nan  # a game keeps its number of runs
            yield drawn


def replicate(
    scores: Matrix, functions: Mapping[str, Callable[[Matrix], Matrix]], replications: int = REPLICATIONS, seed: int = 0
) -> dict[str, NDArray[np.float64]]:
    """Every function of every resample: name -> [replications, ...]."""
    rng = np.random.default_rng(seed)
    parts: dict[str, list[Matrix]] = {name: [] for name in functions}
    for block in resamples(scores, replications, rng):
        for name, function in functions.items():
            parts[name].append(function(block))
    return {name: np.concatenate(part) for name, part in parts.items()}


def intervals(
    scores: Matrix, functions: Mapping[str, Aggregate], replications: int = REPLICATIONS, seed: int = 0
) -> dict[str, tuple[float, float] | None]:
    """The 95 % percentile interval of each aggregate; None where one run of each game tells nothing of spread."""
    if not resolvable(scores):
        return dict.fromkeys(functions)
    drawn = replicate(scores, functions, replications, seed)
    return {name: (float(low), float(high)) for name, (low, high) in ((n, interval(v)) for n, v in drawn.items())}


def interval(draws: Matrix) -> Matrix:
    """[replications, ...] -> [2, ...]: the middle 95 %."""
    return np.asarray(np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0))


def resolvable(scores: Matrix) -> bool:
    """Whether every game has two runs or more: without, the bootstrap would claim certainty it has not."""
    return scores.size > 0 and bool(((~np.isnan(scores)).sum(0) > 1).all())


def paired_interval(
    ours: Matrix,
    theirs: Matrix,
    function: Callable[[Matrix, Matrix], Matrix],
    replications: int = REPLICATIONS,
    seed: int = 0,
) -> tuple[float, float] | None:
    """The interval of a function of two agents, each drawn anew by itself; None if one has no spread."""
    if not (resolvable(ours) and resolvable(theirs)):
        return None
    one, two = (np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(2))
    pairs = zip(resamples(ours, replications, one), resamples(theirs, replications, two), strict=True)
    low, high = interval(np.concatenate([function(a, b) for a, b in pairs]))
    return float(low), float(high)
