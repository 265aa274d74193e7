"""Plans from TOML or YAML files, read by loaders that create plain values only.

name = "rates"
recipes = ["c2d", "c51"]
envs = ["minatar/*", "gym/CartPole-v1"]
seeds = 3                                   # 1, 2 and 3; or a list
iterations = 10                             # or steps = 100000
settings = { "schedule.batch-size" = 64 }   # for every run, names as on the command line
grid = { "optim.learning-rate" = [1e-4, 5e-5] }

[[variants]]                                # in addition to recipes, or instead
name = "c2d-quantiles"
recipe = "c2d"
settings = { "head" = "quantile", "loss" = "quantile-huber" }
"""

from __future__ import annotations

import itertools
import re
import tomllib
from pathlib import Path
from typing import Any

from c2d.envs.names import require_trusted_env
from c2d.errors import UserError, unknown_name
from c2d.files import read_text
from c2d.sweep.plan import Plan, Variant, split_names
from c2d.user_code import is_trusted

SUFFIXES = (".toml", ".yaml", ".yml")
_MAX_BYTES = 1 << 20
_LIST = (list, str)
_KEYS: dict[str, Any] = {
    "name": str, "recipes": _LIST, "envs": _LIST, "seeds": (int, list), "iterations": int, "steps": int,
    "protocol": str, "settings": dict, "grid": dict, "variants": list,
}  # fmt: skip
_VARIANT: dict[str, Any] = {"name": str, "recipe": str, "settings": dict}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=+-]*")


def read_plan(path: Path, named_envs: tuple[str, ...] = ()) -> Plan:
    """The plan in a file. Environment classes of the user's own must be among `named_envs`, the command line's."""
    try:
        value = _load(path)
    except OSError as error:
        raise UserError(f"plan {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UserError(f"plan {path} cannot be read: it is not UTF-8 text") from None
    try:
        return _plan(value, path.stem, named_envs)
    except UserError as error:
        raise UserError(f"plan {path}: {error}") from None


def _load(path: Path) -> Any:
    text = read_text(path, _MAX_BYTES)
    if path.suffix == ".toml":
        try:
            return tomllib.loads(text)
        except (tomllib.TOMLDecodeError, ValueError, RecursionError) as error:
            raise UserError(f"plan {path} is not TOML: {error}") from None
    try:
        import yaml
    except ImportError:
        raise UserError("plans in YAML need PyYAML: pip install 'c2d[cluster]', or use TOML") from None
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UserError(f"plan {path} is not plain YAML: {' '.join(str(error).split())}") from None


def _plan(value: Any, stem: str, named_envs: tuple[str, ...]) -> Plan:
    _check(value, _KEYS, "a plan")
    variants = [Variant(name, name) for name in _strings(value.get("recipes", []), "recipes")]
    for number, item in enumerate(value.get("variants", []), 1):
        _check(item, _VARIANT, f"variant {number}")
        if not _NAME.fullmatch(str(item.get("name", ""))) or "recipe" not in item:
            raise UserError(f"variant {number} needs a recipe, and a name of letters, digits and . _ = + -")
        variants.append(Variant(item["name"], item["recipe"], settings=dict(item.get("settings", {}))))
    envs = _strings(value.get("envs", []), "envs")
    for env in envs:
        require_trusted_env(env, env if env in named_envs else None, flag="--envs ")
    grid = {str(key): tuple(choices) if isinstance(choices, list) else (choices,)
            for key, choices in value.get("grid", {}).items()}  # fmt: skip
    settings = dict(value.get("settings", {}))
    _reject_untrusted_code(settings, grid, variants)
    name = str(value.get("name", stem))
    if not _NAME.fullmatch(name):
        raise UserError(f'name is "{name}"; accepted: letters, digits and . _ = + -')
    return Plan(
        name=name,
        variants=tuple(variants),
        envs=tuple(envs),
        seeds=_seeds(value.get("seeds", 3)),
        iterations=value.get("iterations"),
        steps=value.get("steps"),
        protocol=value.get("protocol"),
        settings=settings,
        grid=grid,
    )


def _reject_untrusted_code(settings: dict[str, Any], grid: dict[str, tuple[Any, ...]], variants: list[Variant]) -> None:
    """A φ or a wrapper is imported only if the command line names it, and so it is with arguments that may be paths."""
    for name, value in itertools.chain(
        settings.items(),
        ((name, value) for name, values in grid.items() for value in values),
        *(v.settings.items() for v in variants),
    ):
        own = name.startswith("env-kwargs.") and set("/\\:") & set(str(value))
        if own or (name == "wrapper" and not all(map(is_trusted, split_names(str(value))))):
            raise UserError(
                f"{name} is {value}, used only if you name it yourself; leave it out of the file, and add "
                f"--set {name}={value}"
            )
    kinds = [settings.get("phi.kind"), *grid.get("phi.kind", ()), *(v.settings.get("phi.kind") for v in variants)]
    for kind in kinds:
        if isinstance(kind, str) and ":" in kind and not is_trusted(kind):
            raise UserError(
                f"φ is {kind}, code that is imported only if you name it yourself; to allow it, add "
                f"--set phi.kind={kind}"
            )


def _check(value: Any, keys: dict[str, Any], what: str) -> None:
    if not isinstance(value, dict):
        raise UserError(
            f"{what} is {_KINDS.get(type(value), type(value).__name__)}; accepted: a table of {', '.join(keys)}"
        )
    for key, item in value.items():
        if key not in keys:
            raise unknown_name(f"key of {what}", str(key), keys)
        if not isinstance(item, keys[key]) or isinstance(item, bool):
            kinds = keys[key] if isinstance(keys[key], tuple) else (keys[key],)
            accepted = " or ".join(_KINDS[kind] for kind in kinds)
            raise UserError(f"{key} of {what} is {item!r}; accepted: {accepted}")


_KINDS = {str: "text", list: "a list", int: "a whole number", dict: "a table"}


def _strings(value: Any, key: str) -> list[str]:
    items = split_names(value) if isinstance(value, str) else value
    if not all(isinstance(item, str) for item in items):
        raise UserError(f"{key} is {items!r}; accepted: a list of names")
    return list(items)


def _seeds(value: Any) -> tuple[int, ...]:
    return tuple(range(1, value + 1)) if isinstance(value, int) else tuple(value)
