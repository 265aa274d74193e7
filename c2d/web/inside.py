"""Files of the runs directory and no others: everything the page shows of a run is opened here.

No symbolic link is followed below the root, nothing but regular files is opened (a pipe would block), and what was
opened is asked where it really lies, so that a link put in its way in between changes nothing.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

from c2d.web.plain import loads

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
SMALL = 1 << 20  # bytes of a file that is no table and no weights


class Refused(OSError):
    """The file lies elsewhere, is no regular file, or is larger than it may be."""


class Root:
    """The directory a user asked to be shown."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).resolve(strict=True)
        self._text = str(self.path)

    def open(self, *parts: str) -> int:
        """A descriptor of root/part/part/...; OSError if there is no such file inside."""
        path = self._path(parts)
        descriptor = os.open(path, _FLAGS)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise Refused(f"{path} is no regular file")
            real = _where(descriptor, path)
            if not real.is_relative_to(self.path):
                raise Refused(f"{path} leads out of {self.path}")
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def read(self, *parts: str, limit: int = SMALL, offset: int = 0) -> bytes:
        """The file from `offset` on, which must be at most `limit` bytes."""
        descriptor = self.open(*parts)
        try:
            size = os.fstat(descriptor).st_size - offset
            if size > limit:
                raise Refused(f"{'/'.join(parts)} has {size:,} bytes; at most {limit:,} are read")
            return _read_up_to(descriptor, limit, offset)
        finally:
            os.close(descriptor)

    def read_end(self, *parts: str, count: int) -> bytes:
        """The last `count` bytes."""
        descriptor = self.open(*parts)
        try:
            return _read_up_to(descriptor, count, max(0, os.fstat(descriptor).st_size - count))
        finally:
            os.close(descriptor)

    def read_json(self, *parts: str, limit: int = SMALL) -> dict[str, Any]:
        """ValueError if it is no JSON object."""
        value = loads(self.read(*parts, limit=limit))
        if not isinstance(value, dict):
            raise ValueError(f"{'/'.join(parts)} holds no object")
        return value

    def directories(self, *parts: str) -> list[str]:
        """Names of directories in a directory, links left out; none if it cannot be listed."""
        return [entry.name for entry in self._entries(parts) if entry.is_dir(follow_symlinks=False)]

    def files(self, *parts: str) -> list[str]:
        """Names of regular files in a directory, links left out."""
        return [entry.name for entry in self._entries(parts) if entry.is_file(follow_symlinks=False)]

    def _entries(self, parts: tuple[str, ...]) -> list[os.DirEntry[str]]:
        """In order of their names; none of a directory that is reached by a link."""
        path = os.path.normpath(self._path(parts))
        try:
            if os.path.realpath(path) != path:
                return []
            with os.scandir(path) as entries:
                return sorted(entries, key=lambda entry: entry.name)
        except OSError:
            return []

    def stat(self, *parts: str) -> os.stat_result | None:
        """Of a regular file; None if there is none."""
        try:
            info = os.lstat(self._path(parts))
        except (OSError, ValueError):
            return None
        return info if stat.S_ISREG(info.st_mode) else None

    def directory_changed(self, *parts: str) -> int | None:
        """When something was last added to a directory or taken away; None if there is none, or it is a link."""
        try:
            info = os.lstat(self._path(parts))
        except (OSError, ValueError):
            return None
        return info.st_mtime_ns if stat.S_ISDIR(info.st_mode) else None

    def _path(self, parts: tuple[str, ...]) -> str:
        """As text: this is called thousands of times a second, and Path is slow."""
        name = "/".join(parts)
        if name.startswith("/") or "\0" in name or (".." in name and ".." in name.split("/")):
            raise Refused(f"{name!r} lies outside the runs directory")
        return f"{self._text}/{name}"


def _where(descriptor: int, path: str) -> Path:
    """Where an open file lies, links in its directories resolved."""
    try:
        return Path(os.readlink(f"/proc/self/fd/{descriptor}"))
    except OSError:  # a system without /proc
        real = Path(path).resolve(strict=True)
        if not os.path.samestat(os.stat(real), os.fstat(descriptor)):
            raise Refused(f"{path} was exchanged while it was opened") from None
        return real


def _read_up_to(descriptor: int, count: int, offset: int) -> bytes:
    parts = []
    while count > 0 and (data := os.pread(descriptor, min(count, 1 << 24), offset)):
        parts.append(data)
        count -= len(data)
        offset += len(data)
    return b"".join(parts)
