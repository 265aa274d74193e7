"""One process per run directory, and whether it is alive.

The lock is an `flock` on a file that names its holder: "process 1234 on hostname". The system releases it when the
process ends, however it ends. The modification time of the file is the heartbeat: the holder touches it every few
seconds, so that readers, on this or another machine, can tell whether the run is alive without touching the lock.
"""

from __future__ import annotations

import fcntl
import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from c2d.errors import UserError
from c2d.files import Refused, open_inside, open_own, read_up_to

LONGEST = 300  # bytes of what a lock file says
_PERIOD = 5.0  # seconds between heartbeats
_FRESH = 30.0  # seconds after which a heartbeat is old
_GRACE = 600.0  # seconds for which a holder announces that it cannot touch the file
_HOLDER = re.compile(r"process ([1-9][0-9]{0,9}) on (.+)")


class InUse(UserError):
    """Another process holds the lock."""


class Heartbeat:
    """Shows that the holder of a lock is alive. Never raises: a disk that is full or read-only does not end a run."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._next = 0.0
        self.pause()

    def beat(self, now: float | None = None) -> None:
        """Touch the file if it is time to. `now`: `time.monotonic()`, if the caller has it."""
        now = time.monotonic() if now is None else now
        if now >= self._next:
            self._next = now + _PERIOD
            self._touch(0.0)

    def pause(self) -> None:
        """Before work that may take minutes, such as saving or restoring: the heartbeat stays fresh for that long."""
        self._next = 0.0  # touch again as soon as it is done
        self._touch(_GRACE)

    def _touch(self, ahead: float) -> None:
        now = time.time()
        with suppress(OSError):
            os.utime(self._descriptor, (now, now + ahead))


@contextmanager
def locked(path: Path) -> Iterator[Heartbeat]:
    """Hold the lock file; InUse, naming the holder, if another process does."""
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
        try:
            yield Heartbeat(descriptor)
        finally:
            with suppress(OSError):
                os.ftruncate(descriptor, 0)  # nobody is at work, though this process may live on
    finally:
        os.close(descriptor)


def holder(path: Path) -> str | None:
    """Who holds the lock file on this machine; None if nobody does."""
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


def is_alive(content: bytes, touched: float, now: float) -> bool:
    """Whether the holder of a lock file is at work, by the file's content and modification time; no lock is touched.

    On this machine its process must exist as well, so a run that was killed is known to be dead at once.
    """
    if not -(_GRACE + _FRESH) < now - touched < _FRESH:
        return False
    match = _HOLDER.fullmatch(content.decode(errors="replace").strip())
    if match is None:
        return False
    process, host = match.groups()
    return host != socket.gethostname() or _exists(int(process))


def _exists(process: int) -> bool:
    try:
        os.kill(process, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    try:  # one that was killed exists until its parent has asked for it
        with open(f"/proc/{process}/stat", "rb") as file:
            return file.read(4_096).rpartition(b")")[2].split()[:1] not in ([b"Z"], [b"X"])
    except OSError:
        return True


def _who(descriptor: int) -> str:
    return read_up_to(descriptor, LONGEST).decode(errors="replace").strip() or "another process"
