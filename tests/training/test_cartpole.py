"""CartPole learns with default settings. (The whole training is in docs/results; this is its beginning.)"""

import numpy as np

from c2d.agents.agent import Agent
from c2d.agents.rollout import FrameStack
from c2d.config import default_config
from c2d.envs.make import make
from c2d.training.session import Session

STEPS, GAMES, RANDOM_SCORE = 5_000, 10, 22.0


def mean_score(agent, config, games, epsilon, seed=99):
    env = make(config.env, config.rules, seed=seed)
    stack = FrameStack(env.spec)
    stack.reset(env.reset())
    scores = []
    while len(scores) < games:
        step = env.step(agent.act(stack.obs, epsilon))
        stack.update(step)
        if step.game is not None:
            scores.append(step.game.score)
    return np.mean(scores)


def test_cartpole_is_several_times_better_than_chance_after_a_fraction_of_its_training():
    config = default_config("gym/CartPole-v1", seed=1, threads=1)
    session = Session(config)
    agent = Agent(session.learner.online, config.recipe, session.env.spec)
    assert mean_score(agent, config, 40, epsilon=1.0) < 1.5 * RANDOM_SCORE
    session.fill_history()
    for _ in range(STEPS):
        session.advance()
    assert mean_score(agent, config, GAMES, config.recipe.schedule.epsilon_eval) > 3 * RANDOM_SCORE
