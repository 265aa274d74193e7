"""The only place that turns a recipe into objects: one explicit table per field."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import nn

from c2d.agents import recipe as spec
from c2d.agents.learner import Learner, Loss
from c2d.agents.recipe import PhiSpec, Recipe
from c2d.envs.spec import EnvSpec
from c2d.errors import UserError
from c2d.nets import encoders
from c2d.nets.heads.conjugated import ConjugatedHead
from c2d.nets.layers import glorot
from c2d.nets.network import ValueNetwork
from c2d.replay.buffer import Replay
from c2d.replay.samplers import Sampler, UniformSampler
from c2d.returns import bootstrap, cramer
from c2d.returns import phi as phis
from c2d.types import Phi

PHIS: dict[str, Callable[[PhiSpec], Phi]] = {
    "identity": lambda p: phis.identity(),
    "h": lambda p: phis.h(p.eps),
    "scaled_h": lambda p: phis.scaled_h(p.beta, p.eps),
    "symlog": lambda p: phis.symlog(),
    "asinh": lambda p: phis.asinh(),
}
HEADS: dict[type, Callable[..., nn.Module]] = {spec.Conjugated: ConjugatedHead}
LOSSES: dict[type, Callable[[Any], Loss]] = {spec.Cramer: lambda _: cramer.cramer}
BOOTSTRAPS: dict[type, bootstrap.Bootstrap] = {spec.Greedy: bootstrap.GREEDY}
SAMPLERS: dict[type, Callable[[Any, int], Sampler]] = {spec.Uniform: lambda _, capacity: UniformSampler(capacity)}


def build_phi(recipe: Recipe) -> Phi:
    return PHIS[recipe.phi.kind](recipe.phi)


def build_network(recipe: Recipe, env: EnvSpec, rng: torch.Generator) -> ValueNetwork:
    """Encoder and head with Glorot weights drawn from `rng`."""
    encoder = _build_encoder(recipe, env)
    head = HEADS[type(recipe.head)](encoder.features, env.actions, **asdict(recipe.head))
    network = ValueNetwork(encoder, head)
    glorot(network, rng)
    return network


def _build_encoder(recipe: Recipe, env: EnvSpec) -> Any:
    encoder = recipe.encoder
    picture = len(env.frame_shape) == 3
    # Bytes are pixels, except MinAtar's, which are zeros and ones.
    pixel_scale = 1 / 255 if env.frame_dtype == "uint8" and env.family != "minatar" else 1.0
    if isinstance(encoder, spec.Mlp):
        if picture:
            raise UserError(
                f"encoder mlp takes vector observations, {env.name} gives {env.obs_shape}; use nature or minatar"
            )
        return encoders.Dense(env.obs_shape, encoder.widths)
    if not picture:
        raise UserError(
            f"encoder {type(encoder).__name__.lower()} takes picture observations [C, H, W], "
            f"{env.name} gives {env.obs_shape}; use mlp"
        )
    if isinstance(encoder, spec.MinAtar):
        return encoders.minatar(env.obs_shape, encoder.channels, encoder.norm, pixel_scale)
    return encoders.nature(env.obs_shape, encoder.norm, encoder.padding, pixel_scale)


def build_learner(recipe: Recipe, env: EnvSpec, rng: torch.Generator, device: str = "cpu") -> Learner:
    online, target = (build_network(recipe, env, rng).to(device) for _ in range(2))
    return Learner(
        online,
        target,
        build_phi(recipe),
        LOSSES[type(recipe.loss)](recipe.loss),
        BOOTSTRAPS[type(recipe.bootstrap)],
        recipe.optim,
    )


def build_replay(recipe: Recipe, env: EnvSpec, truncation: str, compress: bool) -> Replay:
    return Replay(
        env,
        capacity=recipe.schedule.replay_capacity,
        n_step=recipe.n_step,
        gamma=recipe.schedule.gamma,
        truncation=truncation,
        clip_reward=recipe.clip_reward,
        compress=compress,
        sampler=SAMPLERS[type(recipe.sampler)](recipe.sampler, recipe.schedule.replay_capacity),
    )


def parameter_count(network: nn.Module) -> int:
    return int(np.sum([p.numel() for p in network.parameters()]))
