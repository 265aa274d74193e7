"""Errors that the user can fix: shown as one line, exit code 2, no traceback."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Bad input. The message names what was wrong and what is accepted, in one line."""

    exit_code = 2


class NotSaved(UserError):
    """The work is done, but the disk did not store all of it."""

    exit_code = 1


def did_you_mean(wrong: str, accepted: Iterable[str]) -> str:
    """' Did you mean "x"?' when something near exists, else ''."""
    names = {name.lower(): name for name in accepted}
    near = difflib.get_close_matches(wrong.lower(), list(names), n=3, cutoff=0.6)
    return f" Did you mean {' or '.join(repr(names[name]) for name in near)}?" if near else ""


def unknown_name(kind: str, name: str, accepted: str, suggestion: str = "") -> UserError:
    """The error for a name that is not in a list. `suggestion` comes from `did_you_mean`."""
    return UserError(f'unknown {kind} "{name}"; accepted: {accepted}{"." * bool(suggestion)}{suggestion}')
