"""What a run left on disk, as plain values. Needs no torch and no emulator."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from c2d.errors import UserError

_HEADER = ("config", "passport", "versions", "measured")
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
    if not path.is_dir():
        raise UserError(f"{path} is no run directory: it does not exist or is a file")
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"{path} is no run directory: it has no {file.name}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file} cannot be read: {error}") from None
    whole = text[: text.rfind("\n") + 1]  # a line without its end is being written now
    lines = [_line(file, number, line) for number, line in enumerate(whole.splitlines(), 1) if line]
    if not lines or lines[0].get("kind") != "run":
        raise UserError(f'{file} cannot be used: its first line must be of kind "run", as `c2d train` writes it')
    _require(file, 1, lines[0], _HEADER)
    for number, record in enumerate(lines[1:], 2):
        _require(file, number, record, (*_ITERATION, "measured"))
    return RunRecords(path, lines[0], tuple(lines[1:]), _summary(path / "summary.json"))


def _line(file: Path, number: int, line: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except json.JSONDecodeError as error:
        raise UserError(f"{file} is damaged in line {number}: {error}") from None
    if not isinstance(value, dict):
        raise UserError(f"{file} is damaged in line {number}: it holds no record")
    return value


def _require(file: Path, number: int, record: dict[str, Any], keys: tuple[str, ...]) -> None:
    for key in keys:
        if key not in record:
            raise UserError(f'{file} is damaged in line {number}: "{key}" is missing')


def _summary(file: Path) -> dict[str, Any] | None:
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise UserError(f"{file} cannot be read: {error}") from None
    if not isinstance(value, dict):
        raise UserError(f"{file} cannot be read: it holds no summary")
    return value
