"""One process per run directory."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from c2d.errors import UserError


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
            holder = file.read().strip() or "another process"
            raise UserError(f"{path.parent} is in use by {holder}; wait for it or stop it first") from None
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        file.flush()
        yield
