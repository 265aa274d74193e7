"""The only place that turns a recipe into objects: one explicit table per field."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch
from torch import nn

from c2d.agents.learner import CenteredRmsProp, FusedAdam, Learner, Loss, Optimizer
from c2d.agents.sizes import check_network
from c2d.envs.spec import EnvSpec
from c2d.errors import UserError, did_you_mean
from c2d.nets import encoders
from c2d.nets.heads import CategoricalHead, ConjugatedHead, FractionHead, ImplicitHead, QuantileHead, ScalarHead, Style
from c2d.nets.layers import initialize
from c2d.nets.network import ValueNetwork
from c2d.recipes import parts as spec
from c2d.recipes.recipe import Recipe
from c2d.recipes.user_code import TRUSTED, imported
from c2d.replay.buffer import PrioritizedSampler, Replay, Sampler, UniformSampler
from c2d.returns import bellman, losses
from c2d.returns import phi as phis
from c2d.types import Phi

HEADS: dict[type, Callable[..., nn.Module]] = {
    spec.Scalar: ScalarHead,
    spec.Categorical: CategoricalHead,
    spec.Quantile: QuantileHead,
    spec.Implicit: ImplicitHead,
    spec.Fraction: FractionHead,
    spec.Conjugated: ConjugatedHead,
}
LOSSES: dict[type, Callable[[Any], Loss]] = {
    spec.Squared: lambda _: losses.squared,
    spec.Huber: lambda loss: losses.huber(loss.kappa),
    spec.CrossEntropy: lambda _: losses.cross_entropy,
    spec.QuantileHuber: lambda loss: losses.quantile_huber(loss.kappa),
    spec.Cramer: lambda _: losses.cramer,
}
BOOTSTRAPS: dict[type, Callable[[Any], bellman.Bootstrap]] = {
    spec.Greedy: lambda _: bellman.GREEDY,
    spec.Double: lambda _: bellman.DOUBLE,
    spec.Munchausen: lambda b: bellman.munchausen(b.alpha, b.temperature, b.floor),
}
SAMPLERS: dict[type, Callable[[Any, int], Sampler]] = {
    spec.Uniform: lambda _, capacity: UniformSampler(capacity),
    spec.Prioritized: lambda s, capacity: PrioritizedSampler(capacity, s.exponent, s.weight_exponent, s.eps),
}
OPTIMIZERS: dict[type, Callable[..., Optimizer]] = {spec.Adam: FusedAdam, spec.RmsProp: CenteredRmsProp}


def build_phi(recipe: Recipe) -> Phi:
    kind = recipe.phi.kind
    if kind in phis.KINDS:
        return phis.KINDS[kind](recipe.phi.beta, recipe.phi.eps)
    if ":" not in kind:
        accepted = f"{', '.join(phis.KINDS)}, or my_package.my_module:my_phi"
        raise UserError(f'unknown φ "{kind}".{did_you_mean(kind, phis.KINDS)} Accepted: {accepted}')
    if kind not in TRUSTED:
        raise UserError(
            f"φ is {kind}, code that is not imported because a file names it; if you trust it, add --phi.kind {kind} "
            f"(c2d evaluate: --phi {kind}; Python: c2d.agents.trust.trust)"
        )
    found = imported(kind)
    if not isinstance(found, Phi):
        raise UserError(f"φ {kind} is no c2d.types.Phi: a pair of functions `to` and `back` on tensors")
    return found


def build_network(recipe: Recipe, env: EnvSpec, rng: torch.Generator) -> ValueNetwork:
    """Encoder and head with weights drawn from `rng`."""
    check_network(recipe, env)
    network = ValueNetwork(*build_parts(recipe, env))
    initialize(network, rng, recipe.initializer)
    return network


def build_parts(recipe: Recipe, env: EnvSpec) -> tuple[nn.Module, nn.Module]:
    """Encoder and head as they come."""
    encoder = _build_encoder(recipe, env)
    style = Style(recipe.dueling, recipe.noise if recipe.noisy else None)
    return encoder, HEADS[type(recipe.head)](encoder.features, env.actions, style, **asdict(recipe.head))


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
    if isinstance(encoder, spec.Impala):
        return encoders.Impala(env.obs_shape, encoder.scale, pixel_scale)
    return encoders.nature(env.obs_shape, encoder.norm, encoder.padding, pixel_scale)


def build_learner(
    recipe: Recipe, env: EnvSpec, weights: torch.Generator, learning: torch.Generator, device: str = "cpu"
) -> Learner:
    """`weights` draws the initial weights, `learning` the noise and fractions of updates."""
    online, target = (build_network(recipe, env, weights).to(device) for _ in range(2))
    for parameter in target.parameters():
        parameter.requires_grad_(False)
    learner = assemble_learner(recipe, online, target, learning, _build_optimizers(recipe, online))
    learner.synchronize()
    return learner


def assemble_learner(
    recipe: Recipe,
    online: ValueNetwork,
    target: ValueNetwork,
    learning: torch.Generator,
    optimizers: list[Optimizer] | None = None,  # None: it has targets, but cannot be trained
) -> Learner:
    """A learner with these two networks as they are."""
    return Learner(
        online,
        target,
        build_phi(recipe),
        LOSSES[type(recipe.loss)](recipe.loss),
        BOOTSTRAPS[type(recipe.bootstrap)](recipe.bootstrap),
        optimizers or [],
        learning,
        auxiliary=getattr(online.head, "auxiliary", None),
        polyak=recipe.schedule.polyak,
    )


def _build_optimizers(recipe: Recipe, online: ValueNetwork) -> list[Optimizer]:
    head = online.head
    apart: list[nn.Parameter] = head.own_parameters() if isinstance(head, FractionHead) else []
    together = [p for p in online.parameters() if not any(p is other for other in apart)]
    optimizers = [OPTIMIZERS[type(recipe.optim)](together, recipe.optim)]
    if isinstance(recipe.head, spec.Fraction):
        h = recipe.head
        optimizers.append(CenteredRmsProp(apart, spec.RmsProp(h.learning_rate, h.decay, h.eps)))
    return optimizers


def build_replay(recipe: Recipe, env: EnvSpec, truncation: str, compress: bool | None) -> Replay:
    capacity = recipe.schedule.replay_capacity
    try:
        return Replay(
            env,
            capacity=capacity,
            n_step=recipe.n_step,
            gamma=recipe.schedule.gamma,
            truncation=truncation,
            clip_reward=recipe.clip_reward,
            compress=compress,
            sampler=SAMPLERS[type(recipe.sampler)](recipe.sampler, capacity),
        )
    except MemoryError:
        raise UserError(f"--schedule.replay-capacity is {capacity:,}: there is not enough memory for it") from None


def parameter_count(network: nn.Module) -> int:
    return sum(p.numel() for p in network.parameters())
