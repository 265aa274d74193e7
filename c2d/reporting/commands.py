"""The command line that begins a recorded Atari run again."""

from __future__ import annotations

import shlex
from typing import Any

from c2d.agents.recipe import PARTS
from c2d.agents.recipes import RECIPES
from c2d.config import Config, to_json
from c2d.envs.protocols import PROTOCOLS, AtariRules

# part -> class -> its name on the command line
_PARTS = {part: {cls.__name__: name for name, cls in choices.items()} for part, choices in PARTS.items()}
_ALWAYS = ("recipe", "iterations", "seed")
_HERE_ONLY = (
    "env",
    "run_dir",
    "device",
    "threads",
    "compress_replay",
    "tensorboard",
)  # alter no result, or stand apart


def train_command(config: dict[str, Any]) -> str:
    """`c2d train` with every setting that differs from the game's defaults. `config` is in its JSON form."""
    usual = Config(
        env=config["env"],
        recipe=config["recipe"],
        protocol=config["protocol"],
        rules=PROTOCOLS.get(config["protocol"], AtariRules()),
        agent=RECIPES.get(config["recipe"], RECIPES["c2d"]),
    )
    before, now = _flat(to_json(usual)), _flat(config)
    words = ["c2d", "train", str(config["env"]).removeprefix("atari/")]
    for name, value in now.items():
        if name in _HERE_ONLY or name.startswith("checkpoint.") or (name not in _ALWAYS and before.get(name) == value):
            continue
        items = value if isinstance(value, list) else [value]
        words += [f"--{name.replace('_', '-')}", *map(str, items)]
    if config["run_dir"] is not None:
        words += ["--run-dir", str(config["run_dir"])]
    return shlex.join(words)


def _flat(value: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"agent": {"phi": {"beta": 1}}} -> {"phi.beta": 1}, named as on the command line."""
    flat: dict[str, Any] = {}
    for name, item in value.items():
        if isinstance(item, dict):
            flat.update(_flat(item, prefix if name == "agent" else f"{prefix}{name}."))
        elif name != "class":
            flat[prefix + name] = item
        elif prefix.removesuffix(".") in _PARTS:
            flat[prefix.removesuffix(".")] = _PARTS[prefix.removesuffix(".")].get(str(item), item)
    return flat
