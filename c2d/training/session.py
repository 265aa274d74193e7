"""One run in memory: environments, agent, replay, counters; advanced step by step.

act (ε-greedy) → step the environments → store → every `update_period` steps one update → every `target_period` steps
copy the target network

With several environments one step of each is a round, and all periods count agent steps of all of them together: with
8 environments and an update every 4 steps, a round ends with two updates. With `overlap` the environments of a round
step while its updates are made, from what was stored before the round. With actors the environments are elsewhere, and
a round is the next step of each that has arrived (`RemoteRollout`).

`Session` is the cadence: it decides when to act, to learn and to copy. `Rollout`, `Replay` and `Learner` know how.
"""

from __future__ import annotations

import math
import operator
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from c2d.agents.build import build_learner, build_replay, check_training
from c2d.agents.learner import Learner, epsilon, epsilons, fetch
from c2d.agents.rollout import Actor, OwnPlay, Rollout, Stream
from c2d.config import Config
from c2d.errors import UserError
from c2d.replay.buffer import Replay
from c2d.replay.ring import Ring
from c2d.runs import records
from c2d.seeding import numpy_generator, torch_generator
from c2d.training import reward_unit
from c2d.training.streams import (
    check_alike,
    continue_games,
    env_threads,
    epsilons_of,
    games_of,
    make_stream,
    named,
    outside,
    rate_limiter,
)
from c2d.types import FetchedUpdate, FinishedGame, ResetFrame, Sight, Update

if TYPE_CHECKING:
    from c2d.training.remote_rollout import RemoteRollout

PROBED = 64  # states whose greedy actions are compared from record to record
_LARGEST_COUNT = 10**15  # no run makes so many steps


class Diverged(UserError):
    """The loss or the gradient is not finite."""


_COMBINE: dict[str, Callable[[float, float], float]] = {
    "mean": operator.add,  # divided when it is recorded
    "sum": operator.add,
    "min": min,
    "max": max,
    "last": lambda _, value: value,
}


