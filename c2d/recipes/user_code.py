"""Code of the user's own that may be imported: what the user named in this process, and never what a file names."""

from __future__ import annotations

import importlib
from typing import Any

from c2d.errors import UserError

TRUSTED: set[str] = set()


def trust(name: str) -> None:
    """`my_package.my_module:my_phi` was named by the user, on the command line or in Python."""
    TRUSTED.add(name)


def imported(name: str) -> Any:
    """What `my_package.my_module:my_phi` stands for. The caller has made sure that the user named it."""
    module, _, attribute = name.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"φ {name} cannot be imported: {error}") from None
