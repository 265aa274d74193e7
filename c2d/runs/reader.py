"""The one reader of what runs record: tolerant, incremental and bounded.

A file may grow while it is read, may have been written by anybody, and may be damaged. Lines are read a bounded piece
at a time and never twice; a last line without its newline is still being written and waits; a damaged line is counted
and named by its number. Nothing read here is executed. Needs neither PyTorch nor an emulator.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from c2d.config import upgraded
from c2d.errors import UserError
from c2d.files import LINES, SMALL, Refused, kind_of, load_json, read_json
from c2d.runs import layout
from c2d.runs.confined import Root
from c2d.runs.records import HEADER, ITERATION, MEASURED, POINT, canonical, check_header, check_iteration
from c2d.types import FinishedGame

_LARGEST = LINES  # bytes of a file that is read at all
_CHUNK = 1 << 21  # bytes read at once
_LINE = 1 << 20  # bytes of one line
_OVERLAP = 64  # bytes by which a file is recognized as the one that was read so far
_NAMED = 100  # damaged lines that are named; more are only counted


# ------------------------------------------------------------------------------------------------------------ lines


class _Mark(NamedTuple):
    """By which a file is recognized as unchanged."""

    inode: int
    size: int
    changed: int  # ns

    @classmethod
    def of(cls, info: os.stat_result) -> _Mark:
        return cls(info.st_ino, info.st_size, info.st_mtime_ns)


class Budget:
    """How much may be read at once, by all readers together; the rest waits for the next time."""

    def __init__(self, lines: int = 10_000, size: int = 1 << 22) -> None:
        self.lines, self.size = lines, size  # that are left; bytes

    @property
    def spent(self) -> bool:
        return self.lines <= 0 or self.size <= 0


class LineReader:
    """Whole lines appended to one file. A file that was replaced, cut or rewritten is read again from its beginning,
    and `restarts` counts it."""

    def __init__(self, root: Root, *parts: str) -> None:
        self._root, self._parts = root, parts
        self._mark: _Mark | None = None
        self._offset = 0
        self._overlap = b""  # the last bytes that were read
        self.behind = False  # whether more can be read at once
        self.restarts = 0
        self.line = 0  # lines read so far
        self.trouble: str | None = None  # why it cannot be read further

    def advance(self, budget: Budget | None = None) -> list[bytes]:
        """Lines that are new since the last call, as many as the budget allows."""
        budget = Budget() if budget is None else budget
        info = self._root.stat(*self._parts)
        if info is None:
            if self._mark is not None:
                self._restart(None)
            return []
        mark = _Mark.of(info)
        if mark == self._mark and not self.behind:
            return []
        if self._mark is not None and (mark.inode != self._mark.inode or mark.size < self._offset):
            self._restart(mark)
        self.behind = True
        if budget.spent:
            return []
        self._mark = mark
        try:
            return self._read_new(budget)
        except OSError as error:
            self.trouble, self.behind = str(error.strerror or error), False
            return []

    def read_all(self) -> Iterator[tuple[int, bytes]]:
        """Every whole line of the file with its number, from 1 on. OSError if the file cannot be read."""
        os.close(self._root.open(*self._parts))  # raises the reason why it cannot be read
        while True:
            lines = self.advance(Budget(size=_LARGEST))
            yield from enumerate(lines, self.line - len(lines) + 1)
            if self.trouble is not None:
                raise Refused(self.trouble)
            if not self.behind:
                return

    def _restart(self, mark: _Mark | None) -> None:
        self._mark, self._offset, self._overlap, self.trouble, self.behind = mark, 0, b"", None, False
        self.line = 0
        self.restarts += 1

    def _read_new(self, budget: Budget) -> list[bytes]:
        descriptor = self._root.open(*self._parts)
        try:
            size = os.fstat(descriptor).st_size
            if size > _LARGEST:
                raise Refused(f"it has {size:,} bytes; at most {_LARGEST:,} are read")
            overlap = len(self._overlap)
            data = os.pread(descriptor, _CHUNK + overlap, self._offset - overlap)
            if data[:overlap] != self._overlap:  # the file has other lines now
                self._restart(self._mark)
                data, overlap = os.pread(descriptor, _CHUNK, 0), 0
        finally:
            os.close(descriptor)
        return self._split(data[overlap:], budget)

    def _split(self, data: bytes, budget: Budget) -> list[bytes]:
        lines = data.split(b"\n", budget.lines)
        rest = lines.pop()
        used = len(data) - len(rest)
        if not lines and len(rest) > _LINE:
            raise Refused(f"a line is longer than {_LINE:,} bytes")
        self._overlap = (self._overlap + data[:used])[-_OVERLAP:]
        self._offset += used
        self.behind = bool(lines) and (b"\n" in rest or len(data) >= _CHUNK)
        self.line += len(lines)
        budget.lines -= len(lines)
        budget.size -= used
        return lines


def parse(line: bytes) -> dict[str, Any]:
    """A line that holds a JSON object; ValueError for anything else."""
    if len(line) > _LINE:
        raise ValueError(f"it is longer than {_LINE:,} bytes")
    value = load_json(line)
    if not isinstance(value, dict):
        raise ValueError("it is not a record")
    return value


# ---------------------------------------------------------------------------------------------------------- records


class Damage(NamedTuple):
    """A line that was skipped."""

    line: int  # from 1 on
    reason: str


class RecordReader:
    """The records of one run, followed as they grow. Configs of earlier versions are brought into today's form."""

    _kind, _file = ITERATION, layout.RECORDS

    def __init__(self, root: Root, *run: str, strict: bool = False) -> None:
        """`strict`: a record also counts as damaged if it lacks a key that every version has written."""
        self._lines = LineReader(root, *run, self._file)
        self._strict = strict
        self.header: dict[str, Any] | None = None
        self.damage: list[Damage] = []  # the first ones
        self.damaged = 0  # lines

    def advance(self, budget: Budget | None = None) -> list[dict[str, Any]]:
        """Iteration records that are new since the last call. After a restart of the file (`restarts`): all of them."""
        restarts = self._lines.restarts
        lines = self._lines.advance(budget)
        if self._lines.restarts != restarts:
            self.header, self.damage, self.damaged = None, [], 0
        records = map(self._take, range(self._lines.line - len(lines) + 1, self._lines.line + 1), lines)
        return [record for record in records if record is not None]

    def read_all(self) -> list[dict[str, Any]]:
        """Every iteration record there is. OSError if the file cannot be read."""
        records = [self._take(number, line) for number, line in self._lines.read_all()]
        return [record for record in records if record is not None]

    @property
    def restarts(self) -> int:
        """How often the file was replaced or rewritten, as it is when a run is resumed."""
        return self._lines.restarts

    @property
    def behind(self) -> bool:
        return self._lines.behind

    @property
    def trouble(self) -> str | None:
        return self._lines.trouble

    def _take(self, number: int, line: bytes) -> dict[str, Any] | None:
        if not line:
            return None
        try:
            record = parse(line)
            if record.get("kind") == HEADER and self.header is None:
                check_header(record, self._strict)
                self.header = {**record, "config": upgraded(record["config"])}
                return None
            if record.get("kind") != self._kind:
                raise ValueError(f'its kind is not "{self._kind}"')
            check_iteration(record, self._strict)
            return record
        except ValueError as error:
            self.damaged += 1
            if len(self.damage) < _NAMED:
                self.damage.append(Damage(number, str(error)))
            return None


