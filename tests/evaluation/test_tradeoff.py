"""Differences of two policies and their intervals, against SciPy."""

import json

import numpy as np
import pytest
from scipy import stats

from c2d.evaluation.play import PlayedGames
from c2d.evaluation.risk import criterion, tradeoff, tradeoff_lines
from c2d.types import GameEnd

RNG = np.random.default_rng(4)
FIRST, SECOND = RNG.gamma(2.0, 5.0, 60), RNG.gamma(4.0, 2.0, 60)


def course(scores, by="mean", different=5):
    return PlayedGames(
        criterion(by), [GameEnd(float(s), 10) for s in scores], [s / 2 for s in scores], 100, different, None
    )


def worst(values, share):
    """Mean of the worst values; `share` of them is a whole number here."""
    return np.sort(values, axis=-1)[..., : round(share * np.shape(values)[-1])].mean(-1)


STATISTICS = {
    "mean": lambda x, axis=-1: np.mean(x, axis),
    "std": lambda x, axis=-1: np.std(x, axis, ddof=1),
    "cvar:0.1": lambda x, axis=-1: worst(x, 0.1),
}


@pytest.mark.parametrize("name", STATISTICS)
def test_values_and_intervals_against_scipy(name):
    found = tradeoff(course(FIRST), course(SECOND, "entropic:-0.1"))
    statistic = STATISTICS[name]
    for of, scale in (("score", 1.0), ("return", 0.5)):
        row = next(row for row in found.rows if (row.of, row.statistic) == (of, name))
        assert row.by_mean == pytest.approx(scale * statistic(FIRST))
        assert row.by_criterion == pytest.approx(scale * statistic(SECOND))
        assert row.difference == pytest.approx(row.by_criterion - row.by_mean)
        theirs = stats.bootstrap(
            (scale * FIRST, scale * SECOND),
            lambda x, y, axis=-1: statistic(y, axis) - statistic(x, axis),
            paired=True,
            n_resamples=5_000,
            method="percentile",
            rng=np.random.default_rng(1),
        ).confidence_interval
        width = theirs.high - theirs.low
        assert abs(row.interval[0] - theirs.low) < 0.06 * width and abs(row.interval[1] - theirs.high) < 0.06 * width


def quick(*courses):
    return tradeoff(*courses, resamples=500)


def test_games_are_paired():
    """A constant gain in every game is certain, however much games differ."""
    found = quick(course(FIRST), course(FIRST + 1.0, "cvar:0.2"))
    gain = found.rows[0]
    assert gain.interval == (pytest.approx(1.0), pytest.approx(1.0)) and gain.significant
    spread = found.rows[1]
    assert spread.difference == pytest.approx(0.0, abs=1e-9)


def test_returns_also_get_the_criterion_itself_and_a_cvar_its_own_tail():
    names = [(row.of, row.statistic) for row in quick(course(FIRST), course(SECOND, "above:3")).rows]
    assert names == [("score", "mean"), ("score", "std"), ("score", "cvar:0.1"), ("return", "mean"), ("return", "std"),
                     ("return", "cvar:0.1"), ("return", "above:3")]  # fmt: skip
    own = quick(course(FIRST), course(SECOND, "above:3")).rows[-1]
    assert own.by_mean == pytest.approx(np.mean(FIRST / 2 > 3)) and own.difference == pytest.approx(
        np.mean(SECOND / 2 > 3) - np.mean(FIRST / 2 > 3)
    )
    assert [row.statistic for row in quick(course(FIRST), course(SECOND, "cvar:0.25")).rows][2] == "cvar:0.25"


def test_text():
    other = np.random.default_rng(9).gamma(2.0, 5.0, 60)
    nothing = tradeoff_lines(quick(course(FIRST), course(other, "cvar:0.1", different=20)))
    assert nothing[-1].startswith("no difference is significant")
    assert "in 5.0 % of 100 decisions in games played by the mean, and in 20.0 % of 100" in nothing[-2]
    clear = tradeoff_lines(quick(course(FIRST), course(FIRST + 50, "cvar:0.1")))
    assert (
        clear[1].startswith("score: mean")
        and clear[1].endswith("*")
        and clear[-1].startswith("* marks intervals that exclude 0, here")
    )
    alike = tradeoff_lines(quick(course(FIRST, different=0), course(FIRST, "cvar:0.1", different=0)))
    assert "chose the same actions at every step" in alike[-1]
    few = tradeoff_lines(quick(course(FIRST[:20]), course(SECOND[:20], "cvar:0.1")))
    assert "the mean of the worst 2" in few[-1] and "--games 50 or more" in few[-1]


def test_record_is_json_and_the_same_each_time():
    second = course(SECOND, "cvar:0.1")
    found = [json.dumps(quick(course(FIRST), second).to_json(second)) for _ in range(2)]
    assert found[0] == found[1] and json.loads(found[0])["criterion"] == "cvar:0.1"
