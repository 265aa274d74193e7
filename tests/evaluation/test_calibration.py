"""PIT, CRPS and coverage against SciPy and by hand; a perfect predictor is calibrated, a wrong one is not."""

from itertools import pairwise

import numpy as np
import pytest
from scipy import integrate, stats

from c2d.evaluation.calibration import SPREAD, calibrate, calibration_lines, climatology, covered, crps, pit
from c2d.evaluation.play import PlaySettings, play
from c2d.evaluation.prediction_log import PredictionLog, Sample
from tests.evaluation.known_worlds import GAMMA, knowing, worlds


def rng(seed=0):
    return np.random.default_rng(seed)


def laws(count=30, atoms=6, seed=0):
    draws = rng(seed)
    return draws.normal(0, 5, (count, atoms)), draws.dirichlet(np.full(atoms, 0.7), count), draws.normal(0, 5, count)


def test_crps_against_scipy_and_integration():
    returns, probs, realized = laws()
    ours = crps(returns, probs, realized)
    for z, p, y, value in zip(returns, probs, realized, ours, strict=True):
        assert value == pytest.approx(stats.energy_distance(z, [y], p) ** 2 / 2, rel=1e-9)
    z, p, y = returns[0], probs[0], realized[0]
    breaks = sorted([*z, y])

    def square(w):
        return (p[z <= w].sum() - (w >= y)) ** 2

    whole = sum(integrate.quad(square, a, b)[0] for a, b in pairwise(breaks))
    assert ours[0] == pytest.approx(whole, rel=1e-6)


def test_crps_of_a_point_is_the_distance():
    assert crps(np.array([[3.0]]), np.array([[1.0]]), np.array([7.5])).tolist() == [4.5]


def test_pit_by_hand():
    """Atoms 0, 1, 2 of masses 0.5, 0.3, 0.2."""
    n = 4000
    z, p = np.tile([1.0, 0.0, 2.0], (n, 1)), np.tile([0.3, 0.5, 0.2], (n, 1))
    for y, low, high in ((1.0, 0.5, 0.8), (0.0, 0.0, 0.5), (2.0, 0.8, 1.0), (1.5, 0.8 - SPREAD, 0.8 + SPREAD),
                         (-1.0, 0.0, SPREAD), (9.0, 1 - SPREAD, 1.0)):  # fmt: skip
        values = pit(z, p, np.full(n, y), rng())
        assert low <= values.min() < low + 0.01 * (high - low) and high - 0.01 * (high - low) < values.max() <= high
    near = pit(z, p, np.full(n, 1.04), rng(), equal=0.05)  # close enough to count as 1
    assert near.min() < 0.51 and near.max() > 0.79
    assert (pit(z, p, np.full(n, 1.04), rng(4)) == pit(z, p, np.full(n, 1.04), rng(4))).all()


@pytest.mark.parametrize("atoms", [32, 51, 200])
def test_quantile_laws_of_a_continuous_return_leave_no_stripes(atoms):
    z = stats.norm.ppf((np.arange(atoms) + 0.5) / atoms)
    y = rng(1).normal(size=10_000)
    values = pit(np.tile(z, (len(y), 1)), np.full((len(y), atoms), 1 / atoms), y, rng(2))
    assert stats.chisquare(np.histogram(values, 10, (0, 1))[0]).pvalue > 0.01


def test_a_point_does_not_count_as_a_wide_distribution():
    """A certain prediction of the median: every return lies outside every interval."""
    y = rng(1).normal(size=500)
    values = pit(np.zeros((500, 1)), np.ones((500, 1)), y, rng())
    assert not any(covered(values, level).any() for level in (0.5, 0.8, 0.95))


def test_coverage_by_hand():
    values = np.array([0.0, 0.03, 0.25, 0.5, 0.75, 0.9, 1.0])
    assert covered(values, 0.5).tolist() == [False, False, True, True, True, False, False]
    assert covered(values, 0.95).sum() == 5


