"""The report: its sections, its numbers, and the directory they are written to."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from c2d.errors import UserError
from c2d.files import write_atomically
from c2d.reporting.page import Section, page
from c2d.reporting.tables import to_csv, to_latex


@dataclass(frozen=True)
class Report:
    """Everything that is written."""

    title: str
    facts: tuple[str, ...]  # what was compared and how, one line each
    notes: tuple[str, ...]
    sections: tuple[Section, ...]
    numbers: dict[str, Any] = field(default_factory=dict)


def write(report: Report, out: Path) -> list[Path]:
    """report.html, numbers.json, figures/*.svg and *.png, tables/*.csv and *.tex, each whole or not at all."""
    files: dict[str, bytes] = {
        "report.html": page(report.title, report.facts, report.notes, report.sections).encode(),
        "numbers.json": _json({"facts": report.facts, "notes": report.notes, **report.numbers}),
    }
    for section in report.sections:
        for kind, data in section.figure.items():
            files[f"figures/{section.name}.{kind}"] = data
        for table in section.tables:
            files[f"tables/{table.name}.csv"] = to_csv(table).encode()
            files[f"tables/{table.name}.tex"] = to_latex(table).encode()
    try:
        for directory in (out, out / "figures", out / "tables"):
            directory.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            write_atomically(out / name, data)
    except OSError as error:
        raise UserError(f"--out {out} cannot be written: {error.strerror}") from None
    return [out / name for name in files]


def _json(value: Any) -> bytes:
    return (json.dumps(_finite(value), indent=1, ensure_ascii=False) + "\n").encode()


def _finite(value: Any) -> Any:
    """JSON has no NaN: it becomes null."""
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    if isinstance(value, float):
        return None if value != value else round(value, 8)
    return value
