"""Statistics of scores against SciPy."""

import numpy as np
import pytest
from scipy import stats

from c2d.evaluation.statistics import bootstrap_interval, summarize

SCORES = np.random.default_rng(5).gamma(2.0, 30.0, size=40)


def test_summary_against_scipy():
    summary, theirs = summarize(list(SCORES)), stats.describe(SCORES)
    assert summary.games == theirs.nobs
    assert summary.mean == pytest.approx(theirs.mean, rel=1e-12)
    assert summary.std == pytest.approx(np.sqrt(theirs.variance), rel=1e-12)
    assert (summary.min, summary.max) == theirs.minmax
    assert summary.median == pytest.approx(stats.scoreatpercentile(SCORES, 50), rel=1e-12)
    low, high = summary.interval
    assert low < summary.mean < high and high - low == pytest.approx(2 * 1.96 * theirs.variance**0.5 / 40**0.5, rel=0.1)


@pytest.mark.parametrize("level", [0.95, 0.8])
def test_interval_against_scipy(level):
    theirs = stats.bootstrap(
        (SCORES,),
        np.mean,
        confidence_level=level,
        n_resamples=20_000,
        method="percentile",
        rng=np.random.default_rng(1),
    ).confidence_interval
    low, high = bootstrap_interval(SCORES, level)
    width = theirs.high - theirs.low
    assert abs(low - theirs.low) < 0.04 * width and abs(high - theirs.high) < 0.04 * width


def test_interval_is_the_same_each_time_and_spans_all_resamples():
    assert bootstrap_interval(SCORES) == bootstrap_interval(SCORES)
    assert bootstrap_interval(SCORES, resamples=1_500) != bootstrap_interval(SCORES, resamples=1_000)
    assert bootstrap_interval([4.0, 4.0, 4.0]) == (4.0, 4.0)


def test_one_game_has_no_spread():
    summary = summarize([7.0])
    assert (summary.mean, summary.median, summary.std, summary.interval) == (7.0, 7.0, None, None)