def test_climatology_is_the_law_of_the_returns_themselves():
    _, _, y = laws(count=40)
    y[7] = y[3]
    weights = rng(1).integers(0, 4, size=(5, 40)).astype(float)
    for row, ours in zip(weights, climatology(y, weights), strict=True):
        share = row / row.sum()
        assert ours == pytest.approx(share @ crps(np.tile(y, (40, 1)), np.tile(share, (40, 1)), y), rel=1e-10)


# ------------------------------------------------------------------------------------------- toys of known law

WRONG = {
    "too narrow": lambda values, probs: (probs @ values + 0.3 * (values - probs @ values), probs),
    "too wide": lambda values, probs: (probs @ values + 2.5 * (values - probs @ values), probs),
    "too high": lambda values, probs: (values + 3.0, probs),
    "mean only": lambda values, probs: (np.array([probs @ values]), np.ones(1)),
}


def sampled(name, change=None, games=400, seed=5):
    log = PredictionLog(GAMMA)
    agent = knowing(name) if change is None else knowing(name, change)
    play(agent, worlds(name), PlaySettings(games, epsilon=0.0, parallel=64, seed=seed), log=log)
    return log.sample()


@pytest.fixture(scope="module")
def perfect():
    samples = {name: sampled(name) for name in ("bimodal", "skewed", "large")}
    return {name: (sample, calibrate(sample)) for name, sample in samples.items()}


@pytest.mark.parametrize("name", ["bimodal", "skewed", "large"])
def test_the_true_law_is_calibrated(perfect, name):
    sample, found = perfect[name]
    assert (found.games, found.stride, found.dropped, found.cut_after) == (400, 1, 0, None)
    for level, estimate in found.coverage.items():
        low, high = estimate.interval
        assert low - 0.01 <= float(level) <= high + 0.01
    assert found.bias.interval[0] < 0 < found.bias.interval[1]
    first = np.unique(sample.game, return_index=True)[1]  # one step per game: independent
    values = pit(sample.returns, sample.probs, sample.realized, rng(3), found.equal)[first]
    assert stats.kstest(values, "uniform").pvalue > 0.01


@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_law_is_detected_and_scores_worse(perfect, fault):
    right, wrong = perfect["skewed"][1], calibrate(sampled("skewed", WRONG[fault]))
    assert wrong.crps.interval[0] > right.crps.value
    off = [e.interval[0] > float(level) or e.interval[1] < float(level) for level, e in wrong.coverage.items()]
    assert any(off)
    report = "\n".join(calibration_lines(wrong))
    if fault == "too high":
        assert wrong.bias.value == pytest.approx(right.bias.value + 3.0) and "predictions are too high" in report
    else:
        assert "no significant bias" in report
    assert {"too narrow": "too narrow", "too wide": "too wide", "mean only": "too narrow", "too high": "%"}[
        fault
    ] in report


def test_known_law_beats_climatology_by_what_theory_says(perfect):
    """E CRPS of the true law is ½ E|X − X′|, averaged over the laws of visited states."""
    sample, found = perfect["skewed"]
    gaps = np.abs(sample.returns[:, :, None] - sample.returns[:, None, :])
    expected = 0.5 * np.einsum("ni,nij,nj->n", sample.probs, gaps, sample.probs).mean()
    assert found.crps.interval[0] < expected < found.crps.interval[1]
    assert 0 < found.skill.value < 1 and found.skill.interval[0] > 0


def test_intervals_come_from_games_not_steps():
    """Repeating every step fifty times adds no information."""
    sample = sampled("skewed", games=30)
    repeated = Sample(*(part.repeat(50, axis=0) for part in sample[:4]), *sample[4:])
    once, often = calibrate(sample), calibrate(repeated)
    assert often.steps == 50 * once.steps
    assert often.crps.interval == pytest.approx(once.crps.interval)
    assert often.realized.interval == pytest.approx(once.realized.interval)


def test_one_game_and_returns_that_never_vary():
    one = calibrate(sampled("skewed", games=1))
    assert one.crps.interval is None and "none with one game" in calibration_lines(one)[-1]
    sure = Sample(np.arange(4), np.full((4, 1), 2.0), np.ones((4, 1)), np.full(4, 2.0), 1, 0, None, 44)
    assert calibrate(sure).skill is None and calibrate(sure).crps.value == 0.0
