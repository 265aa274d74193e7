"""Copies a run directory chunk by chunk while it is being written, for machines that share no file system.

The files of a checkpoint never change once it has its name (runs/checkpoints.py), and an old checkpoint is deleted
only after a newer one is complete. So it is enough to send files in the right order: first the replay's, then the
checkpoint's, whose directory gets its name when its last file has arrived; and to delete on the receiving side only
after a listing of which every file could be read.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from c2d.files import kind_of, make_directory, names_inside, open_inside, write_atomically
from c2d.runs.checkpoints import Checkpoints
from c2d.runs.layout import CHECKPOINTS, LOCK, MANIFEST, REPLAY, RunDir

CHUNK = 16 << 20  # bytes
_MANAGED = (CHECKPOINTS, REPLAY)  # where the receiver also deletes files: those it received or a run wrote
_LAST = MANIFEST


class FileChunk(NamedTuple):
    """Part of a file; the file is complete when offset + len(data) = size."""

    path: str  # relative to the run directory
    offset: int
    size: int
    data: bytes


class SentFiles(NamedTuple):
    """The names of all files in the directory; all have been sent."""

    names: tuple[str, ...]


def transfer_order(run: Path) -> list[str]:
    """The files of a run in the order in which they are sent, without the lock and partial files.

    The names of checkpoints are read first: what they need then either exists, or they are gone themselves.
    """
    names: dict[str, list[str]] = {}
    for part in (CHECKPOINTS, REPLAY, ""):
        names[part] = sorted(_files(run / part, run), key=lambda name: (name.endswith(_LAST), name))
    return [*names[REPLAY], *names[CHECKPOINTS], *names[""]]


def _files(top: Path, run: Path) -> Iterator[str]:
    for directory, inner, names in os.walk(top) if kind_of(top) == "directory" or top == run else ():
        here = Path(directory)
        inner[:] = [name for name in inner if not name.startswith(".") and not (here == run and name in _MANAGED)]
        for name in names:
            plain = not name.startswith(".") and not name.endswith(".tmp") and name != LOCK
            if plain and kind_of(here / name) == "file":
                yield (here / name).relative_to(run).as_posix()


# --------------------------------------------------------------------------------------------------------- sending


class RunSender:
    """Finds what the receiver does not have yet."""

    def __init__(self, run: Path) -> None:
        """The receiver has what is in the directory now."""
        self.run = run
        self._sent: dict[str, tuple[int, ...]] = {name: self._stamp(name) for name in transfer_order(run)}
        self._pending: Iterator[FileChunk | SentFiles] | None = None

    def take(self, limit: int = CHUNK) -> list[FileChunk | SentFiles]:
        """Up to about `limit` bytes of new data; empty only if there is none."""
        taken: list[FileChunk | SentFiles] = []
        size = 0
        while True:
            if self._pending is None:
                self._pending = self._round()
            try:
                for item in self._pending:
                    taken.append(item)
                    size += len(item.data) if isinstance(item, FileChunk) else 0
                    if size >= limit:
                        return taken
            except FileNotFoundError:  # a newer checkpoint has replaced this one: list again
                self._pending = None
            else:
                self._pending = None
                return taken

    @property
    def busy(self) -> bool:
        """Whether there is more to take immediately."""
        return self._pending is not None

    def _round(self) -> Iterator[FileChunk | SentFiles]:
        names = transfer_order(self.run)
        changed = [name for name in names if self._sent.get(name) != self._stamp(name)]
        deleted = set(self._sent) - set(names)
        for name in changed:
            stamp = self._stamp(name)
            yield from _chunks(self.run, name)
            self._sent[name] = stamp
        if changed or deleted:
            self._sent = {name: stamp for name, stamp in self._sent.items() if name in set(names)}
            yield SentFiles(tuple(names))

    def _stamp(self, name: str) -> tuple[int, ...]:
        status = (self.run / name).lstat()
        return status.st_mtime_ns, status.st_size, status.st_ino  # the clocks of file systems are coarse


def _chunks(run: Path, name: str) -> Iterator[FileChunk]:
    with open(open_inside(run, name), "rb") as file:
        size = os.fstat(file.fileno()).st_size  # of a file that grows: its present size
        offset = 0
        while True:
            data = file.read(min(CHUNK, size - offset))
            yield FileChunk(name, offset, size, data)
            offset += len(data)
            if offset >= size or not data:
                return


def read_run_file(run: Path, name: str) -> bytes:
    """A file of a run in its present state."""
    with open(open_inside(run, name), "rb") as file:
        return file.read(os.fstat(file.fileno()).st_size)


# ------------------------------------------------------------------------------------------------------- receiving


class RunReceiver:
    """Assembles what a sender sends. At every moment a checkpoint is complete or absent."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self._written: set[Path] = set()
        self._partial: dict[str, bytearray] = {}

    def put(self, items: Iterable[FileChunk | SentFiles]) -> None:
        for item in items:
            if isinstance(item, SentFiles):
                self._delete_others(item.names)
            else:
                self._add(item)

    def _add(self, chunk: FileChunk) -> None:
        partial = self._partial.setdefault(chunk.path, bytearray())
        if chunk.offset == 0:
            partial.clear()
        if chunk.offset != len(partial):
            del self._partial[chunk.path]  # the file changed while it was sent; it will be sent again
            return
        partial += chunk.data
        if len(partial) >= chunk.size:
            del self._partial[chunk.path]
            self._place(_relative(chunk.path), bytes(partial))

    def _place(self, name: PurePosixPath, data: bytes) -> None:
        target = self.run / name
        if name.parts[0] == CHECKPOINTS and len(name.parts) == 3:
            final = target.parent
            target = final.with_name(f".incoming-{final.name}") / name.name
            self._write(target, data)
            self._written.add(final / name.name)
            if name.name == _LAST:
                self._remove(final)
                target.parent.rename(final)
            return
        self._write(target, data)
        self._written.add(target)

    def _write(self, target: Path, data: bytes) -> None:
        self.run.mkdir(parents=True, exist_ok=True)
        for above in reversed(target.relative_to(self.run).parents[:-1]):
            make_directory(self.run / above)
        write_atomically(target, data)

    def _delete_others(self, names: Iterable[str]) -> None:
        kept = {self.run / _relative(name) for name in names}
        directories = {path.parent for path in kept}
        checkpoints, replay = (self.run / part for part in _MANAGED)
        for name in names_inside(self.run, checkpoints.name, directories=True):
            if checkpoints / name not in directories and not name.startswith("."):
                self._remove(checkpoints / name)
        for path in self._written - kept:
            if path.parent == replay and kind_of(replay) == "directory":
                path.unlink(missing_ok=True)
                self._written.discard(path)
        Checkpoints(self.run).journal.prune({path.name for path in kept if path.parent == replay})
        for path in RunDir(self.run).kept_weights().values():
            if path not in kept:
                path.unlink(missing_ok=True)

    def _remove(self, checkpoint: Path) -> None:
        """Delete the files in its manifest, and those that were received."""
        Checkpoints(self.run).remove(checkpoint)
        if kind_of(checkpoint) == "directory":
            for path in [path for path in self._written if path.parent == checkpoint]:
                path.unlink(missing_ok=True)
                self._written.discard(path)
            with suppress(OSError):
                checkpoint.rmdir()


def _relative(name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise ValueError(f"{name!r} is not a path inside a run")
    return path
