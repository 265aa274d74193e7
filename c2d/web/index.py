"""All runs below one directory, looked at again and again; only what changed is read."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from c2d.web.columns import Columns
from c2d.web.inside import Root
from c2d.web.locks import held
from c2d.web.plain import entry, number, text
from c2d.web.run import WEIGHTS, Run
from c2d.web.tail import Budget, Tail

_DEPTH = 4  # directories between the root and a run
_MOST = 2_000  # runs
_SCAN = 5.0  # seconds between searches for new runs
_RECORDS = 10_000  # lines of records and events read in one look
_EPISODES = 50_000  # lines of games read for one answer
_EPISODE_POINTS = 1_500
_WINDOW = 100  # games over which a score is averaged


class Change(NamedTuple):
    """What is new since the last look."""

    rows: list[dict[str, Any]]
    gone: list[str]


class Index:
    """The runs of a directory. Safe to call from several threads."""

    def __init__(self, root: Root) -> None:
        self.root = root
        self.runs: dict[str, Run] = {}
        self.rows: dict[str, dict[str, Any]] = {}
        self._scanned = -_SCAN
        self._lock = threading.Lock()
        self._games: dict[str, Games] = {}

    def refresh(self) -> Change:
        """Look at every run once. A look reads so many lines at most, first of runs that had few the last time."""
        with self._lock:
            gone = self._scan() if time.monotonic() - self._scanned >= _SCAN else []
            locks, now, budget = held(), time.time(), Budget(_RECORDS)
            changed = []
            for name, run in sorted(self.runs.items(), key=lambda item: item[1].taken):
                run.refresh(locks, now, budget)
                row = run.row(now)
                if row != self.rows.get(name):
                    self.rows[name] = row
                    changed.append(row)
            return Change(changed, gone)

    def _scan(self) -> list[str]:
        self._scanned = time.monotonic()
        found = set(self._search(()))
        gone = [name for name in self.runs if name not in found]
        for name in gone:
            del self.runs[name]
            self.rows.pop(name, None)
            self._games.pop(name, None)
        for name in sorted(found - set(self.runs)):
            self.runs[name] = Run(self.root, name)
        return gone

    def _search(self, parts: tuple[str, ...]) -> list[str]:
        """Names of run directories at or below a directory; none inside another run."""
        files = self.root.files(*parts)
        if "config.json" in files or "records.jsonl" in files:
            return ["/".join(parts) or "."]
        if len(parts) == _DEPTH:
            return []
        found: list[str] = []
        for name in self.root.directories(*parts):
            if not name.startswith(".") and len(found) < _MOST:
                found += self._search((*parts, name))
        return found[:_MOST]

    def find(self, name: str) -> Run | None:
        """Only what a search of the directory has found."""
        return self.runs.get(name)

    # ------------------------------------------------------------------- one run

    @property
    def reading(self) -> bool:
        """Whether some run has more to read than one look allows."""
        return any(run.reading for run in self.runs.values())

    def curves(self, names: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Every column of the records of each run there is, and how often they were begun again."""
        with self._lock:
            found = {name: run for name in names if (run := self.runs.get(name)) is not None}
            return {
                name: {
                    "restarts": run.restarts,
                    "reading": run.reading,
                    "columns": {key: list(column) for key, column in run.columns.values.items()},
                }
                for name, run in found.items()
            }

    def detail(self, name: str) -> dict[str, Any]:
        """What the page of one run shows beside its curves."""
        from c2d.config import flat

        run = self.runs[name]
        with self._lock:
            config, header = run.config, run.header
            try:
                settings = flat(config)
            except (TypeError, AttributeError, RecursionError):
                settings = {}
            return {
                "row": self.rows.get(name) or run.row(time.time()),
                "settings": settings,
                "passport": run.small("passport.json"),
                "spec": run.small("env.json"),
                "summary": run.small("summary.json"),
                "versions": header.get("versions") if isinstance(header.get("versions"), dict) else {},
                "machine": header.get("measured") if isinstance(header.get("measured"), dict) else {},
                "events": run.events[-200:],
                "damaged": run.damaged,
                "records": {"count": run.columns.count, "stride": run.columns.stride},
                "trouble": run.trouble,
                "checkpoints": checkpoints_of(run),
                "evaluations": self._evaluations(run),
                "report": report_of(run) is not None,
            }

    def _evaluations(self, run: Run) -> list[dict[str, Any]]:
        found = []
        for file in self.root.files(run.name, "evaluations")[-20:]:
            value = run.small(f"evaluations/{file}") if file.endswith(".json") else {}
            if isinstance(value.get("summary"), dict):
                kept = {key: value.get(key) for key in ("steps", "epsilon", "seed", "env", "summary")}
                found.append({"file": file, "risk": _risk(value.get("risk")), **kept})
        return found

    def episodes(self, name: str) -> dict[str, Any]:
        """Scores of whole games, thinned to what a chart can show, and their running mean."""
        with self._lock:
            games = self._games.setdefault(name, Games(self.root, name))
            games.read(Budget(_EPISODES))
            return games.answer()


