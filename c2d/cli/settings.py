"""Settings on the command line: a frozen Config in, the same Config with the user's changes out."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import inspect
import io
import itertools
import re
import shutil
import textwrap
from collections.abc import Iterator
from itertools import pairwise
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import tyro

from c2d.config import OPTION_NAMES, Config, flat, to_json, unknown_setting
from c2d.envs.protocols import Rules
from c2d.errors import UserError, similar_setting
from c2d.recipes.part import PARTS, SLOTS
from c2d.recipes.recipe import Recipe
from c2d.user_code import trust
from c2d.validation import option

Options = TypeVar("Options")


def parse(config: Config, arguments: list[str], prog: str = "c2d train ENV") -> Config:
    """Apply `--setting value` pairs. `--help-all` explains each setting with the defaults of this config."""
    if {"-h", "--help"} & set(arguments):
        print(short_help(config, prog))
        raise SystemExit(0)
    longer = {"--help-all": "--help", "--log": "--log.to"}
    arguments = [
        longer.get(name, name) + equals + value for name, equals, value in (w.partition("=") for w in arguments)
    ]
    return options(Config, [config.env, *arguments], prog=prog, description=_description(config), default=config)


_INTRODUCTION = """Train an agent. Times are in agent steps unless stated otherwise; defaults depend on ENV and recipe.

ENV: an Atari game (breakout, ALE/Breakout-v5), minatar/breakout, gym/CartPole-v1 or another registered environment, \
toy/bimodal, or your own class as my_package.my_module:MyEnv."""

# The settings that `c2d train --help` shows, as far as the run has them.
_MAIN = (
    "recipe", "iterations", "schedule.steps-per-iteration", "seed", "run-dir", "envs", "actors", "address", "device",
    "threads", "n-step",
    "head.atoms", "optim.learning-rate", "schedule.gamma", "schedule.batch-size", "schedule.replay-capacity",
    "schedule.random-history", "schedule.epsilon-min", "schedule.epsilon-decay-steps", "schedule.update-period",
    "schedule.target-period", "eval-every", "stop-at-score",
)  # fmt: skip


# What is read before the settings, because it decides which there are.
_ELSEWHERE = [
    ("--protocol", "Atari rules by name: c2d-paper, dopamine or dopamine-2024"),
    ("--env-kwargs.NAME", "Argument of a Gymnasium environment: --env-kwargs.size 7"),
    ("--wrapper", "Your wrapper around the environment, my_module:wrap; can be given several times"),
    ("--log", "Where numbers go: tensorboard,csv,wandb,mlflow, one or several"),
    ("--config", "Start from the config.json of a run; other settings change it"),
    ("--trust", "Your own code that the config names, my_module:MyHead; can be given several times"),
]


def short_help(config: Config, prog: str) -> str:
    """The main settings of a run, in a sentence each; the others by number."""
    now, helps = flat(to_json(config)), dict(_helps(config))
    rows = []
    for name in (name for name in _MAIN if name in now):
        about = _without_default(helps[name], now[name])
        sentence = re.split(r"(?<!\.)[.;] ", f"{about[0]} ")[0].rstrip()
        rows.append((f"--{name}", sentence + about[1]))
    rows += [(f"--{slot}", f"{', '.join(PARTS[slot])} (default: {now[slot]})") for slot in SLOTS]
    rows += _ELSEWHERE
    return "\n".join(
        [
            f"usage: {prog} [--setting value ...]",
            *(f"\n{wrapped}" for wrapped in map(_wrapped, _INTRODUCTION.split("\n\n"))),
            "",
            *_columns(rows),
            "",
            # ENV and the names of parts are not among them
            f"{prog} --help-all explains all {len(now) - 1 - len(PARTS)} settings and what the parts are.",
        ]
    )


def _wrapped(text: str, first: str = "", later: str = "") -> str:
    width = max(shutil.get_terminal_size().columns, len(later) + 40)
    return textwrap.fill(
        text, width, initial_indent=first, subsequent_indent=later, break_on_hyphens=False, break_long_words=False
    )


def _columns(rows: list[tuple[str, str]]) -> Iterator[str]:
    """Names at the left and what they are at the right; a long name has a line of its own."""
    width = min(max(len(name) for name, _ in rows) + 4, 36)
    for name, about in rows:
        if len(name) + 4 > width:
            yield f"  {name}\n{_wrapped(about, ' ' * width, ' ' * width)}"
        else:
            yield _wrapped(about, f"  {name}".ljust(width), " " * width)


_DEFAULT_IN_WORDS = re.compile(r"[.;] (?:None|none given|none|Empty): (.+?)(?=\.$|\. |; |$)")


def _without_default(text: str, value: Any) -> tuple[str, str]:
    """A docstring without its full stop, and the default in words: what it says that None means, if it is that."""
    text = text if text.endswith("...") else text.removesuffix(".")
    unset = value is None or value in ((), "", [])
    found = _DEFAULT_IN_WORDS.search(text) if unset else None
    if found:
        return text[: found.start()] + text[found.end() :], f" (default: {found[1]})"
    if unset and not (value is None and "None" in text):
        return text, ""
    listed = isinstance(value, tuple | list)
    return text, f" (default: {' '.join(map(str, value)) if listed else value})"


def _full_help(cls: Any, prog: str, description: str, default: Any) -> str:
    """Every option of a command, or every setting of a run."""
    settings = isinstance(default, Config)
    positional = [] if settings else list(_rows(cls, default, positional=True))
    words = [name if required else f"[{name}]" for name, _, required in positional]
    lines = [" ".join(["usage:", prog, *words, "[--setting value ...]" if settings else "[options]"])]
    for paragraph in description.split("\n\n"):
        lines += ["", *(_wrapped(line, "", " " * 4 * line.startswith("  ")) for line in paragraph.split("\n"))]
    if positional:
        lines += ["", *_columns([(name, about) for name, about, _ in positional])]
    for title, default_of in [("", default), *(_sections(default) if settings else [])]:
        cls = cls if default_of is default else type(default_of)
        prefix = f"{title.partition(':')[0]}." if title else ""
        if rows := [(name, about) for name, about, _ in _rows(cls, default_of, prefix)]:
            lines += ["", *([_wrapped(title)] if title else []), *_columns(rows)]
    return "\n".join([*lines, "", "A switch may stand alone: --noisy is --noisy True."] if settings else lines)


def _sections(settings: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(title, dataclass) of the dataclasses among the settings; those of the recipe have no title."""
    for field in dataclasses.fields(settings):
        value, name = getattr(settings, field.name), f"{prefix}{option(field.name)}"
        if dataclasses.is_dataclass(value):
            title = "" if field.name == "recipe" else f"{name}: {' '.join((type(value).__doc__ or '').split())}"
            yield title, value
            yield from _sections(value, f"{name}." if title else "")


