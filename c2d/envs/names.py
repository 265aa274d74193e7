"""Resolves what a user types to one environment: its family, its key and its canonical name."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from c2d.envs.games import GAMES
from c2d.envs.protocols import GymRules, Rules
from c2d.envs.spec import Family
from c2d.errors import UserError, did_you_mean
from c2d.formatting import alphanumeric
from c2d.user_code import is_trusted

MINATAR_GAMES: tuple[str, ...] = ("asterix", "breakout", "freeway", "seaquest", "space_invaders")
ACCEPTED = (
    "an Atari game (breakout, ALE/Breakout-v5), minatar/<game>, gym/<registered id>, toy/<name>, "
    "or a class as my_package.my_module:MyEnv"
)

_ATARI_ID = re.compile(r"^(?P<game>[A-Za-z]+?)(NoFrameskip|Deterministic)?-v[0-9]+$")
_VERSION = re.compile(r"-v[0-9]+$")


@dataclass(frozen=True)
class EnvName:
    """A resolved name."""

    family: Family
    key: str  # within the family: "bankheist", "space_invaders", "CartPole-v1", "module:Class", "toy/bimodal"
    canonical: str  # "atari/bankheist", "gym/CartPole-v1", ...


def resolve(text: str) -> EnvName:
    """The environment that `text` names. A bare game name means Atari. Raises UserError with a suggestion."""
    text = text.strip()
    prefix, _, rest = text.partition("/")
    family = prefix.lower()
    if family in ("atari", "ale"):
        return _atari(text, rest)
    if family == "minatar":
        return _minatar(text, rest)
    if family == "toy":
        return _toy(text, rest)
    if family == "gym":
        return _gymnasium(text, rest)
    if ":" in text:
        return _gymnasium(text, text)
    key = _atari_key(text)
    if key in GAMES:
        return EnvName("atari", key, f"atari/{key}")
    if text in _registered():
        return EnvName("gym", text, f"gym/{text}")
    raise _unknown("environment", text, ACCEPTED, _nearest(text))


def must_be_named(env: str, rules: Rules) -> bool:
    """Whether a file with this environment is used only if the user names the environment too.

    So it is with a class of the user's own, and with arguments that may be paths or name code.
    """
    return ":" in env.removeprefix("gym/") or any(set("/\\:") & set(text) for text in _arguments(rules))


def _arguments(rules: Rules | None) -> tuple[str, ...]:
    return rules.env_kwargs if isinstance(rules, GymRules) else ()


def require_trusted_env(in_file: str, named: str | None, flag: str = "--env ", rules: Rules | None = None) -> None:
    """Raises UserError if a file has an environment that must be named, and the user did not name it."""
    own = in_file.removeprefix("gym/")
    if ":" in own and is_trusted(own):
        return
    if must_be_named(in_file, rules or GymRules()) and (named is None or named.removeprefix("gym/") != own):
        once = f", or once for this directory: c2d trust {own.partition(':')[0]}" if ":" in own else ""
        what = f"{own}, code that is imported" if ":" in own else f"{own} with {', '.join(_arguments(rules))}, used"
        raise UserError(
            f"this run trains on {what} only if you name it yourself; if you trust it, add {flag}{own}{once}"
        )


GIVEN: dict[str, Any] = {}  # classes and functions that were passed from Python, by their names


def name_of(given: Any, what: str = "environment") -> str:
    """A name as it is; a class or a function by its own, under which it is found again in this process."""
    if isinstance(given, str):
        return given
    accepted = f"accepted: a name, a class, or a function that returns a new {what}"
    name = getattr(given, "__qualname__", None)
    if not callable(given) or name is None:
        raise UserError(f"the {what} is an object of type {type(given).__name__}; {accepted}")
    if "<lambda>" in name:
        raise UserError(
            f"the {what} is a lambda, which has no name to record a run under; {accepted} (def make(): ...)"
        )
    GIVEN[f"{given.__module__}:{name}"] = given
    return f"{given.__module__}:{name}"


def _atari_key(text: str) -> str:
    match = _ATARI_ID.match(text)
    return alphanumeric(match["game"] if match else text)


def _atari(text: str, rest: str) -> EnvName:
    key = _atari_key(rest)
    if key in GAMES:
        return EnvName("atari", key, f"atari/{key}")
    raise _unknown("Atari game", text, f"{len(GAMES)} games, such as ms_pacman", did_you_mean(key, GAMES))


def _minatar(text: str, rest: str) -> EnvName:
    key = alphanumeric(_VERSION.sub("", rest))
    for name in MINATAR_GAMES:
        if key == alphanumeric(name):
            return EnvName("minatar", name, f"minatar/{name}")
    raise _unknown("MinAtar game", text, ", ".join(MINATAR_GAMES), did_you_mean(rest, MINATAR_GAMES))


def _toy(text: str, rest: str) -> EnvName:
    from c2d.envs.toy import NAMES

    if rest in NAMES:
        return EnvName("gym", f"toy/{rest}", f"toy/{rest}")
    raise _unknown("toy environment", text, ", ".join(NAMES), did_you_mean(rest, NAMES))


def _gymnasium(text: str, key: str) -> EnvName:
    if ":" in key:
        module, _, name = key.partition(":")
        if not all(part.isidentifier() for part in module.split(".")) or not name:
            raise UserError(f'"{text}" does not name a class; accepted: my_package.my_module:MyEnv')
        return EnvName("gym", key, f"gym/{key}")
    if key.startswith("ALE/"):
        return _atari(text, key.removeprefix("ALE/"))
    registered = _registered()
    if key in registered:
        return EnvName("gym", key, f"gym/{key}")
    accepted = "a registered id with its version, such as gym/CartPole-v1, or a class as my_package.my_module:MyEnv"
    raise _unknown("Gymnasium environment", text, accepted, did_you_mean(key, registered))


def _registered() -> list[str]:
    """The ids that Gymnasium knows; none if it is not installed."""
    try:
        import gymnasium
    except ImportError:
        return []
    return [name for name in gymnasium.registry if not name.startswith("ALE/")]


def _nearest(text: str) -> str:
    """A suggestion for a name without a family, or with an unknown one."""
    from c2d.envs.toy import NAMES

    prefixed = [f"minatar/{game}" for game in MINATAR_GAMES] + [f"toy/{toy}" for toy in NAMES]
    near = did_you_mean(text, prefixed) if "/" in text else did_you_mean(_atari_key(text), GAMES)
    return near or did_you_mean(text, prefixed + _registered())


def _unknown(kind: str, text: str, accepted: str, hint: str) -> UserError:
    return UserError(f'unknown {kind} "{text}"; accepted: {accepted}{"." * bool(hint)}{hint}')
