"""Whole games played by a criterion, with what later judgments need: returns, decisions, predicted laws.

The laws are those of training: of the discounted return of an action followed by greedy play by the mean, in rewards
as the recipe sees them (clipped if it clips), to the end of the learner's episode (a life, where lives count).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from c2d.agents.agent import Agent
from c2d.evaluation.play import MakeEnv, Watch, evaluate
from c2d.evaluation.risk import MEAN, Criterion
from c2d.evaluation.visits import Visits
from c2d.types import GameEnd, Step


@dataclass(frozen=True)
class Setup:
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

    def choose(self, obs: np.ndarray) -> np.ndarray:
        """[P, *obs] -> [P]"""
        self.laws = self.agent.actor.laws(obs)
        actions = self.by.best(*self.laws)
        if self.rival != self.by:
            self.different += int((self.rival.best(*self.laws) != actions).sum())
        self.made += len(obs)
        return actions.cpu().numpy()


@dataclass
class FirstReturns:
    """The discounted return from the start of each game to the end of the learner's first episode in it."""

    gamma: float
    clip: float | None
    values: dict[int, float] = field(default_factory=dict)
    _weights: dict[int, float] = field(default_factory=dict)  # γ^t; 0 once the episode is over

    def follow(self, number: int, step: Step) -> None:
        weight = self._weights.get(number, 1.0)
        reward = step.reward if self.clip is None else max(-self.clip, min(self.clip, step.reward))
        self.values[number] = self.values.get(number, 0.0) + weight * reward
        self._weights[number] = 0.0 if step.terminal or step.truncated else weight * self.gamma


@dataclass(frozen=True)
class Course:
    """What came of it."""

    by: Criterion
    ends: list[GameEnd]
    returns: list[float]  # discounted, from the start of each game
    decisions: int
    different: int  # where the rival would have chosen otherwise
    visits: Visits | None

    @property
    def scores(self) -> list[float]:
        return [end.score for end in self.ends]


def play(
    agent: Agent,
    make_env: MakeEnv,
    setup: Setup,
    by: Criterion = MEAN,
    rival: Criterion = MEAN,
    visits: Visits | None = None,
    watch: Watch | None = None,
) -> Course:
    """Whole games chosen `by` a criterion. `visits`, if given, takes down the predicted laws on the way."""
    decisions = Decisions(agent, by, rival)
    recipe = agent.recipe
    firsts = FirstReturns(recipe.schedule.gamma, recipe.clip_reward)

    def follow(number: int, row: int, action: int, step: Step) -> None:
        firsts.follow(number, step)
        if visits is not None:
            assert decisions.laws is not None
            visits.follow(number, step, decisions.laws[0][row, action], decisions.laws[1][row, action])

    ends = evaluate(
        agent, make_env, setup.games, setup.epsilon, setup.parallel, setup.seed, watch, decisions.choose, follow
    )
    returns = [firsts.values[number] for number in range(setup.games)]
    return Course(by, ends, returns, decisions.made, decisions.different, visits)
