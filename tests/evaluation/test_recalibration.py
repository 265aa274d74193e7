"""Corrections of laws: against SciPy, on laws that are wrong in a known way, and on games that were not fitted."""

import numpy as np
import pytest
from scipy import optimize, stats

from c2d.errors import UserError
from c2d.evaluation.calibration import calibrate, crps
from c2d.evaluation.play import PlaySettings, play
from c2d.evaluation.prediction_log import PredictionLog, Sample
from c2d.evaluation.recalibration import LEAST_SLOPE, Recalibration, fit
from tests.evaluation.known_worlds import GAMMA, knowing, worlds


def sample(means, spread, realized, atoms=9):
    """Normal laws with these means and one standard deviation; ten steps a game."""
    quantiles = stats.norm.ppf((np.arange(atoms) + 0.5) / atoms)
    returns = means[:, None] + spread * quantiles
    game = np.arange(len(means)) // 10
    return Sample(game, returns, np.full(returns.shape, 1 / atoms), realized, 1, 0, None, 0)


def drawn(n=400, seed=0):
    rng = np.random.default_rng(seed)
    means = rng.normal(3.0, 2.0, n)
    return means, 1.0 + 0.5 * means + rng.normal(0, 2.0, n)


def test_the_line_and_the_spread_against_scipy():
    means, realized = drawn()
    given = sample(means, 0.3, realized)
    found = fit(given)
    line = stats.linregress(means, realized)
    assert found.slope == pytest.approx(line.slope) and found.offset == pytest.approx(line.intercept)

    def score(spread):
        return crps(
            Recalibration(found.offset, found.slope, float(spread)).laws(*given[1:3]), given.probs, realized
        ).mean()

    best = optimize.minimize_scalar(score, bounds=(0.1, 50), method="bounded", options={"xatol": 1e-6})
    assert found.spread == pytest.approx(best.x, rel=1e-3)


def test_laws_by_hand():
    """Atoms 0 and 4 of masses ¾ and ¼: mean 1, which becomes 2 + 3; distances −1 and 3 are halved."""
    assert Recalibration(2.0, 3.0, 0.5).laws(np.array([0.0, 4.0]), np.array([0.75, 0.25])).tolist() == [4.5, 6.5]
    assert Recalibration().laws(np.array([[0.0, 4.0]]), np.array([[0.75, 0.25]])).tolist() == [[0.0, 4.0]]


def test_corrected_laws_are_calibrated_on_other_games():
    found = fit(sample(*_wrong(seed=1)))
    other = sample(*_wrong(seed=2))
    before, after = calibrate(other), calibrate(found.sample(other))
    assert abs(before.bias.value) > 0.3 * abs(before.realized.value) and before.coverage["0.8"].value < 0.5
    assert abs(after.bias.value) < 0.05 * abs(after.realized.value) and 0.72 < after.coverage["0.8"].value < 0.88
    assert after.crps.value < before.crps.value


def _wrong(seed):
    means, realized = drawn(seed=seed)
    return means + 2.0, 0.5, realized


def test_greedy_play_stays_what_it_is():
    rng = np.random.default_rng(3)
    returns, probs = rng.normal(size=(50, 4, 7)), rng.dirichlet(np.ones(7), (50, 4))
    corrected = Recalibration(-3.0, LEAST_SLOPE, 2.5).laws(returns, probs)
    assert ((probs * corrected).sum(-1).argmax(-1) == (probs * returns).sum(-1).argmax(-1)).all()


def test_predictions_against_returns_keep_the_order_of_actions():
    means, realized = drawn()
    assert fit(sample(means, 1.0, -realized)).slope == LEAST_SLOPE


def test_equal_predictions_and_points():
    """One mean for all states says nothing of the slope; points have no spread."""
    realized = drawn()[1]
    level = fit(sample(np.full(len(realized), 7.0), 1.0, realized))
    assert level.slope == 1.0 and level.offset == pytest.approx(realized.mean() - 7.0)
    assert fit(sample(drawn()[0], 1.0, realized, atoms=1)).spread == 1.0


def test_a_law_that_is_right_is_hardly_changed():
    log = PredictionLog(GAMMA)
    play(knowing("bimodal"), worlds("bimodal"), PlaySettings(games=1_000, epsilon=0.0), log=log)
    found = fit(log.sample())
    assert found.slope == pytest.approx(1.0, abs=0.1) and found.spread == pytest.approx(1.0, abs=0.05)
    assert found.offset == pytest.approx(0.0, abs=0.5)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"offset": 0.0, "slope": 0.0, "spread": 1.0}, "recalibration has slope 0.0; accepted: above 0"),
        ({"offset": 0.0, "slope": 1.0, "spread": float("nan")}, "spread nan; accepted: a finite number"),
        ({"offset": "0", "slope": 1.0, "spread": 1.0}, "offset 0; accepted: a finite number"),
        ({"slope": 1.0}, "x.json is not a recalibration: it needs offset, slope and spread"),
        ([1.0], "x.json is not a recalibration"),
    ],
)
def test_bad_files(values, message):
    with pytest.raises(UserError) as error:
        Recalibration.from_json(values, "x.json")
    assert message in str(error.value)


def test_one_game_is_not_enough():
    given = sample(*_wrong(seed=1))
    with pytest.raises(UserError, match="at least two games"):
        fit(given._replace(game=np.zeros(len(given.game), dtype=int)))
