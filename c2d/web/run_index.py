"""All runs below one directory, kept up to date for every open page. Only what changed is read.

Files are looked at only while a page is open or asks.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from c2d.config import flat
from c2d.files import SMALL
from c2d.runs import layout
from c2d.runs.confined import Root, entry, number, text
from c2d.runs.reader import Budget, LineReader, evaluations_in
from c2d.runs.records import MEASURED
from c2d.web.watched_run import MOST_ENVS, NEWEST, Columns, Points, WatchedRun, chart_list, joined

PERIOD = 1.0  # seconds between refreshes
_SOON = 0.1  # of it, while there is more to read than one refresh allows
_DEPTH = 4  # directories between the root and a run
_MOST = 2_000  # runs
_SCAN = 5.0  # seconds between searches for new runs
_RECORDS = 10_000  # lines of records and events read in one refresh
_EPISODES = 50_000  # lines of games read for one answer
_POINTS = 20_000  # and of points
_EPISODE_POINTS = 1_500
_WINDOW = 100  # games over which a score is averaged
_RECENT = 20  # likewise, of one environment
_LISTED = 256  # environments of a run that are listed


class Change(NamedTuple):
    """What is new since the last refresh."""

    rows: list[dict[str, Any]]
    gone: list[str]


class RunIndex:
    """The runs of a directory. Safe to call from several threads."""

    def __init__(self, root: Root) -> None:
        self.root = root
        self.runs: dict[str, WatchedRun] = {}
        self.rows: dict[str, dict[str, Any]] = {}
        self._scanned = -_SCAN
        self._lock = threading.Lock()
        self._games: dict[str, Games] = {}
        self._points: dict[str, Points] = {}

    def refresh(self) -> Change:
        """Look at every run once, within a budget of lines. Runs that had few new lines the last time come first."""
        with self._lock:
            gone = self._scan() if time.monotonic() - self._scanned >= _SCAN else []
            now, budget = time.time(), Budget(_RECORDS)
            changed = []
            for name, run in sorted(self.runs.items(), key=lambda item: item[1].lines_read):
                run.refresh(now, budget)
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
            self._points.pop(name, None)
        for name in sorted(found - set(self.runs)):
            self.runs[name] = WatchedRun(self.root, name)
        return gone

    def _search(self, parts: tuple[str, ...]) -> list[str]:
        """Names of run directories at or below a directory; none inside another run."""
        files = self.root.files(*parts)
        if layout.CONFIG in files or layout.RECORDS in files:
            return ["/".join(parts) or "."]
        if len(parts) == _DEPTH:
            return []
        found: list[str] = []
        for name in self.root.directories(*parts):
            if not name.startswith(".") and len(found) < _MOST:
                found += self._search((*parts, name))
        return found[:_MOST]

    def find(self, name: str) -> WatchedRun | None:
        """Only runs that a search of the directory has found."""
        return self.runs.get(name)

    # ------------------------------------------------------------------- one run

    @property
    def reading(self) -> bool:
        """Whether some run has more to read than one refresh allows."""
        return any(run.reading for run in self.runs.values())

    def curves(self, names: Sequence[str], columns: Collection[str] = (), fine: bool = False) -> dict[str, Any]:
        """Columns of the records of each run that exists, all or these, and how often the file was restarted.

        `fine`: the points between the records too; of long files a part at a time.
        """
        with self._lock:
            found = {name: run for name in names if (run := self.runs.get(name)) is not None}
            budget, answer = Budget(_POINTS), {}
            for name, run in found.items():
                values, reading = run.columns.values, run.reading
                if fine:
                    points = self._points.setdefault(name, Points(self.root, name))
                    points.read(budget)
                    values, reading = joined(run.columns, points.columns), reading or points.behind
                kept = {key: list(column) for key, column in values.items() if not columns or key in columns}
                answer[name] = {"restarts": run.restarts, "reading": reading, "columns": kept}
            return answer

    def detail(self, name: str) -> dict[str, Any]:
        """What the page of one run shows besides its curves."""
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
                "passport": run.small(layout.PASSPORT),
                "spec": run.small(layout.ENV),
                "summary": run.small(layout.SUMMARY),
                "versions": header.get("versions") if isinstance(header.get("versions"), dict) else {},
                "machine": header.get(MEASURED) if isinstance(header.get(MEASURED), dict) else {},
                "events": run.events[-200:],
                "charts": chart_list(),
                "damaged": run.damaged,
                "damage": run.damage,
                "records": {"count": run.columns.count, "stride": run.columns.stride},
                "trouble": run.trouble,
                "checkpoints": checkpoints_of(run, settings),
                "evaluations": self._evaluations(run),
                "report": report_of(run) is not None,
            }

    def _evaluations(self, run: WatchedRun) -> list[dict[str, Any]]:
        evaluations = _while_training(self.root, run.name)
        for file in self.root.files(run.name, layout.EVALUATIONS)[-20:]:
            value = run.small(f"{layout.EVALUATIONS}/{file}") if file.endswith(".json") else {}
            if isinstance(value.get("summary"), dict):
                kept = {key: value.get(key) for key in ("steps", "epsilon", "seed", "env", "summary")}
                evaluations.append({"file": file, "risk": _risk(value.get("risk")), **kept})
        return evaluations

    def episodes(self, name: str) -> dict[str, Any]:
        """Scores of whole games, thinned to what a chart can show, and their running mean; by environment, if a run
        has several, how they play."""
        with self._lock:
            games, run = self._games.setdefault(name, Games(self.root, name)), self.runs[name]
            games.read(Budget(_EPISODES))
            return {**games.answer(), "envs": games.by_environment(run.envs, run.epsilons) if run.envs > 1 else []}


def _while_training(root: Root, name: str) -> list[dict[str, Any]]:
    """The last evaluations that a run made by itself."""
    info = root.stat(name, layout.EVALUATED)
    if info is None or info.st_size > SMALL:
        return []
    return [
        {
            **{key: record[key] for key in ("steps", "epsilon")},
            "summary": {"games": record["games"], "mean": record["mean_score"]},
            "risk": None,
        }
        for record in evaluations_in(LineReader(root, name, layout.EVALUATED))[-20:]
    ]


class Games:
    """The games of a run, followed as they end."""

    def __init__(self, root: Root, name: str) -> None:
        self._lines = LineReader(root, name, layout.EPISODES)
        self._restarts = 0
        self._columns = Columns(("step", "score", "mean", "length", "env"), _EPISODE_POINTS)
        self._recent: deque[float] = deque(maxlen=_WINDOW)
        self._counts: dict[int, int] = {}  # environment -> its games
        self._scores: dict[int, deque[float]] = {}  # and the last of them

    def read(self, budget: Budget) -> None:
        lines = self._lines.advance(budget)
        if self._lines.restarts != self._restarts:
            self._restarts = self._lines.restarts
            self._columns.clear()
            for kept in (self._recent, self._counts, self._scores):
                kept.clear()
        for line in lines:
            try:
                _, step, score, length, *more = line.split(b",")
                self._add(int(step), float(score), int(length), int(more[0]) if more else 0)
            except ValueError:
                continue  # the header, or a damaged line

    def _add(self, step: int, score: float, length: int, env: int) -> None:
        if not 0 <= env < MOST_ENVS:
            raise ValueError(f"a game of environment {env}")
        finite = abs(score) < 1e300  # which NaN is not
        if finite:
            self._recent.append(score)
            self._scores.setdefault(env, deque(maxlen=_RECENT)).append(score)
        self._counts[env] = self._counts.get(env, 0) + 1
        row = {"step": step, "score": score if finite else None, "mean": _mean(self._recent), "length": length}
        self._columns.add({**row, "env": env})

    def answer(self) -> dict[str, Any]:
        columns = {name: list(column) for name, column in self._columns.values.items()}
        return {"count": self._columns.count, "reading": self._lines.behind, **columns}

    def by_environment(self, envs: int, epsilons: list[float] | None) -> list[dict[str, Any]]:
        """The first environments of a run: games, mean score of the last ones, the last score, ε."""
        listed = []
        for env in range(min(envs, _LISTED)):
            scores = self._scores.get(env, ())
            listed.append(
                {
                    "games": self._counts.get(env, 0),
                    "mean": _mean(scores),
                    "last": scores[-1] if scores else None,
                    "epsilon": None if epsilons is None else epsilons[env],
                }
            )
        return listed


def _mean(scores: Collection[float]) -> float | None:
    return math.fsum(scores) / len(scores) if scores else None


def _risk(record: Any) -> dict[str, Any] | None:
    """The same games by another criterion, if they were played: the mean score and its difference."""
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


def checkpoints_of(run: WatchedRun, settings: dict[str, Any]) -> list[dict[str, Any]]:
    """What can be played: the newest weights, then checkpoints, newest first, by training steps.

    Checkpoints are named by all steps; the random ones before training are made by all environments together.
    """
    envs, history = (settings.get(name) for name in ("envs", "schedule.random-history"))
    together = envs if type(envs) is int and envs > 0 else 1
    random_steps = -(-history // together) * together if type(history) is int and history > 0 else 0
    found: list[dict[str, Any]] = []
    info = run.root.stat(run.name, layout.WEIGHTS)
    if info is not None:
        found.append({"id": NEWEST, "time": info.st_mtime, "steps": None})
    for name in reversed(run.checkpoints):
        info = run.root.stat(run.name, layout.CHECKPOINTS, name, layout.TENSORS)
        if info is not None:
            found.append({"id": name, "time": info.st_mtime, "steps": max(0, int(name) - random_steps)})
    return found


def report_of(run: WatchedRun) -> str | None:
    """The report of a run, as `c2d report RUN --out RUN/report` writes it; None if it has none."""
    return next((name for name in layout.REPORTS if run.root.stat(run.name, name)), None)


# ---------------------------------------------------------------------------------------------------------- live


class Subscriber:
    """What one page has not received yet: the newest row of each run, so never more than there are runs."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}
        self.gone: set[str] = set()
        self.wake = asyncio.Event()

    def add(self, rows: list[dict[str, Any]], gone: list[str]) -> None:
        for row in rows:
            self.rows[row["id"]] = row
            self.gone.discard(row["id"])
        for name in gone:
            self.rows.pop(name, None)
            self.gone.add(name)
        if rows or gone:
            self.wake.set()

    async def next(self) -> dict[str, Any]:
        await self.wake.wait()
        self.wake.clear()
        message = {"kind": "runs", "rows": list(self.rows.values()), "gone": sorted(self.gone)}
        self.rows, self.gone = {}, set()
        return message


class LiveRows:
    """Sends changes of runs to every open page: one refresh per period for all of them together."""

    def __init__(self, index: RunIndex) -> None:
        self.index = index
        self.subscribers: set[Subscriber] = set()
        self._task: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def subscribe(self) -> AsyncIterator[Subscriber]:
        """A subscriber that receives every row first, then changes."""
        await asyncio.to_thread(self.index.refresh)
        subscriber = Subscriber()
        subscriber.add(list(self.index.rows.values()), [])
        subscriber.wake.set()  # an empty directory is also worth a message
        self.subscribers.add(subscriber)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._send())
        try:
            yield subscriber
        finally:
            self.subscribers.discard(subscriber)

    async def _send(self) -> None:
        while self.subscribers:
            await asyncio.sleep(PERIOD * (_SOON if self.index.reading else 1.0))
            change = await asyncio.to_thread(self.index.refresh)
            for subscriber in list(self.subscribers):
                subscriber.add(change.rows, change.gone)