def _rows(cls: Any, default: Any, prefix: str = "", positional: bool = False) -> Iterator[tuple[str, str, bool]]:
    """(option and the form of its value, what it is, whether it must be given) of each plain setting."""
    texts, hints = help_texts(cls), get_type_hints(cls, include_extras=True)
    for field in dataclasses.fields(cls):
        notes = get_args(hints[field.name])[1:] if get_origin(hints[field.name]) is Annotated else ()
        named = [note for note in notes if hasattr(note, "aliases")]
        marks = {note for note in notes if note not in named}
        value = field.default if default is None else getattr(default, field.name)
        if dataclasses.is_dataclass(value) or tyro.conf.Fixed in marks or positional != (tyro.conf.Positional in marks):
            continue
        name = (named and named[0].name) or option(field.name)
        form = _form(_plain(hints[field.name]), name.upper(), whole=default is not None)
        form = form.removesuffix(" ...") if tyro.conf.UseAppendAction in marks else form
        required = value is dataclasses.MISSING
        about = "".join(_without_default(texts.get(field.name, ""), "" if required else value))
        if value is False and default is None:  # a switch of a command: alone, it means True
            form, about = "", about.removesuffix(" (default: False)")
        names = [f"--{prefix}{name}", *(alias for one in named for alias in one.aliases or ())]
        yield form if positional else f"{', '.join(names)} {form}".rstrip(), about, required


