"""c2d train ENV [options]"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from c2d.cli.settings import all_switches, parse, peek, take_trust
from c2d.config import Config, default_config, read_config
from c2d.envs.names import require_trusted_env, resolve
from c2d.errors import UserError
from c2d.recipes.part import SLOTS
from c2d.recipes.recipe import exchange
from c2d.recipes.user_code import trust


def main(arguments: Sequence[str]) -> None:
    config = read(list(arguments))
    from c2d.api import train
    from c2d.training.process import keep_memory

    keep_memory()
    result = train(config)
    if result.state == "finished":
        print(f"next: {result.run_dir.command('evaluate', config)}")


def read(arguments: list[str]) -> Config:
    """The config that the command line describes: defaults of ENV and recipe (or of a file), then every setting."""
    env, arguments = _take_env(take_trust(arguments))
    file, arguments = peek(arguments, "--config", remove=True)
    recipe, _ = peek(arguments, "--recipe")
    protocol, _ = peek(arguments, "--protocol")
    chosen, arguments = take_parts(arguments)
    if file is not None:
        if recipe is not None or protocol is not None:
            raise UserError("--config already has a recipe and a protocol; leave out --recipe and --protocol")
        config = read_config(Path(file))
        if env is None:
            require_trusted_env(config.env, env, flag="")
        config = dataclasses.replace(config, run_dir=None, env=resolve(env).canonical if env else config.env)
    elif env is not None:
        config = default_config(env, recipe or "c2d", protocol)
    elif {"-h", "--help", "--help-all"} & set(arguments):
        config = default_config("atari/breakout", recipe or "c2d", protocol)
    else:
        raise UserError("which environment? c2d train ENV, such as breakout, minatar/breakout or gym/CartPole-v1")
    config = dataclasses.replace(config, recipe=exchange(config.recipe, chosen))
    return parse(config, arguments)


def take_parts(arguments: list[str]) -> tuple[dict[str, str], list[str]]:
    """`--head quantile` and the like, which decide what settings there are; and the other arguments.

    Code that the command line names, for a part or for φ, may be imported.
    """
    chosen = {}
    for slot in SLOTS:
        name, arguments = peek(arguments, f"--{slot}", remove=True)
        if name is not None:
            chosen[slot] = name
    for name in (*chosen.values(), peek(arguments, "--phi.kind")[0] or ""):
        trust(name)
    return chosen, arguments


def _take_env(arguments: list[str]) -> tuple[str | None, list[str]]:
    """The first word that is neither an option nor the value of one, and the other words.

    A switch such as `--noisy` may stand alone.
    """
    switches = all_switches()
    for place, word in enumerate(arguments):
        before = arguments[place - 1] if place else ""
        alone = (
            not before.startswith("--")
            or "=" in before
            or (before in switches and word.lower() not in ("true", "false"))
        )
        if alone and not word.startswith("-"):
            return word, arguments[:place] + arguments[place + 1 :]
    return None, arguments
