"""The files of a run directory as plain values. Needs neither PyTorch nor an emulator."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from c2d.config import upgraded
from c2d.errors import UserError
from c2d.files import LINES, SMALL, kind_of, load_json, read_file, read_json
from c2d.formatting import printable

_HEADER = ("config", "passport", "versions", "measured")
_LARGEST = 1e15  # the largest plausible value in a record
_LONGEST_NAME = 40
_ITERATION = (
    "iteration",
    "steps",
    "episodes",
    "mean_score",
    "mean_loss",
    "atom_min",
    "atom_max",
    "gradient_norm_max",
)


@dataclass(frozen=True)
class RunRecords:
    """The lines of one records.jsonl, and the summary if the run has ended."""

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
        seconds = sum(record["measured"]["seconds"] for record in self.iterations)
        return self.iterations[-1]["steps"] / seconds if seconds else None


def read_run(path: Path) -> RunRecords:
    """Read a run directory, finished or in progress."""
    file = path / "records.jsonl"
    text = _text(path, file)
    lines = [_line(file, number, line) for number, line in enumerate(text.splitlines(), 1) if line]
    if not lines or lines[0].get("kind") != "run":
        raise UserError(f'{file} is damaged: its first line is not of kind "run", as written by `c2d train`')
    _require(file, 1, lines[0], _HEADER)
    for number, record in enumerate(lines[1:], 2):
        _require(file, number, record, (*_ITERATION, "measured"))
    return RunRecords(path, _upgraded(lines[0]), tuple(lines[1:]), _summary(path / "summary.json"))


def _line(file: Path, number: int, line: str) -> dict[str, Any]:
    try:
        value = load_json(line)
    except ValueError as error:
        raise UserError(f"{file} is damaged in line {number}: {error}") from None
    if not isinstance(value, dict):
        raise UserError(f"{file} is damaged in line {number}: it is not a record")
    return value


def _require(file: Path, number: int, record: dict[str, Any], keys: tuple[str, ...]) -> None:
    for key in keys:
        if key not in record:
            raise UserError(f'{file} is damaged in line {number}: "{key}" is missing')


def _summary(file: Path) -> dict[str, Any] | None:
    if kind_of(file) is None:
        return None
    try:
        value = read_json(file, SMALL, within=file.parent)
    except (OSError, ValueError) as error:
        raise UserError(f"{file} cannot be read: {error}") from None
    if not isinstance(value, dict):
        raise UserError(f"{file} cannot be read: it is not a summary")
    return value


def read_tolerantly(path: Path) -> tuple[RunRecords, list[str]]:
    """Like `read_run`, but skip damaged lines; each leaves a note that names it."""
    file = path / "records.jsonl"
    text = _text(path, file, errors="replace")
    notes: list[str] = []
    header: dict[str, Any] | None = None
    iterations: dict[int, dict[str, Any]] = {}
    for number, line in enumerate(text.split("\n")[:-1], 1):
        try:
            record = _line(file, number, line)
            if record.get("kind") == "run" and header is None:
                _require(file, number, record, _HEADER[:2])
                header = record
            else:
                iterations[_plausible(file, number, record)] = record
        except UserError as error:
            notes.append(f"{error}; line skipped")
    if header is None:
        header = {"config": _object(path / "config.json"), "passport": _object(path / "passport.json")}
        notes.append(f"{file} has no usable first line; using config.json and passport.json instead")
    ordered = _increasing(file, [iterations[number] for number in sorted(iterations)], notes)
    if len(notes) > 3:
        notes = [*notes[:2], f"{file}: {len(notes)} damaged lines skipped in total"]
    return RunRecords(path, _upgraded(header), ordered, _summary(path / "summary.json")), notes


def _upgraded(header: dict[str, Any]) -> dict[str, Any]:
    return {**header, "config": upgraded(header["config"])}


def _increasing(file: Path, records: list[dict[str, Any]], notes: list[str]) -> tuple[dict[str, Any], ...]:
    """Drop records whose step count does not increase."""
    kept: list[dict[str, Any]] = []
    for record in records:
        if record["steps"] > (kept[-1]["steps"] if kept else 0):
            kept.append(record)
        else:
            notes.append(f"{file}: iteration {record['iteration']} has no more steps than the one before; skipped")
    return tuple(kept)


def _plausible(file: Path, number: int, record: dict[str, Any]) -> int:
    """The iteration number of a record, if all its values are plausible."""
    _require(file, number, record, ("iteration", "steps", "mean_score"))
    for key in ("iteration", "steps", "frames", "mean_score", "atom_min", "atom_max"):
        value: Any = record.get(key)
        missing = value is None and key not in ("iteration", "steps")
        if not missing and (type(value) not in (int, float) or not abs(value) < _LARGEST):
            raise UserError(f'{file} is damaged in line {number}: "{key}" is not a plausible number')
    return int(record["iteration"])


def _object(file: Path) -> dict[str, Any]:
    value = _summary(file)
    if value is None:
        raise UserError(
            f"{file.parent} is not a usable run directory: records.jsonl is damaged and {file.name} is missing"
        )
    return value


def _text(path: Path, file: Path, errors: str = "strict") -> str:
    """The complete lines of a record file."""
    if not path.is_dir():
        raise UserError(f"{path} is not a run directory: it does not exist or is a file")
    try:
        text = read_file(file, LINES, within=path).decode(errors=errors)
    except FileNotFoundError:
        raise UserError(f"{path} is not a run directory: it has no {file.name}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file} cannot be read: {error}") from None
    return text[: text.rfind("\n") + 1]  # a last line without its newline is still being written


def printable_name(name: str) -> str:
    """A name from a file, safe to print: one line, no control characters, limited length."""
    plain = printable(name, one_line=True)
    return plain if len(plain) <= _LONGEST_NAME else plain[: _LONGEST_NAME - 1] + "…"
