"""Files that grow line by line, followed a bounded piece at a time, without reading them twice."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from c2d.web.inside import Refused, Root
from c2d.web.plain import loads

_LARGEST = 1 << 26  # bytes of a file that is followed at all
_CHUNK = 1 << 21  # bytes taken at once
_LINE = 1 << 20  # bytes of one line
_BEFORE = 64  # bytes by which a file is known to be the one that was read so far


class _Mark(NamedTuple):
    """By which a file is known to be as it was."""

    inode: int
    size: int
    changed: int  # ns

    @classmethod
    def of(cls, info: os.stat_result) -> _Mark:
        return cls(info.st_ino, info.st_size, info.st_mtime_ns)


class Budget:
    """How much may be read in one look, by all files together; the rest waits for the next look."""

    def __init__(self, lines: int = 10_000, size: int = 1 << 22) -> None:
        self.lines, self.size = lines, size  # that are left; bytes

    @property
    def spent(self) -> bool:
        return self.lines <= 0 or self.size <= 0


class Tail:
    """Whole lines appended to one file. A file that was replaced, cut or rewritten is read again from its beginning,
    and `restarts` counts it."""

    def __init__(self, root: Root, *parts: str) -> None:
        self._root, self._parts = root, parts
        self._mark: _Mark | None = None
        self._offset = 0
        self._before = b""  # the last bytes that were read
        self.behind = False  # whether more can be read at once
        self.restarts = 0
        self.trouble: str | None = None  # why it cannot be read further

    def advance(self, budget: Budget | None = None) -> list[bytes]:
        """Lines that are new since the last call, as many as the budget allows; [] if there are none."""
        budget = Budget() if budget is None else budget
        info = self._root.stat(*self._parts)
        if info is None:
            if self._mark is not None:
                self._begin_again(None)
            return []
        mark = _Mark.of(info)
        if mark == self._mark and not self.behind:
            return []
        if self._mark is not None and (mark.inode != self._mark.inode or mark.size < self._offset):
            self._begin_again(mark)
        self.behind = True
        if budget.spent:
            return []
        self._mark = mark
        try:
            return self._read_new(budget)
        except OSError as error:
            self.trouble, self.behind = str(error.strerror or error), False
            return []

    def _begin_again(self, mark: _Mark | None) -> None:
        self._mark, self._offset, self._before, self.trouble, self.behind = mark, 0, b"", None, False
        self.restarts += 1

    def _read_new(self, budget: Budget) -> list[bytes]:
        descriptor = self._root.open(*self._parts)
        try:
            if os.fstat(descriptor).st_size > _LARGEST:
                raise Refused(f"larger than {_LARGEST:,} bytes")
            before = len(self._before)
            data = os.pread(descriptor, _CHUNK + before, self._offset - before)
            if data[:before] != self._before:  # other lines stand there now
                self._begin_again(self._mark)
                data, before = os.pread(descriptor, _CHUNK, 0), 0
        finally:
            os.close(descriptor)
        return self._take(data[before:], budget)

    def _take(self, data: bytes, budget: Budget) -> list[bytes]:
        """Whole lines of what was read."""
        lines = data.split(b"\n", budget.lines)
        rest = lines.pop()
        used = len(data) - len(rest)
        if not lines and len(rest) > _LINE:
            raise Refused(f"a line is longer than {_LINE:,} bytes")
        self._before = (self._before + data[:used])[-_BEFORE:]
        self._offset += used
        self.behind = bool(lines) and (b"\n" in rest or len(data) >= _CHUNK)
        budget.lines -= len(lines)
        budget.size -= used
        return lines


def parsed(line: bytes) -> dict[str, Any] | None:
    """A JSON line that holds an object of finite numbers; None if it is anything else."""
    if len(line) > _LINE:
        return None
    try:
        value = loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
