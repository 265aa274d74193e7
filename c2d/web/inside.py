"""Files of the runs directory and no others: everything the page shows of a run is opened here.

No symbolic link is followed below the root, and nothing but regular files is opened: c2d/files.py.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

from c2d.files import SMALL, Refused, names_inside, open_inside, read_up_to
from c2d.web.plain import loads

__all__ = ["SMALL", "Refused", "Root"]


class Root:
    """The directory a user asked to be shown."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).resolve(strict=True)
        self._text = str(self.path)

    def open(self, *parts: str) -> int:
        """A descriptor of root/part/part/...; OSError if there is no such file inside."""
        return open_inside(self._text, *parts)

    def read(self, *parts: str, limit: int = SMALL, offset: int = 0) -> bytes:
        """The file from `offset` on, which must be at most `limit` bytes."""
        descriptor = self.open(*parts)
        try:
            size = os.fstat(descriptor).st_size - offset
            if size > limit:
                raise Refused(f"{'/'.join(parts)} has {size:,} bytes; at most {limit:,} are read")
            return read_up_to(descriptor, limit, offset)
        finally:
            os.close(descriptor)

    def read_end(self, *parts: str, count: int) -> bytes:
        """The last `count` bytes."""
        descriptor = self.open(*parts)
        try:
            return read_up_to(descriptor, count, max(0, os.fstat(descriptor).st_size - count))
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
        return names_inside(self._text, *parts, directories=True)

    def files(self, *parts: str) -> list[str]:
        """Names of regular files in a directory, links left out."""
        return names_inside(self._text, *parts)

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
