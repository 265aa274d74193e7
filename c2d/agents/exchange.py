"""Parts of a recipe exchanged by name, as on the command line: --head quantile."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from c2d.agents.recipe import PARTS, Recipe
from c2d.errors import UserError, did_you_mean


def exchange(recipe: Recipe, chosen: Mapping[str, str]) -> Recipe:
    """Other parts with their default settings; layers keep their size where both kinds have one."""
    for part, name in chosen.items():
        if name not in PARTS[part]:
            hint = did_you_mean(str(name), PARTS[part])
            raise UserError(f'unknown {part} "{name}".{hint} Accepted: {", ".join(PARTS[part])}')
        new, old = PARTS[part][name](), getattr(recipe, part)
        if type(new) is type(old):
            continue
        kept = {f.name for f in dataclasses.fields(new)} & {"hidden", "learning_rate"}
        same = {field: getattr(old, field) for field in kept if hasattr(old, field)}
        recipe = dataclasses.replace(recipe, **{part: dataclasses.replace(new, **same)})
    return recipe
