"""c2d recipes [NAME NAME] [--parts]"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

import tyro

from c2d.cli.settings import help_texts, options
from c2d.errors import UserError
from c2d.formatting import text_table


@dataclass(frozen=True)
class Recipes:
    """What to show."""

    names: tyro.conf.Positional[tuple[str, ...]] = ()
    """One: all its settings. Two: where they differ, side by side; none given: a list of all."""
    parts: bool = False
    """List the parts of which recipes are made, with their settings, limits and help."""
    env: str = "breakout"
    """The environment at whose scale settings are shown."""
    trust: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """A part of your own, my_package.my_module:MyHead, to list with the others; can be given several times."""


def main(arguments: Sequence[str]) -> None:
    text = (
        "The algorithms: each is one row of settings in c2d/recipes/rows.py, made of the parts in c2d/recipes/parts.py."
    )
    chosen = options(Recipes, list(arguments), "c2d recipes", text)
    if len(chosen.names) > 2:
        raise UserError(f"c2d recipes got {len(chosen.names)} names; accepted: up to two")
    if chosen.parts:
        if chosen.names:
            raise UserError("c2d recipes got names and --parts; accepted: only one of the two")
        _list_parts(chosen.trust)
    elif chosen.names:
        _compare(chosen.names, chosen.env)
    else:
        _list(chosen.env)


def _list(env: str) -> None:
    import torch

    from c2d.agents.build import build_network, parameter_count
    from c2d.config import default_config
    from c2d.envs.make import spec_of
    from c2d.recipes.rows import ROWS

    spec, base = None, _flat(default_config(env).recipe)
    width = max(map(len, ROWS))
    for name, row in ROWS.items():
        config = default_config(env, name)
        spec = spec or spec_of(config.env, config.rules)
        weights = parameter_count(build_network(config.recipe, spec, torch.Generator()))
        own = _flat(config.recipe)
        changes = [f"{key} {_words(own[key])}" for key in own if own[key] != base.get(key)]
        print(f"{name:<{width}}  {row.about} ({row.paper}; settings: {row.settings}; {weights:,} weights on {env})")
        if changes:
            print(f"{'':<{width}}  differs from c2d in: {', '.join(changes)}")
        if row.note:
            print(f"{'':<{width}}  {row.note}")


def _compare(names: tuple[str, ...], env: str) -> None:
    from c2d.config import default_config
    from c2d.recipes.rows import ROWS

    tables = [_flat(default_config(env, name).recipe) for name in names]
    keys = [k for k in {**tables[0], **tables[-1]} if len(names) == 1 or tables[0].get(k) != tables[1].get(k)]
    cells = [["setting", *names], *([key, *(_words(t.get(key, "–")) for t in tables)] for key in keys)]
    print("\n".join(text_table(cells, left=len(names) + 1)))
    for name in names:
        if ROWS[name].note:
            print(f"{name}: {ROWS[name].note}")
    if len(names) == 2:
        print(f"all other settings are equal (at the scale of {env})")


def _list_parts(own: tuple[str, ...]) -> None:
    """Every slot with its parts, as they are declared."""
    from c2d.recipes.part import PARTS, SLOTS, check_declaration
    from c2d.user_code import imported, trust
    from c2d.validation import limits, option

    for name in own:
        trust(name)
        imported(name, "part")
    for slot, about in SLOTS.items():
        print(f"--{slot}: {about}")
        for name, cls in PARTS[slot].items():
            check_declaration(cls)
            print(f"  {name}: {_first_line(cls)}")
            helps, bounds = help_texts(cls), limits(cls)
            for field in dataclasses.fields(cls):
                accepted = bounds[field.name].accepted if field.name in bounds else _choices(cls, field.name)
                text = [helps.get(field.name, ""), f"Accepted: {accepted}." if accepted else ""]
                text.append(f"(default: {_words(getattr(cls(), field.name))})")
                print(f"    --{slot}.{option(field.name)}: {' '.join(filter(None, text))}")


def _first_line(cls: type) -> str:
    return " ".join((cls.__doc__ or "").split("\n\n")[0].split())


def _choices(cls: type, field: str) -> str:
    hint = get_type_hints(cls)[field]
    return ", ".join(map(str, get_args(hint))) if get_origin(hint) is Literal else ""


def _flat(recipe: Any) -> dict[str, Any]:
    from c2d.config import flat, to_json

    return flat(to_json(recipe))


def _words(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
