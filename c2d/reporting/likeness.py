"""How unlike the published seeds figures are, measured by how unlike each other these are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from statistics import fmean

from c2d.reporting.published import early_iterations


def gap(value: float, others: Sequence[float]) -> float:
    """From the range of the others to the value, as a share of the nearest of them; 0 inside."""
    low, high = min(others), max(others)
    if math.isnan(value):
        return math.inf
    if low <= value <= high:
        return 0.0
    nearest = low if value < low else high
    return abs(value - nearest) / abs(nearest) if nearest else math.inf


def share_as_far(quantity: str, iteration: int, value: float, seeds: Sequence[float]) -> float:
    """Share of the published seeds, on all games, that lie at least as far from their two fellows as the value does
    from two of its `seeds`: the mean over the pairs of these.
    """
    cells = [game[iteration][quantity] for game in early_iterations().values()]
    gaps = [gap(cell[k], (*cell[:k], *cell[k + 1 :])) for cell in cells for k in range(len(cell))]
    return fmean(sum(one >= gap(value, pair) for one in gaps) / len(gaps) for pair in combinations(seeds, 2))


def permutation_p(first: Sequence[float], second: Sequence[float]) -> float:
    """Exact two-sided test: share of all ways to split the figures whose means differ as much as those found."""
    both = (*first, *second)
    if not all(map(math.isfinite, both)):
        return math.nan
    count, total, every = len(first), math.fsum(both), range(len(both))
    even = total * count / len(both)  # sum of a part whose mean is that of all
    found = abs(math.fsum(first) - even)
    splits = [abs(math.fsum(both[k] for k in places) - even) for places in combinations(every, count)]
    slack = 1e-9 * max(map(abs, both))  # equal splits, summed in another order
    return sum(split >= found - slack for split in splits) / len(splits)
