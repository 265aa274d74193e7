"""Files: written completely or not at all; read only if they are regular files of a bounded size.

A run directory may come from anywhere, so everything in one is opened here. No symbolic link below it is followed,
whatever it leads to; pipes, devices and directories are not opened; and how much is read at most is known before.
A path that the user names on the command line may be a link, and so may anything above a run directory.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from c2d.errors import UserError

SMALL = 1 << 20  # bytes of a file without lines or tensors
LINES = 1 << 26  # bytes of a file of lines
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_DEEPEST = 50  # levels of JSON
_DIGITS = 40  # of an integer; the states of random generators have 39


class Refused(OSError):
    """The file is outside its directory, is not a regular file, or is too large."""

    def __init__(self, reason: str) -> None:
        super().__init__(errno.EPERM, reason)

    def __str__(self) -> str:
        return str(self.strerror)


# ---------------------------------------------------------------------------------------------------------- reading


def open_inside(root: str | Path, *parts: str) -> int:
    """A descriptor of the regular file root/part/part/...; OSError if there is none. Only root itself may be a link."""
    *above, name = _steps(parts)
    with directory_inside(root, *above) as place:
        return _opened(name, place)


def open_named(path: str | Path) -> int:
    """A descriptor of a regular file that the user named, by a link or not."""
    _require_regular(os.stat(path).st_mode)  # before it is opened: opening a device may have an effect
    descriptor = os.open(path, _READ & ~os.O_NOFOLLOW)
    return _checked(descriptor)


def read_file(path: str | Path, limit: int, within: str | Path | None = None) -> bytes:
    """The content, at most `limit` bytes of it. `within`: the run directory; None if the user named the file."""
    descriptor = open_named(path) if within is None else open_inside(within, os.path.relpath(path, within))
    try:
        size = os.fstat(descriptor).st_size
        data = read_up_to(descriptor, limit + 1) if size <= limit else b""
        if size > limit or len(data) > limit:
            raise Refused(f"it has {max(size, len(data)):,} bytes; at most {limit:,} are read")
        return data
    finally:
        os.close(descriptor)


def read_end(path: str | Path, count: int, within: str | Path) -> bytes:
    """The last `count` bytes of a file of a run."""
    descriptor = open_inside(within, os.path.relpath(path, within))
    try:
        return read_up_to(descriptor, count, max(0, os.fstat(descriptor).st_size - count))
    finally:
        os.close(descriptor)


def read_text(path: str | Path, limit: int, within: str | Path | None = None) -> str:
    """UnicodeDecodeError, a ValueError, if it is not UTF-8."""
    return read_file(path, limit, within).decode("utf-8")


def read_json(path: str | Path, limit: int = SMALL, within: str | Path | None = None) -> Any:
    """ValueError if it is not JSON."""
    return load_json(read_file(path, limit, within))


def load_json(data: bytes | str, decode: Callable[[dict[str, Any]], Any] | None = None) -> Any:
    """ValueError for invalid JSON and for what only an attacker writes: deep nesting, huge numbers, lone surrogates.

    `decode` is applied to every object.
    """
    text = data.decode() if isinstance(data, bytes) else data
    try:
        value = json.loads(text, parse_int=_whole, object_hook=decode)
        if re.search(r"\\u[dD][89a-fA-F]", text):  # a surrogate, alone or not
            json.dumps(json.loads(text), ensure_ascii=False).encode()
        _require_shallow(text, value)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except UnicodeEncodeError:
        raise ValueError("it contains text that is not Unicode") from None
    return value


def _require_shallow(text: str, value: Any) -> None:
    """ValueError for values nested so deeply that recursive functions would fail; ours have 8 levels."""
    if text.count("[") + text.count("{") <= _DEEPEST:
        return
    level = [value]
    for _ in range(_DEEPEST):
        level = [item for part in level for item in (part.values() if isinstance(part, dict) else part)
                 if isinstance(item, dict | list)]  # fmt: skip
        if not level:
            return
    raise ValueError("it is nested too deeply")


def read_up_to(descriptor: int, count: int, offset: int = 0) -> bytes:
    """`count` bytes from `offset`, or as many as there are."""
    parts = []
    while count > 0 and (data := os.pread(descriptor, min(count, 1 << 24), offset)):
        parts.append(data)
        count -= len(data)
        offset += len(data)
    return b"".join(parts)


@contextmanager
def directory_inside(root: str | Path, *parts: str) -> Iterator[int]:
    """A descriptor of the directory root/part/part/...; only root itself may be a link."""
    place = os.open(root, _DIRECTORY)
    try:
        for name in _steps(parts):
            try:
                inner = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=place)
            except OSError as error:
                raise _explained(error, name, place) from None
            os.close(place)
            place = inner
        yield place
    finally:
        os.close(place)


def names_inside(root: str | Path, *parts: str, directories: bool = False) -> list[str]:
    """Names of the regular files in a directory, or of its directories, in order; none if it is reached by a link."""
    try:
        with directory_inside(root, *parts) as place, os.scandir(place) as entries:
            wanted = os.DirEntry.is_dir if directories else os.DirEntry.is_file
            return sorted(entry.name for entry in entries if wanted(entry, follow_symlinks=False))
    except OSError:
        return []


def kind_of(path: str | Path) -> str | None:
    """What a name in a run directory is: file, directory, link, other; None if it does not exist."""
    try:
        mode = os.lstat(path).st_mode
    except (OSError, ValueError):
        return None
    kinds = ((stat.S_ISREG, "file"), (stat.S_ISDIR, "directory"), (stat.S_ISLNK, "link"))
    return next((kind for fits, kind in kinds if fits(mode)), "other")


def _steps(parts: tuple[str, ...]) -> list[str]:
    name = "/".join(parts)
    steps = [step for step in name.split("/") if step not in ("", ".")]
    if name.startswith("/") or "\0" in name or ".." in steps:
        raise Refused(f"{name!r} lies outside the directory")
    return steps if steps else ["."]


def _opened(name: str, place: int) -> int:
    try:
        _require_regular(os.stat(name, dir_fd=place, follow_symlinks=False).st_mode)
        descriptor = os.open(name, _READ, dir_fd=place)
    except Refused:
        raise
    except OSError as error:
        raise _explained(error, name, place) from None
    return _checked(descriptor)


def _checked(descriptor: int) -> int:
    try:
        _require_regular(os.fstat(descriptor).st_mode)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _require_regular(mode: int) -> None:
    if stat.S_ISLNK(mode):
        raise Refused("it is a symbolic link, and links inside a run directory are not followed")
    if not stat.S_ISREG(mode):
        raise Refused("it is not a regular file")


def _explained(error: OSError, name: str, place: int) -> OSError:
    """The error for a path with a link in it."""
    with suppress(OSError):
        if stat.S_ISLNK(os.stat(name, dir_fd=place, follow_symlinks=False).st_mode):
            return Refused(f"{name} is a symbolic link, and links inside a run directory are not followed")
    return error


def _whole(digits: str) -> int:
    if len(digits) > _DIGITS:
        raise ValueError(f"a number of {len(digits):,} digits; at most {_DIGITS} are read")
    return int(digits)


# ---------------------------------------------------------------------------------------------------------- writing


def write_atomically(path: Path, data: bytes) -> None:
    """Write to a temporary file in the same directory, flush it to disk, rename it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write_flushed(temporary, data)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    flush_directory(path.parent)


