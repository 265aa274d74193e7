"""The commands that a page can send to the lens. Every message is validated here before anything is done."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from c2d.errors import UserError

MAX_BYTES = 8_192  # of a message
_DRIVES = ("first", "second", "each")
_MAX_CRITERIA = 8
_SEEDS = 2**31
_ENVIRONMENTS = 4_096  # the most that a run has
_SLOWEST, _FASTEST = 0.01, 1_000.0  # steps per second


OPEN = "open"  # the command that names agents; the server adds their directory


class RejectedCommand(UserError):
    """A message that is not a valid command; `about` is the name of the command, if known."""

    def __init__(self, text: str, about: str | None = None) -> None:
        super().__init__(text)
        self.about = about


def parse(text: str | bytes) -> dict[str, Any]:
    """A command with valid values only; RejectedCommand says what is wrong."""
    if isinstance(text, bytes):
        raise RejectedCommand("messages to the lens are JSON texts, not binary")
    if len(text.encode()) > MAX_BYTES:
        raise RejectedCommand(f"a message has more than {MAX_BYTES:,} bytes")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise RejectedCommand("a message is not JSON") from None
    command = value.pop("do", None) if isinstance(value, dict) else None
    if not isinstance(command, str) or command not in COMMANDS:
        raise RejectedCommand(f'a message must be an object whose "do" is one of: {", ".join(COMMANDS)}')
    try:
        return _checked(command, value)
    except UserError as error:
        raise RejectedCommand(str(error), about=command) from None


def _checked(command: str, given: dict[str, Any]) -> dict[str, Any]:
    fields = COMMANDS[command]
    if set(given) != set(fields):
        wanted = ", ".join(fields) or "nothing else"
        raise UserError(f'"{command}" takes {wanted}; got {", ".join(map(repr, given))[:200] or "nothing"}')
    names = {key: command if key == "value" else key for key in given}  # as errors call them
    return {"do": command, **{key: fields[key](names[key], item) for key, item in given.items()}}


Check = Callable[[str, Any], Any]


def _require(ok: bool, key: str, value: Any, accepted: str) -> None:
    if not ok:
        raise UserError(f"{key} is {str(value)[:80]!r}; accepted: {accepted}")


def _seed(key: str, value: Any) -> int:
    _require(type(value) is int and 0 <= value < _SEEDS, key, value, f"a whole number from 0 to {_SEEDS - 1}")
    return int(value)


def _start(key: str, value: Any) -> int | None:
    """Where games begin: null for new ones, or an environment of the first agent's checkpoint."""
    fits = value is None or (type(value) is int and 0 <= value < _ENVIRONMENTS)
    _require(fits, key, value, f"null (a new game), or an environment of the checkpoint from 0 to {_ENVIRONMENTS - 1}")
    return None if value is None else int(value)


def _between(low: float, high: float) -> Check:
    def check(key: str, value: Any) -> float:
        fits = type(value) in (int, float) and low <= value <= high  # NaN fails
        _require(fits, key, value, f"a number from {low:g} to {high:g}")
        return float(value)

    return check


def _speed(key: str, value: Any) -> float:
    fits = type(value) in (int, float) and (value == 0 or _SLOWEST <= value <= _FASTEST)
    _require(fits, key, value, f"0 (as fast as it goes) or {_SLOWEST:g} to {_FASTEST:,g} steps per second")
    return float(value)


def _drive(key: str, value: Any) -> str:
    _require(value in _DRIVES, key, value, ", ".join(_DRIVES))
    return str(value)


def _agents(key: str, value: Any) -> list[list[str]]:
    """One or two pairs: a run and one of its checkpoints."""
    fits = isinstance(value, list) and 1 <= len(value) <= 2
    fits = fits and all(isinstance(one, list) and len(one) == 2 for one in value)
    fits = fits and all(isinstance(word, str) and 0 < len(word) <= 500 for one in value for word in one)
    _require(fits, key, value, "one or two pairs of a run and a checkpoint")
    return [list(one) for one in value]


def _criteria(key: str, value: Any) -> list[str]:
    fits = isinstance(value, list) and 1 <= len(value) <= _MAX_CRITERIA
    fits = fits and all(isinstance(name, str) and len(name) <= 40 for name in value)
    _require(fits, key, value, f"1 to {_MAX_CRITERIA} names of criteria")
    return list(value)


def _index(key: str, value: Any) -> int:
    _require(type(value) is int and 0 <= value < _MAX_CRITERIA, key, value, "the index of a criterion")
    return int(value)


COMMANDS: dict[str, dict[str, Check]] = {
    OPEN: {"agents": _agents, "drive": _drive, "seed": _seed, "epsilon": _between(0.0, 1.0), "start": _start},
    "play": {},
    "pause": {},
    "step": {},
    "speed": {"value": _speed},
    "epsilon": {"value": _between(0.0, 1.0)},
    "new": {"seed": _seed, "start": _start},
    "criteria": {"names": _criteria, "by": _index},
    "ack": {},
}
