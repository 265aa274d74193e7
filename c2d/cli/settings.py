"""Settings on the command line: a frozen Config in, the same Config with the user's changes out."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import re
from itertools import pairwise
from typing import Any, TypeVar

import tyro

from c2d.config import Config, flat, to_json
from c2d.errors import UserError
from c2d.recipes.recipe import PARTS

Options = TypeVar("Options")

_PARTS_IN_WORDS = {
    "encoder": "network from the observation to features",
    "head": "what is predicted for each action",
    "loss": "how prediction and target are compared",
    "bootstrap": "whose choice and whose law the target takes",
    "sampler": "which transitions an update learns from",
    "optim": "how weights follow gradients",
}


def parse(config: Config, arguments: list[str], prog: str = "c2d train ENV") -> Config:
    """Apply `--setting value` pairs. `--help` explains each setting with the defaults of this config."""
    return options(Config, [config.env, *arguments], prog=prog, description=_description(config), default=config)


def _description(config: Config) -> str:
    """What stands above the settings: what decides which there are."""
    now = flat(to_json(config))
    parts = "\n".join(
        f"  --{part}: {_PARTS_IN_WORDS[part]}; {', '.join(choices)} (default: {now[part]})"
        for part, choices in PARTS.items()
    )
    return (
        "Train an agent. Times are in agent steps unless said otherwise; defaults follow ENV and recipe.\n\n"
        "ENV: an Atari game (breakout, ALE/Breakout-v5), minatar/breakout, gym/CartPole-v1 or another registered "
        "environment, toy/bimodal, or a class of yours as my_package.my_module:MyEnv.\n\n"
        "--config FILE: begin with the settings of a run, its config.json; other settings given change them.\n\n"
        f"Parts of the recipe can be exchanged, and then have settings of their own:\n{parts}"
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
        raise UserError(_misled_switch(switches, arguments, said := _one_line(complaints.getvalue())) or said) from None


def _switches(cls: Any, default: Any) -> set[str]:
    names = [field.name for field in dataclasses.fields(cls) if field.type in ("bool", bool, "bool | None")]
    if isinstance(default, Config):  # settings within its parts
        names += [name for name, value in flat(to_json(default)).items() if isinstance(value, bool)]
    return {"--" + name.replace("_", "-") for name in names}


def _misled_switch(switches: set[str], arguments: list[str], said: str) -> str | None:
    """If what was complained of is a word after a switch, what the switch takes."""
    for word, value in pairwise(arguments):
        if word in switches and said == f"Unrecognized options: {value}":
            return f"{word} takes True or False, not {value!r}"
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


def _one_line(text: str) -> str:
    """tyro's framed message without its frame."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    words = " ".join(re.sub(r"[│╭╮╰╯─]+|-{5,}", " ", plain).split())
    for tail in ("Argument helptext:", "For full helptext"):
        words = words.partition(tail)[0].strip()
    for title in ("Parsing error ", "Value error ", "Unrecognized options "):
        words = words.removeprefix(title)
    return words
