"""Which files are locked by some process, read from the system without touching any lock."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import NamedTuple


class Place(NamedTuple):
    """A file as the table of locks names it: an inode number means something on its own file system only."""

    device: str  # major:minor in hexadecimal digits, as /proc/locks writes it
    inode: int


def held() -> frozenset[Place]:
    """Files that some process holds a lock of; none where the system does not tell."""
    try:
        with open("/proc/locks", encoding="utf-8") as file:
            return read(file.read())
    except OSError:
        return frozenset()


def read(table: str) -> frozenset[Place]:
    words = (line.split() for line in table.splitlines())
    places = (w[-3].rpartition(":") for w in words if len(w) >= 8 and "FLOCK" in w and w[-3].count(":") == 2)
    return frozenset(Place(device, int(inode)) for device, _, inode in places)


def is_held(path: str, info: os.stat_result, locks: frozenset[Place]) -> bool:
    """Whether the file at `path`, of which `info` tells, is among `locks`."""
    if not any(place.inode == info.st_ino for place in locks):
        return False  # the usual case, and the cheapest
    return Place(_device(os.path.dirname(path), info.st_dev), info.st_ino) in locks


@lru_cache(maxsize=256)
def _device(directory: str, told: int) -> str:
    """The device under which locks of files there are listed: that of the mount, not always what `stat` tells."""
    major, minor = os.major(told), os.minor(told)
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with open(f"/proc/self/fdinfo/{descriptor}", encoding="utf-8") as file:
                mount = next(line.split()[1] for line in file if line.startswith("mnt_id:"))
        finally:
            os.close(descriptor)
        with open("/proc/self/mountinfo", encoding="utf-8") as file:
            found = next(words[2] for words in map(str.split, file) if words[0] == mount)
        major, minor = (int(number) for number in found.split(":"))
    except (OSError, StopIteration, ValueError, IndexError):
        pass
    return f"{major:02x}:{minor:02x}"
