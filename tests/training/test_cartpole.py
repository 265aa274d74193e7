"""CartPole learns with default settings. (The whole training is in docs/results; this is its beginning.)"""

from dataclasses import replace

import numpy as np

from c2d.agents.agent import Agent
from c2d.config import default_config
from c2d.envs.make import make
from c2d.evaluation.play import evaluate
from c2d.training.session import Session

STEPS, GAMES, RANDOM_SCORE = 5_000, 15, 22.0


def mean_score(agent, config, games, epsilon, seed=99):
    """Of games played side by side and cut after 250 steps: many times what chance reaches."""
    rules = replace(config.rules, cap_steps=250)
    ends = evaluate(agent, lambda seed: make(config.env, rules, seed), games, epsilon, parallel=games, seed=seed)
    return np.mean([end.score for end in ends])


def test_cartpole_is_several_times_better_than_chance_after_a_fraction_of_its_training():
    config = default_config("gym/CartPole-v1", seed=1, threads=1)
    session = Session(config)
    agent = Agent(session.learner.online, config.recipe, session.env.spec)
    assert mean_score(agent, config, 40, epsilon=1.0) < 1.5 * RANDOM_SCORE
    session.fill_history()
    score = 0.0
    while session.step < STEPS and score < 3 * RANDOM_SCORE:  # the first weights that are so, on whatever processor
        for _ in range(500):
            session.advance()
        score = mean_score(agent, config, GAMES, config.recipe.schedule.epsilon_eval, seed=7)
    assert score > 3 * RANDOM_SCORE
