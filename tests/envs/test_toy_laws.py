import numpy as np
import pytest

from c2d.envs.make import make
from c2d.envs.protocols import GymRules
from c2d.envs.toy import TOYS, ToyEnv
from c2d.errors import UserError
from tests.oracles.toy_law import best_action, law, legal

GAMMA = 0.9


@pytest.mark.parametrize("name", TOYS)
def test_transitions_are_probabilities_and_lead_forward(name: str) -> None:
    states = TOYS[name].states
    for number, actions in enumerate(states):
        assert len(actions) == len(states[0])
        for outcomes in actions:
            assert not outcomes or sum(outcome.prob for outcome in outcomes) == pytest.approx(1.0)
            assert all(outcome.to is None or number < outcome.to < len(states) for outcome in outcomes)


@pytest.mark.parametrize("name", TOYS)
def test_laws_agree_with_simulated_returns(name: str) -> None:
    """From every state the law of the first action, then the greedy ones, against 4,000 played returns."""
    game = ToyEnv(name, GymRules(), seed=1)
    for state in range(len(TOYS[name].states)):
        for first in legal(TOYS[name], state):
            values, probs = law(name, state, first, GAMMA)
            counts = dict.fromkeys(np.round(values, 9).tolist(), 0)
            for _ in range(4000):
                game.reset()
                game._state = state
                total, discount, action, done = 0.0, 1.0, first, False
                while not done:
                    step = game.step(action)
                    total += discount * step.reward
                    discount *= GAMMA
                    done = step.terminal
                    action = 0 if done else best_action_cached(name, int(step.frame.argmax()))
                counts[round(total, 9)] += 1  # a return outside the law is a KeyError
            error = np.abs(np.array(list(counts.values())) / 4000 - probs)
            assert (error <= 4.5 * np.sqrt(probs * (1 - probs) / 4000) + 1e-12).all()
            assert probs.sum() == pytest.approx(1.0) and (np.diff(values) > 0).all()


_BEST = {(name, s): best_action(name, s, GAMMA) for name in TOYS for s in range(len(TOYS[name].states))}


def best_action_cached(name: str, state: int) -> int:
    return _BEST[name, state]


def moments(name: str) -> tuple[float, float, float]:
    values, probs = law(name, 0, best_action(name, 0, GAMMA), GAMMA)
    mean = float(values @ probs)
    std = float(np.sqrt((values - mean) ** 2 @ probs))
    skew = float((values - mean) ** 3 @ probs) / std**3 if std else 0.0
    return mean, std, skew


def test_the_toys_are_what_they_are_called() -> None:
    values, probs = law("bimodal", 0, 0, GAMMA)
    np.testing.assert_allclose(values, [1 - 6 * 0.9 + 0.81, 1 + 10 * 0.9 + 0.81])
    assert probs.tolist() == [0.5, 0.5]
    assert moments("skewed")[2] > 2
    assert law("negative", 0, 1, GAMMA)[0].max() < 0
    assert moments("large")[0] > 1000
    assert law("sure", 0, 1, GAMMA)[0].tolist() == pytest.approx([4 * 0.9 + 2 * 0.81])


def test_the_greedy_choice_needs_foresight_and_depends_on_the_discount() -> None:
    assert best_action("negative", 0, GAMMA) == 1 and best_action("negative", 0, 0.0) == 0
    assert best_action("sure", 0, GAMMA) == 1 and best_action("sure", 0, 0.0) == 0


def test_playing_is_deterministic_and_reports_ends() -> None:
    first, second = (make("toy/skewed", None, 3) for _ in range(2))
    first.reset()
    second.reset()
    for _ in range(60):
        one, two = first.step(0), second.step(0)
        assert one[1:4] == two[1:4] and (one.frame == two.frame).all() and one.game == two.game
        assert (one.reset is not None) == one.terminal == (one.game is not None)
    capped = ToyEnv("sure", GymRules(cap_steps=2), 0)
    capped.reset()
    steps = [capped.step(1), capped.step(0)]
    assert steps[1].truncated and not steps[1].terminal and steps[1].frame.tolist() == [0, 0, 0, 1]
    with pytest.raises(UserError, match="'skewed'"):
        law("skewd", 0, 0, GAMMA)


def test_the_cue_is_shown_once_and_asked_for_20_steps_later() -> None:
    game = make("toy/recall", None, 1)
    seen, right = set(), []
    for answer in [0, 1] * 10:
        frames = [game.reset().frame.argmax()]
        while True:
            step = game.step(answer)
            if step.terminal:
                break
            frames.append(step.frame.argmax())
        seen.add(tuple(frames))
        right.append(step.reward == (1.0 if frames[1] == 1 + answer else -1.0))
        assert step.game is not None and step.game.steps == 22
    assert seen == {(0, cue, *[3] * 19, 4) for cue in (1, 2)} and all(right)
    assert game.spec.obs_shape == (5,) and game.render().shape == (16, 80, 3)


def test_masked_cartpole_is_cartpole_without_velocities() -> None:
    whole, masked = (make(name, None, 5) for name in ("gym/CartPole-v1", "toy/masked-cartpole"))
    assert masked.spec.name == masked.passport()["env"] == "toy/masked-cartpole" and masked.spec.obs_shape == (2,)
    pairs = [(whole.reset().frame, masked.reset().frame)]
    for action in [0, 1, 1, 0] * 5:
        steps = [env.step(action) for env in (whole, masked)]
        pairs.append((steps[0].frame, steps[1].frame))
        assert steps[0].reward == steps[1].reward and steps[0].terminal == steps[1].terminal
    assert all((one[[0, 2]] == other).all() for one, other in pairs)
    whole.close()
    masked.close()
