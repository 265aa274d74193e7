"""Whole games played by a trained agent, several at once with one network pass per step.

Which games count is decided before the first one begins: numbers 0 to `games` - 1, each played to its end. A free
place takes the next number, so that long games weigh as much as short ones. Game k has an environment of its own,
seeded by (seed, k), and a generator of its own for ε: its course does not depend on how many games run in parallel,
except for the rounding of the network, which may differ in the last digit between batch sizes and tip a near-tie.

`evaluate` gives scores. `play` also chooses by other criteria than the mean and keeps what later judgments need:
returns, decisions, predicted laws. The laws are those of training: of the discounted return of an action followed by
greedy play by the mean, in rewards as the learner sees them, to the end of the learner's episode (a life, where lives
count).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from c2d.agents.agent import Agent
from c2d.agents.rollout import Choose, Rollout, Transition
from c2d.envs.spec import Environment, EnvSpec
from c2d.errors import UserError
from c2d.evaluation.prediction_log import PredictionLog
from c2d.evaluation.risk import MEAN, Criterion
from c2d.replay.buffer import learner_view
from c2d.seeding import integer, numpy_generator
from c2d.types import GameEnd, Sight, Step

MakeEnv = Callable[[int], Environment]  # seed -> a new environment
Watch = Callable[[int, int], None]  # games ended, agent steps made so far by all games together
# The number of a game, and what it did; `stream` is its row among the observations last chosen from.
Follow = Callable[[int, Transition], None]


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
    rollout = Rollout(agent.actor.greedy if choose is None else choose, every_row=True, recall=agent.actor)
    return _play_all(rollout, make_env, agent.spec, games, epsilon, parallel, seed, watch, follow)


def random_scores(make_env: MakeEnv, games: int = 100, seed: int = 0) -> list[GameEnd]:
    """The ends of whole games played by uniformly random actions."""
    return _play_all(Rollout(choose=None), make_env, None, games, epsilon=1.0, parallel=1, seed=seed)


def _play_all(
    rollout: Rollout,
    make_env: MakeEnv,
    spec: EnvSpec | None,  # which the environments must fit
    games: int,
    epsilon: float,
    parallel: int,
    seed: int,
    watch: Watch | None = None,
    follow: Follow | None = None,
) -> list[GameEnd]:
    _check(games, epsilon, parallel)
    waiting, running = deque(range(games)), list[int]()  # numbers; those running in the order of the rollout's streams
    ends: dict[int, GameEnd] = {}
    steps = 0
    try:
        while waiting or running:
            while waiting and len(running) < parallel:
                running.append(waiting.popleft())
                _begin(rollout, running[-1], make_env, seed, spec)
            for transition in rollout.step(epsilon):
                number, game = running[transition.stream], transition.step.game
                if follow is not None:
                    follow(number, transition)
                if game is not None:
                    ends[number] = game
            steps += len(running)
            for row in reversed(range(len(running))):
                if running[row] in ends:
                    rollout.remove(row)
                    del running[row]
            if watch is not None:
                watch(len(ends), steps)
    finally:
        rollout.close()
    return [ends[number] for number in range(games)]


def _begin(rollout: Rollout, number: int, make_env: MakeEnv, seed: int, spec: EnvSpec | None) -> None:
    env = make_env(integer(seed, f"evaluation game {number}"))
    stream = rollout.add(env, numpy_generator(seed, f"evaluation actions {number}"))
    if spec is not None and (env.spec.obs_shape, env.spec.actions) != (spec.obs_shape, spec.actions):
        raise UserError(
            f"{env.spec.name} has observations {env.spec.obs_shape} and {env.spec.actions} actions; "
            f"accepted: {spec.obs_shape} and {spec.actions}, as on {spec.name}, where the agent was trained"
        )
    stream.reset()


def _check(games: int, epsilon: float, parallel: int) -> None:
    if games < 1:
        raise UserError(f"--games is {games}; accepted: at least 1")
    if not 0.0 <= epsilon <= 1.0:
        raise UserError(f"--epsilon is {epsilon}; accepted: from 0 to 1")
    if parallel < 1:
        raise UserError(f"--parallel is {parallel}; accepted: at least 1")


# ---------------------------------------------------------------------------------------------------- by a criterion


@dataclass(frozen=True)
class PlaySettings:
    """How games are played."""

    games: int = 20
    epsilon: float = 0.001
    parallel: int = 8
    seed: int = 0


@dataclass
class Decisions:
    """Chooses by a criterion and counts where a rival would have chosen otherwise."""

    agent: Agent
    by: Criterion = MEAN
    rival: Criterion = MEAN
    made: int = 0
    different: int = 0
    laws: tuple[Tensor, Tensor] | None = None  # returns and probabilities of the last call, [P, A, N] each

    def choose(self, obs: np.ndarray | Sight, legal: np.ndarray | None = None) -> np.ndarray:
        """[P, *obs], [P, A] -> [P]"""
        self.laws = self.agent.actor.laws(obs)
        mask = None if legal is None else torch.from_numpy(legal).to(self.laws[0].device)
        actions = self.by.best(*self.laws, mask)
        if self.rival != self.by:
            self.different += int((self.rival.best(*self.laws, mask) != actions).sum())
        self.made += len(actions)
        return actions.cpu().numpy()


@dataclass
class FirstReturns:
    """The discounted return from the start of each game to the end of the learner's first episode in it.

    A truncation ends the episode here, whatever the learner makes of it: there is no return beyond it to sum.
    """

    gamma: float
    clip: float | None
    values: dict[int, float] = field(default_factory=dict)
    _weights: dict[int, float] = field(default_factory=dict)  # γ^t; 0 once the episode is over

    def follow(self, number: int, step: Step) -> None:
        weight = self._weights.get(number, 1.0)
        seen = learner_view(step, "terminal", self.clip)
        self.values[number] = self.values.get(number, 0.0) + weight * seen.reward
        self._weights[number] = 0.0 if seen.terminal else weight * self.gamma


@dataclass(frozen=True)
class PlayedGames:
    """What came of the games."""

    by: Criterion
    ends: list[GameEnd]
    returns: list[float]  # discounted, from the start of each game
    decisions: int
    different: int  # where the rival would have chosen otherwise
    log: PredictionLog | None
    seconds: float = 0.0  # that playing took

    @property
    def scores(self) -> list[float]:
        return [end.score for end in self.ends]


def play(
    agent: Agent,
    make_env: MakeEnv,
    settings: PlaySettings,
    by: Criterion = MEAN,
    rival: Criterion = MEAN,
    log: PredictionLog | None = None,
    watch: Watch | None = None,
) -> PlayedGames:
    """Whole games chosen `by` a criterion. `log`, if given, records the predicted laws on the way."""
    decisions = Decisions(agent, by, rival)
    recipe = agent.recipe
    firsts = FirstReturns(recipe.schedule.gamma, recipe.clip_reward)

    def follow(number: int, transition: Transition) -> None:
        row, action, step = transition.stream, transition.action, transition.step
        firsts.follow(number, step)
        if log is not None:
            assert decisions.laws is not None
            log.follow(number, step, decisions.laws[0][row, action], decisions.laws[1][row, action])

    games, epsilon, parallel, seed = settings.games, settings.epsilon, settings.parallel, settings.seed
    began = time.perf_counter()
    ends = evaluate(agent, make_env, games, epsilon, parallel, seed, watch, decisions.choose, follow)
    returns = [firsts.values[number] for number in range(games)]
    return PlayedGames(by, ends, returns, decisions.made, decisions.different, log, time.perf_counter() - began)
