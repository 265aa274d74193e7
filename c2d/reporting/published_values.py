"""Single values of published files: numbers, iterations, names of games; and why one cannot be used."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from c2d.envs.games import GAMES
from c2d.errors import did_you_mean

_OLDEST = 10_000  # no iteration is beyond this


class Unusable(Exception):
    """Why a file is left aside, or a line of it."""


class Unknown(Unusable):
    """It is not in a format known here."""


def iteration_of(text: str | int) -> int:
    try:
        number = int(text)
    except ValueError:
        raise Unusable(f'"{str(text)[:40]}" is no whole number') from None
    if not 0 <= number <= _OLDEST:
        raise Unusable(f"{number} is out of range (0 to {_OLDEST:,})")
    return number


def number_of(value: Any) -> float:
    """A figure; an empty cell, null or NaN is none."""
    if value in (None, ""):
        return float("nan")
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise Unusable(f'"{str(value)[:40]}" is no number') from None
    return number if np.isfinite(number) else float("nan")


def plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def game_of(name: str) -> str:
    key = plain(name)
    if key not in GAMES:
        raise Unusable(f'"{name[:40]}" is no Atari game known here.{did_you_mean(key, GAMES)}')
    return key
