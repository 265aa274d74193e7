"""One row per algorithm, with the source of its settings; and what changes with the size of the environment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from c2d.agents.recipe import Conjugated, MinAtar, Mlp, Nature, Recipe
from c2d.envs.spec import EnvSpec
from c2d.errors import UserError, did_you_mean

# C2D as the authors ran it (paper, appendix tables; normalization, initialization and Adam's form from their code).
# Every value is a default of `recipe.py`, where the names of the paper stand beside them.
C2D = Recipe()

# The paper's wording: batch normalization per channel.
C2D_CHANNEL = replace(C2D, encoder=Nature(norm="channel"))

RECIPES: dict[str, Recipe] = {"c2d": C2D, "c2d-channel": C2D_CHANNEL}


def find(name: str) -> Recipe:
    if name not in RECIPES:
        raise UserError(f'unknown recipe "{name}".{did_you_mean(name, RECIPES)} Recipes: {", ".join(RECIPES)}')
    return RECIPES[name]


def adapt(recipe: Recipe, env: EnvSpec) -> Recipe:
    """The row at the scale of an environment: the paper's settings for Atari, smaller ones for small worlds.

    Only sizes and schedules change: head kind, φ, loss, bootstrap and sampler remain what makes the algorithm.
    """
    return _SCALES[_scale(env)](recipe, env)


def _scale(env: EnvSpec) -> str:
    if env.family != "gym":
        return env.family
    if len(env.frame_shape) == 1:
        return "vector"
    return "picture" if min(env.frame_shape[1:]) >= 36 else "planes"


def _atari(recipe: Recipe, env: EnvSpec) -> Recipe:
    return recipe


def _minatar(recipe: Recipe, env: EnvSpec) -> Recipe:
    # Replay, target period and encoder after Young and Tian 2019.
    return replace(
        recipe,
        encoder=MinAtar(),
        head=_shrink(recipe.head, 128),
        schedule=replace(
            recipe.schedule,
            steps_per_iteration=10_000,
            update_period=2,
            target_period=1_000,
            random_history=2_000,
            replay_capacity=100_000,
            epsilon_decay_steps=20_000,
        ),
        optim=replace(recipe.optim, learning_rate=1e-3),
    )


def _vector(recipe: Recipe, env: EnvSpec) -> Recipe:
    # Chosen on CartPole. The decay settles a policy that otherwise keeps falling from and returning to its best.
    return replace(
        recipe,
        encoder=Mlp((256,)),
        head=_shrink(recipe.head, 256),
        schedule=replace(
            recipe.schedule,
            steps_per_iteration=5_000,
            batch_size=128,
            update_period=4,
            target_period=40,
            random_history=1_000,
            replay_capacity=100_000,
            epsilon_decay_steps=5_000,
        ),
        optim=replace(recipe.optim, learning_rate=2e-3, learning_rate_final=2e-5, decay_updates=10_000),
    )


def _picture(recipe: Recipe, env: EnvSpec) -> Recipe:
    schedule = replace(
        recipe.schedule,
        steps_per_iteration=50_000,
        replay_capacity=100_000,
        random_history=5_000,
        target_period=2_000,
        epsilon_decay_steps=50_000,
    )
    return replace(recipe, schedule=schedule)


def _planes(recipe: Recipe, env: EnvSpec) -> Recipe:
    return _minatar(recipe, env)


def _shrink(head: Conjugated, units: int) -> Conjugated:
    return replace(head, hidden=units, embedding=units if head.embedding else 0)


_SCALES: dict[str, Callable[[Recipe, EnvSpec], Recipe]] = {
    "atari": _atari,
    "minatar": _minatar,
    "vector": _vector,
    "picture": _picture,
    "planes": _planes,
}
