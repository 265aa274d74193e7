"""A results page that a command writes again and again while people's notes in it stay.

    <!-- intro --> ... <!-- /intro -->
    <!-- section NAME --> ... <!-- notes --> people write here <!-- /notes --> <!-- /section NAME -->

What stands outside these marks is kept as it is.
"""

from __future__ import annotations

import re

from c2d.errors import UserError

_INTRO = ("<!-- intro -->", "<!-- /intro -->")
_NOTES = ("<!-- notes -->", "<!-- /notes -->")


def update(page: str | None, intro: str, sections: dict[str, str], source: str = "the file") -> str:
    """`page` (None: a new one) with its intro and the named sections written anew, every note kept.

    Sections not named remain; new ones go to the end. A page without the marks is refused.
    """
    if page is None or not page.strip():
        page = "\n".join((*_INTRO, ""))
    _check(page, source)
    page = _replace(page, _INTRO, f"\n{intro.strip()}\n")
    for name, text in sections.items():
        marks = _marks(name)
        if marks[0] not in page:
            page = f"{page.rstrip()}\n\n{marks[0]}\n{marks[1]}\n"
        notes = _between(_between(page, marks), _NOTES) or "\n"
        page = _replace(page, marks, f"\n{text.strip()}\n\n{_NOTES[0]}{notes}{_NOTES[1]}\n")
    return page


def _marks(name: str) -> tuple[str, str]:
    return f"<!-- section {name} -->", f"<!-- /section {name} -->"


def _between(page: str, marks: tuple[str, str]) -> str:
    return page.partition(marks[0])[2].partition(marks[1])[0]


def _replace(page: str, marks: tuple[str, str], inner: str) -> str:
    before, opening, rest = page.partition(marks[0])
    _, closing, after = rest.partition(marks[1])
    return f"{before}{opening}{inner}{closing}{after}"


def _check(page: str, source: str) -> None:
    """Every mark has its partner, or replacing would lose text."""
    for opening, closing in [_INTRO, *map(_marks, _names(page))]:
        if page.count(opening) != 1 or page.count(closing) != 1 or page.index(closing) < page.index(opening):
            raise UserError(
                f"{source} is not updated, lest text be lost: it needs {opening} and {closing} exactly once, "
                "in this order; mend it, or write to a new file"
            )
    for name in _names(page):
        part = _between(page, _marks(name))
        if part.count(_NOTES[0]) != part.count(_NOTES[1]) or part.count(_NOTES[0]) > 1:
            raise UserError(
                f"{source} is not updated, lest notes be lost: section {name} needs {_NOTES[0]} "
                f"and {_NOTES[1]} once each"
            )


def _names(page: str) -> list[str]:
    return re.findall(r"<!-- /?section (.+?) -->", page)
