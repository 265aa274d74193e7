"""A place for an embedded Ray that only its user can enter, with a token of its own, and nothing left of it at the end.

Ray makes its directories writable for everyone, so they lie inside one that is not. The token is new for each Ray and
is in the environment of its processes, which other users cannot read, not on a command line, which they can.

This file is also a program: python private.py DIRECTORY waits until its input ends, as it does when the process that
embeds Ray is gone, however that went; then it ends every process of that Ray and removes its directory.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_MARK = "C2D_RAY_DIRECTORY"  # in the environment with which processes of an embedded Ray start
_ROUNDS = 50  # looks for what is left
_PAUSE = 0.1  # seconds between two of them


@contextmanager
def private_place() -> Iterator[str]:
    """A directory for Ray. Meanwhile the environment makes Ray's processes ask each other for a token."""
    directory = tempfile.mkdtemp(prefix="c2d-ray-", dir="/tmp")  # mode 0700; paths of sockets must be short
    guard = subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, directory],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # the signals of a terminal are not for it
        cwd="/",
    )
    before = dict(os.environ)
    os.environ |= {_MARK: directory, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    os.environ.pop("RAY_AUTH_TOKEN_PATH", None)
    try:
        yield f"{directory}/ray"
    finally:
        for name in (_MARK, "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
            os.environ.pop(name, None)
            if name in before:
                os.environ[name] = before[name]
        assert guard.stdin is not None
        guard.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            guard.wait(2 * _ROUNDS * _PAUSE)


def _left(directory: str, spared: set[int]) -> list[int]:
    """Processes of that directory: started with its name, or writing to a file in it (some of Ray's rename themselves,
    and thereby wipe out the variables they were started with)."""
    found: list[int] = []
    with suppress(FileNotFoundError):  # a system without /proc
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) not in spared and (_is_marked(name, directory) or _writes(name, directory)):
                found.append(int(name))
    return found


def _is_marked(process: str, directory: str) -> bool:
    try:
        with open(f"/proc/{process}/environ", "rb") as file:
            return f"{_MARK}={directory}".encode() in file.read().split(b"\0")
    except OSError:  # another user's, or gone
        return False


def _writes(process: str, directory: str) -> bool:
    with suppress(OSError):
        for name in os.listdir(f"/proc/{process}/fd"):
            link = f"/proc/{process}/fd/{name}"
            with suppress(OSError):
                if os.lstat(link).st_mode & stat.S_IWUSR and os.readlink(link).startswith(f"{directory}/"):
                    return True
    return False


def _clean(directory: str, spared: set[int]) -> None:
    """End what is left, again and again until nothing is: a process may be starting another."""
    for _ in range(_ROUNDS):
        processes = _left(directory, spared)
        for process in processes:
            with suppress(OSError):
                os.kill(process, signal.SIGKILL)
        shutil.rmtree(directory, ignore_errors=True)
        if not processes and not os.path.exists(directory):
            return
        time.sleep(_PAUSE)


if __name__ == "__main__":
    embedding = {os.getpid(), os.getppid()}
    for stopping in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(stopping, signal.SIG_IGN)
    while sys.stdin.buffer.read(1):
        pass
    _clean(sys.argv[1], embedding)
