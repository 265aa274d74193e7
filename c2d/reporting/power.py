"""How many runs it takes to settle who is better, at the effect seen so far."""

from __future__ import annotations

import math

_LEVEL, _POWER = 1.959964, 0.841621  # normal quantiles: two-sided 5 %, power 80 %


def beyond_chance(probability: float, ours: int, theirs: int, games: int) -> bool:
    """Whether so few runs can tell at all: the Mann-Whitney test of all games together, two-sided at level 5 %.

    The bootstrap alone is too sure of very few runs: two that beat three always give the interval (1, 1).
    """
    variance = (ours + theirs + 1) / (12 * ours * theirs * games)
    return abs(probability - 0.5) > _LEVEL * math.sqrt(variance)


def seeds_needed(probability: float, theirs: int, games: int) -> int | None:
    """Runs per game of ours that tell a probability of improvement from one half with power 80 % at level 5 %.

    Noether's (1987) approximation: over G games the mean Mann-Whitney statistic of n against m runs has variance
    (n + m + 1) / (12 n m G) if neither is better. The other agent's m runs are what they are. None: no number of
    ours is enough, for m is too small.
    """
    effect = abs(probability - 0.5)
    room = 12 * games * effect**2 / (_LEVEL + _POWER) ** 2  # (n + m + 1) / (n m) must not exceed this
    if room * theirs <= 1:
        return None
    return max(math.ceil((theirs + 1) / (room * theirs - 1) - 1e-9), 2)


def seeds_of_both(probability: float, games: int) -> int | None:
    """As `seeds_needed`, with as many runs of the other agent as of ours."""
    effect = abs(probability - 0.5)
    if effect == 0:
        return None
    room = 12 * games * effect**2 / (_LEVEL + _POWER) ** 2  # (2 n + 1) / n² must not exceed this
    return max(math.ceil((1 + math.sqrt(1 + room)) / room - 1e-9), 2)


def games_needed(probability: float, ours: int, theirs: int) -> int | None:
    """Games on which the present runs per game would settle it; None if there is no effect at all."""
    effect = abs(probability - 0.5)
    if effect == 0:
        return None
    return math.ceil((_LEVEL + _POWER) ** 2 * (ours + theirs + 1) / (12 * ours * theirs * effect**2) - 1e-9)
