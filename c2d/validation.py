"""Limits of settings, written next to their types: `atoms: Annotated[int, UNITS] = 51`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

from c2d.errors import UserError


class Limit(NamedTuple):
    """Which values a setting accepts. `None` is always accepted where the type allows it."""

    fits: Callable[[Any], bool]
    accepted: str  # in words, for the error message


_LARGE = 10**6  # bound on sizes that are allocated at once: units, atoms, a batch
_LONG = 10**15  # bound on counts: steps, updates

COUNT = Limit(lambda v: 1 <= v <= _LONG, "at least 1, at most 10^15")
COUNT_OR_0 = Limit(lambda v: 0 <= v <= _LONG, "0 or greater, at most 10^15")
UNITS = Limit(lambda v: 1 <= v <= _LARGE, f"at least 1, at most {_LARGE:,}")
UNITS_OR_0 = Limit(lambda v: 0 <= v <= _LARGE, f"0 or greater, at most {_LARGE:,}")
FRACTION = Limit(lambda v: 0.0 <= v <= 1.0, "from 0 to 1")
BELOW_ONE = Limit(lambda v: 0.0 <= v < 1.0, "from 0 to below 1")
POSITIVE = Limit(lambda v: 0.0 < v < math.inf, "greater than 0")
NOT_NEGATIVE = Limit(lambda v: 0 <= v < math.inf, "0 or greater")
NOT_POSITIVE = Limit(lambda v: -math.inf < v <= 0.0, "0 or less")
FINITE = Limit(math.isfinite, "a finite number")


def positive(reason: str) -> Limit:
    """Greater than 0, with the reason or the alternative."""
    return Limit(POSITIVE.fits, f"{POSITIVE.accepted}{reason}")


def between(low: int, high: int) -> Limit:
    """A whole number from `low` to `high`."""
    least = "0 or greater" if low == 0 else f"at least {low}"
    return Limit(lambda v: low <= v <= high, f"{least}, at most {high:,}")


def list_of(limit: Limit, most: int) -> Limit:
    """Up to `most` values, each within `limit`."""
    return Limit(lambda v: len(v) <= most and all(map(limit.fits, v)), f"up to {most} numbers, each {limit.accepted}")


def limits(cls: type) -> dict[str, Limit]:
    """The limits in the annotations of a dataclass, by field."""
    hints = get_type_hints(cls, include_extras=True).items()
    annotated = [(name, note) for name, hint in hints if get_origin(hint) is Annotated for note in get_args(hint)[1:]]
    return {name: note for name, note in annotated if isinstance(note, Limit)}


def check_values(settings: Any, prefix: str = "") -> None:
    """Reject values out of range; the message has the setting, its value and what is accepted."""
    for name, value, limit in _leaves(prefix, settings):
        if value is not None:
            require(limit.fits(value), name, value, limit.accepted)


def require(ok: bool, name: str, value: object, accepted: str) -> None:
    if not ok:
        raise UserError(f"--{name} is {str(value)[:80]}; accepted: {accepted}")


def option(field: str) -> str:
    """The name of a field on the command line."""
    return field.replace("_", "-")


def _leaves(prefix: str, settings: Any) -> Iterator[tuple[str, Any, Limit]]:
    """(name on the command line, value, limit) of every setting that has a limit."""
    bounds = limits(type(settings))
    for field in dataclasses.fields(settings):
        value, name = getattr(settings, field.name), prefix + option(field.name)
        if dataclasses.is_dataclass(value):
            yield from _leaves(prefix if field.name == "recipe" else f"{name}.", value)
        elif field.name in bounds:
            yield name, value, bounds[field.name]
