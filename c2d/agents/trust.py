"""Code of the user's own that may be imported: what the user named in this process, and never what a file names."""

from __future__ import annotations

TRUSTED: set[str] = set()


def trust(name: str) -> None:
    """`my_package.my_module:my_phi` was named by the user, on the command line or in Python."""
    TRUSTED.add(name)
