"""Which steps count, and what was realized from them, against a slow loop."""

import numpy as np
import pytest
import torch

from c2d.evaluation.prediction_log import PredictionLog
from c2d.replay.buffer import HIDDEN
from c2d.types import GameEnd, ResetFrame, Step

FRAME = ResetFrame(np.zeros(1))


def step(reward, terminal=False, truncated=False, over=False):
    ended = terminal or truncated
    return Step(FRAME.frame, reward, terminal, truncated, FRAME if ended else None, GameEnd(0, 0) if over else None)


def fill(log, games):
    """Games advance beside each other, as they are played. The law at step t of game g is a point at 100·g + t."""
    for time in range(max(map(len, games))):
        for number, game in enumerate(games):
            if time < len(game):
                log.follow(number, game[time], torch.tensor([100.0 * number + time]), torch.ones(1))
    return log.sample()


def test_returns_against_a_loop_with_lives_and_clipping():
    rng = np.random.default_rng(0)
    game = [step(float(r), terminal=t in (4, 9, 14), over=t == 14) for t, r in enumerate(rng.normal(0, 2, 15))]
    for clip in (None, 1.0):
        sample = fill(PredictionLog(0.8, clip), [game])
        for time in range(15):
            total, weight = 0.0, 1.0
            for later in game[time:]:
                total += weight * (later.reward if clip is None else float(np.clip(later.reward, -clip, clip)))
                weight *= 0.8
                if later.terminal:
                    break
            assert sample.realized[time] == pytest.approx(total, abs=1e-12)
        assert sample.returns[:, 0].tolist() == list(range(15)) and sample.dropped == 0


def test_a_cut_silences_the_same_times_in_every_game():
    gamma = 0.5  # γ^7 < 1 % < γ^6
    cut = [step(1.0, truncated=t == 19, over=t == 19) for t in range(20)]
    ended = [step(1.0, terminal=t == 17, over=t == 17) for t in range(18)]
    short = [step(1.0, terminal=t == 3, over=t == 3) for t in range(4)]
    sample = fill(PredictionLog(gamma), [cut, ended, short])
    assert sample.horizon == 7 and sample.cut_after == 20
    assert gamma**sample.horizon <= HIDDEN < gamma ** (sample.horizon - 1)
    times = {number: (sample.returns[sample.game == number, 0] - 100 * number).tolist() for number in range(3)}
    assert times == {0: list(range(14)), 1: list(range(14)), 2: list(range(4))}
    assert sample.dropped == 6 + 4
    endless = 1 / (1 - gamma)
    assert np.abs(sample.realized[sample.game == 0] - endless).max() <= HIDDEN * endless


def test_a_cut_that_the_learner_takes_for_an_end_is_one():
    cut = [step(1.0, truncated=t == 9, over=t == 9) for t in range(10)]
    sample = fill(PredictionLog(0.9, truncation="terminal"), [cut])
    assert len(sample.realized) == 10 and sample.cut_after is None and sample.realized[-1] == 1.0


@pytest.mark.parametrize("gamma", [1.0, 0.99])
def test_nothing_counts_if_all_is_too_near_to_the_cut(gamma):
    sample = fill(PredictionLog(gamma), [[step(1.0, truncated=t == 9, over=t == 9) for t in range(10)]])
    assert len(sample.realized) == 0 and sample.dropped == 10


def test_thinning_is_even_and_does_not_depend_on_the_order_of_games():
    games = [[step(1.0, terminal=t == n - 1, over=t == n - 1) for t in range(n)] for n in (90, 33, 5)]
    beside = fill(PredictionLog(0.9, limit=40), games)
    after = PredictionLog(0.9, limit=40)
    for number, game in enumerate(games):
        for time, one in enumerate(game):
            after.follow(number, one, torch.tensor([100.0 * number + time]), torch.ones(1))
    one_by_one = after.sample()
    assert beside.stride == one_by_one.stride == 4 and len(beside.realized) == 23 + 9 + 2
    assert beside.returns.tolist() == one_by_one.returns.tolist()
    assert (beside.returns[:, 0] % 100 % 4 == 0).all()