class PointReader(RecordReader):
    """The points between the records of one run, likewise. Runs of version 0.1.0 have none."""

    _kind, _file = POINT, layout.POINTS


@dataclass(frozen=True)
class RunRecords:
    """The records of one run, and its summary if the run has ended."""

    path: Path
    header: dict[str, Any]  # config, passport, versions, measured
    iterations: tuple[dict[str, Any], ...]  # complete iterations, in order
    summary: dict[str, Any] | None  # None while the run is in progress, or if it was killed

    @property
    def name(self) -> str:
        return self.path.resolve().name

    @property
    def config(self) -> dict[str, Any]:
        config: dict[str, Any] = self.header["config"]
        return config

    @property
    def steps_per_second(self) -> float | None:
        """Agent steps per second over all complete iterations; None before the first."""
        seconds = sum(record[MEASURED]["seconds"] for record in self.iterations)
        return self.iterations[-1]["steps"] / seconds if seconds else None


def read_run(path: Path) -> RunRecords:
    """Read a run directory, finished or in progress. UserError if any of its records is damaged."""
    file = path / layout.RECORDS
    reader, iterations = _read(path, strict=True)
    for number, reason in reader.damage:
        raise UserError(f"{file} is damaged in line {number}: {reason}")
    if reader.header is None:
        raise UserError(f'{file} is damaged: its first line is not of kind "{HEADER}", as written by `c2d train`')
    return RunRecords(path, reader.header, tuple(iterations), _small(path / layout.SUMMARY))


