"""The replay on disk: files that each hold consecutive slots, written once and never changed.

Slots are numbered from the start of the run, so the name of a file says what it holds, and a checkpoint needs only the
list of its files. A checkpoint writes the slots that are new since the one before. A file shorter than `SHORT` is
written again together with what follows it, so that frequent checkpoints do not leave a file each.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from c2d.files import (
    kind_of,
    load_json,
    make_directory,
    names_inside,
    open_inside,
    read_file,
    read_up_to,
    remove_leftovers,
    write_atomically,
)
from c2d.replay.ring import STORED

SHORT = 4_096  # slots
LONG = 32_768  # slots; more are divided among several files, so that reading needs little memory besides the replay
_NAME = re.compile(r"slots-[0-9]{12,}-[0-9]{12,}(?:-stream[0-9]+)?\.safetensors")
_LONGEST_HEADER = 1 << 16  # bytes; a segment's has about 400


class Damaged(Exception):
    """A file is not what was written. The message names it."""


class SlotRing(Protocol):
    """The slots of one stream of the replay."""

    @property
    def capacity(self) -> int:
        """Slots."""
        ...

    @property
    def frame_bytes(self) -> int:
        """Of one frame, with its mask if there is one."""
        ...

    @property
    def head(self) -> int:
        """Slots written since the start of the run."""
        ...

    def pack(self, first: int, last: int) -> dict[str, NDArray[Any]]:
        """What slots numbered first … last - 1 hold. All but the newest slot never change again."""
        ...

    def unpack(self, first: int, last: int, stored: dict[str, NDArray[Any]]) -> None:
        """The inverse of `pack`, in order of time. ValueError for what does not fit."""
        ...


class Segment(NamedTuple):
    """One file: slots numbered first … last - 1 of a stream."""

    first: int
    last: int
    bytes: int
    sha256: str
    stream: int = 0

    @property
    def name(self) -> str:
        stream = f"-stream{self.stream}" if self.stream else ""
        return f"slots-{self.first:012d}-{self.last:012d}{stream}.safetensors"


class Journal:
    """A directory of segments."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def extend(self, rings: Sequence[SlotRing], written: list[Segment]) -> list[Segment]:
        """Write what the rings hold beyond the segments `written`; returns all that hold it now, oldest first.

        The newest slot of each is left out: it is the only one that still changes (it is in the `state_dict`).
        """
        make_directory(self.path)
        kept: list[Segment] = []
        for stream, ring in enumerate(rings):
            kept += self._extend(ring, stream, [segment for segment in written if segment.stream == stream])
        return kept

    def _extend(self, ring: SlotRing, stream: int, written: list[Segment]) -> list[Segment]:
        head, oldest = ring.head - 1, max(ring.head - ring.capacity, 0)
        kept = [segment for segment in written if segment.last > oldest]
        if kept and kept[-1].last - kept[-1].first < SHORT and kept[-1].first >= oldest and kept[-1].last < head:
            kept.pop()
        first = kept[-1].last if kept else oldest
        for start in range(first, head, LONG):
            kept.append(self._write(ring, stream, start, min(start + LONG, head)))
        return kept

    def read(self, rings: Sequence[SlotRing], segments: list[Segment]) -> None:
        """Fill the rings from segments, checking every byte. The newest slot of each ring is still missing then."""
        if any(segment.stream >= len(rings) for segment in segments):
            raise Damaged(f"{self.path} holds more streams than the run has")
        for stream, ring in enumerate(rings):
            self._read(ring, [segment for segment in segments if segment.stream == stream])

    def _read(self, ring: SlotRing, segments: list[Segment]) -> None:
        oldest = segments[-1].last + 1 - ring.capacity if segments else 0
        for before, after in pairwise(segments):
            if before.last != after.first:
                raise Damaged(f"{self.path / after.name} does not follow {before.name}")
        for segment in segments:
            if segment.last <= oldest:
                continue
            path = self.path / segment.name
            largest = (segment.last - segment.first) * (2 * ring.frame_bytes + 64) + (1 << 20)
            if segment.bytes > largest:
                raise Damaged(f"{path} is larger than its slots can be")
            stored = unpacked(checked(path, segment.bytes, segment.sha256, self.path.parent), path)
            try:
                ring.unpack(segment.first, segment.last, stored)
            except (ValueError, KeyError) as error:
                raise Damaged(f"{path} does not fit the run: {error}") from None

    def prune(self, needed: set[str], only: set[str] | None = None) -> None:
        """Delete the segments that are not needed, all or `only` these; files that are not segments stay."""
        run = self.path.parent
        for name in names_inside(run, self.path.name):
            wanted = name in needed or (only is not None and name not in only)
            if not wanted and _NAME.fullmatch(name) and _is_segment(run, f"{self.path.name}/{name}"):
                with suppress(OSError):
                    (self.path / name).unlink()

    def remove_half_written(self) -> None:
        """Remove what killed processes left. The run's lock is held."""
        if kind_of(self.path) == "directory":
            remove_leftovers(self.path, _NAME.pattern)

    def _write(self, ring: SlotRing, stream: int, first: int, last: int) -> Segment:
        data = safetensors.numpy.save(ring.pack(first, last))
        segment = Segment(first, last, len(data), hashlib.sha256(data).hexdigest(), stream)
        write_atomically(self.path / segment.name, data)
        return segment


def _is_segment(run: Path, name: str) -> bool:
    """Whether a file holds slots of a replay, by the names in its header."""
    try:
        descriptor = open_inside(run, name)
        try:
            length = int.from_bytes(read_up_to(descriptor, 8), "little")
            header = load_json(read_up_to(descriptor, min(length, _LONGEST_HEADER), 8))
        finally:
            os.close(descriptor)
    except (OSError, ValueError):
        return False
    return isinstance(header, dict) and set(header) >= STORED


def checked(path: Path, size: int, sha256: str, run: Path) -> bytes:
    """The content of a file of a run, if it has this size and hash. The caller has bounded `size`."""
    try:
        actual = os.lstat(path).st_size
        if actual != size and kind_of(path) == "file":
            raise Damaged(f"{path} has {actual:,} bytes instead of {size:,}")
        data = read_file(path, size, within=run)
    except (OSError, ValueError) as error:
        raise Damaged(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
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
