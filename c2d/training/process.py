"""The process of a run and its machine: requests to stop, room on the disk, and how memory is allocated."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from c2d.errors import UserError
from c2d.formatting import duration, size
from c2d.replay.ring import WORTH_COMPRESSING

if TYPE_CHECKING:
    from c2d.training.session import Session

# --------------------------------------------------------------------------------------------------- requests to stop


@contextmanager
def stop_requests(stop: threading.Event | None = None) -> Iterator[threading.Event]:
    """An event, the given one or a new one, that SIGINT and SIGTERM set. A second Ctrl-C ends the process at once."""
    stop = threading.Event() if stop is None else stop
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def request(number: int, _: object) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, request) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def exit_with_parent() -> None:
    """From now on, exit when the process that started this one ends, even in the middle of a step."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


# ------------------------------------------------------------------------------------------ environments that hang

_HANGS = 60.0  # seconds after which a step of an environment is reported


@contextmanager
def watchdog(session: Session, warn: Callable[[str], None], patience: float = _HANGS) -> Iterator[None]:
    """Warns, once for each step, when an environment has not finished it after `patience` seconds."""
    over, streams = threading.Event(), session.rollout.streams

    def watch() -> None:
        reported: set[tuple[int, float]] = set()
        while not over.wait(patience / 4):
            for number, since in [(number, stream.since) for number, stream in enumerate(streams)]:
                if since is None or time.monotonic() - since < patience or (number, since) in reported:
                    continue
                reported.add((number, since))
                which = f"environment {number} of {len(streams)}" if len(streams) > 1 else "the environment"
                warn(
                    f"{which} ({session.config.env}) has not answered for {duration(patience)} after "
                    f"{session.steps_made:,} steps: it may hang; press Ctrl-C twice to end the run, which resumes from "
                    "its last checkpoint"
                )

    thread = threading.Thread(target=watch, name="watchdog", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


# ---------------------------------------------------------------------------------------------------- room on the disk

_COMPRESSED = 0.3  # bytes on disk per byte of a frame: Ms. Pac-Man, one of the busier games, takes 0.27
_FIELDS = 16  # bytes per slot besides the frame


def predicted_bytes(session: Session) -> int:
    """About the most that checkpoints and replay will take."""
    config = session.config
    schedule = config.recipe.schedule
    slots = min(schedule.replay_capacity, schedule.random_history + config.steps)
    replay = replay_bytes(slots, session.env.spec.frame_bytes) + slots * session.env.spec.mask_bytes
    return replay + (config.checkpoint.keep + 1) * session.network_bytes


def replay_bytes(slots: int, frame: int) -> int:
    """What this number of slots takes, with frames of this number of bytes."""
    return int(slots * ((_COMPRESSED * frame if frame >= WORTH_COMPRESSING else frame) + _FIELDS))


def check_space(session: Session, path: Path) -> None:
    """Reject a run that the disk cannot hold, before it starts."""
    if not session.config.checkpoint.keep:
        return
    needed, free = predicted_bytes(session), shutil.disk_usage(path).free
    if free < needed:
        raise UserError(
            f"checkpoints with the replay may take {size(needed)} and {path} has {size(free)} left: "
            "make room, choose another --run-dir, lower --schedule.replay-capacity, or take none with "
            "--checkpoint.keep 0"
        )


# ------------------------------------------------------------------------------------------------ allocation of memory
#
# Training allocates and frees large tensors at every update. Left alone, the C library returns such memory to the
# system and asks for it again, in pages of 4 kB. On Linux with glibc, `keep_memory` makes it keep what it has, and lets
# the kernel back the first part with pages of 2 MB. Elsewhere it does nothing. Results do not depend on it. Only the
# commands call it, in processes of their own: whoever calls `c2d.train` from Python keeps their memory as it is.

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3  # of mallopt(3)
_MADV_HUGEPAGE = 14  # of madvise(2)
_LARGEST_KEPT = 32 << 20  # bytes; the most that mallopt accepts. Larger blocks, the raw replay, stay mapped apart
_RESERVE = 256 << 20  # bytes of address space, not of memory: weights, moments and activations fit several times
_GROWTH = 16 << 20


@cache
def keep_memory() -> bool:
    """Arrange it, once; returns whether that worked."""
    if platform.libc_ver()[0] != "glibc":
        return False
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    libc.mallopt(_MMAP_THRESHOLD, _LARGEST_KEPT)
    libc.mallopt(_TRIM_THRESHOLD, 2**31 - 1)
    libc.mallopt(_TOP_PAD, _RESERVE)
    libc.free(libc.malloc(_LARGEST_KEPT - (1 << 20)))  # extends the heap by the reserve
    libc.mallopt(_TOP_PAD, _GROWTH)
    for line in Path("/proc/self/maps").read_text().splitlines():
        if line.endswith("[heap]"):
            first, last = (int(address, 16) for address in line.split()[0].split("-"))
            return int(libc.madvise(first, last - first, _MADV_HUGEPAGE)) == 0
    return False
