"""An actor: the environments of one process, anywhere, played with the learner's weights. Does not use Ray.

The learner sends an `Order` and weights, the actor answers with a `Block`: the steps it made, and its own state after
them. From the state before an order, the order and the weights another process makes the same block, bit for bit.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator
from typing import Any, NamedTuple

import lz4.block
import numpy as np
import torch
from numpy.typing import NDArray

from c2d.agents.build import build_network, build_phi
from c2d.agents.rollout import Actor, Rollout, Transition
from c2d.config import Config, from_json
from c2d.envs.spec import EnvSpec
from c2d.recipes.part import Recurrent
from c2d.seeding import torch_generator
from c2d.training.streams import check_alike, continue_games, env_threads, games_of, make_stream, named, outside
from c2d.types import ResetFrame
from c2d.user_code import TRUSTED

Weights = dict[str, NDArray[Any]]
State = dict[str, Any]  # of an actor: plain JSON values, bytes and arrays


class ActorRequest(NamedTuple):
    """What an actor is."""

    config: dict[str, Any]  # in its JSON form
    number: int
    life: int  # how often it was replaced by one that begins new games
    spec: EnvSpec  # that its environments must have
    trusted: tuple[str, ...] = ()  # code that the user named on the command line


class Order(NamedTuple):
    """What an actor has to play."""

    rounds: int  # steps of each of its environments
    epsilon: float
    fresh: bool = False  # begin new games before the first round
    state: State | None = None  # continue from here; None: from where it is
    skip: int = 0  # rounds at the beginning that the learner has already


class Packed(NamedTuple):
    """Transitions without their frames, and the frames."""

    rounds: list[list[Transition]]
    frames: NDArray[np.uint8]  # bytes, compressed; images hardly differ from each other


class Block(NamedTuple):
    """What came of an order."""

    packed: Packed
    state: State  # of the actor after the last round
    mismatches: list[str]  # games that could not be continued, and why
    outside: str | None  # what an environment says of observations that leave their range
    failure: str | None  # why there are fewer rounds than ordered
    seconds: float


class RemoteActor:
    """Plays on request, one request at a time."""

    def __init__(self, request: ActorRequest) -> None:
        TRUSTED.update(request.trusted)
        config: Config = from_json(request.config)
        self.number, count = request.number, config.recipe.envs
        numbers = range(request.number * count, (request.number + 1) * count)
        self.streams = [make_stream(config, number, request.life) for number in numbers]
        check_alike(request.spec, [stream.env.spec for stream in self.streams], numbers, config.streams)
        self.network = build_network(config.recipe, request.spec, torch.Generator().manual_seed(0))
        self.noise = torch_generator(config.seed, named("acting", request.number, request.life))
        self.actor = Actor(self.network, build_phi(config.recipe, self.network), self.noise)
        threads, values = env_threads(config), lambda: self.actor.values
        self.rollout = Rollout(self.actor.greedy, self.streams, threads=threads, values=values, recall=self.actor)
        self._openings: dict[int, ResetFrame] = {}  # of new games, until a step is sent
        self._core = config.recipe.core
        self._positions = [0] * count  # steps of the learner's episode

    def play(self, order: Order, weights: Weights | None = None) -> Block:
        """Carry out an order. Without weights those of before stay."""
        started, mismatches, failure = time.perf_counter(), [], None
        if weights is not None:
            self.network.load_state_dict({name: torch.tensor(array) for name, array in weights.items()})
        restarted: list[int] = []  # streams whose game could not be continued
        if order.state is not None:
            for stream, reason, opening in self.load_state_dict(order.state):
                restarted.append(stream)
                mismatches.append(reason)
                self._openings[stream] = opening
        if order.fresh:
            self._openings = dict(self.rollout.reset())
        rounds: list[list[Transition]] = []
        try:
            for _ in range(order.skip):
                list(self._round(order.epsilon))
            if order.skip:  # the learner has what came before, but not of the games that could not be continued
                self._openings = {stream: self.streams[stream].reset() for stream in restarted}
            for _ in range(order.skip, order.rounds):
                rounds.append(list(self._round(order.epsilon)))
        except Exception as error:
            failure = self._described(error)
        return Block(
            packed(rounds), self.state_dict(), mismatches, outside(self.streams), failure, time.perf_counter() - started
        )

    def _round(self, epsilon: float) -> Iterator[Transition]:
        """One step of each environment, as it is sent: with the memories before it that the replay keeps."""
        for each in self.rollout.step(epsilon):
            opening = self._openings.pop(each.stream, None)
            position = self._positions[each.stream] if opening is None else 0
            kept = isinstance(self._core, Recurrent) and self._core.keeps_memory_at(position)
            yield each._replace(opening=opening, memory=each.memory if kept else None)
            self._positions[each.stream] = 0 if each.step.reset is not None else position + 1

    def _described(self, error: Exception) -> str:
        """Which environment failed, and where, in one line."""
        name = self.streams[0].env.spec.name
        where = (getattr(error, "__notes__", None) or [f"environment 0 of 1: {name}"])[-1]
        frame = traceback.extract_tb(error.__traceback__)[-1]
        text = (str(error).splitlines() or [""])[0][:300]
        return (
            f"actor {self.number}, {where}: {type(error).__name__}{': ' if text else ''}{text} "
            f"({frame.filename}, line {frame.lineno})"
        )

    def state_dict(self) -> State:
        """All that what it plays from now on depends on, except for the weights. Shares no memory with the actor."""
        return {
            "streams": [{**game, "observation": game["observation"].copy()} for game in games_of(self.streams)],
            "positions": list(self._positions),
            "generators": [stream.rng.bit_generator.state for stream in self.streams],
            "noise": self.noise.get_state().numpy().tobytes(),
        }

    def load_state_dict(self, state: State) -> list[tuple[int, str, ResetFrame]]:
        """Continue from `state`. Of games that cannot be brought back and begin again: stream, reason, first frame."""
        for stream, saved in zip(self.streams, state["generators"], strict=True):
            stream.rng.bit_generator.state = saved
        self.noise.set_state(torch.frombuffer(bytearray(state["noise"]), dtype=torch.uint8))
        self._positions = list(state["positions"])
        return continue_games(self.streams, state["streams"])

    def close(self) -> None:
        self.rollout.close()


# ------------------------------------------------------------------------------------------------ frames on their way


def packed(rounds: list[list[Transition]]) -> Packed:
    """Frames apart, so that they travel as one array instead of thousands."""
    frames: list[NDArray[Any]] = []
    bare = [[_without_frames(transition, frames) for transition in played] for played in rounds]
    joined = b"".join(np.ascontiguousarray(frame).data for frame in frames)
    return Packed(bare, np.frombuffer(lz4.block.compress(joined), np.uint8))


def unpacked(packed: Packed, spec: EnvSpec) -> list[list[Transition]]:
    """The inverse of `packed`. Frames share memory with one another."""
    joined = np.frombuffer(lz4.block.decompress(packed.frames), spec.frame_dtype)
    frames = iter(joined.reshape(-1, *spec.frame_shape))
    return [[_with_frames(transition, frames) for transition in played] for played in packed.rounds]


_NONE: Any = None  # in place of a frame that travels apart


def _without_frames(transition: Transition, frames: list[NDArray[Any]]) -> Transition:
    step, opening = transition.step, transition.opening
    if opening is not None:
        frames.append(opening.frame)
        opening = opening._replace(frame=_NONE)
    frames.append(step.frame)
    reset = step.reset
    if reset is not None:
        frames.append(reset.frame)
        reset = reset._replace(frame=_NONE)
    return transition._replace(step=step._replace(frame=_NONE, reset=reset), opening=opening)


def _with_frames(transition: Transition, frames: Iterator[NDArray[Any]]) -> Transition:
    step, opening = transition.step, transition.opening
    if opening is not None:
        opening = opening._replace(frame=next(frames))
    frame = next(frames)
    reset = step.reset if step.reset is None else step.reset._replace(frame=next(frames))
    return transition._replace(step=step._replace(frame=frame, reset=reset), opening=opening)
