"""Aggregates of a matrix of normalized scores, one row per run and one column per game.

The definitions are those of Agarwal et al. 2021 (*Deep Reinforcement Learning at the Edge of the Statistical
Precipice*). A cell without a run is NaN. Every game weighs the same, however many runs it has; with equally many
everywhere that is the plain average. All functions are pure; leading axes are replications.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]  # [..., runs, games]
Aggregate = Callable[[Matrix], Matrix]  # [..., runs, games] -> [...]
TRIM = 0.25  # share cut from either end for the interquartile mean


def mean(scores: Matrix) -> Matrix:
    """Mean over games of the mean over runs."""
    return np.asarray(game_means(scores).mean(-1))


def median(scores: Matrix) -> Matrix:
    """Median over games of the mean over runs."""
    return np.asarray(np.median(game_means(scores), axis=-1))


def iqm(scores: Matrix) -> Matrix:
    """Mean of the middle half of all runs of all games.

    Of n scores floor(n / 4) are cut from either end. If games have unlike numbers of runs, that share of the
    weight is cut, where each game weighs the same.
    """
    flat = scores.reshape(*scores.shape[:-2], -1)  # [..., runs * games]
    if np.isnan(flat).any():
        return _weighted_iqm(scores)
    cut = int(TRIM * flat.shape[-1])
    return np.asarray(np.sort(flat, axis=-1)[..., cut : flat.shape[-1] - cut].mean(-1))


def optimality_gap(scores: Matrix, goal: float = 1.0) -> Matrix:
    """How far scores stay below `goal` on average, scores above it counted as `goal`. Less is better."""
    return goal - mean(np.minimum(scores, goal))


AGGREGATES: dict[str, Aggregate] = {"median": median, "iqm": iqm, "mean": mean, "optimality_gap": optimality_gap}
TITLES = {"median": "Median", "iqm": "IQM", "mean": "Mean", "optimality_gap": "Optimality gap"}


def game_means(scores: Matrix) -> Matrix:
    """[..., runs, games] -> [..., games]; cells without a run do not count."""
    present = ~np.isnan(scores)
    if present.all():
        return np.asarray(scores.mean(-2))
    count = present.sum(-2)
    if (count == 0).any():
        raise ValueError("a game without any run has no mean: leave it out")
    return np.asarray(np.where(present, scores, 0.0).sum(-2) / count)


def profile(scores: Matrix, thresholds: NDArray[np.float64]) -> Matrix:
    """Fraction of runs that score above each threshold τ: [..., runs, games] -> [..., thresholds]."""
    above = [game_means(np.where(np.isnan(scores), np.nan, scores > tau)).mean(-1) for tau in thresholds]
    return np.stack(above, axis=-1)


def probability_of_improvement(ours: Matrix, theirs: Matrix) -> Matrix:
    """Chance that a run of ours beats one of theirs on a game drawn at random; a tie counts half.

    The mean over games of the Mann-Whitney statistic. [..., runs, games], [..., others, games] -> [...]
    """
    return np.asarray(game_wins(ours, theirs).mean(-1))


def game_wins(ours: Matrix, theirs: Matrix) -> Matrix:
    """The chance of a win, game by game: -> [..., games]."""
    a, b = ours[..., :, None, :], theirs[..., None, :, :]  # [..., runs, others, games]
    pairs = np.where(np.isnan(a) | np.isnan(b), np.nan, (a > b) + 0.5 * (a == b))
    return game_means(pairs.reshape(*pairs.shape[:-3], -1, pairs.shape[-1]))


def _weighted_iqm(scores: Matrix) -> Matrix:
    """`iqm` when some cells are empty: weights are one per game, shared by its runs."""
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
