"""The directory of a sweep: its runs, the plan they belong to, what happened to them; its status, and what to retry.

DIR/sweep.json         every run planned so far, with its config and hash
DIR/sweep-events.jsonl planned, started, lost, finished, failed, stopped: one line each
DIR/sweep.lock         held by the active sweep
DIR/sweep.log          output of Ray
DIR/RUN/...            ordinary run directories
"""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from c2d.config import Config, from_json, to_json, validate
from c2d.envs.make import spec_of
from c2d.envs.names import require_trusted_env
from c2d.errors import UserError
from c2d.files import (
    LINES,
    append_line,
    kind_of,
    load_json,
    read_file,
    read_json,
    remove_leftovers,
    write_atomically,
    write_json,
)
from c2d.formatting import plural, printable, text_table
from c2d.runs.layout import LOG, RunDir
from c2d.runs.lock import holder
from c2d.runs.reader import read_iterations
from c2d.runs.records import MEASURED
from c2d.sweep.plan import ExpandedPlan, PlannedRun, check_run_name, config_hash
from c2d.training.resume import differences

_FORMAT = 1


class RunHistory(NamedTuple):
    """What the events say about one run."""

    event: str  # the last one
    lost: int  # times its process or node died
    error: str | None
    where: str


class PlannedConfig(NamedTuple):
    """A run of the sweep as stored in sweep.json."""

    variant: str
    config: Config

    @property
    def name(self) -> str:
        return self.config.directory.name


