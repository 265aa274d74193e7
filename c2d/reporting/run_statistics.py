"""Statistics of a matrix of scores with one row per run and one column per game.

Aggregates with stratified-bootstrap intervals follow Agarwal et al. 2021 (*Deep Reinforcement Learning at the Edge of
the Statistical Precipice*). A cell without a run is NaN. Every game has the same weight, however many runs it has; with
equally many runs everywhere this is the plain average. All functions are pure; leading axes are replications.

Also here: rank correlation over games, and how many runs it takes to tell two agents apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from c2d.evaluation.statistics import percentile_interval

Matrix = NDArray[np.float64]  # [..., runs, games]
Aggregate = Callable[[Matrix], Matrix]  # [..., runs, games] -> [...]
TRIM = 0.25  # fraction cut from each end for the interquartile mean


def mean(scores: Matrix) -> Matrix:
    """Mean over games of the mean over runs."""
    return np.asarray(game_means(scores).mean(-1))


def median(scores: Matrix) -> Matrix:
    """Median over games of the mean over runs."""
    return np.asarray(np.median(game_means(scores), axis=-1))


def iqm(scores: Matrix) -> Matrix:
    """Interquartile mean: the mean of the middle half of all runs of all games.

    Of n scores, floor(n / 4) are cut from each end. If games differ in their number of runs, that fraction of the
    weight is cut, and every game has the same weight.
    """
    flat = scores.reshape(*scores.shape[:-2], -1)  # [..., runs * games]
    if np.isnan(flat).any():
        return _weighted_iqm(scores)
    cut = int(TRIM * flat.shape[-1])
    return np.asarray(np.sort(flat, axis=-1)[..., cut : flat.shape[-1] - cut].mean(-1))


def optimality_gap(scores: Matrix, goal: float = 1.0) -> Matrix:
    """Mean shortfall below `goal`; scores above it count as `goal`. Lower is better."""
    return goal - mean(np.minimum(scores, goal))


AGGREGATES: dict[str, Aggregate] = {"median": median, "iqm": iqm, "mean": mean, "optimality_gap": optimality_gap}
TITLES = {"median": "Median", "iqm": "IQM", "mean": "Mean", "optimality_gap": "Optimality gap"}


def game_means(scores: Matrix) -> Matrix:
    """Mean over runs, ignoring empty cells: [..., runs, games] -> [..., games]."""
    present = ~np.isnan(scores)
    if present.all():
        return np.asarray(scores.mean(-2))
    count = present.sum(-2)
    if (count == 0).any():
        raise ValueError("a game has no run, so it has no mean; leave it out")
    return np.asarray(np.where(present, scores, 0.0).sum(-2) / count)


def profile(scores: Matrix, thresholds: NDArray[np.float64]) -> Matrix:
    """Fraction of runs that score above each threshold τ: [..., runs, games] -> [..., thresholds]."""
    above = [game_means(np.where(np.isnan(scores), np.nan, scores > tau)).mean(-1) for tau in thresholds]
    return np.stack(above, axis=-1)


def probability_of_improvement(ours: Matrix, theirs: Matrix) -> Matrix:
    """Probability that a run of ours beats a run of theirs on a game drawn at random; a tie counts as half.

    The mean over games of the Mann-Whitney statistic. [..., runs, games], [..., others, games] -> [...]
    """
    return np.asarray(game_wins(ours, theirs).mean(-1))


def game_wins(ours: Matrix, theirs: Matrix) -> Matrix:
    """Probability of improvement on each game: -> [..., games]."""
    a, b = ours[..., :, None, :], theirs[..., None, :, :]  # [..., runs, others, games]
    pairs = np.where(np.isnan(a) | np.isnan(b), np.nan, (a > b) + 0.5 * (a == b))
    return game_means(pairs.reshape(*pairs.shape[:-3], -1, pairs.shape[-1]))


def _weighted_iqm(scores: Matrix) -> Matrix:
    """`iqm` with empty cells: each game has weight one, shared by its runs."""
    present = ~np.isnan(scores)
    weights = present / np.maximum(present.sum(-2, keepdims=True), 1)  # [..., runs, games]
    shape = (*scores.shape[:-2], -1)
    flat, weight = scores.reshape(shape), weights.reshape(shape)
    order = np.argsort(flat, axis=-1)  # NaN last, with weight 0
    ordered = np.nan_to_num(np.take_along_axis(flat, order, -1))
    upto = np.take_along_axis(weight, order, -1).cumsum(-1)
    upto /= upto[..., -1:]
    count = present.reshape(shape).sum(-1)[..., None]
    share = np.floor(TRIM * count) / count
    before = np.concatenate([np.zeros_like(upto[..., :1]), upto[..., :-1]], axis=-1)
    kept = np.clip(np.minimum(upto, 1 - share) - np.maximum(before, share), 0, None)
    return np.asarray((ordered * kept).sum(-1) / kept.sum(-1))


# ------------------------------------------------------------------------------------------- stratified bootstrap
#
# Runs are resampled within each game; games are fixed. One draw serves every aggregate. Draws come in blocks of fixed
# size from one seeded generator, so the same seed gives the same interval everywhere.


LEVEL = 0.95
REPLICATIONS = 10_000
_BLOCK = 512  # replications per block: bounds memory, and a block of 5 x 55 scores fits the cache


def resamples(scores: Matrix, replications: int, rng: np.random.Generator) -> Iterator[Matrix]:
    """Blocks [<=512, runs, games] of matrices whose columns are resampled from the runs of their game."""
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
            drawn[:, np.arange(runs)[:, None] >= counts] = np.nan  # each game keeps its number of runs
            yield drawn


def replicate(
    scores: Matrix, functions: Mapping[str, Callable[[Matrix], Matrix]], replications: int = REPLICATIONS, seed: int = 0
) -> dict[str, NDArray[np.float64]]:
    """Apply every function to every resample: name -> [replications, ...]."""
    rng = np.random.default_rng(seed)
    parts: dict[str, list[Matrix]] = {name: [] for name in functions}
    for block in resamples(scores, replications, rng):
        for name, function in functions.items():
            parts[name].append(function(block))
    return {name: np.concatenate(part) for name, part in parts.items()}


def intervals(
    scores: Matrix, functions: Mapping[str, Aggregate], replications: int = REPLICATIONS, seed: int = 0
) -> dict[str, tuple[float, float] | None]:
    """The 95 % percentile interval of each aggregate; None unless every game has at least two runs."""
    if not resolvable(scores):
        return dict.fromkeys(functions)
    drawn = replicate(scores, functions, replications, seed)
    return {name: (float(low), float(high)) for name, (low, high) in ((n, interval(v)) for n, v in drawn.items())}


def interval(draws: Matrix) -> Matrix:
    """The middle 95 % of the draws: [replications, ...] -> [2, ...]."""
    return percentile_interval(draws, (1 - LEVEL) / 2)


def resolvable(scores: Matrix) -> bool:
    """Whether every game has at least two runs. With fewer, the bootstrap would understate the uncertainty."""
    return scores.size > 0 and bool(((~np.isnan(scores)).sum(0) > 1).all())


def paired_interval(
    ours: Matrix,
    theirs: Matrix,
    function: Callable[[Matrix, Matrix], Matrix],
    replications: int = REPLICATIONS,
    seed: int = 0,
) -> tuple[float, float] | None:
    """The interval of a function of two agents, resampled independently; None if a game has one run only."""
    if not (resolvable(ours) and resolvable(theirs)):
        return None
    one, two = (np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(2))
    pairs = zip(resamples(ours, replications, one), resamples(theirs, replications, two), strict=True)
    low, high = interval(np.concatenate([function(a, b) for a, b in pairs]))
    return float(low), float(high)


# ----------------------------------------------------------------------------------------------- rank correlation


def ranks(values: Matrix) -> Matrix:
    """Ranks from 1; ties share the mean of their ranks. [..., n] -> [..., n]"""
    below = (values[..., None, :] < values[..., :, None]).sum(-1)
    equal = (values[..., None, :] == values[..., :, None]).sum(-1)
    return np.asarray(below + (equal + 1) / 2)


def spearman(one: Matrix, other: Matrix) -> Matrix:
    """Pearson correlation of the ranks: [..., n], [..., n] -> [...]. 0 if either is constant."""
    a, b = (ranked - ranked.mean(-1, keepdims=True) for ranked in (ranks(one), ranks(other)))
    scale = np.sqrt((a * a).sum(-1) * (b * b).sum(-1))
    return np.asarray(np.divide((a * b).sum(-1), scale, out=np.zeros_like(scale), where=scale > 0))


def spearman_interval(one: Matrix, other: Matrix, replications: int = 4_000, seed: int = 0) -> tuple[float, float]:
    """95 % percentile interval of the bootstrap over games."""
    drawn = np.random.default_rng(seed).integers(len(one), size=(replications, len(one)))
    low, high = interval(np.concatenate([spearman(one[part], other[part]) for part in np.array_split(drawn, 8)]))
    return float(low), float(high)


# ------------------------------------------------------------------------------------------------ how many runs


_Z_LEVEL, _Z_POWER = 1.959964, 0.841621  # normal quantiles: two-sided 5 %, power 80 %


def beyond_chance(probability: float, ours: int, theirs: int, games: int) -> bool:
    """The Mann-Whitney test over all games together, two-sided at the 5 % level.

    The bootstrap alone is overconfident with very few runs: if two runs beat three, its interval is always (1, 1).
    """
    variance = (ours + theirs + 1) / (12 * ours * theirs * games)
    return abs(probability - 0.5) > _Z_LEVEL * math.sqrt(variance)


def seeds_needed(probability: float, theirs: int, games: int) -> int | None:
    """Our runs per game that distinguish a probability of improvement from one half, with 80 % power at the 5 % level.

    Noether's (1987) approximation: over G games the mean Mann-Whitney statistic of n against m runs has variance
    (n + m + 1) / (12 n m G) if neither agent is better. The other agent's m runs are fixed. None: m is so small that
    no number of our runs is enough.
    """
    effect = abs(probability - 0.5)
    room = 12 * games * effect**2 / (_Z_LEVEL + _Z_POWER) ** 2  # (n + m + 1) / (n m) must not exceed this
    if room * theirs <= 1:
        return None
    return max(math.ceil((theirs + 1) / (room * theirs - 1) - 1e-9), 2)


def seeds_of_both(probability: float, games: int) -> int | None:
    """Like `seeds_needed`, with as many runs of the other agent as of ours."""
    effect = abs(probability - 0.5)
    if effect == 0:
        return None
    room = 12 * games * effect**2 / (_Z_LEVEL + _Z_POWER) ** 2  # (2 n + 1) / n² must not exceed this
    return max(math.ceil((1 + math.sqrt(1 + room)) / room - 1e-9), 2)


def games_needed(probability: float, ours: int, theirs: int) -> int | None:
    """Number of games that would settle it with the present runs per game; None if there is no effect."""
    effect = abs(probability - 0.5)
    if effect == 0:
        return None
    return math.ceil((_Z_LEVEL + _Z_POWER) ** 2 * (ours + theirs + 1) / (12 * ours * theirs * effect**2) - 1e-9)
