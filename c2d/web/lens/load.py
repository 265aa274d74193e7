"""The agent of a run, as of its newest weights or of one of its checkpoints, read from inside the runs directory.

A checkpoint also holds the games that the run's environments were playing: each can be played on by the agent.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from c2d.agents.agent import Agent
from c2d.agents.rollout import Stream
from c2d.config import Config, from_json, validate
from c2d.envs.make import make
from c2d.envs.names import require_trusted_env, resolve
from c2d.envs.protocols import as_begun
from c2d.envs.spec import Environment
from c2d.errors import UserError
from c2d.nets.network import ValueNetwork
from c2d.runs import layout
from c2d.runs.checkpoints import LARGEST_STATE, network_arrays, saved_games
from c2d.runs.confined import Root, browser_safe
from c2d.runs.journal import Damaged
from c2d.training.streams import epsilons_of, make_stream
from c2d.web.watched_run import CHECKPOINT, NEWEST

_LARGEST = 1 << 31  # bytes of weights


@dataclass
class SavedGame:
    """The game of one environment when the checkpoint was taken."""

    state: dict[str, Any]  # of its stream
    steps: int | None  # in this game so far; None in checkpoints that do not say
    score: float | None  # likewise
    epsilon: float  # with which it was played


@dataclass
class SavedGames:
    """One of each environment; none where only weights are kept, or if they cannot be read."""

    games: list[SavedGame] = field(default_factory=list)
    trouble: str | None = None  # why there are none


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
    saved: SavedGames

    @property
    def own_target(self) -> bool:
        """Whether the target network is one of its own."""
        return self.target is not self.agent.network

    def make_env(self, seed: int) -> Environment:
        return make(self.env, self.config.rules, seed)

    def resume_game(self, number: int, rng: np.random.Generator) -> Stream:
        """The game of one environment exactly as it was saved. UserError if it cannot be brought back."""
        games = self.saved.games
        if not 0 <= number < len(games):
            missing = f"the checkpoint has no environment {number}; accepted: 0 to {len(games) - 1}"
            raise UserError(self.saved.trouble or missing)
        stream = make_stream(self.config, number)
        stream.rng = rng
        stream.remember(self.agent.actor.memory)
        try:
            stream.load_state_dict(games[number].state)
        except Exception as error:  # ReplayMismatch, or whatever an environment makes of a damaged state
            stream.env.close()
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise UserError(f"the game of environment {number} cannot be brought back: {reason}") from None
        stream.action = None  # of a round that had begun: the agent decides again
        return stream

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
        require_trusted_env(config.env, own if own in trusted else None, flag="--trust ", rules=config.rules)
        online, target, arrays = _networks(root.read(run, _file(checkpoint), limit=_LARGEST), checkpoint)
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise UserError(f"{run} cannot be opened: {error}") from None
    config = replace(config, rules=as_begun(config.rules, spec.masked))
    source = f"{run}/{_file(checkpoint)}"
    agent = Agent.from_bytes(online, config.recipe, spec, source=source)
    network = Agent.from_bytes(target, config.recipe, spec, source=source).network if target else agent.network
    env = resolve(config.env).canonical
    saved = SavedGames(trouble="only checkpoints hold games; the newest weights hold none")
    if checkpoint != NEWEST:
        saved = _saved_games(root, run, checkpoint, config, arrays)
    return Loaded(root, run, checkpoint, config, agent, network, env, (info.st_ino, info.st_mtime_ns), saved)


def _file(checkpoint: str) -> str:
    if checkpoint == NEWEST:
        return layout.WEIGHTS
    if not CHECKPOINT.fullmatch(checkpoint):
        raise UserError(f'"{checkpoint[:40]}" is not a checkpoint; accepted: {NEWEST}, or one that the run holds')
    return f"{layout.CHECKPOINTS}/{checkpoint}/{layout.TENSORS}"


def _networks(data: bytes, checkpoint: str) -> tuple[bytes, bytes | None, dict[str, Any]]:
    """The network that acts and, out of a checkpoint, the target network, each as safetensors, and all its arrays."""
    if checkpoint == NEWEST:
        return data, None, {}
    try:
        arrays: dict[str, Any] = safetensors.numpy.load(data)
    except (safetensors.SafetensorError, KeyError, ValueError) as error:
        raise ValueError(f"checkpoint {checkpoint} is damaged: {error}") from None
    acting = network_arrays(arrays, "acting") or network_arrays(arrays, "online")  # the mean of weights, if it acts
    return safetensors.numpy.save(acting), safetensors.numpy.save(network_arrays(arrays, "target")), arrays


def _saved_games(root: Root, run: str, checkpoint: str, config: Config, arrays: dict[str, Any]) -> SavedGames:
    """An agent whose saved games are damaged still plays new ones."""
    recipe = config.recipe
    try:
        data = root.read(run, layout.CHECKPOINTS, checkpoint, layout.STATE, limit=LARGEST_STATE)
        history, step, streams = saved_games(data, arrays)
        if len(streams) != config.streams or min(history, step) < 0:
            raise Damaged(f"{len(streams)} environments after {step} steps are not those of a run of {config.streams}")
    except (OSError, Damaged) as error:
        return SavedGames(trouble=f"the games of checkpoint {checkpoint} cannot be read: {error}")
    random = history < recipe.schedule.random_history
    each = [1.0] * config.streams if random else epsilons_of(config, step)
    return SavedGames([_saved_game(state, epsilon) for state, epsilon in zip(streams, each, strict=True)])


def _saved_game(state: dict[str, Any], epsilon: float) -> SavedGame:
    score, steps = so_far if isinstance(so_far := state.get("so_far"), list) and len(so_far) == 2 else (None, None)
    return SavedGame(
        state,
        steps=browser_safe(steps) if type(steps) is int else None,
        score=browser_safe(score) if type(score) in (int, float) else None,
        epsilon=epsilon,
    )
