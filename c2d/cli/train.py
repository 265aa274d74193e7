"""c2d train ENV [options]"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from c2d.cli.settings import parse, peek
from c2d.config import Config, default_config, read_config
from c2d.envs.names import require_trusted_env, resolve
from c2d.errors import UserError
from c2d.recipes.recipe import PARTS, exchange
from c2d.recipes.user_code import trust


def main(arguments: Sequence[str]) -> None:
    config = read(list(arguments))
    from c2d.api import train
    from c2d.training.process import keep_memory

    keep_memory()
    result = train(config)
    if result.state == "finished":
        print(f"next: {result.run_dir.command('evaluate', config.env)}")


def read(arguments: list[str]) -> Config:
    """The config meant by the command line: defaults of ENV and recipe (or of a file), then every setting given."""
    env, arguments = _take_env(arguments)
    file, arguments = peek(arguments, "--config", remove=True)
    recipe, _ = peek(arguments, "--recipe")
    protocol, _ = peek(arguments, "--protocol")
    chosen, arguments = _take_parts(arguments)
    if file is not None:
        if recipe is not None or protocol is not None:
            raise UserError("--config already says which recipe and protocol; leave out --recipe and --protocol")
        config = read_config(Path(file))
        if env is None:
            require_trusted_env(config.env, env, flag="")
        config = dataclasses.replace(config, run_dir=None, env=resolve(env).canonical if env else config.env)
    elif env is not None:
        config = default_config(env, recipe or "c2d", protocol)
    elif {"-h", "--help"} & set(arguments):
        config = default_config("atari/breakout", recipe or "c2d", protocol)
    else:
        raise UserError("which environment? c2d train ENV, such as breakout, minatar/breakout or gym/CartPole-v1")
    config = dataclasses.replace(config, recipe=exchange(config.recipe, chosen))
    config = parse(config, arguments)
    if peek(arguments, "--phi.kind")[0] is not None:
        trust(config.recipe.phi.kind)
    return config


def _take_parts(arguments: list[str]) -> tuple[dict[str, str], list[str]]:
    """`--head quantile` and the like, which decide what settings there are."""
    chosen = {}
    for part in PARTS:
        name, arguments = peek(arguments, f"--{part}", remove=True)
        if name is not None:
            chosen[part] = name
    return chosen, arguments


def _take_env(arguments: list[str]) -> tuple[str | None, list[str]]:
    """The first word that is neither an option nor the value of one."""
    for place, word in enumerate(arguments):
        before = arguments[place - 1] if place else ""
        if not word.startswith("-") and (not before.startswith("--") or "=" in before):
            return word, arguments[:place] + arguments[place + 1 :]
    return None, arguments
