"""The replay on disk: files that each hold a run of slots, written once and never changed.

Slots are numbered since the beginning of the run, so a file name says what it holds, and a checkpoint needs only
the list of its files. A checkpoint writes the slots that are new since the one before; a file shorter than
`SHORT` is written again together with what follows it, so that frequent checkpoints do not leave a file each.
"""

from __future__ import annotations

import hashlib
import re
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from c2d.files import write_atomically
from c2d.replay.buffer import Replay

SHORT = 4_096  # slots
LONG = 32_768  # slots; more are divided among several files, so that reading needs little memory beside the replay
_NAME = re.compile(r"slots-[0-9]{12}-[0-9]{12}\.safetensors")


class Damaged(Exception):
    """A file is not what was written. The message names it."""


class Segment(NamedTuple):
    """One file: slots numbered first … last - 1."""

    first: int
    last: int
    bytes: int
    sha256: str

    @property
    def name(self) -> str:
        return f"slots-{self.first:012d}-{self.last:012d}.safetensors"


class Journal:
    """A directory of segments."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def extend(self, replay: Replay, written: list[Segment]) -> list[Segment]:
        """Write what `replay` holds beyond the segments `written`; returns all that hold it now, oldest first.

        The newest slot is left out: it is the only one that still changes (`Replay.pack` it elsewhere).
        """
        head, oldest = replay.head - 1, max(replay.head - replay.capacity, 0)
        kept = [segment for segment in written if segment.last > oldest]
        if kept and kept[-1].last - kept[-1].first < SHORT and kept[-1].first >= oldest and kept[-1].last < head:
            kept.pop()
        first = kept[-1].last if kept else oldest
        self.path.mkdir(exist_ok=True)
        for start in range(first, head, LONG):
            kept.append(self._write(replay, start, min(start + LONG, head)))
        return kept

    def read(self, replay: Replay, segments: list[Segment], head: int) -> None:
        """Fill `replay` from segments that lead up to slot number head - 1, checking every byte."""
        oldest = head - replay.capacity
        for before, after in pairwise(segments):
            if before.last != after.first:
                raise Damaged(f"{self.path / after.name} does not follow {before.name}")
        for segment in segments:
            if segment.last <= oldest:
                continue
            path = self.path / segment.name
            largest = (segment.last - segment.first) * (2 * replay.frame_bytes + 64) + (1 << 20)
            if segment.bytes > largest:
                raise Damaged(f"{path} is larger than its slots can be")
            stored = unpacked(checked(path, segment.bytes, segment.sha256), path)
            try:
                replay.unpack(segment.first, segment.last, stored)
            except (ValueError, KeyError) as error:
                raise Damaged(f"{path} does not fit the run: {error}") from None

    def prune(self, needed: set[str]) -> None:
        """Delete the segments that nobody needs, and what a killed process left half written."""
        if not self.path.is_dir():
            return
        for path in self.path.iterdir():
            if path.name not in needed and (_NAME.fullmatch(path.name) or path.name.endswith(".tmp")):
                path.unlink(missing_ok=True)

    def _write(self, replay: Replay, first: int, last: int) -> Segment:
        data = safetensors.numpy.save(replay.pack(first, last))
        segment = Segment(first, last, len(data), hashlib.sha256(data).hexdigest())
        write_atomically(self.path / segment.name, data)
        return segment


def checked(path: Path, size: int, sha256: str) -> bytes:
    """The content of a file, if it is of this size and hash."""
    try:
        found = path.stat().st_size
        if found != size:
            raise Damaged(f"{path} has {found:,} bytes instead of {size:,}")
        data = path.read_bytes()
    except OSError as error:
        raise Damaged(f"{path} cannot be read: {error.strerror}") from None
    if hashlib.sha256(data).hexdigest() != sha256:
        raise Damaged(f"{path} is not what was written: its SHA-256 differs")
    return data


def unpacked(data: bytes, path: Path) -> dict[str, NDArray[Any]]:
    """Arrays of a safetensors file; nothing in it is executed."""
    try:
        arrays: dict[str, NDArray[np.generic]] = safetensors.numpy.load(data)
    except (safetensors.SafetensorError, KeyError, ValueError, TypeError) as error:
        raise Damaged(f"{path} cannot be read: {error}") from None
    return arrays
