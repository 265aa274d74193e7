"""Variants: recipes, and recipes with something changed, as data; the lists that shipped plans are made of."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

from c2d.recipes import parts
from c2d.recipes.recipe import Recipe


class Variant(NamedTuple):
    """A recipe, or a change of one, with a name for tables and directories."""

    name: str
    recipe: str
    change: Callable[[Recipe], Recipe] = lambda recipe: recipe
    settings: Mapping[str, Any] = MappingProxyType({})  # by their names on the command line


# ------------------------------------------------------------------------------------------------------ ablations


def ablations(recipe_name: str, recipe: Recipe) -> list[Variant]:
    """The recipe, and the recipe without each of its ingredients."""
    removals: dict[str, tuple[bool, Callable[[Recipe], Recipe]]] = {
        "n-step": (recipe.n_step > 1, lambda r: replace(r, n_step=1)),
        "priorities": (
            isinstance(recipe.sampler, parts.Prioritized),
            lambda r: replace(r, sampler=parts.Uniform()),
        ),
        "double": (isinstance(recipe.bootstrap, parts.Double), lambda r: replace(r, bootstrap=parts.Greedy())),
        "munchausen": (
            isinstance(recipe.bootstrap, parts.Munchausen),
            lambda r: replace(r, bootstrap=parts.Greedy()),
        ),
        "noise": (recipe.noisy, _without_noise),
        "dueling": (recipe.dueling, lambda r: replace(r, dueling=False)),
        "phi": (recipe.phi.kind != "identity", lambda r: replace(r, phi=parts.PhiSpec("identity"))),
        "embedding": (
            isinstance(recipe.head, parts.Conjugated) and recipe.head.embedding > 0,
            lambda r: replace(r, head=replace(r.head, embedding=0)),  # type: ignore[call-arg, arg-type]
        ),
    }
    present = {name: change for name, (has, change) in removals.items() if has}
    without = [Variant(f"{recipe_name}-no-{name}", recipe_name, change) for name, change in present.items()]
    return [Variant(recipe_name, recipe_name), *without]


def _without_noise(recipe: Recipe) -> Recipe:
    """ε-greedy exploration in its place, as in the paper."""
    schedule = replace(recipe.schedule, epsilon_initial=1.0, epsilon_min=0.01, epsilon_eval=0.001)
    return replace(recipe, noisy=False, schedule=schedule)


# ------------------------------------------------------------------------------------------------- shipped lists


def _head(**changes: object) -> Callable[[Recipe], Recipe]:
    return lambda recipe: replace(recipe, head=dataclasses.replace(recipe.head, **changes))  # type: ignore[arg-type]


def _phi(kind: str, clip: float | None = None) -> Callable[[Recipe], Recipe]:
    return lambda recipe: replace(recipe, phi=parts.PhiSpec(kind), clip_reward=clip)


def _beta(value: float) -> Callable[[Recipe], Recipe]:
    return lambda recipe: replace(recipe, phi=replace(recipe.phi, beta=value))


# The design claims of the paper (C2D, Sec. "Evaluation" and appendix), at the scale of MinAtar.
PAPER_CLAIMS: tuple[Variant, ...] = (
    Variant("c2d", "c2d"),
    Variant("c2d-no-embedding", "c2d", _head(embedding=0)),
    Variant("c2d-alpha-fixed", "c2d", _head(train_alpha=False)),
    Variant("c2d-support-fixed", "c2d", _head(train_atoms=False, train_alpha=False)),
    Variant("c51-cramer", "c51", lambda recipe: replace(recipe, loss=parts.Cramer())),
    Variant("c2d-identity-clipped", "c2d", _phi("identity", clip=1.0)),
    Variant("c2d-identity-raw", "c2d", _phi("identity")),
    Variant("c2d-h", "c2d", _phi("h")),
    Variant("c2d-norm-column", "c2d", lambda recipe: replace(recipe, encoder=parts.MinAtar(norm="column"))),
    Variant("c2d-norm-channel", "c2d", lambda recipe: replace(recipe, encoder=parts.MinAtar(norm="channel"))),
    Variant("c2d-orthogonal", "c2d", lambda recipe: replace(recipe, initializer="orthogonal")),
    # the search for β, α and c by early progress
    *(Variant(f"c2d-beta-{beta:g}", "c2d", _beta(beta)) for beta in (1.0, 1.5, 3.0)),
    *(Variant(f"c2d-alpha-{alpha:g}", "c2d", _head(alpha=alpha)) for alpha in (10.0, 25.0, 100.0)),
    *(Variant(f"c2d-c-{c:g}", "c2d", _head(c=c)) for c in (1.0, 2.5, 10.0)),
)
# The field on MinAtar.
MINATAR: tuple[Variant, ...] = tuple(
    Variant(name, name) for name in ("dqn-adam", "c51", "qr-dqn", "iqn", "rainbow", "c2d", "rainbow-c2d")
)
# What holds C2D back on MinAtar, if anything does: one setting changed at a time.
MINATAR_C2D: tuple[Variant, ...] = (
    Variant("c2d", "c2d"),
    Variant("c2d-3-steps", "c2d", settings={"n-step": 3}),
    *(Variant(f"c2d-rate-{rate:g}", "c2d", settings={"optim.learning-rate": rate}) for rate in (2.5e-4, 4e-3)),
    Variant("c2d-eps-1e-8", "c2d", settings={"optim.eps": 1e-8}),
    Variant("c2d-alpha-10", "c2d", settings={"head.alpha": 10.0}),
    *(Variant(f"c2d-beta-{beta:g}", "c2d", settings={"phi.beta": beta}) for beta in (1.0, 4.0)),
)
# Those of the paper's comparison (C2D, Sec. "Scores and Baselines").
PAPER: tuple[Variant, ...] = tuple(Variant(name, name) for name in ("c2d", "c51", "iqn", "rainbow", "dqn"))
