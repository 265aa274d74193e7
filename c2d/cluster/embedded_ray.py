"""A private directory and a token for an embedded Ray, and the guard that removes everything when its driver ends.

Ray makes its directories writable for everyone, so they are placed inside one with mode 0700. The token is new for each
Ray and is passed in the environment of its processes, which other users cannot read; a command line they could.

This file is also a program: `python embedded_ray.py DIRECTORY` waits until its standard input is closed, which happens
when the process that embeds Ray ends, for whatever reason. It then kills every process of that Ray and removes its
directory.
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

_DIRECTORY = "C2D_RAY_DIRECTORY"  # marks the processes of an embedded Ray
_ROUNDS = 50  # of searching for remaining processes
_PAUSE = 0.1  # seconds between rounds


@contextmanager
def private_directory() -> Iterator[str]:
    """A directory for Ray. Inside the context, the environment makes Ray's processes require a token of each other."""
    directory = tempfile.mkdtemp(prefix="c2d-ray-", dir="/tmp")  # mode 0700; socket paths must be short
    guard = subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, directory],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # not reached by the terminal's signals
        cwd="/",
    )
    before = dict(os.environ)
    os.environ |= {_DIRECTORY: directory, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    os.environ.pop("RAY_AUTH_TOKEN_PATH", None)
    try:
        yield f"{directory}/ray"
    finally:
        for name in (_DIRECTORY, "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
            os.environ.pop(name, None)
            if name in before:
                os.environ[name] = before[name]
        assert guard.stdin is not None
        guard.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            guard.wait(2 * _ROUNDS * _PAUSE)


# ------------------------------------------------------------------------------------------------------- the guard


def _processes(directory: str, spared: set[int]) -> list[int]:
    """Processes that belong to the directory: started with its name, or writing to a file in it.

    Some of Ray's processes rename themselves, which erases the variables they were started with.
    """
    processes: list[int] = []
    with suppress(FileNotFoundError):  # a system without /proc
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) not in spared and (_is_marked(name, directory) or _writes(name, directory)):
                processes.append(int(name))
    return processes


def _is_marked(process: str, directory: str) -> bool:
    try:
        with open(f"/proc/{process}/environ", "rb") as file:
            return f"{_DIRECTORY}={directory}".encode() in file.read().split(b"\0")
    except OSError:  # another user's, or ended
        return False


def _writes(process: str, directory: str) -> bool:
    with suppress(OSError):
        for name in os.listdir(f"/proc/{process}/fd"):
            link = f"/proc/{process}/fd/{name}"
            with suppress(OSError):
                if os.lstat(link).st_mode & stat.S_IWUSR and os.readlink(link).startswith(f"{directory}/"):
                    return True
    return False


def _clean_up(directory: str, spared: set[int]) -> None:
    """Kill the remaining processes, repeatedly until there are none: one may be starting another."""
    for _ in range(_ROUNDS):
        processes = _processes(directory, spared)
        for process in processes:
            with suppress(OSError):
                os.kill(process, signal.SIGKILL)
        shutil.rmtree(directory, ignore_errors=True)
        if not processes and not os.path.exists(directory):
            return
        time.sleep(_PAUSE)


if __name__ == "__main__":
    own_and_driver = {os.getpid(), os.getppid()}
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    while sys.stdin.buffer.read(1):
        pass
    _clean_up(sys.argv[1], own_and_driver)