class Tally:
    """Running statistics of one iteration. Which ones: the fields of `IterationRecord` that declare a `reduce`."""

    def __init__(self) -> None:
        self._reduced = [each for each in records.metrics() if each.reduce is not None]
        self._steps = [(m.name, m.update, _COMBINE[str(m.reduce)]) for m in self._reduced if m.update is not None]
        self.scores: list[float] = []  # whole games that ended
        self.updates = 0
        self.counts: dict[str, int] = {}  # of the values that were reported, by updates or by play
        self.values: dict[str, float] = {}  # their sums, extremes and last ones

    def count(self, update: FetchedUpdate) -> None:
        self.updates += 1
        for name, key, combine in self._steps:
            value = update.loss if key == "loss" else update.metrics.get(str(key))
            if value is not None:
                self.counts[name] = self.counts.get(name, 0) + 1
                self.values[name] = combine(self.values[name], value) if name in self.values else value

    def add(self, name: str, total: float, count: int) -> None:
        """Values of a mean that no update reports: their sum and number."""
        self.counts[name] = self.counts.get(name, 0) + count
        self.values[name] = self.values.get(name, 0.0) + total

    @property
    def mean_score(self) -> float | None:
        return math.fsum(self.scores) / len(self.scores) if self.scores else None

    def record(self) -> dict[str, Any]:
        """The values so far, by the names of the record's fields; None where there is no value."""
        record: dict[str, Any] = {"episodes": len(self.scores), "mean_score": self.mean_score}
        for each in self._reduced:
            value = self.values.get(each.name)
            if value is not None and each.reduce == "mean":
                value /= self.counts[each.name]
            record[each.name] = value
        return {**record, "updates": self.updates}

    def state_dict(self) -> dict[str, Any]:
        return {
            "scores": list(self.scores),
            "updates": self.updates,
            "counts": dict(self.counts),
            "values": dict(self.values),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """ValueError if it is not one that a run can have. Metrics that are not declared any more are dropped."""
        scores, updates, counts, values = (state[name] for name in ("scores", "updates", "counts", "values"))
        if not isinstance(scores, list) or not isinstance(values, dict) or set(counts) != set(values):
            raise ValueError("the tally does not hold scores, counts and values")
        if any(type(count) is not int or not 0 <= count <= _LARGEST_COUNT for count in (updates, *counts.values())):
            raise ValueError("the tally holds a count that is not one")
        for value in (*scores, *values.values()):
            if type(value) not in (int, float) or (abs(value) > 1e300 and not math.isinf(value)):
                raise ValueError(f"the tally holds {str(value)[:40]!r}, which is not a number")
        self.scores, self.updates = list(scores), updates
        known = [each.name for each in self._reduced if counts.get(each.name)]
        self.counts, self.values = ({name: part[name] for name in known} for part in (counts, values))


class Session:
    """All state of a run. `advance` makes one agent step per environment; nothing here knows of files or screens."""

    def __init__(self, config: Config) -> None:
        self.config = config
        seed, recipe = config.seed, config.recipe
        self.schedule = recipe.schedule
        streams = [make_stream(config, number) for number in range(1 if config.actors else recipe.envs)]
        check_alike(streams[0].env.spec, [stream.env.spec for stream in streams], range(len(streams)), len(streams))
        self.env = streams[0].env
        check_training(recipe, self.env.spec, config.compress_replay)
        device = config.device
        learning, acting = (torch_generator(seed, name, device) for name in ("learning", "acting"))
        weights = torch_generator(seed, "weights")
        self.learner = build_learner(recipe, self.env.spec, weights, learning, device, config.compile)
        truncation, count, memory = config.rules.truncation, config.streams, self.learner.online.memory
        self.replay = build_replay(recipe, self.env.spec, truncation, config.compress_replay, memory, count)
        self.actor = Actor(self.learner.acting, self.learner.phi, acting)
        self.notices: list[tuple[str, bool]] = []  # for whoever runs it: a text, and whether it is a warning
        self.remote = self._remote() if config.actors else None  # None: this process plays
        self.rollout: Rollout | RemoteRollout = self.remote or self._local(streams)
        self.play = OwnPlay(count, self.schedule.gamma, recipe.clip_reward, truncation)
        self.limiter = rate_limiter(config)
        self.sampling = numpy_generator(seed, "replay")
        self.generators = {named("actions", number): stream.rng for number, stream in enumerate(self.rollout.streams)}
        self.generators["replay"] = self.sampling
        self.torch_generators = {"learning": learning, "acting": acting}
        self.history = 0  # random steps made before training
        self.step = 0  # training steps made
        self.iteration = 0  # iterations completed
        self.tally = Tally()  # of the iteration
        self.recent = Tally()  # since the last point
        self.fresh_std: float | None = None  # spread of the laws before the first update
        self.stop = threading.Event()  # set when the run is to end: then nobody waits for an actor
        self.probe: tuple[np.ndarray | Sight, np.ndarray] | None = None  # states, greedy actions [P] i64
        self.probe_legal: np.ndarray | None = None  # [P, A] bool: the actions that are legal there; None: all
        self.mismatch: str | None = None  # why the game of a checkpoint could not be resumed
        self._warned = False  # that atoms are saturated
        self._strayed = False  # that observations leave their range
        self._learning = False
        self.heard: list[FetchedUpdate] | None = None  # what updates reported, for whoever takes it; None: nobody does
        # of a round that is not complete, because an environment failed:
        self._games: list[FinishedGame] = []  # that ended in it
        self._learned = False  # its updates are made

    def _local(self, streams: list[Stream]) -> Rollout:
        """The environments play in this process."""
        threads = env_threads(self.config)
        return Rollout(self.actor.greedy, streams, threads=threads, values=lambda: self.actor.values, recall=self.actor)

    def _remote(self) -> RemoteRollout:
        """Actors play, with this learner's weights."""
        from c2d.training.remote_rollout import RemoteRollout

        return RemoteRollout(
            self.config,
            self.env.spec,
            learner=self.learner,
            progress=lambda: None if self.filling else self.step,
            stopped=lambda: self.stop.is_set(),
            notices=self.notices,
        )

    @property
    def sound(self) -> bool:
        """Whether the run can be continued from this state: not in the middle of learning or of storing a round."""
        return not self._learning and self.rollout.at_rest

    @property
    def epsilon(self) -> float:
        return sum(self.epsilons) / len(self.epsilons) if self.config.actors else epsilon(self.schedule, self.step)

    @property
    def epsilons(self) -> list[float]:
        """Of each environment."""
        if self.config.actors:
            return epsilons_of(self.config, self.step)
        return epsilons(self.schedule, self.step, len(self.rollout.streams))

    @property
    def steps_made(self) -> int:
        """Including random ones."""
        return self.history + self.step

    @property
    def filling(self) -> bool:
        """Whether the replay is still being filled by uniformly random steps."""
        return self.history < self.schedule.random_history

    def fill(self) -> None:
        """One uniformly random step of each environment into the replay. After the last of them new games begin."""
        if not self.history:
            self._begin()
        self._play(1.0)
        self._games.clear()
        self.history += self.rollout.round_steps
        if not self.filling:
            self._begin()
            self._choose_unit(reward_unit.find)
            self._look_for_strays()

    def fill_history(self) -> None:
        while self.filling:
            self.fill()

    def advance(self) -> list[FinishedGame]:
        """One training step of every environment, and the updates due with it; returns the games that ended.

        If an environment fails, call it again to finish the round.
        """
        if self.config.recipe.overlap:
            if not self._learned:
                self.rollout.launch(self.epsilons)
                self._learn()
                self._learned = True
            self._play(self.epsilons)
        else:
            self._play(self.epsilons)
            self._learn()
        self.step += self.rollout.round_steps
        if self.remote is not None and self.remote.round_steps:
            self._tell("staleness", self.remote.ages, self.remote.round_steps)
        games, self._games, self._learned = self._games, [], False
        for tally in (self.tally, self.recent):
            tally.scores += [game.score for game in games]
        return games

    def _tell(self, name: str, total: float, count: int) -> None:
        """Values of a mean, from play."""
        self.tally.add(name, total, count)
        self.recent.add(name, total, count)

    def _begin(self) -> None:
        """New games."""
        for stream, opening in self.rollout.reset():
            self._open(stream, opening)

    def _open(self, stream: int, opening: ResetFrame) -> None:
        """A game that begins, whatever became of the one before."""
        self.replay.begin(opening, stream)
        self.play.begin(stream)

    def _play(self, epsilon: float | list[float]) -> None:
        """One step of every environment into the replay."""
        for stream, action, _, step, value, memory, opening in self.rollout.step(epsilon):
            if opening is not None:
                self._open(stream, opening)
            self.replay.add(action, step, stream, memory)
            self.play.follow(stream, value, step, self._tell)
            if step.game is not None:
                self._games.append(FinishedGame(*step.game, stream))

    def _learn(self) -> None:
        """The updates and the copies of the target network that are due in this round."""
        self._learning = True
        updates: list[Update] = []
        steps = self.rollout.round_steps
        for now in range(self.step, self.step + steps):
            updates += [self._update() for _ in range(self.limiter.due(now))]
            if now % self.schedule.target_period == 0:
                if self.schedule.polyak is None:
                    self.learner.synchronize()  # with Polyak averaging, each update moves the target network
                self._choose_unit(reward_unit.maintain)
        if self.remote is not None and steps:
            self._tell("samples_per_insert", float(len(updates) * self.schedule.batch_size), steps)
        self._digest(updates)
        self._learning = False

    def _choose_unit(self, choose: Callable[[Learner, Replay], str | None]) -> None:
        """For a head that has a unit of rewards."""
        if self.learner.online.head.unit is not None and (text := choose(self.learner, self.replay)):
            self.notices.append((text, False))

    def _update(self) -> Update:
        """One batch, one gradient step."""
        batch = self.replay.sample(self.schedule.batch_size, self.sampling, self.config.device)
        return self.learner.update(batch)

    def _digest(self, updates: Sequence[Update]) -> None:
        """Wait for the updates of a round, and hand on what they report: priorities, divergence, statistics."""
        for update in fetch(updates):
            self.replay.feedback(update.indices, update.priority)
            for quantity, value in (("loss", update.loss), ("gradient", update.metrics["gradient_norm"])):
                if not math.isfinite(value):
                    advice = "lower --optim.learning-rate, or check the size of the rewards"
                    raise Diverged(f"the {quantity} became {value} at step {self.step}: {advice}")
            if not self.iteration and not self.tally.updates:
                self.fresh_std = update.metrics.get("law_std")
            self.tally.count(update)
            self.recent.count(update)
            if self.heard is not None:
                self.heard.append(update)

    def _record(self, tally: Tally) -> records.IterationRecord:
        """What was counted, and what the networks report now."""
        diagnostics: dict[str, Any] = dict(self.learner.online.diagnostics())
        declared = {each.name for each in records.metrics() if each.diagnostic}
        return records.IterationRecord(
            iteration=self.iteration,
            steps=self.step,
            frames=self.step * self.env.spec.frames_per_step,
            **tally.record(),
            **{name: value for name, value in diagnostics.items() if name in declared},
            extra={name: value for name, value in diagnostics.items() if name not in declared},
            epsilon=self.epsilon,
        )

    def point(self) -> records.IterationRecord | None:
        """The metrics since the point before, if one is due after the last round; the next stretch begins."""
        if not records.at_point(self.step, self.rollout.round_steps, self.schedule.steps_per_iteration):
            return None
        record, self.recent = self._record(self.recent), Tally()
        return record

    def finish_iteration(self) -> records.IterationRecord:
        """The record of the iteration just completed; the next begins."""
        record = self._record(self.tally)
        record.law_std_fresh, record.churn = self.fresh_std, self._churn()
        extreme = max(abs(record.atom_min or 0.0), abs(record.atom_max or 0.0))
        if not self._warned and (text := reward_unit.warning(self.learner, self.replay, extreme)):
            self.notices.append((text, True))
            self._warned = True
        self._look_for_strays()
        self.iteration += 1
        self.tally = Tally()
        return record

    def _look_for_strays(self) -> None:
        """Warn, once, if observations of an environment leave the range that it declares."""
        text = outside(self.rollout.streams) if self.remote is None else self.remote.outside
        if text and not self._strayed:
            self.notices.append((text, True))
            self._strayed = True

    def _churn(self) -> float | None:
        """The share of states, drawn from the replay at the last record, whose greedy action has changed since.

        The acting network is asked without noise. The states are drawn by a generator of the iteration's own.
        """
        steady = Actor(self.learner.acting, self.learner.phi)
        share = None
        if self.probe is not None:
            share = float((steady.greedy(self.probe[0], self.probe_legal) != self.probe[1]).mean())
        if len(self.replay):
            rng = numpy_generator(self.config.seed, f"probe {self.iteration}")
            states, self.probe_legal = self.replay.probe(PROBED, rng)
            self.probe = states, steady.greedy(states, self.probe_legal)
        return share

    # ------------------------------------------------------------ for checkpoints

    @property
    def rings(self) -> Sequence[Ring]:
        """The slots of the replay, one ring per stream: the journal keeps all but the newest slot of each."""
        return self.replay.rings

    @property
    def network_bytes(self) -> int:
        """Of all networks and the optimizers' moments."""
        state = self.learner.state_dict()
        parts = [state["online"], state["target"], state.get("acting", {}), *state["optimizers"]]
        return sum(array.nbytes for part in parts for array in part.values() if not isinstance(array, int))

    @property
    def state_bytes(self) -> int:
        """The most that the arrays of `state_dict` can take; a fork may come from a larger replay."""
        observation, streams = self.env.spec.stack * self.env.spec.frame_bytes, self.config.streams
        newest, memory = 2 * self.replay.frame_bytes * streams, 4 * self.learner.online.memory
        probe = PROBED * (observation + memory + self.env.spec.actions + 24)
        networks = self.network_bytes * (2 if self.config.actors else 1)  # two more are those that actors play with
        return networks + (observation + 3 * memory) * streams + newest + probe + 10 * 8 * self.replay.capacity

    def state_dict(self) -> dict[str, Any]:
        """All that the rest of the run depends on, except for the slots of `rings` before the newest.

        Plain JSON values, bytes and NumPy arrays, nested. Arrays may share memory with the session.
        """
        return {
            "history": self.history,
            "step": self.step,
            "iteration": self.iteration,
            "tally": self.tally.state_dict(),
            "recent": self.recent.state_dict(),
            "round": {"learned": self._learned, "games": [list(game) for game in self._games]},
            "generators": {name: rng.bit_generator.state for name, rng in self.generators.items()},
            "torch_generators": {n: rng.get_state().numpy().tobytes() for n, rng in self.torch_generators.items()},
            **({"streams": games_of(self.rollout.streams)} if self.remote is None else self.remote.state_dict()),
            "diagnostics": {
                "play": self.play.state_dict(),
                "fresh_std": self.fresh_std,
                "probe": None if self.probe is None else _as_arrays(*self.probe, self.probe_legal),
            },
            "learner": self.learner.state_dict(),
            "replay": self.replay.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state`, in a fresh session whose `rings` were filled. ValueError for what does not fit.

        If the environment cannot be brought where it was, a new game begins and `mismatch` says why.
        """
        if (count := len(state["replay"]["streams"])) != self.config.streams:
            raise ValueError(f"it has {count} environments, the run {self.config.streams}")
        self.learner.load_state_dict(state["learner"])
        self.replay.load_state_dict(state["replay"])
        counters = [state[name] for name in ("history", "step", "iteration")]
        if any(type(counter) is not int or not 0 <= counter <= _LARGEST_COUNT for counter in counters):
            raise ValueError(f"counters are {str(counters)[:80]}")
        self.history, self.step, self.iteration = counters
        self.tally, self.recent = Tally(), Tally()
        self.tally.load_state_dict(state["tally"])
        if "recent" in state:  # those of version 0.1.0 have no points
            self.recent.load_state_dict(state["recent"])
        begun = state.get("round", {"learned": False, "games": []})
        self._learned = bool(begun["learned"])
        self._games = [FinishedGame(float(score), int(steps), int(env)) for score, steps, env in begun["games"]]
        for name, rng in self.generators.items():
            rng.bit_generator.state = state["generators"][name]
        for name, torch_rng in self.torch_generators.items():
            torch_rng.set_state(torch.frombuffer(bytearray(state["torch_generators"][name]), dtype=torch.uint8))
        if "diagnostics" in state:  # those of versions up to 0.2.0 do not have them
            self._load_diagnostics(state["diagnostics"])
        if self.remote is not None:
            self.remote.load_state_dict(state)
            return
        for number, reason, opening in continue_games(self.rollout.streams, state["streams"]):
            self.mismatch = reason
            self._open(number, opening)

    def _load_diagnostics(self, saved: dict[str, Any]) -> None:
        self.play.load_state_dict(saved["play"])
        self.fresh_std, probe = saved["fresh_std"], saved["probe"]
        if type(self.fresh_std) not in (float, int, type(None)):
            raise ValueError(f"the spread of fresh laws is {str(self.fresh_std)[:40]!r}")
        if probe is not None:
            states, actions, spec = probe["states"], probe["actions"], self.env.spec
            fits = states.shape[1:] == spec.obs_shape and states.dtype == spec.frame_dtype and len(states) > 0
            legal, masks = probe.get("legal"), (len(states), spec.actions)
            if not fits or actions.shape != states.shape[:1] or actions.dtype != np.int64:
                raise ValueError(f"the probed states are {states.dtype} {states.shape}")
            if legal is not None and not (legal.shape == masks and legal.dtype == np.bool_ and legal.any(-1).all()):
                raise ValueError(f"the masks of the probed states are {legal.dtype} {legal.shape}")
            self.probe_legal = legal
            self.probe = states, actions
            if memory := self.learner.online.memory:
                seen = Sight(states, probe["before"], probe["earned"], probe["memory"])
                if seen.action.shape != actions.shape or seen.memory.shape != (len(actions), memory):
                    raise ValueError(f"the probed memories are {seen.memory.dtype} {seen.memory.shape}")
                self.probe = seen, actions

    def close(self) -> None:
        self.rollout.close()
        if self.config.actors:
            self.env.close()


def _as_arrays(states: np.ndarray | Sight, actions: np.ndarray, legal: np.ndarray | None) -> dict[str, np.ndarray]:
    """What was probed, by name."""
    found = {"actions": actions, **({} if legal is None else {"legal": legal})}
    if not isinstance(states, Sight):
        return {"states": states, **found}
    return {"states": states.obs, "before": states.action, "earned": states.reward, "memory": states.memory, **found}