class SweepDir:
    """Paths and their contents. Nothing read here is executed."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.file = self.path / "sweep.json"
        self.events = self.path / "sweep-events.jsonl"
        self.lock = self.path / "sweep.lock"
        self.log = self.path / "sweep.log"
        self.marker = self.path / ".sweep-mark"

    def create(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"{self.path} cannot be created: {error.strerror}; choose another with --out") from None

    def active_process(self) -> str | None:
        """The process that holds the lock; None if there is none."""
        return holder(self.lock)

    def clean_up(self) -> None:
        """Remove the partial files that killed sweeps left. The caller holds the lock."""
        remove_leftovers(self.path, f"{re.escape(self.file.name)}|{re.escape(self.marker.name)}")

    def new_token(self) -> str:
        """A token in a file, by which workers recognize that they share the disk."""
        token = secrets.token_hex(8)
        write_atomically(self.marker, token.encode())
        return token

    # ------------------------------------------------------------------------------------------------------ the plan

    def planned(self) -> dict[str, PlannedConfig]:
        """The runs planned so far, by name."""
        if kind_of(self.file) is None:
            raise UserError(
                f"{self.path} is not a sweep: it has no {self.file.name}; give the directory of `c2d sweep`"
            )
        try:
            value = read_json(self.file, LINES, within=self.path)
            if value["format"] != _FORMAT:
                raise ValueError(f"it has format {value['format']}; this version reads {_FORMAT}")
            planned = {}
            for name, row in value["runs"].items():
                check_run_name(name)
                self._reject_link(name)
                config: Config = replace(from_json(row["config"]), run_dir=str(self.path / name))
                planned[name] = PlannedConfig(str(row["variant"]), config)
            return planned
        except (OSError, ValueError, KeyError, TypeError, AttributeError, UserError) as error:
            raise UserError(f"{self.file} cannot be read: {error}") from None

    def _reject_link(self, name: str) -> None:
        if kind_of(self.path / name) not in (None, "directory"):
            raise UserError(f"{self.path / name} is a link or a file; accepted: a directory inside the sweep's own")

    def save_plan(self, plan: str, runs: Iterable[PlannedRun]) -> None:
        """Add runs to the plan; one with the name of an earlier run replaces it."""
        rows = {}
        if kind_of(self.file) is not None:
            rows = {name: _stored(planned.variant, planned.config) for name, planned in self.planned().items()}
        rows |= {run.name: _stored(run.variant, run.config) for run in runs}
        write_json(self.file, {"format": _FORMAT, "plan": plan, "runs": rows})

    def reject_other_runs(self, runs: Iterable[PlannedRun]) -> None:
        """Reject directories that hold a run with other settings under a planned name."""
        for run in runs:
            self._reject_link(run.name)
            try:
                before = RunDir(run.config.directory).read_config()
            except UserError:
                continue  # missing, or damaged: the run itself reports it
            changed = differences(before, run.config)
            if changed:
                raise UserError(
                    f"{run.config.directory} is a run with other settings ({'; '.join(changed)}): "
                    "choose another directory with --out"
                )

    # -------------------------------------------------------------------------------------------------------- events

    def append_event(self, event: str, run: str, **facts: Any) -> None:
        line = {"time": time.time(), "event": event, "run": run, **facts}
        append_line(self.events, json.dumps(line, ensure_ascii=False) + "\n")

    def history(self) -> dict[str, RunHistory]:
        """By the name of the run."""
        try:
            text = read_file(self.events, LINES, within=self.path).decode()
        except (OSError, UnicodeDecodeError):
            return {}
        history: dict[str, RunHistory] = {}
        for each in text.rpartition("\n")[0].splitlines():
            try:
                line = load_json(each)
                name, event = str(line["run"]), str(line["event"])
            except (ValueError, KeyError, TypeError):
                continue
            before = history.get(name)
            lost = before.lost if before is not None and event != "planned" else 0
            where = str(line.get("where") or (before.where if before else ""))
            error = line.get("error")
            history[name] = RunHistory(event, lost + (event == "lost"), None if error is None else str(error), where)
        return history


def _stored(variant: str, config: Config) -> dict[str, Any]:
    return {"variant": variant, "hash": config_hash(config), "config": to_json(replace(config, run_dir=None))}


# ----------------------------------------------------------------------------------- reading the runs' own directories


def is_finished(config: Config) -> bool:
    """Whether the run has all its iterations."""
    return RunDir(config.directory).finished(config.iterations)


def _has_begun(config: Config) -> bool:
    return kind_of(RunDir(config.directory).config) == "file"


# ---------------------------------------------------------------------------------------------------------- status

_MAX_ERROR = 500  # characters
_MANY_RUNS = 60  # of more runs, only those that need attention are listed


class RunStatus(NamedTuple):
    """One line of the status table."""

    name: str
    variant: str
    state: str  # done, running, waiting, stopped, failed
    iterations: str
    score: float | None
    rate: float | None
    lost: int
    error: str | None


def run_statuses(sweep: SweepDir) -> list[RunStatus]:
    """Of every run planned so far."""
    history, active = sweep.history(), sweep.active_process() is not None
    return [_status(name, planned, history.get(name), active) for name, planned in sweep.planned().items()]


def _status(name: str, planned: PlannedConfig, history: RunHistory | None, active: bool) -> RunStatus:
    records = read_iterations(planned.config.directory)
    last = records[-1] if records else {}
    measured = last.get(MEASURED)
    return RunStatus(
        name,
        planned.variant,
        _state(planned.config, history, active),
        f"{len(records)}/{planned.config.iterations}",
        _number(last.get("mean_score")),
        _number(measured.get("steps_per_second")) if isinstance(measured, dict) else None,
        history.lost if history else 0,
        history.error if history else None,
    )


def _number(value: object) -> float | None:
    """None for anything that is not a number: records may come from anywhere."""
    return float(value) if isinstance(value, int | float) and abs(value) < 1e300 else None


def _state(config: Config, history: RunHistory | None, active: bool) -> str:
    if is_finished(config):
        return "done"
    if history is None:
        return "stopped" if _has_begun(config) else "waiting"
    if history.event == "failed":
        return "failed"
    if history.event in ("planned", "retry"):
        return "waiting"
    return "running" if active and history.event == "started" else "waiting" if active else "stopped"


def status_lines(sweep: SweepDir) -> list[str]:
    """The status of a sweep as text."""
    statuses = run_statuses(sweep)
    counts = ", ".join(f"{sum(status.state == state for status in statuses)} {state}"
                       for state in ("done", "running", "waiting", "stopped", "failed"))  # fmt: skip
    process = sweep.active_process()
    text = [
        f"{sweep.path}: {plural(len(statuses), 'run')}: {counts}; "
        + (f"active: {printable(process)}" if process else "no active process")
    ]
    shown = statuses
    if len(statuses) > _MANY_RUNS:
        shown = [status for status in statuses if status.state in ("running", "failed") or status.lost]
        text.append(f"of {len(statuses)} runs, those that are running, failed or were lost at least once:")
    cells = [("run", "state", "iterations", "score", "steps/s", "lost", "")]
    for status in shown:
        numbers = (_rounded(status.score, 2), _rounded(status.rate, 0))
        name, error = printable(status.name, one_line=True), printable(status.error or "", one_line=True)[:_MAX_ERROR]
        cells.append((name, status.state, status.iterations, *numbers, str(status.lost or ""), error))
    text += text_table(cells, left=len(cells[0]))
    failed = [status for status in statuses if status.state == "failed"]
    if failed:
        log = printable(sweep.path / failed[0].name / LOG)
        text.append(f"logs: {log} …; retry with: c2d sweep retry {sweep.path} --failed")
    return text


def _rounded(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


# ----------------------------------------------------------------------------------------------------------- retry


def runs_to_retry(
    path: Path, failed_only: bool, named_envs: tuple[str, ...], threads: int, device: str
) -> ExpandedPlan:
    """All runs of a sweep, or those that failed. Environment classes of the user's own must be in `named_envs`."""
    sweep = SweepDir(path)
    planned = sweep.planned()
    names = {status.name for status in run_statuses(sweep) if status.state == "failed"} if failed_only else set(planned)
    if not names:
        raise UserError(f"{path}: no run has failed")
    runs = []
    for name, row in planned.items():
        if name not in names:
            continue
        own = row.config.env.removeprefix("gym/")
        require_trusted_env(row.config.env, own if own in named_envs else None, "--envs ", row.config.rules)
        config = replace(row.config, threads=threads, device=device)
        validate(config)
        runs.append(PlannedRun(row.variant, config, spec_of(config.env, config.rules)))
    return ExpandedPlan(runs, {})