def write_flushed(path: Path, data: bytes) -> None:
    """Write a new file, replacing one of the same name, and flush it to disk."""
    path.unlink(missing_ok=True)  # a link would point elsewhere
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    with open(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def flush_directory(path: Path) -> None:
    """Flush the names in a directory, which are separate from the files themselves."""
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def write_json(path: Path, value: Any) -> None:
    write_atomically(path, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())


def open_own(path: Path, flags: int) -> int:
    """A file of a run to write to, created if necessary; Refused for anything but a regular file."""
    try:
        descriptor = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if kind_of(path) in ("link", "other"):
            raise Refused("it is a symbolic link or not a regular file, and nothing is written there") from None
        raise error
    return _checked(descriptor)


def append_line(path: Path, line: str) -> None:
    """Append a line to a file of a run, in one write."""
    descriptor = open_own(path, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(descriptor, line.encode(errors="replace"))
    finally:
        os.close(descriptor)


def make_directory(path: Path) -> None:
    """A directory of a run, new or not, but not a link to one."""
    try:
        path.mkdir()
    except FileExistsError:
        if kind_of(path) != "directory":
            raise Refused(f"{path.name} is a link or a file, not a directory") from None


def leftover(name: str) -> str:
    """The regular expression for what a killed `write_atomically` leaves; `name` is a regular expression too."""
    return rf"\.(?:{name})\.[0-9]+\.tmp"


def remove_leftovers(directory: Path, name: str) -> None:
    """Delete temporary files of killed processes for names that match the regular expression `name`.

    For a directory that no other process writes into now, because its lock is held.
    """
    pattern = re.compile(leftover(name))
    for entry in names_inside(directory):
        if pattern.fullmatch(entry):
            with suppress(OSError):
                (directory / entry).unlink()


def check_destination(path: Path, option: str, endings: tuple[str, ...] = ()) -> None:
    """Check that a file can be written there, before the work and not after it."""
    if endings and path.suffix.lower() not in endings:
        raise UserError(f"{option} {path}: the name must end in {' or '.join(endings)}")
    if path.is_dir() or not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise UserError(f"{option} {path} cannot be written; accepted: a file in a directory that exists")
