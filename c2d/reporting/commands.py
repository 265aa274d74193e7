"""The command line that begins a recorded Atari run again."""

from __future__ import annotations

import shlex
from typing import Any

from c2d.agents.recipes import RECIPES
from c2d.config import Config, flat, to_json
from c2d.envs.protocols import PROTOCOLS, AtariRules

_ALWAYS = ("recipe", "iterations", "seed")
_HERE_ONLY = (
    "env",
    "run-dir",
    "device",
    "threads",
    "compress-replay",
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
    before, now = flat(to_json(usual)), flat(config)
    words = ["c2d", "train", str(config["env"]).removeprefix("atari/")]
    for name, value in now.items():
        if name in _HERE_ONLY or name.startswith("checkpoint.") or (name not in _ALWAYS and before.get(name) == value):
            continue
        items = value if isinstance(value, list) else [value]
        words += [f"--{name}", *map(str, items)]
    if config["run_dir"] is not None:
        words += ["--run-dir", str(config["run_dir"])]
    return shlex.join(words)
