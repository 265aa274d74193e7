"""Oddness by the published seeds themselves, and the exact test, against slow and other ways."""

import math

import numpy as np
import pytest
from scipy.stats import permutation_test

from c2d.reporting.likeness import gap, permutation_p, share_as_far
from c2d.reporting.published import QUANTITIES, early_iterations


@pytest.mark.parametrize(
    ("value", "others", "wanted"),
    [
        (2.0, (1.0, 3.0), 0.0),
        (3.0, (1.0, 3.0), 0.0),
        (4.5, (3.0, 1.0), 0.5),
        (-9.0, (-20.0, -10.0), 0.1),
        (-25.0, (-20.0, -10.0), 0.25),
        (1.0, (-1.0, 0.0), math.inf),
        (math.nan, (1.0, 2.0), math.inf),
    ],
)
def test_gap(value, others, wanted):
    assert gap(value, others) == pytest.approx(wanted)


def test_a_value_like_all_seeds_is_not_odd_and_one_far_from_all_is():
    for quantity in QUANTITIES:
        seeds = early_iterations()["kungfumaster"][0][quantity]
        assert share_as_far(quantity, 0, sorted(seeds)[1], seeds) == 1.0
        assert share_as_far(quantity, 0, 1e9, seeds) == 0.0


def test_share_as_far_by_hand():
    """Seeds 10, 20, 40 and a value of 50: 150 % above 10 and 20, 25 % above the two pairs with 40."""
    beyond = []
    for game in early_iterations().values():
        low, middle, high = sorted(game[3]["gradient_norm_max"])
        beyond += [(middle - low) / middle, 0.0, (high - middle) / middle]  # all are positive
    assert len(beyond) == 24
    shares = [sum(one >= limit for one in beyond) / 24 for limit in (1.5, 0.25, 0.25)]
    assert 0 < shares[0] < shares[1] < 1
    assert share_as_far("gradient_norm_max", 3, 50.0, (10.0, 20.0, 40.0)) == pytest.approx(sum(shares) / 3)


@pytest.mark.parametrize("sizes", [(3, 3), (2, 3), (5, 3)])
@pytest.mark.parametrize("ties", [False, True])
def test_permutation_test_is_scipys(sizes, ties):
    rng = np.random.default_rng(sum(sizes))
    for shift in (0.0, 1.0, 5.0):
        first, second = rng.normal(shift, 1, sizes[0]), rng.normal(0, 1, sizes[1])
        if ties:
            first, second = np.round(first), np.round(second)
        # the size of the difference, "greater": scipy's own "two-sided" doubles the smaller tail
        wanted = permutation_test((first, second), _differ, n_resamples=np.inf, alternative="greater", vectorized=False)
        assert permutation_p(first.tolist(), second.tolist()) == pytest.approx(wanted.pvalue)


def _differ(first, second):
    return abs(first.mean() - second.mean())


def test_figures_that_are_no_numbers_have_no_p():
    assert math.isnan(permutation_p([1.0, math.nan], [1.0, 2.0, 3.0]))