class Games:
    """The games of a run, followed as they are played."""

    def __init__(self, root: Root, name: str) -> None:
        self._tail = Tail(root, name, "episodes.csv")
        self._restarts = 0
        self._columns = Columns(("step", "score", "mean", "length"), _EPISODE_POINTS)
        self._recent: deque[float] = deque(maxlen=_WINDOW)

    def read(self, budget: Budget) -> None:
        lines = self._tail.advance(budget)
        if self._tail.restarts != self._restarts:
            self._restarts = self._tail.restarts
            self._columns.clear()
            self._recent.clear()
        for line in lines:
            try:
                _, step, score, length = line.split(b",")[:4]
                self._add(int(step), float(score), int(length))
            except ValueError:
                continue  # the header, or a damaged line

    def _add(self, step: int, score: float, length: int) -> None:
        finite = abs(score) < 1e300  # which NaN is not
        if finite:
            self._recent.append(score)
        mean = math.fsum(self._recent) / len(self._recent) if self._recent else None
        row = {"step": step, "score": score if finite else None, "mean": mean, "length": length}
        self._columns.add(row)

    def answer(self) -> dict[str, Any]:
        columns = {name: list(column) for name, column in self._columns.values.items()}
        return {"count": self._columns.count, "reading": self._tail.behind, **columns}


def _risk(record: Any) -> dict[str, Any] | None:
    """The same games by another criterion, if they were played: the mean score and what it differs by."""
    if not isinstance(record, dict) or not isinstance(rows := record.get("rows"), list):
        return None
    scores = [row for row in rows if text(row, "of") == "score" and text(row, "statistic") == "mean"]
    row = scores[0] if scores else {}
    low, high = (bounds if isinstance(bounds := entry(row, "interval"), list) else [None, None])[:2]
    return {
        "criterion": text(record, "criterion"),
        "mean": number(row, "by_criterion"),
        "difference": number(row, "difference"),
        "interval": [low, high],
    }


def checkpoints_of(run: Run) -> list[dict[str, Any]]:
    """What can be played: the newest weights, then checkpoints, newest first."""
    found: list[dict[str, Any]] = []
    info = run.root.stat(run.name, "weights.safetensors")
    if info is not None:
        found.append({"id": WEIGHTS, "time": info.st_mtime, "steps": None})
    for name in reversed(run.checkpoints):
        info = run.root.stat(run.name, "checkpoints", name, "tensors.safetensors")
        if info is not None:
            found.append({"id": name, "time": info.st_mtime, "steps": int(name)})
    return found


def report_of(run: Run) -> str | None:
    """Where a run keeps its report, as `c2d report RUN --out RUN/report` writes it; None if it has none."""
    return next((name for name in ("report/report.html", "report.html") if run.root.stat(run.name, name)), None)
