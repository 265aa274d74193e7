"""The user's own code. It is imported when the user names it in this process, never because a file names it.

Names have the form `my_package.my_module:MyHead`. Modules are looked for in the working directory too.
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from typing import Any

from c2d.errors import UserError, did_you_mean

TRUSTED: set[str] = set()


def trust(name: str) -> None:
    """The user named `my_package.my_module:MyHead`, on the command line or in Python. Other names mean nothing here."""
    if is_user_code(name):
        TRUSTED.add(name)


def is_user_code(name: object) -> bool:
    return isinstance(name, str) and ":" in name


def require_trusted(name: str, what: str, python: str = "") -> None:
    """Reject code that only a file names. `python`: how it is named from Python, by default by importing its module."""
    if name not in TRUSTED:
        python = python or f"import {name.partition(':')[0]} first"
        raise UserError(
            f'{what} is "{name}", code that is imported only if you name it yourself; if you trust it, add '
            f"--trust {name} (Python: {python})"
        )


def imported(name: str, what: str = "φ") -> Any:
    """What `my_package.my_module:MyHead` stands for. The caller makes sure that the user named it."""
    module, _, attribute = name.partition(":")
    here = os.getcwd()
    if here not in sys.path:  # a console command does not look in the working directory by itself
        sys.path.append(here)
    try:
        loaded = importlib.import_module(module)
    except (ModuleNotFoundError, ValueError) as error:
        raise UserError(f'{what} "{name}" cannot be imported from {here} or the Python path: {error}') from None
    except Exception as error:
        raise UserError(f'{what} "{name}" cannot be imported: {_cause(error)}') from None
    if not hasattr(loaded, attribute):
        hint = did_you_mean(attribute, [item for item in vars(loaded) if not item.startswith("_")])
        raise UserError(f'{what} "{name}" cannot be imported: "{module}" has no "{attribute}".{hint}')
    return getattr(loaded, attribute)


def _cause(error: Exception) -> str:
    """What went wrong in the user's code, and where."""
    text = f"{type(error).__name__}: {' '.join(str(error).split())}"
    if isinstance(error, SyntaxError):  # has its place in the text
        return text
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{text} ({last.filename}, line {last.lineno})"
