"""One run in memory: environments, agent, replay, counters; advanced step by step.

act (ε-greedy) → step the environment → store → every 4th step one update → every 8,000th step copy the target network

`Session` is the cadence: it decides when to act, to learn and to copy. `Rollout`, `Replay` and `Learner` know how.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from c2d.agents.build import build_learner, build_replay
from c2d.agents.learner import linear
from c2d.agents.rollout import Actor, Rollout, Stream
from c2d.agents.sizes import check_training
from c2d.config import Config
from c2d.envs.make import make
from c2d.envs.spec import ReplayMismatch
from c2d.errors import UserError
from c2d.seeding import integer, numpy_generator, torch_generator
from c2d.types import GameEnd, Update

_LARGEST_COUNT = 10**15  # no run makes so many steps


class Diverged(UserError):
    """The loss or the gradient is not finite."""


@dataclass
class Tally:
    """Running statistics of one iteration, as the authors recorded them."""

    scores: list[float] = field(default_factory=list)  # whole games that ended
    updates: int = 0
    loss_sum: float = 0.0
    atom_min: float = math.inf  # over sampled actions in training batches
    atom_max: float = -math.inf
    gradient_norm_max: float = 0.0  # before clipping

    def check(self) -> None:
        """ValueError if it is not one that a run can have."""
        if not isinstance(self.scores, list) or type(self.updates) is not int or self.updates < 0:
            raise ValueError("the tally holds something else than scores and a count of updates")
        for value in (*self.scores, self.loss_sum, self.atom_min, self.atom_max, self.gradient_norm_max):
            if type(value) not in (int, float) or (abs(value) > 1e300 and not math.isinf(value)):
                raise ValueError(f"the tally holds {str(value)[:40]!r}, which is not a number")

    def count(self, update: Update) -> None:
        self.updates += 1
        self.loss_sum += update.loss
        self.atom_min = min(self.atom_min, update.metrics["atom_min"])
        self.atom_max = max(self.atom_max, update.metrics["atom_max"])
        self.gradient_norm_max = max(self.gradient_norm_max, update.metrics["gradient_norm"])

    @property
    def mean_score(self) -> float | None:
        return math.fsum(self.scores) / len(self.scores) if self.scores else None

    @property
    def mean_loss(self) -> float | None:
        return self.loss_sum / self.updates if self.updates else None

    def record(self) -> dict[str, Any]:
        return {
            "episodes": len(self.scores),
            "mean_score": self.mean_score,
            "mean_loss": self.mean_loss,
            "atom_min": self.atom_min if self.updates else None,
            "atom_max": self.atom_max if self.updates else None,
            "gradient_norm_max": self.gradient_norm_max if self.updates else None,
            "updates": self.updates,
        }


class Session:
    """All state of a run. `advance` makes one agent step per environment; nothing here knows of files or screens."""

    def __init__(self, config: Config) -> None:
        self.config = config
        seed, recipe = config.seed, config.recipe
        self.schedule = recipe.schedule
        self.env = make(config.env, config.rules, integer(seed, "environment"))
        check_training(recipe, self.env.spec, config.compress_replay)
        device = config.device
        learning, acting = (torch_generator(seed, name, device) for name in ("learning", "acting"))
        self.learner = build_learner(recipe, self.env.spec, torch_generator(seed, "weights"), learning, device)
        self.replay = build_replay(recipe, self.env.spec, config.rules.truncation, config.compress_replay)
        self.actor = Actor(self.learner.online, self.learner.phi, acting)
        self.rollout = Rollout(self.actor.greedy, [Stream(self.env, numpy_generator(seed, "actions"))])
        self.sampling = numpy_generator(seed, "replay")
        self.generators = {"actions": self.rollout.streams[0].rng, "replay": self.sampling}
        self.torch_generators = {"learning": learning, "acting": acting}
        self.history = 0  # random steps made before training
        self.step = 0  # training steps made
        self.iteration = 0  # iterations completed
        self.tally = Tally()
        self.mismatch: str | None = None  # why the game of a checkpoint could not be continued
        self.sound = True  # whether the run can be continued from this state: not in the middle of learning

    @property
    def epsilon(self) -> float:
        s = self.schedule
        return linear(self.step, s.epsilon_initial, s.epsilon_min, s.epsilon_decay_steps)

    @property
    def steps_made(self) -> int:
        """Random ones included."""
        return self.history + self.step

    @property
    def filling(self) -> bool:
        """Whether the replay is still being filled by uniformly random steps."""
        return self.history < self.schedule.random_history

    def fill(self) -> None:
        """One uniformly random step of each environment into the replay. After the last of them new games begin."""
        if not self.history:
            self._begin()
        self._play(epsilon=1.0)
        self.history += len(self.rollout.streams)
        if not self.filling:
            self._begin()

    def fill_history(self) -> None:
        while self.filling:
            self.fill()

    def advance(self) -> GameEnd | None:
        """One training step; returns the game that ended with it, if one did."""
        games = self._play(self.epsilon)
        self.sound = False
        self.tally.scores += [game.score for game in games]
        for now in range(self.step, self.step + len(self.rollout.streams)):
            if now % self.schedule.update_period == 0:
                self._learn()
            if now % self.schedule.target_period == 0 and self.schedule.polyak is None:
                self.learner.synchronize()  # with Polyak averaging, each update moves the target network
        self.step += len(self.rollout.streams)
        self.sound = True
        return games[0] if games else None

    def _begin(self) -> None:
        """New games."""
        for number, stream in enumerate(self.rollout.streams):
            self.replay.begin(stream.reset(), number)

    def _play(self, epsilon: float) -> list[GameEnd]:
        """One step of every environment into the replay; returns the games that ended."""
        games = []
        for stream, action, _, step in self.rollout.step(epsilon):
            self.replay.add(action, step, stream)
            if step.game is not None:
                games.append(step.game)
        return games

    def _learn(self) -> None:
        """One batch, one gradient step."""
        batch = self.replay.sample(self.schedule.batch_size, self.sampling, self.config.device)
        update = self.learner.update(batch)
        self.replay.feedback(update.indices, update.priority)
        for quantity, value in (("loss", update.loss), ("gradient", update.metrics["gradient_norm"])):
            if not math.isfinite(value):
                raise Diverged(
                    f"the {quantity} became {value} at step {self.step}: lower --optim.learning-rate, "
                    "or check the size of the rewards"
                )
        self.tally.count(update)

    def finish_iteration(self) -> dict[str, Any]:
        """The record of the iteration just completed; the next begins."""
        record = {
            "kind": "iteration",
            "iteration": self.iteration,
            "steps": self.step,
            "frames": self.step * self.env.spec.frames_per_step,
            **self.tally.record(),
            **self.learner.online.diagnostics(),
            "epsilon": self.epsilon,
        }
        self.iteration += 1
        self.tally = Tally()
        return record

    def state(self) -> dict[str, Any]:
        """All plain values that the rest of the run depends on; arrays are `tensors` and the replay."""
        return {
            "history": self.history,
            "step": self.step,
            "iteration": self.iteration,
            "updates": self.learner.updates,
            "chosen": self.rollout.streams[0].action,
            "tally": vars(self.tally).copy(),
            "generators": {name: rng.bit_generator.state for name, rng in self.generators.items()},
            "torch_generators": {n: rng.get_state().numpy().tobytes() for n, rng in self.torch_generators.items()},
            "environment": self.env.save(),
        }

    def tensors(self) -> dict[str, Tensor]:
        """The learner's tensors and the observation, to copy from or into."""
        return {**self.learner.tensors(), "observation": torch.from_numpy(self.rollout.streams[0].stack.obs)}

    def restore(self, state: dict[str, Any]) -> str | None:
        """Continue from `state`, after tensors and replay were put back. Returns what could not be continued."""
        counters = [state[name] for name in ("history", "step", "iteration", "updates")]
        if any(type(counter) is not int or not 0 <= counter <= _LARGEST_COUNT for counter in counters):
            raise ValueError(f"counters are {str(counters)[:80]}")
        self.history, self.step, self.iteration, updates = counters
        for optimizer in self.learner.optimizers:
            optimizer.updates = updates
        chosen = state.get("chosen")
        if chosen is not None and not (type(chosen) is int and 0 <= chosen < self.env.spec.actions):
            raise ValueError(f"chosen action is {chosen}")
        self.rollout.streams[0].action = chosen
        self.tally = Tally(**state["tally"])
        self.tally.check()
        for name, rng in self.generators.items():
            rng.bit_generator.state = state["generators"][name]
        for name, torch_rng in self.torch_generators.items():
            torch_rng.set_state(torch.frombuffer(bytearray(state["torch_generators"][name]), dtype=torch.uint8))
        try:
            self.env.restore(state["environment"])
        except ReplayMismatch as error:
            self.mismatch = str(error)
            self._begin()
        return self.mismatch

    def close(self) -> None:
        self.rollout.close()
