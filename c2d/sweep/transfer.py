"""A run directory copied piece by piece while it is being written, for machines that share no file system.

What a checkpoint consists of never changes once it has its name (runs/checkpoints.py), and an old one goes only
after a newer one is whole. So it is enough to send files in the right order: the replay's first, then the
checkpoint, whose directory gets its name when its last file is there; and to delete on the other side only after a
look at the directory of which every file could be read.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from c2d.files import kind_of, make_directory, names_inside, open_inside, write_atomically
from c2d.runs.checkpoints import Checkpoints
from c2d.runs.layout import CHECKPOINTS, LOCK, MANIFEST, REPLAY

PIECE = 16 << 20  # bytes
_OWN = (CHECKPOINTS, REPLAY)  # where files are deleted as well: what came by an outbox, or a run wrote
_LAST = MANIFEST


class Piece(NamedTuple):
    """Part of a file; the file is whole when offset + len(data) = size."""

    path: str  # within the run directory
    offset: int
    size: int
    data: bytes


class Look(NamedTuple):
    """The names in the directory, all of which have been sent."""

    present: tuple[str, ...]


def listing(run: Path) -> list[str]:
    """The files of a run, in the order in which they are to be sent; the lock, and what is half written, left out.

    The names of checkpoints are read first: whatever they need is then either there, or they are gone themselves.
    """
    found: dict[str, list[str]] = {}
    for part in (CHECKPOINTS, REPLAY, ""):
        top = run / part
        found[part] = sorted(_files(top, run, deep=bool(part) or None), key=lambda name: (name.endswith(_LAST), name))
    return [*found[REPLAY], *found[CHECKPOINTS], *found[""]]


def _files(top: Path, run: Path, deep: bool | None) -> Iterator[str]:
    for directory, inner, names in os.walk(top) if kind_of(top) == "directory" or top == run else ():
        here = Path(directory)
        inner[:] = [name for name in inner if not name.startswith(".")]
        if deep is None and here == run:
            inner[:] = [name for name in inner if name not in _OWN]
        for name in names:
            plain = not name.startswith(".") and not name.endswith(".tmp") and name != LOCK
            if plain and kind_of(here / name) == "file":
                yield (here / name).relative_to(run).as_posix()


class Outbox:
    """What the other side does not have yet."""

    def __init__(self, run: Path) -> None:
        """The other side has what is in the directory now."""
        self.run = run
        self._sent: dict[str, tuple[int, ...]] = {name: self._stamp(name) for name in listing(run)}
        self._todo: Iterator[Piece | Look] | None = None

    def take(self, limit: int = PIECE) -> list[Piece | Look]:
        """Up to about `limit` bytes of what is new; nothing only if nothing is."""
        taken: list[Piece | Look] = []
        size = 0
        while True:
            if self._todo is None:
                self._todo = self._round()
            try:
                for item in self._todo:
                    taken.append(item)
                    size += len(item.data) if isinstance(item, Piece) else 0
                    if size >= limit:
                        return taken
            except FileNotFoundError:  # a newer checkpoint has taken the place of this one: look again
                self._todo = None
            else:
                self._todo = None
                return taken

    @property
    def busy(self) -> bool:
        """Whether there is more to take at once."""
        return self._todo is not None

    def _round(self) -> Iterator[Piece | Look]:
        names = listing(self.run)
        changed = [name for name in names if self._sent.get(name) != self._stamp(name)]
        gone = set(self._sent) - set(names)
        for name in changed:
            stamp = self._stamp(name)
            yield from _pieces(self.run, name)
            self._sent[name] = stamp
        if changed or gone:
            self._sent = {name: stamp for name, stamp in self._sent.items() if name in set(names)}
            yield Look(tuple(names))

    def _stamp(self, name: str) -> tuple[int, ...]:
        status = (self.run / name).lstat()
        return status.st_mtime_ns, status.st_size, status.st_ino  # clocks of file systems are coarse


def _pieces(run: Path, name: str) -> Iterator[Piece]:
    with open(open_inside(run, name), "rb") as file:
        size = os.fstat(file.fileno()).st_size  # of a file that grows: as much as there was
        offset = 0
        while True:
            data = file.read(min(PIECE, size - offset))
            yield Piece(name, offset, size, data)
            offset += len(data)
            if offset >= size or not data:
                return


def read_all(run: Path, name: str) -> bytes:
    """A file of a run as it is now."""
    with open(open_inside(run, name), "rb") as file:
        return file.read(os.fstat(file.fileno()).st_size)


class Inbox:
    """Puts together what an outbox sends. Whatever happens, a checkpoint is there whole or not at all."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self._written: set[Path] = set()
        self._parts: dict[str, bytearray] = {}

    def put(self, items: Iterable[Piece | Look]) -> None:
        for item in items:
            if isinstance(item, Look):
                self._delete(item.present)
            else:
                self._add(item)

    def _add(self, piece: Piece) -> None:
        part = self._parts.setdefault(piece.path, bytearray())
        if piece.offset == 0:
            part.clear()
        if piece.offset != len(part):
            del self._parts[piece.path]  # of a file that changed while it was sent; it comes again
            return
        part += piece.data
        if len(part) >= piece.size:
            del self._parts[piece.path]
            self._place(_inside(piece.path), bytes(part))

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

    def _delete(self, present: Iterable[str]) -> None:
        kept = {self.run / _inside(name) for name in present}
        directories = {path.parent for path in kept}
        checkpoints, replay = (self.run / part for part in _OWN)
        for name in names_inside(self.run, checkpoints.name, directories=True):
            if checkpoints / name not in directories and not name.startswith("."):
                self._remove(checkpoints / name)
        for path in self._written - kept:
            if path.parent == replay and kind_of(replay) == "directory":
                path.unlink(missing_ok=True)
                self._written.discard(path)
        Checkpoints(self.run).journal.prune({path.name for path in kept if path.parent == replay})

    def _remove(self, checkpoint: Path) -> None:
        """What its manifest lists, and what came by an outbox."""
        Checkpoints(self.run).remove(checkpoint)
        if kind_of(checkpoint) == "directory":
            for path in [path for path in self._written if path.parent == checkpoint]:
                path.unlink(missing_ok=True)
                self._written.discard(path)
            with suppress(OSError):
                checkpoint.rmdir()


def _inside(name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise ValueError(f"{name} is no place within a run")
    return path
