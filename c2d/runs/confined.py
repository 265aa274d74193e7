"""Files below one directory and no others, for readers that serve what anybody may have written.

No symbolic link below the root is followed, and nothing but regular files is opened (`c2d/files.py`). JSON that is read
here can be sent to a browser: numbers that JavaScript cannot hold become None.
"""

from __future__ import annotations

import json
import math
import os
import stat
from pathlib import Path
from typing import Any

from c2d.files import SMALL, Refused, load_json, names_inside, open_inside, read_up_to

_LARGEST = 2**53  # larger integers lose digits in a browser


class Root:
    """A directory that confines its readers."""

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
        """ValueError if it is not a JSON object."""
        value = browser_safe(load_json(self.read(*parts, limit=limit)))
        if not isinstance(value, dict):
            raise ValueError(f"{'/'.join(parts)} does not hold an object")
        return value

    def directories(self, *parts: str) -> list[str]:
        """Names of the directories in a directory, links left out; none if it cannot be listed."""
        return names_inside(self._text, *parts, directories=True)

    def files(self, *parts: str) -> list[str]:
        """Names of the regular files in a directory, links left out."""
        return names_inside(self._text, *parts)

    def stat(self, *parts: str) -> os.stat_result | None:
        """Of a regular file; None if there is none."""
        try:
            info = os.lstat(self._path(parts))
        except (OSError, ValueError):
            return None
        return info if stat.S_ISREG(info.st_mode) else None

    def directory_changed(self, *parts: str) -> int | None:
        """When an entry of a directory was last added or removed; None if there is no directory, or it is a link."""
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


# ------------------------------------------------------------------------------------------------- JSON for browsers


def browser_safe(value: Any) -> Any:
    """The same JSON value, but None for NaN, infinite numbers and integers that a browser would round."""
    if isinstance(value, dict):
        return {key: browser_safe(item) for key, item in value.items()}
    if isinstance(value, list):
        return [browser_safe(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int) and not isinstance(value, bool):
        return value if -_LARGEST < value < _LARGEST else None
    return value


def dumps(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def number(record: Any, *keys: str) -> float | None:
    """record[key][key]..., if it is a number that a browser can hold."""
    value = entry(record, *keys)
    return browser_safe(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def count(record: Any, *keys: str) -> int:
    """Likewise an integer; 0 if there is none."""
    value = number(record, *keys)
    return int(value) if value is not None else 0


def text(record: Any, *keys: str, default: str = "") -> str:
    """Likewise a short text."""
    value = entry(record, *keys)
    return value[:1_000] if isinstance(value, str) else default


def entry(record: Any, *keys: str) -> Any:
    for key in keys:
        record = record.get(key) if isinstance(record, dict) else None
    return record
