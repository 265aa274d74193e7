"""CartPole with rewards of a million: predicted means against the returns that followed, by what u aims at.

    python studies/reward_unit.py [SEED ...]

Prints the ratio of both for `--head.unit auto` with a typical random return of 3, 10, 30 and 100 units, and for
CartPole as it is with u = 1. 15,000 steps; the learning rate falls within 3,000 of the 3,750 updates.
"""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from c2d.agents.agent import Agent
from c2d.agents.rollout import FrameStack
from c2d.config import default_config
from c2d.envs.make import make
from c2d.training import reward_unit
from c2d.training.session import Session
from c2d.user_code import TRUSTED

LARGE = "tests.envs.large_rewards:LargeCartPole"
STEPS, DECAY, GAMES, GAMMA = 15_000, 3_000, 10, 0.99
CUT = 300  # steps before a cut whose returns are not known: 0.99^300 = 0.05


def ratio(env: str, unit: str, seed: int) -> float:
    """Mean prediction over mean realized return, of the greedy agent after training."""
    config = default_config(env, seed=seed)
    recipe = config.recipe
    recipe = replace(recipe, head=replace(recipe.head, unit=unit), optim=replace(recipe.optim, decay_updates=DECAY))
    session = Session(replace(config, recipe=recipe))
    session.fill_history()
    while session.step < STEPS:
        session.advance()
    agent = Agent(session.learner.acting, recipe, session.env.spec)
    world = make(config.env, config.rules, 99)
    stack, predicted, realized = FrameStack(world.spec), [], []
    for _ in range(GAMES):
        obs, rewards, means, step = stack.reset(world.reset()).copy(), [], [], None
        while step is None or step.reset is None:
            mean = agent.distribution(obs).mean
            means.append(mean.max())
            step = world.step(int(mean.argmax()))
            rewards.append(step.reward)
            obs = stack.push(step.frame).copy()
        returns, total = [], 0.0
        for reward in reversed(rewards):
            total = reward + GAMMA * total
            returns.append(total)
        kept = len(returns) if step.terminal else max(len(returns) - CUT, 0)
        predicted += means[:kept]
        realized += returns[::-1][:kept]
    return float(np.mean(predicted) / np.mean(realized))


if __name__ == "__main__":
    torch.set_num_threads(1)
    TRUSTED.add(LARGE)
    for seed in map(int, sys.argv[1:] or (1, 2, 3)):
        for typical in (3.0, 10.0, 30.0, 100.0):
            reward_unit.TYPICAL = typical
            print(f"seed {seed}, auto, typical return {typical:g} units: {ratio(LARGE, 'auto', seed):.2f}", flush=True)
        print(f"seed {seed}, one, rewards of 1: {ratio('gym/CartPole-v1', 'one', seed):.2f}", flush=True)
