"""One process per run directory."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from c2d.errors import UserError


class InUse(UserError):
    """Another process holds the lock."""


def holder(path: Path) -> str | None:
    """Who holds the lock file now; None if nobody does."""
    try:
        with open(path, encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except BlockingIOError:
        return path.read_text(encoding="utf-8").strip() or "another process"
    except OSError:
        return None


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file, or say who does. The system frees the lock of a process that dies, however it dies."""
    try:
        file = open(path, "a+", encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path.parent} cannot be written: {error.strerror}") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            who = file.read().strip() or "another process"
            raise InUse(f"{path.parent} is in use by {who}; wait for it or stop it first") from None
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        file.flush()
        yield
