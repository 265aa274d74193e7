"""All runs below one directory, looked at again and again; only what changed is read."""

from __future__ import annotations

import csv
import io
import threading
import time
from typing import Any, NamedTuple

from c2d.web.inside import Root
from c2d.web.locks import held
from c2d.web.plain import entry, number, text
from c2d.web.run import WEIGHTS, Run

_DEPTH = 4  # directories between the root and a run
_MOST = 2_000  # runs
_SCAN = 5.0  # seconds between searches for new runs
_EPISODE_BYTES = 1 << 26
_EPISODE_POINTS = 1_500


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
        self._episodes: dict[str, tuple[Any, dict[str, Any]]] = {}

    def refresh(self) -> Change:
        """Look at every run once."""
        with self._lock:
            gone = self._scan() if time.monotonic() - self._scanned >= _SCAN else []
            locks, now = held(), time.time()
            changed = []
            for name, run in self.runs.items():
                run.refresh(locks, now)
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
            self._episodes.pop(name, None)
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

    def curves(self, name: str) -> dict[str, Any]:
        """Every column of the records, and how often they were begun anew."""
        run = self.runs[name]
        with self._lock:
            return {"restarts": run.restarts, "columns": {key: list(column) for key, column in run.columns.items()}}

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
                "records": {"count": run.records, "stride": run.stride},
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
        """Scores of whole games, thinned to what a chart can show, and their running mean over 100 games."""
        info = self.root.stat(name, "episodes.csv")
        mark = None if info is None else (info.st_ino, info.st_size, info.st_mtime_ns)
        known = self._episodes.get(name)
        if known is None or known[0] != mark:
            known = (mark, _games(self.root, name) if info else _EMPTY)
            self._episodes[name] = known
        return known[1]


_EMPTY: dict[str, Any] = {"count": 0, "step": [], "score": [], "mean": [], "length": []}


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


def _games(root: Root, name: str) -> dict[str, Any]:
    try:
        data = root.read(name, "episodes.csv", limit=_EPISODE_BYTES).decode(errors="replace")
    except OSError:
        return _EMPTY
    games = []
    for row in csv.reader(io.StringIO(data.rpartition("\n")[0])):
        try:
            games.append((int(row[1]), float(row[2]), int(row[3])))
        except (ValueError, IndexError):
            continue  # the header, or a damaged line
    total, means = 0.0, []
    for place, (_, score, _) in enumerate(games):
        total += score - (games[place - 100][1] if place >= 100 else 0.0)
        means.append(total / min(place + 1, 100))
    stride = max(1, -(-len(games) // _EPISODE_POINTS))
    kept = range(len(games) - 1, -1, -stride)[::-1]
    return {
        "count": len(games),
        "step": [games[k][0] for k in kept],
        "score": [_finite(games[k][1]) for k in kept],
        "length": [games[k][2] for k in kept],
        "mean": [_finite(means[k]) for k in kept],
    }


def _finite(value: float) -> float | None:
    return value if abs(value) < 1e300 else None  # not for NaN either
