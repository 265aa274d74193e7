"""How a sweep stands, read from its directory, while it goes on or afterwards."""

from __future__ import annotations

from typing import NamedTuple

from c2d.files import kind_of
from c2d.formatting import plural, printable, text_table
from c2d.runs.layout import LOG, RunDir
from c2d.runs.reader import read_iterations
from c2d.runs.records import MEASURED
from c2d.sweep.directory import Known, Past, SweepDir, finished

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
    records = read_iterations(known.config.directory)
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
    """Records may come from anywhere: what is not a number is not shown."""
    return float(value) if isinstance(value, int | float) and abs(value) < 1e300 else None


def _state(known: Known, past: Past | None, active: bool) -> str:
    if finished(known.config):
        return "done"
    if past is None:
        return "stopped" if kind_of(RunDir(known.config.directory).config) == "file" else "waiting"
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
        numbers = (_rounded(row.score, 2), _rounded(row.rate, 0))
        cells.append(
            (printable(row.name, one_line=True), row.state, row.iterations, *numbers, str(row.lost or ""), _error(row))
        )
    text += text_table(cells, left=len(cells[0]))
    failed = [row for row in found if row.state == "failed"]
    if failed:
        log = printable(sweep.path / failed[0].name / LOG)
        text.append(f"logs: {log} …; again: c2d sweep retry {sweep.path} --failed")
    return text


def _rounded(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _error(row: Row) -> str:
    return printable(row.error or "", one_line=True)[:_LONGEST]
