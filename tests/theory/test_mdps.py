import itertools

import gymnasium
import numpy as np
import pytest

from c2d.errors import UserError
from c2d.theory import (
    FiniteMDP,
    from_arrays,
    from_callables,
    from_dict,
    from_gymnasium,
    greedy,
    policy_q,
    random_mdp,
    value_iteration,
)
from c2d.theory.homeomorphism import inverse_of, named


def test_value_iteration_finds_the_best_of_all_policies():
    mdp = random_mdp(states=4, actions=3, outcomes=2, seed=9)
    every = (np.eye(3)[list(choice)] for choice in itertools.product(range(3), repeat=4))
    values = [(policy * policy_q(mdp, policy)).sum(-1) for policy in every]
    best = np.max(values, axis=0)
    np.testing.assert_allclose(value_iteration(mdp).max(-1), best, atol=1e-9)
    policy = greedy(value_iteration(mdp))
    np.testing.assert_allclose((policy * policy_q(mdp, policy)).sum(-1), best, atol=1e-9)


def test_frozen_lake_and_taxi_have_known_values():
    env = gymnasium.make("FrozenLake-v1", is_slippery=False)
    lake = value_iteration(from_gymnasium(env, 0.9))
    assert lake[0].max() == pytest.approx(0.9**5)  # six steps to the goal
    slippery = value_iteration(from_gymnasium("FrozenLake-v1", 0.999)).max(-1)
    assert 0.7 < slippery[0] < 0.83
    taxi = from_gymnasium("Taxi-v4", 0.9)
    assert taxi.shape == (500, 6) and value_iteration(taxi, 1e-9).max() == pytest.approx(20.0)
    with pytest.raises(UserError, match=r"CartPole.*no transition table"):
        from_gymnasium("CartPole-v1", 0.9)
    with pytest.raises(UserError, match='Gymnasium cannot make "Nothing-v0"'):
        from_gymnasium("Nothing-v0", 0.9)


def test_arrays_and_dictionary_make_the_same_mdp():
    chances = np.array([[[0.5, 0.5], [0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]]])
    rewards = np.array([[1.0, 2.0], [3.0, 0.0]])
    one = from_arrays(chances, rewards, 0.9)
    two = from_dict({0: {0: [(0.5, 1, 0), (0.5, 1, 1)], 1: [(1, 2, 1)]}, 1: {0: [(1, 3, 0)], 1: [(1, 0, 1)]}}, 0.9)
    np.testing.assert_allclose(value_iteration(one), value_iteration(two), atol=1e-12)
    ended = from_arrays(chances, rewards, 0.9, ends=[1])
    assert value_iteration(ended)[0].tolist() == pytest.approx([1 / (1 - 0.45) if 1 / 0.55 > 2 else 1 + 0.45 * 2, 2.0])


def test_random_mdps_depend_only_on_the_seed():
    one, two, other = (random_mdp(seed=s) for s in (1, 1, 2))
    assert np.array_equal(one.reward, two.reward) and not np.array_equal(one.reward, other.reward)
    assert (random_mdp(stochasticity=0.0).prob[..., 0] == 1).all()
    assert (random_mdp(spread=2.0).reward > 0).all() and (random_mdp().reward < 0).any()


PROB, REWARD, AFTER = np.full((2, 1, 2), 0.5), np.zeros((2, 1, 2)), np.zeros((2, 1, 2), int)
END = [(1, 0, None)]


def changed(array, place, value):
    array = array.copy()
    array[place] = value
    return array


def mdp(prob=PROB, reward=REWARD, after=AFTER, gamma=0.9, **names):
    return FiniteMDP(prob, reward, after, gamma, **names)


WRONG = [
    (lambda: mdp(changed(PROB, (1, 0, 0), 0.4)), r"state 1, action 0 sum to 0.9; accepted: 1"),
    (lambda: mdp(changed(PROB, (1, 0), (1.5, -0.5))), r"prob\[1, 0, 1\] is -0.5"),
    (lambda: mdp(reward=changed(REWARD, (0, 0, 1), np.inf)), r"reward\[0, 0, 1\] is inf"),
    (lambda: mdp(after=changed(AFTER, (0, 0, 1), 2)), r"after\[0, 0, 1\] is 2; accepted: a state from 0 to 1"),
    (lambda: mdp(gamma=1.0), "gamma is 1.0; accepted"),
    (lambda: mdp(gamma=float("nan")), "gamma is nan"),
    (lambda: mdp(reward=REWARD[:1]), "shapes are prob"),
    (lambda: mdp(states=("a",)), "1 names for 2 states"),
    (
        lambda: from_dict({"s": {"a": [(1, 0, "stat")]}, "state": {"a": END}}, 0.9),
        "action a: \"stat\"; accepted: .* Did you mean 'state'",
    ),
    (lambda: from_dict({"s": {"a": END}, "t": {"b": END}}, 0.9), "state t has the actions b, but state s has a"),
    (lambda: from_dict({"s": {"a": [(0.9, 0, None)]}}, 0.9), "state s, action a sum to 0.9"),
    (lambda: from_dict({"s": {"a": [(1, 0)]}}, 0.9), r"an outcome of state s, action a is \(1, 0\)"),
    (lambda: from_dict({}, 0.9), "none empty"),
    (lambda: from_arrays(np.ones((2, 1, 3)), np.ones((2, 1)), 0.9), r"chances have shape \(2, 1, 3\)"),
    (lambda: from_arrays(PROB, np.ones((2, 2)), 0.9), r"rewards have shape \(2, 2\)"),
    (lambda: from_arrays(PROB, np.ones((2, 1)), 0.9, ends=[5]), "ends has 5"),
    (lambda: random_mdp(stochasticity=1.5), "stochasticity is 1.5"),
    (lambda: random_mdp(states=0), "states is 0"),
    (lambda: from_callables(np.cos, name="cos"), "cos is not increasing"),
    (lambda: from_callables(lambda x: np.clip(x, -1, 1)), "not strictly increasing: it is constant"),
    (lambda: from_callables(np.log), "finite number for every real number"),
    (lambda: from_callables(np.arcsinh, np.tanh), "the given inverse is not that of"),
    (lambda: named("symlogg"), "Did you mean 'symlog'"),
    (lambda: mdp(prob=PROB.tolist()), "prob is list; accepted: a NumPy array"),
    (lambda: mdp(after=AFTER.astype(float)), "after is an array of float64"),
    (lambda: from_dict({"s": {"a": [("much", 0, None)]}}, 0.9), "two numbers and a state"),
    (lambda: from_dict([1], 0.9), "malformed table"),
    (lambda: from_gymnasium(None, 0.9), "no transition table"),
    (lambda: random_mdp(seed=-1), "seed is -1"),
]


@pytest.mark.parametrize(("make", "words"), WRONG)
def test_bad_input_is_named(make, words):
    with pytest.raises(UserError, match=words):
        make()


def test_inverse_by_bisection_is_exact_to_the_last_digits():
    for to, back in ((np.arcsinh, np.sinh), (lambda x: x**3, np.cbrt), (lambda x: x + np.tanh(x), None)):
        x = np.concatenate((-np.logspace(-5, 4, 50), [0.0], np.logspace(-5, 4, 50)))
        found = inverse_of(to)(to(x))
        np.testing.assert_allclose(found, x if back is None else back(to(x)), rtol=1e-11, atol=1e-17)


def test_the_image_of_a_function():
    assert (from_callables(lambda x: x / (1 + abs(x))).low, from_callables(np.exp).low) == (-1.0, 0.0)
    assert from_callables(lambda x: 1e-300 * x, lambda y: 1e300 * y).high == np.inf
