"""The directory of a sweep: run directories, the plan they belong to, and what happened to them.

DIR/sweep.json         every run planned so far, with its config and hash, and how it is to be run
DIR/sweep-events.jsonl started, lost, finished, failed, stopped: one line each
DIR/sweep.lock         held by the sweep at work
DIR/sweep.log          what Ray has to say
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

from c2d.config import Config, from_json, to_json
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
from c2d.runs.layout import RunDir
from c2d.runs.lock import holder
from c2d.sweep.plan import PlannedRun, check_run_name, fingerprint
from c2d.training.resume import differences

_FORMAT = 1


class Past(NamedTuple):
    """What the events say of one run."""

    event: str  # the last one
    lost: int  # times that its process or node died
    error: str | None
    where: str


class Known(NamedTuple):
    """A run of the sweep as its file has it."""

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
        self.mark = self.path / ".sweep-mark"

    def make(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"{self.path} cannot be made: {error.strerror}; choose another with --out") from None

    def active(self) -> str | None:
        """Who is at work on it."""
        return holder(self.lock)

    def tidy(self) -> None:
        """Remove what killed sweeps left half written. The lock is held."""
        remove_leftovers(self.path, f"{re.escape(self.file.name)}|{re.escape(self.mark.name)}")

    def new_token(self) -> str:
        """Written where workers that share the disk can see it."""
        token = secrets.token_hex(8)
        write_atomically(self.mark, token.encode())
        return token

    # ------------------------------------------------------------------------------------------------------ the plan

    def known(self) -> dict[str, Known]:
        """The runs planned so far, by name."""
        if kind_of(self.file) is None:
            raise UserError(f"{self.path} is no sweep: it has no {self.file.name} (give the directory of `c2d sweep`)")
        try:
            value = read_json(self.file, LINES, within=self.path)
            if value["format"] != _FORMAT:
                raise ValueError(f"it is of format {value['format']}; this version reads {_FORMAT}")
            found = {}
            for name, row in value["runs"].items():
                check_run_name(name)
                self._refuse_link(name)
                config: Config = replace(from_json(row["config"]), run_dir=str(self.path / name))
                found[name] = Known(str(row["variant"]), config)
            return found
        except (OSError, ValueError, KeyError, TypeError, AttributeError, UserError) as error:
            raise UserError(f"{self.file} cannot be read: {error}") from None

    def _refuse_link(self, name: str) -> None:
        if kind_of(self.path / name) not in (None, "directory"):
            raise UserError(f"{self.path / name} is a link or a file; the runs of a sweep are directories in its own")

    def remember(self, plan: str, runs: Iterable[PlannedRun]) -> None:
        """Add runs to the plan; those of the same name take the place of what was planned before."""
        rows = {}
        if kind_of(self.file) is not None:
            rows = {name: _row(known.variant, known.config) for name, known in self.known().items()}
        rows |= {run.name: _row(run.variant, run.config) for run in runs}
        write_json(self.file, {"format": _FORMAT, "plan": plan, "runs": rows})

    def refuse_other_runs(self, runs: Iterable[PlannedRun]) -> None:
        """A directory that holds a run with other settings under a planned name is not touched."""
        for run in runs:
            self._refuse_link(run.name)
            try:
                before = RunDir(run.config.directory).read_config()
            except UserError:
                continue  # none, or damaged: the run itself will tell
            found = differences(before, run.config)
            if found:
                raise UserError(
                    f"{run.config.directory} is a run with other settings ({'; '.join(found)}): "
                    "choose another directory with --out"
                )

    # ------------------------------------------------------------------------------------------------------ the past

    def tell(self, event: str, run: str, **facts: Any) -> None:
        line = {"time": time.time(), "event": event, "run": run, **facts}
        append_line(self.events, json.dumps(line, ensure_ascii=False) + "\n")

    def past(self) -> dict[str, Past]:
        """By the name of the run."""
        try:
            text = read_file(self.events, LINES, within=self.path).decode()
        except (OSError, UnicodeDecodeError):
            return {}
        found: dict[str, Past] = {}
        for each in text.rpartition("\n")[0].splitlines():
            try:
                line = load_json(each)
                name, event = str(line["run"]), str(line["event"])
            except (ValueError, KeyError, TypeError):
                continue
            before = found.get(name)
            lost = before.lost if before is not None and event != "planned" else 0
            where = str(line.get("where") or (before.where if before else ""))
            error = line.get("error")
            found[name] = Past(event, lost + (event == "lost"), None if error is None else str(error), where)
        return found


def _row(variant: str, config: Config) -> dict[str, Any]:
    return {"variant": variant, "hash": fingerprint(config), "config": to_json(replace(config, run_dir=None))}


def finished(config: Config) -> bool:
    """Whether the run has all its iterations."""
    return RunDir(config.directory).finished(config.iterations)
