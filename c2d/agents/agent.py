"""A trained agent: it acts, and shows the return distributions it predicts."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

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


class Agent:
    """Acts on observations [S·C, H, W] (or vectors) as `FrameStack` returns them, or on a batch of them."""

    def __init__(self, network: ValueNetwork, recipe: Recipe, spec: EnvSpec, seed: int = 0) -> None:
        self.network, self.recipe, self.spec = network, recipe, spec
        self.phi = build_phi(recipe, network)
        self.actor, self.rng = Actor(network, self.phi), np.random.default_rng(seed)

    def act(self, obs: np.ndarray, epsilon: float = 0.0) -> int | np.ndarray:
        """Greedy action by expected real return, random with probability ε. For a batch, an array.

        Actions count from 0; `spec.action_names` has the environment's own names.
        """
        if not 0.0 <= epsilon <= 1.0:
            raise UserError(f"epsilon is {epsilon}; accepted: from 0 to 1")
        obs = self._check(obs)
        single = obs.ndim == len(self.spec.obs_shape)
        rows = obs[None] if single else obs
        choices = epsilon_greedy(list(rows), [self.rng] * len(rows), epsilon, self.spec.actions, self.actor.greedy)
        actions = [action for action, _ in choices]
        return actions[0] if single else np.array(actions, dtype=np.int64)

    @torch.inference_mode()
    def distribution(self, obs: np.ndarray) -> Distribution:
        """The return distribution that the agent predicts for each action."""
        obs = self._check(obs)
        single = obs.ndim == len(self.spec.obs_shape)
        batch = torch.from_numpy(obs[None] if single else obs).to(self.actor.device)
        law = self.network(batch, "act")
        atoms, order = law.atoms.sort(-1)
        probs = law.log_probs.gather(-1, order).exp()
        parts = (part.cpu().numpy() for part in (self.phi.back(atoms), atoms, probs))
        return Distribution(*(part[0] if single else part for part in parts))

    def finite(self) -> bool:
        """Whether all weights are finite; those of an agent that diverged are not."""
        return all(bool(torch.isfinite(tensor).all()) for tensor in self.network.state_dict().values())

    def to_bytes(self) -> bytes:
        """The weights as safetensors."""
        state = {name: tensor.detach().cpu().contiguous() for name, tensor in self.network.state_dict().items()}
        return safetensors.torch.save(state)

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
