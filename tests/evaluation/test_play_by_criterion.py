"""Games by a criterion: the choice, the same games, the returns, for the head of every recipe."""

import numpy as np
import pytest
import torch

from c2d.agents.agent import Agent
from c2d.agents.build import build_network
from c2d.envs.spec import EnvSpec
from c2d.evaluation.play import FirstReturns, PlaySettings, evaluate, play
from c2d.evaluation.prediction_log import PredictionLog
from c2d.evaluation.risk import CRITERIA, MEAN, criterion
from c2d.recipes.rows import RECIPES, adapt
from c2d.types import ResetFrame, Step
from tests.evaluation.known_worlds import GAMMA, knowing, worlds
from tests.oracles import toy_law

VECTOR = EnvSpec("gym/CartPole-v1", "gym", (4,), "float32", 1, 3, 1)


@pytest.mark.parametrize("name", RECIPES)
def test_the_head_of_every_recipe_gives_laws_to_act_by(name):
    recipe = adapt(RECIPES[name], VECTOR)
    network = build_network(recipe, VECTOR, torch.Generator().manual_seed(0))
    agent = Agent(network, recipe, VECTOR)
    obs = np.random.default_rng(0).normal(0, 3, size=(40, 4)).astype(np.float32)
    returns, probs = agent.actor.laws(obs)
    assert returns.shape == probs.shape and returns.shape[:2] == (40, 3)
    torch.testing.assert_close(probs.sum(-1), torch.ones(40, 3))
    law = agent.distribution(obs)
    np.testing.assert_allclose(returns.sort(-1).values.numpy(), law.returns, rtol=1e-6)
    by_mean = agent.actor.greedy(obs)
    assert MEAN.best(returns, probs).tolist() == by_mean.tolist()
    for kind in CRITERIA.values():
        chosen = criterion(kind.example)
        assert chosen(returns, probs).isfinite().all() and chosen(returns, probs).shape == (40, 3)
        if returns.shape[-1] == 1:
            assert chosen.best(returns, probs).tolist() == by_mean.tolist()


def test_the_criterion_decides_what_is_played():
    """In "skewed" the mean takes the sure prize of the second state or the rare large ones; care takes what is sure."""
    agent = knowing("skewed")
    setup = PlaySettings(games=40, epsilon=0.0, parallel=8, seed=1)
    by_mean = play(agent, worlds("skewed"), setup, rival=criterion("cvar:0.1"))
    careful = play(agent, worlds("skewed"), setup, criterion("cvar:0.1"), rival=MEAN)
    best = [toy_law.best_action("skewed", state, GAMMA) for state in range(3)]
    assert best == [0, 0, 0]
    assert {end.score for end in careful.ends} == {0.5 + 2.0 + 1.0}  # always the sure action
    assert careful.decisions == careful.different == by_mean.decisions == by_mean.different == 120
    assert np.std(by_mean.scores) > 1
    same = play(agent, worlds("skewed"), setup)
    assert same.scores == by_mean.scores and same.different == 0


def test_games_by_the_mean_are_those_of_plain_evaluation():
    recipe = adapt(RECIPES["c2d"], worlds("skewed")(0).spec)
    spec = worlds("skewed")(0).spec
    agent = Agent(build_network(recipe, spec, torch.Generator().manual_seed(0)), recipe, spec)
    setup = PlaySettings(games=30, epsilon=0.2, parallel=4, seed=6)
    plain = evaluate(agent, worlds("skewed"), 30, 0.2, 4, 6)
    log = PredictionLog(recipe.schedule.gamma)
    course = play(agent, worlds("skewed"), setup, log=log)
    assert course.ends == plain
    sample = log.sample()
    firsts = np.unique(sample.game, return_index=True)[1]
    np.testing.assert_allclose(sample.realized[firsts], course.returns)  # two ways to the same sums


def test_laws_taken_down_are_those_of_the_action_that_was_taken():
    """With ε = 1 half of the actions are not the chosen ones; each state and action of "sure" has one return."""
    log = PredictionLog(GAMMA)
    play(knowing("sure"), worlds("sure"), PlaySettings(games=60, epsilon=1.0, parallel=7), log=log)
    sample = log.sample()
    last = np.flatnonzero(np.diff(sample.game, append=99))  # the last step of each game: nothing follows
    assert set(sample.returns[last, 0]) == {2.0, -1.0}
    np.testing.assert_allclose(sample.returns[last, 0], sample.realized[last])


def test_return_from_the_start_ends_with_the_first_life_and_is_clipped():
    def step(reward, terminal=False):
        return Step(np.zeros(1), reward, terminal, False, ResetFrame(np.zeros(1)) if terminal else None, None)

    for clip, wanted in ((None, 3.0 + 0.5 * -4.0 + 0.25 * 8.0), (1.0, 1.0 - 0.5 + 0.25)):
        firsts = FirstReturns(0.5, clip)
        for one in (step(3.0), step(-4.0), step(8.0, terminal=True), step(100.0)):
            firsts.follow(2, one)
        assert firsts.values == {2: wanted}


def test_random_actions_are_no_decisions_of_the_criterion():
    """The share of differences is of what the two would choose, whatever ε makes of it."""
    agent = knowing("skewed")
    course = play(agent, worlds("skewed"), PlaySettings(20, 1.0, 4), criterion("cvar:0.1"), MEAN)
    assert course.different == course.decisions == 60
