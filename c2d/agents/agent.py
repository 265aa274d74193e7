"""A trained agent: it acts, and shows the return distributions it predicts.

One with a core remembers the games that it acts in: `act` moves its memory on, `reset` empties it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import safetensors
import safetensors.torch
import torch

from c2d.agents.build import build_network, build_phi, most_network_bytes, network_bytes
from c2d.agents.rollout import Actor, epsilon_greedy
from c2d.envs.spec import EnvSpec
from c2d.errors import UserError
from c2d.files import kind_of, read_file
from c2d.nets.network import ValueNetwork
from c2d.recipes.recipe import Recipe
from c2d.types import Sight

if TYPE_CHECKING:
    from c2d.agents.exported import Agreement

_LARGE = 1 << 28  # bytes of a network
_SPARE = 1 << 20  # bytes of a file of weights in addition to the weights


class Distribution(NamedTuple):
    """For each action a discrete return distribution, atoms in ascending order. [A, N] each, or [B, A, N]."""

    returns: np.ndarray  # atoms as real returns, φ⁻¹(atoms)
    atoms: np.ndarray  # the same atoms in φ-space, as the network predicts them
    probs: np.ndarray  # their probabilities

    @property
    def mean(self) -> np.ndarray:
        """Expected real return of each action. [A] or [B, A]"""
        return np.asarray((self.probs * self.returns).sum(-1))


class Recalled(NamedTuple):
    """What an agent remembers of the games that it acts in."""

    memory: np.ndarray  # [B, K] f32
    action: np.ndarray  # [B] i64 the last one; -1: the episode begins


class Agent:
    """Acts on observations [S·C, H, W] (or vectors) as `FrameStack` returns them, or on a batch of them."""

    def __init__(self, network: ValueNetwork, recipe: Recipe, spec: EnvSpec, seed: int = 0) -> None:
        self.network, self.recipe, self.spec = network, recipe, spec
        self.phi = build_phi(recipe, network)
        self.actor, self.rng = Actor(network, self.phi), np.random.default_rng(seed)
        self._recalled: Recalled | None = None  # None: games begin

    @property
    def remembers(self) -> bool:
        """Whether it has a memory, so that `reset` must be called where an episode begins."""
        return self.actor.memory > 0

    def reset(self, rows: np.ndarray | list[int] | None = None) -> None:
        """An episode begins: forget the one before. `rows`: of a batch of games, only of these."""
        if rows is None or self._recalled is None:
            self._recalled = None
            return
        for array, value in zip(self._recalled, (0.0, -1), strict=True):
            array[rows] = value

    def act_batch(
        self,
        observations: np.ndarray,
        epsilon: float = 0.0,
        reward: float | np.ndarray = 0.0,
        mask: np.ndarray | None = None,
    ) -> np.ndarray:
        """The actions for a batch of observations, [B, ...] -> [B], with one pass of the network; else as `act`."""
        if np.ndim(observations) != len(self.spec.obs_shape) + 1:
            raise UserError(
                f"observations of shape {np.shape(observations)} are no batch of {self.spec.name}; "
                f"accepted: (B, {', '.join(map(str, self.spec.obs_shape))})"
            )
        return np.asarray(self.act(observations, epsilon, reward, mask))

    def act(
        self,
        obs: np.ndarray,
        epsilon: float = 0.0,
        reward: float | np.ndarray = 0.0,
        mask: np.ndarray | Sequence[bool] | None = None,
    ) -> int | np.ndarray:
        """Greedy action by expected real return, random with probability ε, among those that `mask` allows.

        It is in the environment's own form: what its `step` takes. For a batch, an array of them. The mask has one flag
        for each of the agent's actions, in the order of `spec.action_names`: [A], or [B, A] for a batch. An agent that
        remembers takes `obs` as the next observation after that of the last call, and `reward` as the raw reward that
        came with it.
        """
        if not 0.0 <= epsilon <= 1.0:
            raise UserError(f"epsilon is {epsilon}; accepted: from 0 to 1")
        obs = self._check(obs)
        single = obs.ndim == len(self.spec.obs_shape)
        rows = obs[None] if single else obs
        flags = None if mask is None else self._check_mask(np.asarray(mask)[None] if single else mask, len(rows))

        def choose(obs: np.ndarray, legal: np.ndarray | None = None) -> np.ndarray:
            return self.actor.greedy(self._sight(obs, reward), legal)

        legal = None if flags is None else list(flags)
        rngs, every_row = [self.rng] * len(rows), self.remembers
        choices = epsilon_greedy(list(rows), rngs, epsilon, self.spec.actions, choose, every_row, legal)
        actions = np.array([action for action, _ in choices], dtype=np.int64)
        if self.remembers:
            assert self.actor.remembered is not None
            self._recalled = Recalled(self.actor.remembered.copy(), actions.copy())
        own: int | np.ndarray = self.spec.own_action(int(actions[0]) if single else actions)
        return own

    @torch.inference_mode()
    def distribution(self, obs: np.ndarray | Sight, reward: float | np.ndarray = 0.0) -> Distribution:
        """The return distribution that the agent predicts for each action.

        Of an agent that remembers, for `obs` as the next observation. Its memory stays as it is: ask before `act`.
        A `Sight` is a batch with memories of its own.
        """
        if isinstance(obs, Sight):
            single = False
            seen: np.ndarray | Sight = obs
        else:
            obs = self._check(obs)
            single = obs.ndim == len(self.spec.obs_shape)
            seen = self._sight(obs[None] if single else obs, reward)
        law = self.actor.law(seen)
        atoms, order = law.atoms.sort(-1)
        probs = law.log_probs.gather(-1, order).exp()
        parts = (part.cpu().numpy() for part in (self.phi.back(atoms), atoms, probs))
        return Distribution(*(part[0] if single else part for part in parts))

    def _sight(self, obs: np.ndarray, reward: float | np.ndarray) -> np.ndarray | Sight:
        """What the network sees. [B, *obs]"""
        if not self.remembers:
            return obs
        memory, before = self._recalled or Recalled(
            np.zeros((len(obs), self.actor.memory), np.float32), np.full(len(obs), -1, np.int64)
        )
        if len(memory) != len(obs):
            raise UserError(
                f"the agent remembers {len(memory)} games and got {len(obs)} observations; accepted: as many, "
                "or agent.reset() before other games"
            )
        earned = np.where(before < 0, np.float32(0), np.asarray(reward, np.float32))
        return Sight(obs, before, earned.astype(np.float32), memory)

    def finite(self) -> bool:
        """Whether all weights are finite; those of an agent that diverged are not."""
        return all(bool(torch.isfinite(tensor).all()) for tensor in self.network.state_dict().values())

    def export_onnx(self, path: str | os.PathLike[str], opset: int | None = None) -> Agreement:
        """Write the acting pass as an ONNX model, and say how far ONNX Runtime is from PyTorch. Needs c2d[onnx]."""
        from c2d.agents.exported import export_onnx

        return export_onnx(self, Path(path), opset)

    def export_torch(self, path: str | os.PathLike[str]) -> Agreement:
        """Write the acting pass as a program of torch.export, a .pt2 file."""
        from c2d.agents.exported import export_torch

        return export_torch(self, Path(path))

    def to_bytes(self, facts: dict[str, str] | None = None) -> bytes:
        """The weights as safetensors; `facts` about them stand in its header."""
        state = {name: tensor.detach().cpu().contiguous() for name, tensor in self.network.state_dict().items()}
        return safetensors.torch.save(state, facts)

    @classmethod
    def from_bytes(
        cls, data: bytes, recipe: Recipe, spec: EnvSpec, device: str = "cpu", source: str = "weights"
    ) -> Agent:
        """An agent with these weights."""
        network = build_network(recipe, spec, torch.Generator().manual_seed(0)).to(device)
        _fill(network, data, source)
        return cls(network, recipe, spec)

    @classmethod
    def from_file(cls, path: Path, run: Path, recipe: Recipe, spec: EnvSpec, device: str = "cpu") -> Agent:
        """An agent with the weights in a file of a run. A file larger than these weights can be is not read.

        Nor is a large network built for a file that is far too small for it.
        """
        if most_network_bytes(recipe, spec) > _LARGE and kind_of(path) == "file":
            actual, wanted = path.lstat().st_size, network_bytes(recipe, spec)
            if actual < wanted // 2:
                reason = f"it has {actual:,} bytes and the network {wanted:,}"
                raise UserError(f"{path} does not fit the run's config or is damaged: {reason}")
        network = build_network(recipe, spec, torch.Generator().manual_seed(0)).to(device)
        most = sum(tensor.nbytes for tensor in network.state_dict().values()) + _SPARE
        try:
            data = read_file(path, most, within=run)
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error.strerror}") from None
        _fill(network, data, str(path))
        return cls(network, recipe, spec)

    def _check_mask(self, mask: np.ndarray | Sequence[bool], rows: int) -> np.ndarray:
        """[B, A] bool"""
        mask, wanted = np.asarray(mask), (rows, self.spec.actions)
        if mask.shape != wanted or not (mask.dtype == np.bool_ or (mask.dtype.kind in "iu" and mask.max() <= 1)):
            raise UserError(
                f"mask of type {mask.dtype} and shape {mask.shape} does not fit {rows} rows of {self.spec.name}; "
                f"accepted: {self.spec.actions} flags for each, true or 1 for legal actions"
            )
        if not mask.any(-1).all():
            raise UserError(f"mask of {self.spec.name} forbids every action; accepted: at least one legal action")
        return mask.astype(np.bool_)

    def _check(self, obs: np.ndarray) -> np.ndarray:
        obs = np.ascontiguousarray(obs, dtype=self.spec.frame_dtype)
        wanted = self.spec.obs_shape
        if obs.shape[-len(wanted) :] != wanted or obs.ndim > len(wanted) + 1:
            raise UserError(
                f"observation of shape {obs.shape} does not fit {self.spec.name}; "
                f"accepted: {self.spec.obs_shape}, or a batch of them"
            )
        if obs.dtype != np.uint8 and not np.isfinite(obs).all():
            raise UserError(f"observation of {self.spec.name} holds NaN or infinite numbers; accepted: finite ones")
        return obs


def _fill(network: ValueNetwork, data: bytes, source: str) -> None:
    try:
        network.load_state_dict(safetensors.torch.load(data))
    except (safetensors.SafetensorError, RuntimeError, KeyError, ValueError, TypeError) as error:
        reason = str(error).splitlines()[0] if str(error) else "it cannot be read"
        raise UserError(f"{source} does not fit the run's config or is damaged: {reason}") from None
