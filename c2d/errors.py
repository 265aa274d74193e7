"""Errors the user can fix: shown as one line, exit code 2, no traceback."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Bad input. The message names what was wrong and what is accepted, in one line."""

    exit_code = 2


class NotSaved(UserError):
    """The work finished, but not all of it could be written to disk."""

    exit_code = 1


def did_you_mean(wrong: str, accepted: Iterable[str]) -> str:
    """ " Did you mean 'x'?" when a similar name exists, else ""."""
    names = {name.lower(): name for name in accepted}
    near = difflib.get_close_matches(wrong.lower(), list(names), n=3, cutoff=0.6)
    return f" Did you mean {' or '.join(repr(names[name]) for name in near)}?" if near else ""


def unknown_name(kind: str, name: str, known: Iterable[str], accepted: str | None = None) -> UserError:
    """The error for a name that is not among the known ones: what is accepted, and a suggestion."""
    names = list(known)
    hint = did_you_mean(name, names)
    return UserError(f'unknown {kind} "{name}"; accepted: {accepted or ", ".join(names)}{"." * bool(hint)}{hint}')
