"""One process per run directory."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from c2d.errors import UserError
from c2d.files import Refused, open_inside, open_own, read_up_to

_LONGEST = 300  # bytes of what a lock file tells


class InUse(UserError):
    """Another process holds the lock."""


def holder(path: Path) -> str | None:
    """Who holds the lock file now; None if nobody does."""
    try:
        descriptor = open_inside(path.parent, path.name)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except BlockingIOError:
        return _who(descriptor)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _who(descriptor: int) -> str:
    return read_up_to(descriptor, _LONGEST).decode(errors="replace").strip() or "another process"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file, or say who does. The system frees the lock of a process that dies, however it dies."""
    try:
        descriptor = open_own(path, os.O_RDWR)
    except Refused as error:
        raise UserError(f"{path} cannot be the lock of the run: {error}") from None
    except OSError as error:
        raise UserError(f"{path.parent} cannot be written: {error.strerror}") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InUse(f"{path.parent} is in use by {_who(descriptor)}; wait for it or stop it first") from None
        try:
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
        except OSError as error:
            raise UserError(f"{path.parent} cannot be written: {error.strerror}") from None
        yield
    finally:
        os.close(descriptor)
