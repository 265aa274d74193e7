"""Actors as Ray actors: Ray starts them where there is room, carries weights and blocks, and notices who dies."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from typing import Any

import torch

from c2d.agents.build import available_cores
from c2d.cluster.ray_connection import STORE, connected, failure_reason, last_line, living_nodes, ray
from c2d.config import Config
from c2d.errors import UserError
from c2d.training.process import exit_with_parent
from c2d.training.remote_actor import ActorRequest, Block, Order, RemoteActor, Weights
from c2d.training.remote_rollout import ActorLost


class _Actor(RemoteActor):
    """In a process that Ray starts for it."""

    def __init__(self, request: ActorRequest) -> None:
        torch.set_num_threads(1)
        exit_with_parent()
        super().__init__(request)


class RayTransport:
    """`Transport` by Ray."""

    def __init__(self, config: Config, notices: list[tuple[str, bool]]) -> None:
        self.config, self._notices = config, notices
        self._stack = ExitStack()
        self._actors: dict[int, Any] = {}
        self._pending: dict[Any, int] = {}  # which actor an answer is awaited from

    def connect(self) -> None:
        address, actors = self.config.address, self.config.actors
        self._stack.enter_context(connected(address, actors, _store(self.config)))
        cpus = sum(int(node.get("CPU", 0.0)) for node in living_nodes())
        if actors > cpus:
            self.close()
            raise UserError(f"--actors is {actors}; accepted: at most {cpus}, the CPUs of the cluster at {address}")
        if address is None and actors > (cores := available_cores()):
            self._notices.append((f"{actors} actors and the learner share {cores} cores", False))

    def start(self, request: ActorRequest) -> None:
        self._end(request.number)
        actor = ray.remote(_Actor).options(num_cpus=1, max_restarts=0).remote(request)
        self._actors[request.number] = actor

    def share(self, weights: Weights) -> Any:
        return ray.put(weights)

    def send(self, actor: int, order: Order, weights: Any) -> None:
        self._pending[self._actors[actor].play.remote(order, weights)] = actor

    def receive(self, seconds: float) -> list[tuple[int, Block | ActorLost]]:
        if not self._pending:
            return []
        waiting = list(self._pending)
        ready, _ = ray.wait(waiting, num_returns=len(waiting), timeout=0.0)
        if not ready and seconds:
            ready, _ = ray.wait(waiting, num_returns=1, timeout=seconds)
        return [(self._pending.pop(answer), self._answer(answer)) for answer in ready]

    def _answer(self, answer: Any) -> Block | ActorLost:
        try:
            block: Block = ray.get(answer)
            return block
        except ray.exceptions.RayTaskError as error:  # in our own code, or a state that does not fit
            raise UserError(f"an actor failed: {last_line(error)}") from None
        except ray.exceptions.RayError as error:
            return ActorLost(failure_reason(error))

    def _end(self, number: int) -> None:
        actor = self._actors.pop(number, None)
        if actor is not None:
            self._pending = {answer: other for answer, other in self._pending.items() if other != number}
            with suppress(ray.exceptions.RayError, ValueError):
                ray.kill(actor)

    def close(self) -> None:
        if ray.is_initialized():
            for number in list(self._actors):
                self._end(number)
        self._stack.close()


def _store(config: Config) -> int:
    """Shared memory of an embedded Ray: weights, and two blocks of each actor as if they did not compress."""
    from c2d.envs.make import spec_of

    block = config.actor.weights_period * config.recipe.envs * spec_of(config.env, config.rules).frame_bytes
    return min(max(STORE, 2 * config.actors * block), 4 * STORE)
