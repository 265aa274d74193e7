"""Numbers, names and tables as text, and values as JSON."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from c2d.errors import UserError


def plural(count: int, noun: str) -> str:
    """ "1 run", "2,000 runs" """
    return f"{count:,} {noun}{'s' * (count != 1)}"


def is_or_are(count: int) -> str:
    return "is" if count == 1 else "are"


def size(count: float) -> str:
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count / 1e3:.0f} kB"


def duration(seconds: float) -> str:
    """ "3 d 4 h", "2 h 5 min", "40 s" """
    total = round(seconds)
    if total < 60:
        return f"{total} s"
    days, hours, minutes = total // 86_400, total // 3_600 % 24, total // 60 % 60
    if days:
        return f"{days:,} d {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


_UNITS = {"s": 1.0, "min": 60.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}


def seconds_of(text: str, option: str) -> float:
    """ "90s", "30min", "6h", "2d" or "1h30min" in seconds. `option`: whose value it is."""
    valid = re.fullmatch(r"(?:[0-9.]+(?:s|min|m|h|d))+", text.replace(" ", ""))
    try:
        amounts = re.findall(r"([0-9.]+)(s|min|m|h|d)", text)
        total = sum(float(number) * _UNITS[unit] for number, unit in amounts)
    except ValueError:
        total = 0.0
    if valid is None or total <= 0.0:
        raise UserError(f'{option} is "{text}"; accepted: a time such as 90s, 30min, 6h, 2d or 1h30min')
    return total


def alphanumeric(text: str) -> str:
    """Lower-case ASCII letters and digits only: "Ms. Pac-Man" and "ms_pacman" are the same name."""
    return re.sub(r"[^a-z0-9]", "", text.lower())


def text_table(rows: Sequence[Sequence[str]], left: int = 1) -> list[str]:
    """Lines with aligned columns: the first `left` columns flush left, the others flush right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if place < left else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def printable(text: object, one_line: bool = False) -> str:
    """Text that may come from a file, safe for the terminal.

    Characters that would control the terminal, or hide or reorder text, become escapes such as \\x1b; newlines only
    where the text must fit on one line.
    """
    kept = "" if one_line else "\n"
    return "".join(
        letter
        if letter.isprintable() or letter in kept
        else letter.encode("unicode_escape", "surrogatepass").decode("ascii")
        for letter in str(text)
    )


def finite_for_json(value: Any, digits: int | None = None) -> Any:
    """Replace NaN and infinity, which JSON does not have, by None; round other floats to `digits`, if given."""
    if isinstance(value, dict):
        return {str(key): finite_for_json(item, digits) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite_for_json(item, digits) for item in value]
    if isinstance(value, float):
        return None if not math.isfinite(value) else value if digits is None else round(value, digits)
    return value


_LONGEST_NAME = 40


def printable_name(name: str) -> str:
    """A name from a file, safe to print: one line, no control characters, limited length."""
    plain = printable(name, one_line=True)
    return plain if len(plain) <= _LONGEST_NAME else plain[: _LONGEST_NAME - 1] + "…"