def read_tolerantly(path: Path) -> tuple[RunRecords, list[str]]:
    """Like `read_run`, but skip damaged lines; each leaves a note that names it."""
    file = path / layout.RECORDS
    reader, records = _read(path)
    notes = [f"{file} is damaged in line {number}: {reason}; line skipped" for number, reason in reader.damage]
    header = reader.header
    if header is None:
        config, passport = (_needed(path / name) for name in (layout.CONFIG, layout.PASSPORT))
        header = {"config": upgraded(config), "passport": passport}
        notes.append(f"{file} has no usable first line; using {layout.CONFIG} and {layout.PASSPORT} instead")
    newest = {int(record["iteration"]): record for record in records}
    kept: list[dict[str, Any]] = []
    for number in sorted(newest):
        record = newest[number]
        if record["steps"] > (kept[-1]["steps"] if kept else 0):
            kept.append(record)
        else:
            notes.append(f"{file}: iteration {number} has no more steps than the one before; skipped")
    if len(notes) > 3:
        total = max(len(notes), reader.damaged)
        notes = [*notes[:2], f"{file}: {total} damaged lines skipped in total"]
    return RunRecords(path, header, tuple(kept), _small(path / layout.SUMMARY)), notes


def read_iterations(path: Path) -> list[dict[str, Any]]:
    """The iteration records of a run that can be read; none if there are none."""
    try:
        return RecordReader(Root(path)).read_all()
    except OSError:
        return []


def has_records(path: Path) -> bool:
    """Whether a run has written more than the first line of its records, readable or not."""
    try:
        return any(number > 1 for number, _ in LineReader(Root(path), layout.RECORDS).read_all())
    except FileNotFoundError:
        return False
    except OSError:
        return kind_of(path / layout.RECORDS) == "file"


def read_records(file: Path) -> list[dict[str, Any]]:
    """Every whole line of a file of records, as written. ValueError if one is not a record."""
    return [parse(line) for _, line in LineReader(Root(file.parent), file.name).read_all() if line]


def canonical_records(file: Path) -> bytes:
    """The reproducible part of a file of records."""
    return b"\n".join(canonical(record) for record in read_records(file))


def read_evaluations(path: Path, most: float = float("inf")) -> list[dict[str, Any]]:
    """Evaluations that a run made while training, up to a number of steps; lines that are none are left out."""
    return [record for record in evaluations_in(LineReader(Root(path), layout.EVALUATED)) if record["steps"] <= most]


def evaluations_in(lines: LineReader) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    try:
        for _, line in lines.read_all():
            with suppress(ValueError, KeyError, TypeError, OverflowError):
                record = parse(line)
                numbers = [record[name] for name in ("steps", "mean_score", "games", "epsilon")]
                plausible = all(type(value) in (int, float) and math.isfinite(value) for value in numbers)
                if plausible and isinstance(record[MEASURED], dict):
                    found.append(record)
    except OSError:
        return []
    return found


def last_games(end: bytes) -> list[FinishedGame]:
    """Whole games by the last bytes of `episodes.csv`; a first line that is cut is left out."""
    games = []
    for line in end.rpartition(b"\n")[0].split(b"\n")[1:]:
        with suppress(ValueError, IndexError):
            _, _, score, steps, *env = line.split(b",")
            games.append(FinishedGame(float(score), int(steps), int(env[0]) if env else 0))
    return games


def last_game_step(end: bytes) -> int:
    """The step at which the last whole game ended, by the last bytes of `episodes.csv`; 0 if they do not show it."""
    try:
        return int(end.rpartition(b"\n")[0].rpartition(b"\n")[2].split(b",")[1])
    except (ValueError, IndexError):
        return 0


def _read(path: Path, strict: bool = False) -> tuple[RecordReader, list[dict[str, Any]]]:
    if not path.is_dir():
        raise UserError(f"{path} is not a run directory: it does not exist or is a file")
    try:
        reader = RecordReader(Root(path), strict=strict)
        return reader, reader.read_all()
    except FileNotFoundError:
        raise UserError(f"{path} is not a run directory: it has no {layout.RECORDS}") from None
    except OSError as error:
        raise UserError(f"{path / layout.RECORDS} cannot be read: {error}") from None


def _small(file: Path) -> dict[str, Any] | None:
    """A small JSON file of a run; None if there is none."""
    if kind_of(file) is None:
        return None
    try:
        value = read_json(file, SMALL, within=file.parent)
    except (OSError, ValueError) as error:
        raise UserError(f"{file} cannot be read: {error}") from None
    if not isinstance(value, dict):
        raise UserError(f"{file} cannot be read: it does not hold an object")
    return value


def _needed(file: Path) -> dict[str, Any]:
    value = _small(file)
    if value is None:
        raise UserError(
            f"{file.parent} is not a usable run directory: {layout.RECORDS} is damaged and {file.name} is missing"
        )
    return value
