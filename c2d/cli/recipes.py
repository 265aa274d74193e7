"""c2d recipes [NAME NAME]"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tyro

from c2d.cli.settings import options
from c2d.errors import UserError
from c2d.formatting import text_table


@dataclass(frozen=True)
class Recipes:
    """Which recipes."""

    names: tyro.conf.Positional[tuple[str, ...]] = ()
    """None: list all. One: all its settings. Two: where they differ, side by side."""
    env: str = "breakout"
    """The environment at whose scale settings are shown."""


def main(arguments: Sequence[str]) -> None:
    text = "The algorithms: each is one row of settings in c2d/agents/recipes.py."
    chosen = options(Recipes, list(arguments), "c2d recipes", text)
    if len(chosen.names) > 2:
        raise UserError(f"c2d recipes takes up to two names, not {len(chosen.names)}")
    if chosen.names:
        _compare(chosen.names, chosen.env)
    else:
        _list(chosen.env)


def _list(env: str) -> None:
    import torch

    from c2d.agents.build import build_network, parameter_count
    from c2d.config import default_config
    from c2d.envs.make import spec_of
    from c2d.recipes.rows import ROWS

    spec, usual = None, _flat(default_config(env).recipe)
    width = max(map(len, ROWS))
    for name, row in ROWS.items():
        config = default_config(env, name)
        spec = spec or spec_of(config.env, config.rules)
        weights = parameter_count(build_network(config.recipe, spec, torch.Generator()))
        own = _flat(config.recipe)
        unlike = [f"{key} {_words(own[key])}" for key in own if own[key] != usual.get(key)]
        print(f"{name:<{width}}  {row.about} ({row.paper}; settings: {row.settings}; {weights:,} weights on {env})")
        if unlike:
            print(f"{'':<{width}}  differs from c2d in: {', '.join(unlike)}")
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


def _flat(recipe: Any) -> dict[str, Any]:
    from c2d.config import flat, to_json

    return flat(to_json(recipe))


def _words(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
