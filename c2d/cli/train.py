"""c2d train ENV [options]"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from c2d.agents.recipe import MinAtar, Mlp, Nature
from c2d.cli.settings import parse, peek
from c2d.config import Config, default_config, read_config
from c2d.errors import UserError

ENCODERS: dict[str, Any] = {"nature": Nature, "minatar": MinAtar, "mlp": Mlp}


def main(arguments: Sequence[str]) -> None:
    config = read(list(arguments))
    from c2d.api import train

    result = train(config)
    if result.state == "finished":
        print(f"next: c2d evaluate {result.run_dir.path}")


def read(arguments: list[str]) -> Config:
    """The config meant by the command line: defaults of ENV and recipe (or of a file), then every setting given."""
    env, arguments = _take_env(arguments)
    file, arguments = peek(arguments, "--config", remove=True)
    recipe, _ = peek(arguments, "--recipe")
    protocol, _ = peek(arguments, "--protocol")
    encoder, arguments = peek(arguments, "--encoder", remove=True)
    if file is not None:
        if recipe is not None or protocol is not None:
            raise UserError("--config already says which recipe and protocol; leave out --recipe and --protocol")
        config = read_config(Path(file))
        config = dataclasses.replace(config, run_dir=None, env=default_config(env).env if env else config.env)
    elif env is not None:
        config = default_config(env, recipe or "c2d", protocol)
    elif {"-h", "--help"} & set(arguments):
        config = default_config("atari/breakout", recipe or "c2d", protocol)
    else:
        raise UserError("which environment? c2d train ENV, such as breakout, minatar/breakout or gym/CartPole-v1")
    if encoder is not None:
        if encoder not in ENCODERS:
            raise UserError(f'unknown encoder "{encoder}"; accepted: {", ".join(ENCODERS)}')
        config = dataclasses.replace(config, agent=dataclasses.replace(config.agent, encoder=ENCODERS[encoder]()))
    return parse(config, arguments)


def _take_env(arguments: list[str]) -> tuple[str | None, list[str]]:
    """The first word that is neither an option nor the value of one."""
    for place, word in enumerate(arguments):
        before = arguments[place - 1] if place else ""
        if not word.startswith("-") and (not before.startswith("--") or "=" in before):
            return word, arguments[:place] + arguments[place + 1 :]
    return None, arguments
