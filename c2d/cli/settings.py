"""Settings on the command line: a frozen Config in, the same Config with the user's changes out."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import re
from itertools import pairwise
from typing import Any, TypeVar, get_args

import tyro

from c2d.config import Config, flat, to_json
from c2d.envs.protocols import Rules
from c2d.errors import UserError
from c2d.recipes.part import PARTS, SLOTS
from c2d.recipes.recipe import Recipe
from c2d.recipes.user_code import trust
from c2d.validation import option

Options = TypeVar("Options")


def parse(config: Config, arguments: list[str], prog: str = "c2d train ENV") -> Config:
    """Apply `--setting value` pairs. `--help` explains each setting with the defaults of this config."""
    return options(Config, [config.env, *arguments], prog=prog, description=_description(config), default=config)


def _description(config: Config) -> str:
    """The text above the settings: the options that decide which settings there are."""
    now = flat(to_json(config))
    parts = "\n".join(
        f"  --{slot}: {about}; {', '.join(PARTS[slot])} (default: {now[slot]})" for slot, about in SLOTS.items()
    )
    return (
        "Train an agent. Times are in agent steps unless stated otherwise; defaults depend on ENV and recipe.\n\n"
        "ENV: an Atari game (breakout, ALE/Breakout-v5), minatar/breakout, gym/CartPole-v1 or another registered "
        "environment, toy/bimodal, or your own class as my_package.my_module:MyEnv.\n\n"
        "--config FILE: start from the config.json of a run; other settings change it.\n\n"
        "Each part of the recipe can be exchanged and then has its own settings. Your own part is my_module:MyHead "
        f"(docs/extending.md).\n{parts}"
    )


def options(
    cls: type[Options], arguments: list[str], prog: str, description: str, default: Options | None = None
) -> Options:
    """The options of a command: a dataclass whose fields and docstrings are the settings and their help.

    A switch alone, `--dry-run`, means `--dry-run True`.
    """
    complaints, switches = io.StringIO(), _switches(cls, default)
    try:
        with contextlib.redirect_stderr(complaints):
            return tyro.cli(
                cls,
                default=tyro.MISSING_NONPROP if default is None else default,
                args=_switched(switches, arguments),
                prog=prog,
                description=description,
                config=(tyro.conf.FlagConversionOff, tyro.conf.AvoidSubcommands),
            )
    except SystemExit as exit:
        if not exit.code:
            raise
        complaint = _one_line(complaints.getvalue())
        raise UserError(_misread_switch(switches, arguments, complaint) or complaint) from None


def _switches(cls: Any, default: Any) -> set[str]:
    names = [field.name for field in dataclasses.fields(cls) if field.type in ("bool", bool, "bool | None")]
    if isinstance(default, Config):  # settings within its parts
        names += [name for name, value in flat(to_json(default)).items() if isinstance(value, bool)]
    return {"--" + name.replace("_", "-") for name in names}


def all_switches() -> set[str]:
    """Every setting of a run that is True or False, in whichever part."""
    classes: list[tuple[str, Any]] = [("", Config), ("", Recipe), *(("rules.", rules) for rules in get_args(Rules))]
    classes += [(f"{slot}.", cls) for slot, parts in PARTS.items() for cls in parts.values()]
    fields = [(prefix, field) for prefix, cls in classes for field in dataclasses.fields(cls)]
    return {f"--{prefix}{option(field.name)}" for prefix, field in fields if str(field.type).startswith("bool")}


def _misread_switch(switches: set[str], arguments: list[str], complaint: str) -> str | None:
    """A better message if the complaint is about the word after a switch."""
    for word, value in pairwise(arguments):
        if word in switches and complaint == f"Unrecognized options: {value}":
            return f'{word} is "{value}"; accepted: True, False'
    return None


def _switched(switches: set[str], arguments: list[str]) -> list[str]:
    spelled: list[str] = []
    for place, word in enumerate(arguments, 1):
        alone = word in switches and arguments[place : place + 1] not in (["True"], ["False"])
        spelled += [word, "True"] if alone else [word]
    return spelled


def peek(arguments: list[str], flag: str, remove: bool = False) -> tuple[str | None, list[str]]:
    """The value of `--flag value` or `--flag=value`, which decides what the other settings default to."""
    for place, word in enumerate(arguments):
        if word.startswith(flag + "="):
            return word.partition("=")[2], arguments[:place] + arguments[place + 1 :] if remove else arguments
        if word == flag:
            if place + 1 == len(arguments):
                raise UserError(f"{flag} needs a value")
            return arguments[place + 1], arguments[:place] + arguments[place + 2 :] if remove else arguments
    return None, arguments


def take_trust(arguments: list[str]) -> list[str]:
    """The other arguments; every `--trust my_module:MyHead` among them may now be imported."""
    name, arguments = peek(arguments, "--trust", remove=True)
    while name is not None:
        trust(name)
        name, arguments = peek(arguments, "--trust", remove=True)
    return arguments


def _one_line(text: str) -> str:
    """tyro's framed message without its frame."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    words = " ".join(re.sub(r"[│╭╮╰╯─]+|-{5,}", " ", plain).split())
    for tail in ("Argument helptext:", "For full helptext"):
        words = words.partition(tail)[0].strip()
    for title in ("Parsing error ", "Value error ", "Unrecognized options "):
        words = words.removeprefix(title)
    return words
