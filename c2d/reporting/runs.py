"""What a run left on disk, as plain values. Needs no torch and no emulator."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from c2d.errors import UserError
from c2d.files import LINES, SMALL, kind_of, load_json, read_file, read_json
from c2d.words import printable

_HEADER = ("config", "passport", "versions", "measured")
_LARGEST = 1e15  # no figure of a record is beyond this
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
    iterations: tuple[dict[str, Any], ...]  # whole iterations in order
    summary: dict[str, Any] | None  # None while the run goes on, or when it was killed

    @property
    def name(self) -> str:
        return self.path.resolve().name

    @property
    def config(self) -> dict[str, Any]:
        config: dict[str, Any] = self.header["config"]
        return config

    @property
    def steps_per_second(self) -> float | None:
        """Agent steps per second over all whole iterations; None before the first."""
        seconds = sum(record["measured"]["seconds"] for record in self.iterations)
        return self.iterations[-1]["steps"] / seconds if seconds else None


def read_run(path: Path) -> RunRecords:
    """Read a run directory, even one that is still being written."""
    file = path / "records.jsonl"
    text = _text(path, file)
    lines = [_line(file, number, line) for number, line in enumerate(text.splitlines(), 1) if line]
    if not lines or lines[0].get("kind") != "run":
        raise UserError(f'{file} cannot be used: its first line must be of kind "run", as `c2d train` writes it')
    _require(file, 1, lines[0], _HEADER)
    for number, record in enumerate(lines[1:], 2):
        _require(file, number, record, (*_ITERATION, "measured"))
    return RunRecords(path, lines[0], tuple(lines[1:]), _summary(path / "summary.json"))


def _line(file: Path, number: int, line: str) -> dict[str, Any]:
    try:
        value = load_json(line)
    except ValueError as error:
        raise UserError(f"{file} is damaged in line {number}: {error}") from None
    if not isinstance(value, dict):
        raise UserError(f"{file} is damaged in line {number}: it holds no record")
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
        raise UserError(f"{file} cannot be read: it holds no summary")
    return value


def read_what_is_there(path: Path) -> tuple[RunRecords, list[str]]:
    """As `read_run`, but damaged lines are skipped; each leaves a note that names it."""
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
            notes.append(f"{error}; the line is skipped")
    if header is None:
        header = {"config": _object(path / "config.json"), "passport": _object(path / "passport.json")}
        notes.append(f"{file} has no usable first line: config.json and passport.json are used instead")
    ordered = _increasing(file, [iterations[number] for number in sorted(iterations)], notes)
    if len(notes) > 3:
        notes = [*notes[:2], f"{file}: {len(notes)} lines are damaged and skipped in all"]
    return RunRecords(path, header, ordered, _summary(path / "summary.json")), notes


def _increasing(file: Path, records: list[dict[str, Any]], notes: list[str]) -> tuple[dict[str, Any], ...]:
    """Without those whose steps do not go on from the iteration before."""
    kept: list[dict[str, Any]] = []
    for record in records:
        if record["steps"] > (kept[-1]["steps"] if kept else 0):
            kept.append(record)
        else:
            notes.append(f"{file}: iteration {record['iteration']} has too few steps; it is skipped")
    return tuple(kept)


def _plausible(file: Path, number: int, record: dict[str, Any]) -> int:
    """The iteration a line tells of, if its figures are figures."""
    _require(file, number, record, ("iteration", "steps", "mean_score"))
    for key in ("iteration", "steps", "frames", "mean_score", "atom_min", "atom_max"):
        value: Any = record.get(key)
        missing = value is None and key not in ("iteration", "steps")
        if not missing and (type(value) not in (int, float) or not abs(value) < _LARGEST):
            raise UserError(f'{file} is damaged in line {number}: "{key}" is no plausible number')
    return int(record["iteration"])


def _object(file: Path) -> dict[str, Any]:
    value = _summary(file)
    if value is None:
        raise UserError(
            f"{file.parent} is not a usable run directory: records.jsonl is damaged and {file.name} is missing"
        )
    return value


def _text(path: Path, file: Path, errors: str = "strict") -> str:
    """The whole lines of a record file."""
    if not path.is_dir():
        raise UserError(f"{path} is not a run directory: it does not exist or is a file")
    try:
        text = read_file(file, LINES, within=path).decode(errors=errors)
    except FileNotFoundError:
        raise UserError(f"{path} is not a run directory: it has no {file.name}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file} cannot be read: {error}") from None
    return text[: text.rfind("\n") + 1]  # a line without its end is being written now


def clean(name: str) -> str:
    """A name from a file, fit to print: no control characters, not too long."""
    plain = printable(name).replace("\n", "?")
    return plain if len(plain) <= _LONGEST_NAME else plain[: _LONGEST_NAME - 1] + "…"
