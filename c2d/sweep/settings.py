"""Settings by their names on the command line, put into a config: {"head": "quantile", "optim.learning-rate": 1e-4}."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from c2d.config import Config, flat, from_json, to_json
from c2d.errors import UserError, did_you_mean
from c2d.recipes.part import PARTS
from c2d.recipes.recipe import exchange

Value = int | float | bool | str | None | list[Any]
Settings = Mapping[str, Value]

# What a plan says elsewhere: where to say it.
_ELSEWHERE = {"env": "envs", "recipe": "recipes", "seed": "seeds", "run-dir": "--out", "iterations": "iterations"}
_ELSEWHERE |= {"protocol": "protocol", "threads": "--threads", "device": "--device"}
_WORDS = {"true": True, "false": False, "none": None, "null": None}


def with_settings(config: Config, settings: Settings) -> Config:
    """The config with these settings; parts first, since they decide what other settings there are."""
    parts = {name: str(value) for name, value in settings.items() if name in PARTS}
    config = dataclasses.replace(config, recipe=exchange(config.recipe, parts))
    tree = to_json(config)
    for name, value in settings.items():
        if name not in parts:
            _put(tree, name, value)
    changed: Config = from_json(tree)
    return changed


def _put(tree: dict[str, Any], name: str, value: Value) -> None:
    if name in _ELSEWHERE:
        raise UserError(f'"{name}" is no setting of a plan; say it with {_ELSEWHERE[name]}')
    known = set(flat(tree)) - set(_ELSEWHERE) - set(PARTS)
    if name not in known:
        raise UserError(f'unknown setting "{name}".{did_you_mean(name, known)} `c2d train ENV --help` lists them')
    *path, last = name.replace("-", "_").split(".")
    node = tree if (path or [last])[0] in tree else tree["recipe"]
    for part in path:
        node = node[part]
    node[last] = plain(value) if isinstance(value, str) else value


def plain(text: str) -> Value:
    """Text as the value it stands for: 3, 1e-4, True, None, or itself."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
