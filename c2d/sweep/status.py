"""How a sweep stands, read from its directory, while it goes on or afterwards."""

from __future__ import annotations

from typing import Any, NamedTuple

from c2d.formatting import plural, printable, text_table
from c2d.sweep.directory import Known, Past, SweepDir, finished
from c2d.training.record import MEASURED, read_records

_LONGEST = 500  # characters of an error
_MANY = 60  # runs; of more only those are listed that need a look


class Row(NamedTuple):
    """One run."""

    name: str
    variant: str
    state: str  # done, running, waiting, stopped, failed
    iterations: str
    score: float | None
    rate: float | None
    lost: int
    error: str | None


def rows(sweep: SweepDir) -> list[Row]:
    """Every run planned so far."""
    past, active = sweep.past(), sweep.active() is not None
    return [_row(name, known, past.get(name), active) for name, known in sweep.known().items()]


def _row(name: str, known: Known, past: Past | None, active: bool) -> Row:
    try:
        records = read_records(known.config.directory / "records.jsonl")[1:]
    except (OSError, ValueError):
        records = []
    last = records[-1] if records and isinstance(records[-1], dict) else {}
    return Row(
        name,
        known.variant,
        _state(known, past, active),
        f"{len(records)}/{known.config.iterations}",
        last.get("mean_score"),
        _measured(last),
        past.lost if past else 0,
        past.error if past else None,
    )


def _measured(record: dict[str, Any]) -> Any:
    measured = record.get(MEASURED)
    return measured.get("steps_per_second") if isinstance(measured, dict) else None


def _state(known: Known, past: Past | None, active: bool) -> str:
    if finished(known.config):
        return "done"
    if past is None:
        return "stopped" if (known.config.directory / "config.json").is_file() else "waiting"
    if past.event == "failed":
        return "failed"
    if past.event in ("planned", "retry"):
        return "waiting"
    return "running" if active and past.event == "started" else "waiting" if active else "stopped"


def failed_names(sweep: SweepDir) -> set[str]:
    return {row.name for row in rows(sweep) if row.state == "failed"}


def lines(sweep: SweepDir) -> list[str]:
    """For people."""
    found = rows(sweep)
    counts = ", ".join(f"{sum(row.state == state for row in found)} {state}"
                       for state in ("done", "running", "waiting", "stopped", "failed"))  # fmt: skip
    who = sweep.active()
    text = [
        f"{sweep.path}: {plural(len(found), 'run')}: {counts}; "
        + (f"at work: {printable(who)}" if who else "nobody is at work on it")
    ]
    shown = found
    if len(found) > _MANY:
        shown = [row for row in found if row.state in ("running", "failed") or row.lost]
        text.append(f"of {len(found)} runs, those that run, failed or were lost once:")
    cells = [("run", "state", "iterations", "score", "steps/s", "lost", "")]
    for row in shown:
        numbers = (_number(row.score, 2), _number(row.rate, 0))
        cells.append((printable(row.name), row.state, row.iterations, *numbers, str(row.lost or ""), _error(row)))
    text += text_table(cells, left=len(cells[0]))
    failed = [row for row in found if row.state == "failed"]
    if failed:
        log = printable(sweep.path / failed[0].name / "log.txt")
        text.append(f"logs: {log} …; again: c2d sweep retry {sweep.path} --failed")
    return text


def _number(value: object, digits: int) -> str:
    """Records may come from anywhere: what is not a number is not shown."""
    return f"{value:.{digits}f}" if isinstance(value, int | float) else "–"


def _error(row: Row) -> str:
    return printable(row.error or "")[:_LONGEST]
