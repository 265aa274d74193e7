"""Numbers in words, and text that is fit to print."""

from __future__ import annotations


def printable(text: object) -> str:
    """Text that may come from a file, for the terminal: lines stay lines, and control characters become "?"."""
    found = str(text)
    if found.isprintable():
        return found
    return "".join(letter if letter.isprintable() or letter == "\n" else "?" for letter in found)


def plural(count: int, noun: str) -> str:
    """ "1 run", "2,000 runs" """
    return f"{count:,} {noun}{'s' * (count != 1)}"


def be(count: int) -> str:
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