def _form(hint: Any, name: str, whole: bool) -> str:
    """How a value is written: N, X, cpu|cuda, or the option's name in capitals. whole: with None, where that is one."""
    if get_origin(hint) is Literal:
        return "|".join(map(str, get_args(hint)))
    if get_origin(hint) is tuple:
        return f"{_form(get_args(hint)[0], name, whole)} ..."
    if kinds := get_args(hint):
        return "|".join(_form(kind, name, whole) for kind in kinds if whole or kind is not type(None))
    return {int: "N", float: "X", bool: "True|False", type(None): "None"}.get(hint, name)


def _helps(settings: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """(setting, its docstring), as far as there are docstrings."""
    texts = help_texts(type(settings))
    for field in dataclasses.fields(settings):
        value, name = getattr(settings, field.name), OPTION_NAMES.get(field.name, option(field.name))
        if dataclasses.is_dataclass(value):
            yield from _helps(value, "" if field.name == "recipe" else f"{prefix}{name}.")
        else:
            yield prefix + name, texts.get(field.name, "")


def help_texts(cls: type) -> dict[str, str]:
    """The docstrings under the fields of a class and its bases; empty where the source is missing."""
    texts: dict[str, str] = {}
    for base in reversed(cls.__mro__[:-1]):
        try:
            (tree,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        except (OSError, TypeError, SyntaxError, ValueError):
            continue
        for field, text in pairwise(getattr(tree, "body", [])):
            value = text.value.value if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) else None
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(value, str):
                texts[field.target.id] = " ".join(value.split())
    return texts


def _description(config: Config) -> str:
    """The text above the settings: the options that decide which settings there are."""
    now = flat(to_json(config))
    parts = "\n".join(
        f"  --{slot}: {about}; {', '.join(PARTS[slot])} (default: {now[slot]})" for slot, about in SLOTS.items()
    )
    return (
        f"{_INTRODUCTION}\n\n"
        + "\n".join(f"  {name}: {about}" for name, about in _ELSEWHERE)
        + "\n\nEach part of the recipe can be exchanged and then has its own settings. "
        f"Your own part is my_module:MyHead (docs/extending.md).\n{parts}"
    )


def options(
    cls: type[Options], arguments: list[str], prog: str, description: str, default: Options | None = None
) -> Options:
    """The options of a command: a dataclass whose fields and docstrings are the settings and their help.

    A switch alone, `--dry-run`, means `--dry-run True`.
    """
    if {"-h", "--help"} & set(arguments):
        print(_full_help(cls, prog, description, default))
        raise SystemExit(0)
    complaints, known = io.StringIO(), dict(_settings(cls, default))
    _check_names(known, arguments, prog, default)
    try:
        with contextlib.redirect_stderr(complaints):
            return tyro.cli(
                cls,
                default=tyro.MISSING_NONPROP if default is None else default,
                args=_spelled(known, arguments),
                prog=prog,
                description=description,
                config=(tyro.conf.FlagConversionOff, tyro.conf.AvoidSubcommands),
            )
    except SystemExit as exit:
        if not exit.code:
            raise
        raise UserError(_reworded(_one_line(complaints.getvalue()), known, arguments)) from None


def _settings(cls: Any, default: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(option, type) of every option of a dataclass, and of the dataclasses within `default`."""
    for name, hint in get_type_hints(cls, include_extras=True).items():
        notes = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
        if {tyro.conf.Positional, tyro.conf.Fixed} & {note for note in notes if not hasattr(note, "aliases")}:
            continue
        named = next((note for note in notes if hasattr(note, "aliases")), None)
        own = prefix + (option(name) if named is None or named.name is None else named.name)
        value = getattr(default, name, None)
        if dataclasses.is_dataclass(value):
            yield from _settings(type(value), value, f"{own}." if own else "")
        else:
            yield f"--{own}", _plain(hint)
            yield from ((alias, _plain(hint)) for alias in (named and named.aliases) or ())


def _plain(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _check_names(known: dict[str, Any], arguments: list[str], prog: str, default: Any) -> None:
    """Reject an option that does not exist: where there is one of that name, or what may be meant."""
    for word in arguments:
        name = option(word.partition("=")[0])
        if word.startswith("--") and name not in known and name != "--help":
            if isinstance(default, Config):
                raise unknown_setting(name, default)
            hint = similar_setting(name[2:], [other[2:] for other in known], dashes="--")
            raise UserError(f'unknown option "{name}"; accepted: those in {prog} --help{"." * bool(hint)}{hint}')


def all_switches() -> set[str]:
    """Every setting of a run that is True or False, in whichever part."""
    classes: list[tuple[str, Any]] = [("", Config), ("", Recipe), *(("rules.", rules) for rules in get_args(Rules))]
    classes += [(f"{slot}.", cls) for slot, parts in PARTS.items() for cls in parts.values()]
    fields = [(prefix, field) for prefix, cls in classes for field in dataclasses.fields(cls)]
    return {f"--{prefix}{option(field.name)}" for prefix, field in fields if str(field.type).startswith("bool")}


def _spelled(known: dict[str, Any], arguments: list[str]) -> list[str]:
    """The arguments with `True` after a switch that stands alone, and with True, False and None in whatever case."""
    spelled: list[str] = []
    for place, word in enumerate(arguments, 1):
        name, equals, value = word.partition("=")
        before = option(spelled[-1]) if spelled and spelled[-1].startswith("--") else ""
        if equals and name.startswith("--"):
            spelled.append(f"{name}={_constant(known.get(option(name)), value)}")
        else:
            spelled.append(_constant(known.get(before), word))
        following = arguments[place : place + 1]
        valued = bool(following) and following[0].lower() in _CONSTANTS
        if option(word) in known and _is_switch(known[option(word)]) and not valued:
            spelled.append("True")
    return spelled


_CONSTANTS = {"true": "True", "false": "False", "none": "None"}


def _constant(hint: Any, word: str) -> str:
    """`true` as `True`, where that is a value of the option."""
    constant = _CONSTANTS.get(word.lower(), word)
    kinds = get_args(hint) or (hint,)
    fits = (bool in kinds) if constant in ("True", "False") else (type(None) in kinds and str not in kinds)
    return constant if fits else word


def _is_switch(hint: Any) -> bool:
    return bool in (get_args(hint) or (hint,))


def _reworded(complaint: str, known: dict[str, Any], arguments: list[str]) -> str:
    """What tyro says of a value, in the form of this project's errors."""
    named = re.search(r"(?:parsing|for argument) '?(--[a-z0-9.-]+)", complaint)
    if named and named[1] in known:
        values = " ".join(_values_of(named[1], arguments))
        accepted = _accepted(known[named[1]])
        return f'{named[1]} is "{values}"; accepted: {accepted}' if values else f"{named[1]} needs a value: {accepted}"
    if unread := re.fullmatch(r"Unrecognized options: (\S+).*", complaint):
        for before, word in pairwise(arguments):
            if word == unread[1] and option(before) in known and _is_switch(known[option(before)]):
                return f'{option(before)} is "{word}"; accepted: {_accepted(known[option(before)])}'
        return f'"{unread[1]}" is one word too many; settings have the form --name value'
    return complaint


def _values_of(name: str, arguments: list[str]) -> list[str]:
    """The words after the last `--name`."""
    values: list[str] = []
    for place, word in enumerate(arguments):
        if option(word.partition("=")[0]) == name:
            rest = itertools.takewhile(lambda later: not later.startswith("--"), arguments[place + 1 :])
            values = [word.partition("=")[2]] if "=" in word else list(rest)
    return values


_WORDS = {int: "a whole number", float: "a number", bool: "True, False", type(None): "None", str: "text"}


def _accepted(hint: Any) -> str:
    """The values of an option, in words."""
    arguments = get_args(hint)
    if get_origin(hint) is Literal:
        return ", ".join(map(str, arguments))
    if get_origin(hint) is tuple:
        return {int: "whole numbers", float: "numbers"}.get(arguments[0], "words") + ", separated by blanks"
    if str in arguments:  # without it the option is unset
        return _WORDS[str]
    return ", ".join(map(_accepted, arguments)) if arguments else _WORDS.get(hint, "another value")


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
    for title in ("Parsing error ", "Value error ", "Unrecognized options ", "Missing argument ", "Invalid choice "):
        words = words.removeprefix(title)
    return words
