"""How a sweep stands, read from its directory, while it goes on or afterwards."""

from __future__ import annotations

from typing import NamedTuple

from c2d.files import kind_of
from c2d.sweep.directory import Known, Past, SweepDir, finished
from c2d.training.record import MEASURED, read_records
from c2d.words import plural

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
    last = records[-1] if records else {}
    measured = last.get(MEASURED)
    return Row(
        name,
        known.variant,
        _state(known, past, active),
        f"{len(records)}/{known.config.iterations}",
        _number(last.get("mean_score")),
        _number(measured.get("steps_per_second")) if isinstance(measured, dict) else None,
        past.lost if past else 0,
        past.error if past else None,
    )


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and abs(value) < 1e300 else None


def _state(known: Known, past: Past | None, active: bool) -> str:
    if finished(known.config):
        return "done"
    if past is None:
        return "stopped" if kind_of(known.config.directory / "config.json") == "file" else "waiting"
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
        + (f"at work: {who}" if who else "nobody is at work on it")
    ]
    shown = found
    if len(found) > _MANY:
        shown = [row for row in found if row.state in ("running", "failed") or row.lost]
        text.append(f"of {len(found)} runs, those that run, failed or were lost once:")
    cells = [("run", "state", "iterations", "score", "steps/s", "lost", "")]
    for row in shown:
        score = "–" if row.score is None else f"{row.score:.2f}"
        rate = "–" if row.rate is None else f"{row.rate:.0f}"
        cells.append((row.name, row.state, row.iterations, score, rate, str(row.lost or ""), row.error or ""))
    widths = [max(len(cell[k]) for cell in cells) for k in range(len(cells[0]))]
    text += ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]
    failed = [row for row in found if row.state == "failed"]
    if failed:
        text.append(f"logs: {sweep.path / failed[0].name / 'log.txt'} …; again: c2d sweep retry {sweep.path} --failed")
    return text
