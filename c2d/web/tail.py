"""Files that grow line by line, followed without reading any byte twice."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from c2d.web.inside import Refused, Root
from c2d.web.plain import loads

_LARGEST = 1 << 26  # bytes of a file that is followed at all
_CHUNK = 1 << 22  # bytes taken at once
_LINE = 1 << 20  # bytes of one line


class _Mark(NamedTuple):
    """By which a file is known to be as it was."""

    inode: int
    size: int
    changed: int  # ns

    @classmethod
    def of(cls, info: os.stat_result) -> _Mark:
        return cls(info.st_ino, info.st_size, info.st_mtime_ns)


class Tail:
    """Whole lines appended to one file. A file that was replaced or cut is read anew, and `restarts` counts it."""

    def __init__(self, root: Root, *parts: str) -> None:
        self._root, self._parts = root, parts
        self._mark: _Mark | None = None
        self._offset = 0
        self.restarts = 0
        self.trouble: str | None = None  # why it cannot be read further

    def advance(self) -> list[bytes]:
        """Lines that are new since the last call; [] if there are none."""
        info = self._root.stat(*self._parts)
        if info is None:
            if self._mark is not None:
                self._begin_again(None)
            return []
        mark = _Mark.of(info)
        if mark == self._mark:
            return []
        if self._mark is not None and (mark.inode != self._mark.inode or mark.size < self._offset):
            self._begin_again(mark)
        self._mark = mark
        try:
            return self._read_new()
        except OSError as error:
            self.trouble = str(error.strerror or error)
            return []

    def _begin_again(self, mark: _Mark | None) -> None:
        self._mark, self._offset, self.trouble = mark, 0, None
        self.restarts += 1

    def _read_new(self) -> list[bytes]:
        descriptor = self._root.open(*self._parts)
        try:
            if os.fstat(descriptor).st_size > _LARGEST:
                raise Refused(f"larger than {_LARGEST:,} bytes")
            lines: list[bytes] = []
            while data := os.pread(descriptor, _CHUNK, self._offset):
                whole, end, _ = data.rpartition(b"\n")
                if not end:
                    if len(data) > _LINE:
                        raise Refused(f"a line is longer than {_LINE:,} bytes")
                    break
                lines += whole.split(b"\n")
                self._offset += len(whole) + 1
            return lines
        finally:
            os.close(descriptor)


def parsed(line: bytes) -> dict[str, Any] | None:
    """A JSON line that holds an object of finite numbers; None if it is anything else."""
    if len(line) > _LINE:
        return None
    try:
        value = loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
