"""The agent of a run, as of its newest weights or of one of its checkpoints, read from inside the runs directory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import safetensors
import safetensors.numpy

from c2d.agents.agent import Agent
from c2d.config import Config, from_json, validate
from c2d.envs.make import make
from c2d.envs.names import require_trusted_env, resolve
from c2d.envs.spec import Environment
from c2d.errors import UserError
from c2d.nets.network import ValueNetwork
from c2d.runs import layout
from c2d.runs.checkpoints import network_arrays
from c2d.runs.confined import Root
from c2d.web.watched_run import CHECKPOINT, NEWEST

_LARGEST = 1 << 31  # bytes of weights


@dataclass
class Loaded:
    """An agent, and all it needs to play."""

    root: Root
    run: str
    checkpoint: str
    config: Config
    agent: Agent
    target: ValueNetwork  # the target network of a checkpoint; the agent's own where only weights are kept
    env: str
    mark: tuple[int, int]  # of the file of weights

    @property
    def own_target(self) -> bool:
        """Whether the target network is one of its own."""
        return self.target is not self.agent.network

    def make_env(self, seed: int) -> Environment:
        return make(self.env, self.config.rules, seed)

    def changed(self) -> bool:
        """Whether training has written newer weights."""
        info = self.root.stat(self.run, _file(self.checkpoint))
        return info is not None and (info.st_ino, info.st_mtime_ns) != self.mark


def open_agent(root: Root, run: str, checkpoint: str, trusted: tuple[str, ...] = ()) -> Loaded:
    """UserError if there is no such agent. A class of the user's own is imported only if the user named it."""
    try:
        config = from_json(root.read_json(run, layout.CONFIG))
        spec = layout.spec_from_json(root.read_json(run, layout.ENV), f"{run}/{layout.ENV}")
        info = root.stat(run, _file(checkpoint))
        if not isinstance(config, Config) or info is None:
            raise UserError(f"{run} holds no agent yet: no {_file(checkpoint)} (written after an iteration)")
        validate(config)
        own = config.env.removeprefix("gym/")
        require_trusted_env(config.env, own if own in trusted else None, flag="--trust ")
        online, target = _networks(root.read(run, _file(checkpoint), limit=_LARGEST), checkpoint)
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise UserError(f"{run} cannot be opened: {error}") from None
    source = f"{run}/{_file(checkpoint)}"
    agent = Agent.from_bytes(online, config.recipe, spec, source=source)
    network = Agent.from_bytes(target, config.recipe, spec, source=source).network if target else agent.network
    env = resolve(config.env).canonical
    return Loaded(root, run, checkpoint, config, agent, network, env, (info.st_ino, info.st_mtime_ns))


def _file(checkpoint: str) -> str:
    if checkpoint == NEWEST:
        return layout.WEIGHTS
    if not CHECKPOINT.fullmatch(checkpoint):
        raise UserError(f'"{checkpoint[:40]}" is not a checkpoint; accepted: {NEWEST}, or one that the run holds')
    return f"{layout.CHECKPOINTS}/{checkpoint}/{layout.TENSORS}"


def _networks(data: bytes, checkpoint: str) -> tuple[bytes, bytes | None]:
    """The network that acts and, out of a checkpoint, the target network, each as safetensors."""
    if checkpoint == NEWEST:
        return data, None
    try:
        arrays: dict[str, Any] = safetensors.numpy.load(data)
    except (safetensors.SafetensorError, KeyError, ValueError) as error:
        raise ValueError(f"checkpoint {checkpoint} is damaged: {error}") from None
    acting = network_arrays(arrays, "acting") or network_arrays(arrays, "online")  # the mean of weights, if it acts
    return safetensors.numpy.save(acting), safetensors.numpy.save(network_arrays(arrays, "target"))
