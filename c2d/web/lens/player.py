"""One or two agents at play, step by step, each step with everything a person may want to see of it."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch

from c2d.agents.agent import Distribution
from c2d.envs.spec import FrameStack
from c2d.errors import UserError
from c2d.evaluation.risk import MEAN
from c2d.seeding import numpy_generator
from c2d.types import Phi, Step
from c2d.web.lens.load import Loaded, open_agent
from c2d.web.lens.messages import Parts, encode_png, pack
from c2d.web.lens.target import Transition, bellman_target

Drive = Literal["first", "second", "each"]  # whose actions are taken; "each": two games from the same seed
DRIVES: tuple[str, ...] = ("first", "second", "each")


class Game:
    """A running game. The same seed, ε and agent give the same game."""

    def __init__(self, loaded: Loaded, seed: int) -> None:
        self.env = loaded.make_env(seed)
        self.stack = FrameStack(self.env.spec)
        self.rng = numpy_generator(seed, "lens actions")
        self.number = 0
        self.notice: str | None = None  # why there is no picture
        self._open(self.env.reset())

    def _open(self, opening: Any) -> None:
        self.stack.reset(opening)
        self.steps, self.score = 0, 0.0

    def picture(self) -> bytes:
        if self.notice is None:
            try:
                return encode_png(self.env.render())
            except UserError as error:
                self.notice = str(error)
        return b""

    def choose(self, greedy: int, epsilon: float) -> tuple[int, bool]:
        """The action, and whether it was drawn at random."""
        if self.rng.random() < epsilon:
            return int(self.rng.integers(self.env.spec.actions)), True
        return greedy, False

    def step(self, action: int) -> tuple[Step, np.ndarray, np.ndarray]:
        """Returns the step, the observation before it and the true one after it, even if the episode ended."""
        before = self.stack.obs.copy()
        step = self.env.step(action)
        after = FrameStack(self.env.spec)
        after.obs[:] = before
        after.push(step.frame)
        self.stack.update(step)
        self.steps += 1
        self.score += step.reward
        return step, before, after.obs

    def next_if_over(self, step: Step) -> None:
        if step.game is not None:
            self.number += 1
            self.steps, self.score = 0, 0.0


class Player:
    """Agents and games. `advance` makes one step and returns it as a message."""

    def __init__(self, agents: list[Loaded], drive: Drive, seed: int, epsilon: float, trusted: tuple[str, ...]) -> None:
        self.agents, self.drive, self.trusted = agents, drive, trusted
        self.epsilon = epsilon
        self.criteria = [MEAN]
        self.chosen = 0  # place of the criterion that acts
        self.count = 0  # messages made
        self.games: list[Game] = []
        if len(agents) == 2 and drive != "each":
            _require_alike(*agents)
        self.begin(seed)

    def begin(self, seed: int) -> None:
        """New games from a seed; newer weights of a run that is training are taken up."""
        self._renew()
        self.close()
        self.seed = seed
        if len(self.agents) == 1 or self.drive == "each":
            self.games = [Game(loaded, seed) for loaded in self.agents]
        else:
            self.games = [Game(self.agents[self._driver(0)], seed)]

    def close(self) -> None:
        for game in self.games:
            game.env.close()
        self.games = []

    def _renew(self) -> None:
        for place, loaded in enumerate(self.agents):
            if loaded.changed():
                self.agents[place] = open_agent(loaded.root, loaded.run, loaded.checkpoint, self.trusted)

    def _driver(self, game: int) -> int:
        """Which agent acts in a game."""
        return game if self.drive == "each" else int(self.drive == "second" and len(self.agents) == 2)

    # ------------------------------------------------------------------- one step

    def advance(self) -> bytes:
        parts: Parts = {}
        games = []
        seats: list[dict[str, Any]] = []
        laws = [agent.agent.distribution(self._game(seat).stack.obs) for seat, agent in enumerate(self.agents)]
        for seat, law in enumerate(laws):
            seats.append(self._judge(law, self.agents[seat].agent.phi))
            for name in ("returns", "atoms", "probs"):
                parts[f"{seat}.{name}"] = getattr(law, name)
        for number, game in enumerate(self.games):
            games.append(self._play(number, game, seats, parts))
        self.count += 1
        header = {"kind": "moment", "n": self.count, "seed": self.seed, "epsilon": self.epsilon, "games": games,
                  "seats": seats, "criteria": [str(c) for c in self.criteria], "by": self.chosen}  # fmt: skip
        if any(game["ended"] for game in games):
            self._renew()
        return pack(header, parts)

    def _game(self, seat: int) -> Game:
        return self.games[min(seat, len(self.games) - 1)]

    def _judge(self, law: Distribution, phi: Phi) -> dict[str, Any]:
        """What each criterion makes of the actions, and which it would take."""
        returns, probs = torch.from_numpy(law.returns), torch.from_numpy(law.probs)
        return {
            "mean": law.mean.tolist(),
            "mean_atoms": phi.to(torch.from_numpy(law.mean)).tolist(),  # where the mean stands in φ-space
            "values": [criterion(returns, probs).tolist() for criterion in self.criteria],  # [A] each
            "would": [int(criterion.best(returns, probs)) for criterion in self.criteria],
        }

    def _play(self, number: int, game: Game, seats: list[dict[str, Any]], parts: Parts) -> dict[str, Any]:
        parts[f"{number}.picture"] = game.picture()
        driver = self._driver(number)
        action, random = game.choose(seats[driver]["would"][self.chosen], self.epsilon)
        told = {"game": game.number, "step": game.steps, "score": game.score, "action": action, "random": random,
                "driver": driver, "notice": game.notice}  # fmt: skip
        step, before, after = game.step(action)
        for seat in range(len(self.agents)):
            if self._game(seat) is game:
                seats[seat] |= self._target(seat, step, before, action, after, parts)
        ended = None if step.game is None else {"score": step.game.score, "steps": step.game.steps}
        game.next_if_over(step)
        return {**told, "reward": step.reward, "terminal": step.terminal, "truncated": step.truncated, "ended": ended}

    def _target(
        self, seat: int, step: Step, before: np.ndarray, action: int, after: np.ndarray, parts: Parts
    ) -> dict[str, Any]:
        """The Bellman target of the step as the seat's own recipe has it; nothing where its replay drops the step."""
        loaded = self.agents[seat]
        recipe, truncation = loaded.config.recipe, loaded.config.rules.truncation
        if step.truncated and truncation == "drop":
            return {"distance": None}
        over = step.terminal or (step.truncated and truncation == "terminal")
        limit = recipe.clip_reward
        reward = step.reward if limit is None else min(max(step.reward, -limit), limit)
        transition = Transition(before, action, reward, 0.0 if over else recipe.schedule.gamma, after)
        target = bellman_target(loaded.agent, loaded.target, transition)
        for name in ("returns", "atoms", "probs"):
            parts[f"{seat}.target_{name}"] = getattr(target, name)
        return {"distance": target.distance}


def _require_alike(first: Loaded, second: Loaded) -> None:
    a, b = first.agent.spec, second.agent.spec
    if (a.obs_shape, a.frame_dtype, a.actions, first.env) != (b.obs_shape, b.frame_dtype, b.actions, second.env):
        raise UserError(
            f"{first.run} plays {first.env} with {a.actions} actions and observations {a.obs_shape}, {second.run} "
            f"{second.env} with {b.actions} and {b.obs_shape}: they cannot look at one game; let each play its own"
        )
