"""c2d train ENV [options], and c2d trust MODULE"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from c2d.cli.settings import all_switches, options, parse, peek, take_trust
from c2d.config import Config, default_config, read_config
from c2d.envs.make import with_arguments
from c2d.envs.names import require_trusted_env, resolve
from c2d.envs.protocols import GymRules, argument_value
from c2d.errors import UserError
from c2d.recipes.part import SLOTS
from c2d.recipes.recipe import exchange
from c2d.user_code import change_trusted_modules, trust, trust_file, trusted_modules


def main(arguments: Sequence[str]) -> None:
    config = read(list(arguments))
    from c2d.api import train
    from c2d.training.process import keep_memory

    keep_memory()
    result = train(config)
    if result.state == "finished" or result.reason:
        print(f"next: {result.run_dir.command('evaluate', config)}")


def read(arguments: list[str]) -> Config:
    """The config that the command line describes: defaults of ENV and recipe (or of a file), then every setting."""
    env_kwargs, wrappers, arguments = take_environment_options(take_trust(arguments))
    env, arguments = _take_env(arguments)
    file, arguments = peek(arguments, "--config", remove=True)
    recipe, _ = peek(arguments, "--recipe")
    protocol, _ = peek(arguments, "--protocol")
    chosen, arguments = take_parts(arguments)
    if file is not None:
        if recipe is not None or protocol is not None:
            raise UserError("--config already has a recipe and a protocol; leave out --recipe and --protocol")
        config = read_config(Path(file))
        if env is None:
            require_trusted_env(config.env, env, flag="", rules=config.rules)
        config = dataclasses.replace(config, run_dir=None, env=resolve(env).canonical if env else config.env)
        config = _with_environment(config, env_kwargs, wrappers)
    elif env is not None:
        config = default_config(env, recipe or "c2d", protocol, env_kwargs, wrappers)
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


@dataclass(frozen=True)
class TrustOptions:
    """The options of `c2d trust`."""

    modules: tyro.conf.Positional[tuple[str, ...]] = ()
    """Modules or packages, my_package.my_module. None: list those that are trusted here."""
    forget: bool = False
    """Trust them no longer."""


def trust_modules(arguments: Sequence[str]) -> None:
    """c2d trust MODULE"""
    about = (
        "Trust modules of your own in this directory: commands that are started here may import them because a run, a "
        "config or a plan names them, without --trust and --env. What they are is kept in your configuration directory."
    )
    chosen = options(TrustOptions, list(arguments), "c2d trust", about)
    for module in chosen.modules:
        if not all(word.isidentifier() for word in module.split(".")):
            raise UserError(f'"{module}" is not a module; accepted: my_package.my_module, without what is in it')
    before = trusted_modules()
    if chosen.forget and not set(chosen.modules) <= set(before):
        raise UserError(f"not trusted here: {', '.join(set(chosen.modules) - set(before))}; trusted: {_listed(before)}")
    if chosen.modules:
        kept = [module for module in before if module not in chosen.modules]
        change_trusted_modules(kept if chosen.forget else [*kept, *chosen.modules])
    print(f"trusted in {Path.cwd()}: {_listed(trusted_modules())} ({trust_file()})")


def _listed(modules: list[str]) -> str:
    return ", ".join(modules) or "none"


def with_environment_options(config: Config, arguments: list[str]) -> tuple[Config, list[str]]:
    """The config with other arguments and wrappers of its environment, and the other words."""
    env_kwargs, wrappers, arguments = take_environment_options(arguments)
    return _with_environment(config, env_kwargs, wrappers), arguments


def _with_environment(config: Config, env_kwargs: dict[str, Any], wrappers: list[str]) -> Config:
    before = config.rules if isinstance(config.rules, GymRules) else GymRules()
    if not env_kwargs and not wrappers:
        return config
    around = wrappers or before.wrappers
    rules = with_arguments(resolve(config.env), config.rules, before.arguments | env_kwargs, around)
    return dataclasses.replace(config, rules=rules)


def take_environment_options(arguments: list[str]) -> tuple[dict[str, Any], list[str], list[str]]:
    """`--env-kwargs.size 7` and `--wrapper my_module:wrap`, which decide the shape of observations; the other words."""
    env_kwargs: dict[str, Any] = {}
    wrappers: list[str] = []
    for word in [word.partition("=")[0] for word in arguments if word.startswith(("--env-kwargs.", "--env_kwargs."))]:
        value, arguments = peek(arguments, word, remove=True)
        if value is not None:
            env_kwargs[word.partition(".")[2].replace("-", "_")] = argument_value(value)
    name, arguments = peek(arguments, "--wrapper", remove=True)
    while name is not None:
        trust(name)
        wrappers.append(name)
        name, arguments = peek(arguments, "--wrapper", remove=True)
    return env_kwargs, wrappers, arguments


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
