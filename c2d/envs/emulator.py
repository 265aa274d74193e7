"""What is known of the emulator's own saved states, and how they are checked before the emulator sees them.

The emulator's state omits whether a frame was cut in the middle, and the pictures of the last two frames (pull
requests 732 and 739 of the Arcade-Learning-Environment). Q*bert, which cuts frames all the time, does not continue
as saved; in other games one or two screens after restoring can be wrong. `reset_game` clears all that was omitted.
`data/emulator.csv` holds one row per version of ale-py on which bench/emulator.py was run over all games:
    from_start   games that are restored only from their start
    inexact      games that do not continue as saved even so
"""

from __future__ import annotations

import csv
import hashlib
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

from c2d.errors import UserError


class Known(NamedTuple):
    """What the study found for one version of ale-py."""

    from_start: frozenset[str]
    inexact: frozenset[str]


@cache
def studied() -> dict[str, Known]:
    """By version of ale-py."""
    text = resources.files("c2d.envs").joinpath("data/emulator.csv").read_text(encoding="utf-8")
    return {
        row["ale_py"]: Known(frozenset(row["from_start"].split()), frozenset(row["inexact"].split()))
        for row in csv.DictReader(text.splitlines())
    }


def from_start_only(key: str, version: str) -> bool:
    """Whether a game's state in the middle of it is known to be of no use."""
    return version in studied() and key in studied()[version].from_start


def seal(data: bytes) -> dict[str, Any]:
    """The emulator's bytes with what `opened` checks."""
    return {"ale": data, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def opened(point: dict[str, Any]) -> bytes:
    """The emulator's bytes, as they were sealed; ValueError if they are not."""
    data = point["ale"]
    if not isinstance(data, bytes):
        raise ValueError(f"the emulator's state is {type(data).__name__}, not bytes")
    if len(data) != point["bytes"]:
        raise ValueError(f"the emulator's state has {len(data):,} bytes instead of {point['bytes']}")
    if hashlib.sha256(data).hexdigest() != point["sha256"]:
        raise ValueError("the emulator's state is not what was saved: its SHA-256 differs")
    return data


def put_into(ale: Any, data: bytes) -> None:
    """Give the emulator a state; ValueError if it does not take it."""
    from ale_py import ALEState

    try:
        ale.restoreState(ALEState(data))
    except (SystemError, RuntimeError, ValueError, MemoryError):
        raise ValueError("the emulator's state is not one of this game and this version of ale-py") from None


def state_of(ale: Any) -> bytes:
    """The emulator's state, its random generator included."""
    try:
        data: bytes = ale.cloneState(include_rng=True).serialize()
    except UnicodeDecodeError:  # versions before 0.12 return these bytes as text
        raise UserError("Atari games need ale-py 0.12 or newer: pip install --upgrade 'c2d[atari]'.") from None
    return data
