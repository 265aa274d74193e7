"""Whole games played by a trained agent, several at once with one network call per step.

Which games count is decided before the first one begins: numbers 0 to `games` - 1, each played to its end. A free
place takes the next number, so that long games weigh as much as short ones. Game k has an environment of its own,
seeded by (seed, k), and a generator of its own for ε: its course does not depend on how many games run beside it,
but for the rounding of the network, which may differ in the last digit between batch sizes and tip a near-tie.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np

from c2d.agents.agent import Agent
from c2d.envs.spec import Environment, EnvSpec, FrameStack
from c2d.errors import UserError
from c2d.seeding import integer, numpy_generator
from c2d.types import GameEnd, Step

MakeEnv = Callable[[int], Environment]  # seed -> a new environment
Watch = Callable[[int, int], None]  # games ended, agent steps made so far by all games together
Choose = Callable[[np.ndarray], np.ndarray]  # observations of the running games [P, *obs] -> actions [P], before ε
Follow = Callable[[int, int, int, Step], None]  # number of a game, its row among those, action taken, what it gave


class _Game:
    """One running game."""

    def __init__(self, number: int, env: Environment, seed: int) -> None:
        self.number, self.env = number, env
        self.rng = numpy_generator(seed, f"evaluation actions {number}")
        self.stack = FrameStack(env.spec)
        self.stack.reset(env.reset())

    def advance(self, action: int, epsilon: float) -> tuple[int, Step]:
        """The action taken, which may be a random one, and what it gave."""
        if self.rng.random() < epsilon:
            action = int(self.rng.integers(self.env.spec.actions))
        step = self.env.step(action)
        self.stack.update(step)  # a lost life begins an episode of the learner; the game goes on
        return action, step


def evaluate(
    agent: Agent,
    make_env: MakeEnv,
    games: int = 20,
    epsilon: float = 0.001,
    parallel: int = 8,
    seed: int = 0,
    watch: Watch | None = None,
    choose: Choose | None = None,
    follow: Follow | None = None,
) -> list[GameEnd]:
    """The ends of `games` whole games in order of their numbers. ε-greedy, by expected real return or by `choose`."""
    _check(games, epsilon, parallel)
    choose = agent.actor.greedy if choose is None else choose
    waiting, running = deque(range(games)), list[_Game]()
    ends: dict[int, GameEnd] = {}
    steps = 0
    try:
        while waiting or running:
            while waiting and len(running) < parallel:
                running.append(_begin(waiting.popleft(), make_env, seed, agent.spec))
            actions = choose(np.stack([game.stack.obs for game in running]))  # [P]
            for row, (game, action) in enumerate(zip(running, actions, strict=True)):
                taken, step = game.advance(int(action), epsilon)
                if follow is not None:
                    follow(game.number, row, taken, step)
                if step.game is not None:
                    ends[game.number] = step.game
                    game.env.close()
            steps += len(running)
            running = [game for game in running if game.number not in ends]
            if watch is not None:
                watch(len(ends), steps)
    finally:
        for game in running:
            game.env.close()
    return [ends[number] for number in range(games)]


def random_scores(make_env: MakeEnv, games: int = 100, seed: int = 0) -> list[GameEnd]:
    """The ends of whole games played by uniformly random actions."""
    _check(games, epsilon=1.0, parallel=1)
    ends = []
    for number in range(games):
        game = _begin(number, make_env, seed, None)
        try:
            while (end := game.advance(0, epsilon=1.0)[1].game) is None:
                pass
        finally:
            game.env.close()
        ends.append(end)
    return ends


def _begin(number: int, make_env: MakeEnv, seed: int, spec: EnvSpec | None) -> _Game:
    env = make_env(integer(seed, f"evaluation game {number}"))
    if spec is not None and (env.spec.obs_shape, env.spec.actions) != (spec.obs_shape, spec.actions):
        env.close()
        raise UserError(
            f"{env.spec.name} has observations {env.spec.obs_shape} and {env.spec.actions} actions; "
            f"the agent was trained with {spec.obs_shape} and {spec.actions} on {spec.name}"
        )
    return _Game(number, env, seed)


def _check(games: int, epsilon: float, parallel: int) -> None:
    if games < 1:
        raise UserError(f"--games is {games}; accepted: at least 1")
    if not 0.0 <= epsilon <= 1.0:
        raise UserError(f"--epsilon is {epsilon}; accepted: from 0 to 1")
    if parallel < 1:
        raise UserError(f"--parallel is {parallel}; accepted: at least 1")
