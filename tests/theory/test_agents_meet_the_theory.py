"""The counterexample of Proposition 3.1 as a game: the agent of T_h learns the wrong action, C2D the right one."""

import numpy as np
import pytest

from c2d.envs import toy
from c2d.theory import Laws, from_dict, greedy, iterate, named, value_iteration
from c2d.theory.examples import fixed_point
from tests.oracles import toy_law
from tests.training.test_rows_learn import GAMMA, trained


def mdp_of(name):
    states = toy.TOYS[name].states
    return from_dict({s: {a: [*map(tuple, o)] for a, o in enumerate(offer)} for s, offer in enumerate(states)}, GAMMA)


WITH_ALL_ACTIONS = [name for name, world in toy.TOYS.items() if all(all(offer) for offer in world.states)]  # an MDP has


@pytest.mark.parametrize("name", WITH_ALL_ACTIONS)
def test_the_laws_of_every_toy(name):
    """As many iterations as the longest game has steps: T* against the list of all outcomes."""
    mdp = mdp_of(name)
    laws = list(iterate(mdp, Laws.zero(mdp), len(toy.TOYS[name].states)))[-1].laws
    for s, a in np.ndindex(*mdp.shape):
        np.testing.assert_allclose(laws.at(s, a), toy_law.law(name, s, a, GAMMA), rtol=1e-11)


def test_the_game_is_the_counterexample():
    mdp = mdp_of("gamble")
    np.testing.assert_allclose(value_iteration(mdp), [[50, 40]])
    assert greedy(fixed_point(mdp, named("h")))[0].tolist() == [0, 1]


@pytest.mark.parametrize(("row", "action"), [("th-dqn", 1), ("dqn-adam", 0), ("c2d", 0)])
def test_the_action_of_each_agent(row, action):
    agent = trained(row, "gamble")
    start = np.ones(1, np.float32)
    assert agent.act(start) == action
    q = (agent.distribution(start).probs * agent.distribution(start).returns).sum(-1)
    wrong = named("h").back(named("h").to(np.array([100.0])) / 2)[0]  # 29.7: what T_h believes the coin is worth
    believed = [wrong if row == "th-dqn" else 50.0, 40.0]
    np.testing.assert_allclose(q, believed, rtol=0.1)
