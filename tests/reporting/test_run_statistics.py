"""Aggregates and their intervals against rliable itself, scipy and slow loops."""

import numpy as np
import pytest
from scipy import stats

from c2d.reporting import run_statistics
from c2d.reporting.run_statistics import interval, intervals, paired_interval, replicate, resamples, resolvable

SHAPES = [(3, 55), (5, 55), (5, 7), (2, 1), (1, 5)]


def scores(runs, games, seed=0):
    return np.random.default_rng(seed).lognormal(0.2, 1.2, size=(runs, games)) - 0.3


@pytest.fixture(scope="module")
def rliable():
    from rliable import library, metrics

    return library, metrics


@pytest.mark.parametrize("shape", SHAPES)
def test_aggregates_are_those_of_rliable(rliable, shape):
    _, theirs = rliable
    matrix = scores(*shape)
    for name, function in run_statistics.AGGREGATES.items():
        assert function(matrix) == pytest.approx(getattr(theirs, f"aggregate_{name}")(matrix), abs=1e-12), name


def test_profile_is_that_of_rliable(rliable):
    library, _ = rliable
    matrix, taus = scores(5, 20), np.linspace(0, 8, 33)
    theirs, bands = library.create_performance_profile({"a": matrix}, taus, reps=400)
    np.testing.assert_allclose(run_statistics.profile(matrix, taus), theirs["a"], atol=1e-12)
    drawn = replicate(matrix, {"profile": lambda m: run_statistics.profile(m, taus)}, 4000)["profile"]
    np.testing.assert_allclose(interval(drawn), bands["a"], atol=0.03)


def test_probability_of_improvement_is_that_of_rliable(rliable):
    _, theirs = rliable
    ours, others = np.round(scores(3, 20), 1), np.round(scores(5, 20, seed=1), 1)  # rounded: some ties
    expected = theirs.probability_of_improvement(ours, others)
    assert run_statistics.probability_of_improvement(ours, others) == pytest.approx(expected, abs=1e-12)
    assert run_statistics.probability_of_improvement(others, ours) == pytest.approx(1 - expected, abs=1e-12)
    for game in range(20):
        u = stats.mannwhitneyu(ours[:, game], others[:, game]).statistic
        assert run_statistics.game_wins(ours, others)[game] == pytest.approx(u / 15)


def test_intervals_are_those_of_rliable(rliable):
    library, metrics = rliable
    matrix = scores(5, 20)
    names = list(run_statistics.AGGREGATES)
    _, theirs = library.get_interval_estimates(
        {"a": matrix},
        lambda m: np.array([getattr(metrics, f"aggregate_{name}")(m) for name in names]),
        reps=1000,
        random_state=np.random.RandomState(0),
    )
    ours = intervals(matrix, run_statistics.AGGREGATES, 20_000)
    for place, name in enumerate(names):
        low, high = theirs["a"][:, place]
        assert ours[name] == pytest.approx((low, high), abs=0.1 * (high - low)), name


def test_iqm_is_the_trimmed_mean():
    for size in (1, 3, 4, 7, 165, 275):
        values = scores(1, size)
        assert run_statistics.iqm(values) == pytest.approx(stats.trim_mean(values.ravel(), 0.25))


def test_empty_cells_do_not_count():
    matrix = scores(3, 5)
    matrix[2, 1] = matrix[1:, 3] = np.nan
    columns = [[value for value in column if value == value] for column in matrix.T]
    means = [sum(column) / len(column) for column in columns]
    assert run_statistics.mean(matrix) == pytest.approx(sum(means) / 5)
    assert run_statistics.median(matrix) == pytest.approx(sorted(means)[2])
    gaps = [sum(1 - min(value, 1) for value in column) / len(column) for column in columns]
    assert run_statistics.optimality_gap(matrix) == pytest.approx(sum(gaps) / 5)
    above = [sum(value > 0.7 for value in column) / len(column) for column in columns]
    assert run_statistics.profile(matrix, np.array([0.7]))[0] == pytest.approx(sum(above) / 5)


def test_iqm_weighs_games_equally():
    """Each game's runs repeated until all have six: then it is the plain trimmed mean with the same fraction cut."""
    matrix = scores(3, 8)
    matrix[2, 1] = matrix[1:, 3] = np.nan
    repeated = np.sort(np.concatenate([np.repeat(c[c == c], 6 // (c == c).sum()) for c in matrix.T]))
    values = int((matrix == matrix).sum())  # 21
    share = (values // 4) / values * len(repeated)  # 11.43 of 48
    cut, part = int(share), share - int(share)
    inner = repeated[cut : len(repeated) - cut]
    weights = np.ones(len(inner))
    weights[[0, -1]] = 1 - part
    assert run_statistics.iqm(matrix) == pytest.approx(np.average(inner, weights=weights))


def test_a_game_without_runs_is_rejected():
    matrix = scores(3, 4)
    matrix[:, 2] = np.nan
    with pytest.raises(ValueError, match="has no run"):
        run_statistics.mean(matrix)


def test_resamples_stay_within_their_game():
    matrix = scores(3, 6)
    matrix[2, 4] = np.nan
    blocks = list(resamples(matrix, 700, np.random.default_rng(0)))
    assert [len(block) for block in blocks] == [512, 188]
    drawn = np.concatenate(blocks)
    for game in range(6):
        column = matrix[:, game][matrix[:, game] == matrix[:, game]]
        kept = drawn[:, :, game][~np.isnan(drawn[:, :, game])]
        assert len(kept) == 700 * len(column)
        counts = np.array([(kept == value).sum() for value in column])
        assert counts.sum() == len(kept)
        assert abs(counts / len(kept) - 1 / len(column)).max() < 0.05


def test_same_seed_same_interval():
    matrix = scores(4, 9)
    assert intervals(matrix, run_statistics.AGGREGATES, 600, 3) == intervals(matrix, run_statistics.AGGREGATES, 600, 3)
    assert intervals(matrix, run_statistics.AGGREGATES, 600, 3) != intervals(matrix, run_statistics.AGGREGATES, 600, 4)


def test_one_run_has_no_interval():
    assert intervals(scores(1, 9), run_statistics.AGGREGATES) == dict.fromkeys(run_statistics.AGGREGATES)
    partly = scores(3, 9)
    partly[1:, 0] = np.nan
    assert not resolvable(partly)


def test_paired_interval_contains_the_truth():
    """Two agents whose runs are drawn from known distributions: P(X > Y) = Φ(1 / √2) = 0.760."""
    rng = np.random.default_rng(0)
    truth, hits = stats.norm.cdf(1 / np.sqrt(2)), 0
    for _ in range(40):
        ours, theirs = rng.normal(1, 1, (8, 10)), rng.normal(0, 1, (8, 10))
        low, high = paired_interval(ours, theirs, run_statistics.probability_of_improvement, 600)
        hits += low <= truth <= high
    assert hits >= 34
    assert paired_interval(ours[:1], theirs[:1], run_statistics.probability_of_improvement) is None
