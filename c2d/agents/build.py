"""From a recipe to objects. Each part builds itself (`c2d/recipes/parts.py`); here they are put together."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from c2d.agents.learner import Learner, Optimizer
from c2d.agents.sizes import check_network
from c2d.envs.spec import EnvSpec
from c2d.errors import UserError
from c2d.nets.heads import Head, Style
from c2d.nets.network import Encoder, ValueNetwork, initialize
from c2d.recipes.part import PARTS, EncoderSpec, part_name
from c2d.recipes.recipe import Recipe
from c2d.replay.buffer import Replay
from c2d.types import Phi


def build_phi(recipe: Recipe) -> Phi:
    """φ and its inverse."""
    return recipe.phi.build()


def build_network(recipe: Recipe, env: EnvSpec, rng: torch.Generator) -> ValueNetwork:
    """Encoder and head with weights drawn from `rng`."""
    check_network(recipe, env)
    network = ValueNetwork(*build_parts(recipe, env))
    try:
        initialize(network, rng, recipe.initializer)
    except TypeError as error:  # a layer of a user's part; those of the package have rules
        raise UserError(f"{error}; name them in the layer's `constants` or give it a method initialize(rng)") from None
    return network


def build_parts(recipe: Recipe, env: EnvSpec) -> tuple[Encoder, Head]:
    """Encoder and head with the weights they happen to have."""
    _check_observations(recipe.encoder, env)
    encoder: Any = recipe.encoder.build(env)
    if not (isinstance(encoder, nn.Module) and isinstance(getattr(encoder, "features", None), int)):
        _reject(recipe.encoder, encoder, "torch.nn.Module with an int `features`")
    style = Style(recipe.dueling, recipe.noise if recipe.noisy else None)
    head: Any = recipe.head.build(encoder.features, env.actions, style)
    if not isinstance(head, Head):
        _reject(recipe.head, head, "c2d.nets.heads.Head")
    return encoder, head


def _reject(spec: Any, built: object, accepted: str) -> None:
    raise UserError(f"{part_name(spec)}.build returned a {type(built).__name__}; accepted: a {accepted}")


def _check_observations(encoder: EncoderSpec, env: EnvSpec) -> None:
    kind = "image" if len(env.frame_shape) == 3 else "vector"
    if encoder.observations in (kind, "any"):
        return
    others = [name for name, cls in PARTS["encoder"].items() if getattr(cls, "observations", "") == kind]
    raise UserError(
        f"encoder {part_name(encoder)} takes {encoder.observations} observations, {env.name} gives {env.obs_shape}; "
        f"accepted: {', '.join(others)}"
    )


def build_learner(
    recipe: Recipe, env: EnvSpec, weights: torch.Generator, learning: torch.Generator, device: str = "cpu"
) -> Learner:
    """`weights` draws the initial weights, `learning` the noise and the fractions of updates."""
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
    loss, bootstrap, polyak = recipe.loss.build(), recipe.bootstrap.build(), recipe.schedule.polyak
    return Learner(online, target, build_phi(recipe), loss, bootstrap, optimizers or [], learning, polyak=polyak)


def _build_optimizers(recipe: Recipe, online: ValueNetwork) -> list[Optimizer]:
    """The recipe's optimizer, and one for each group of parameters that the head trains apart."""
    apart = online.head.trained_apart()
    others = {id(parameter) for _, group in apart for parameter in group}
    together = recipe.optim.build([p for p in online.parameters() if id(p) not in others])
    return [together, *(spec.build(group) for spec, group in apart)]


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
            sampler=recipe.sampler.build(capacity),
        )
    except MemoryError:
        raise UserError(f"--schedule.replay-capacity is {capacity:,}: there is not enough memory for it") from None


def parameter_count(network: nn.Module) -> int:
    return sum(p.numel() for p in network.parameters())
