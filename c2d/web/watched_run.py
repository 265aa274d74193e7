"""What is known about one run, kept up to date from its files."""

from __future__ import annotations

import hashlib
import json
import re
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from c2d.config import FREE, upgraded
from c2d.recipes.recipe import epsilon_at, epsilon_ladder
from c2d.runs import layout
from c2d.runs.confined import Root, browser_safe, count, entry, number, text
from c2d.runs.lock import LONGEST, is_alive
from c2d.runs.reader import Budget, LineReader, PointReader, RecordReader, last_game_step, parse
from c2d.runs.records import MEASURED, charts, metrics

CHECKPOINT = re.compile(r"[0-9]{12}")  # as runs/checkpoints.py names them
NEWEST = "weights"  # the newest weights, among the checkpoints
MOST_ENVS = 4_096  # environments of a run
_SPARK = 40  # points of the small curve in the table
_WINDOW = 60.0  # seconds over which speed is observed between records
_MOST = 20_000  # records kept of a run
_MOST_POINTS = 2_000  # points between records that are kept of a run
_SUMMED = ("updates", "hours")  # columns that are sums over all iterations so far


class Columns:
    """Rows of numbers as one list per column, in bounded memory.

    Of very many rows every second one is left out, and so on, but never the last.
    """

    def __init__(self, names: Iterable[str], most: int) -> None:
        self.values: dict[str, list[float | None]] = {name: [] for name in names}
        self._most = most  # rows kept, an even number
        self.count = 0  # rows added
        self.stride = 1  # one row is kept of so many, and always the last
        self._first = next(iter(self.values.values()))

    def add(self, row: Mapping[str, float | None]) -> None:
        between = self.count > 0 and (self.count - 1) % self.stride != 0  # the last one gives way
        if not between and len(self._first) >= self._most:
            self.stride *= 2
            for column in self.values.values():
                del column[1::2]
        for name, value in row.items():
            self.values[name][len(self.values[name]) - between :] = [value]
        self.count += 1

    def last(self, name: str) -> float | None:
        return self.values[name][-1] if self.values[name] else None

    def clear(self) -> None:
        for column in self.values.values():
            column.clear()
        self.count, self.stride = 0, 1


def chart_list() -> list[dict[str, Any]]:
    """The charts of the page: every metric that the schema of records draws."""
    return [
        {
            "title": chart.title,
            "unit": chart.unit,
            "color": chart.color,
            "curves": [{"column": metric.name, "label": metric.title} for metric in drawn],
        }
        for chart, drawn in charts().items()
    ]


def _column_names() -> dict[str, None]:
    return dict.fromkeys((*(metric.name for metric in metrics()), *_SUMMED))


class Points:
    """What a run recorded between its iterations. Read when a page asks for it, not in every refresh."""

    def __init__(self, root: Root, name: str) -> None:
        self._reader = PointReader(root, name)
        self._metrics = metrics()
        self._restarts = 0
        self._hours, self._last = 0.0, (0.0, 0.0)  # before the iteration of the last point; that iteration, its hours
        self.columns = Columns(_column_names(), _MOST_POINTS)

    @property
    def behind(self) -> bool:
        return self._reader.behind

    def read(self, budget: Budget) -> None:
        points = self._reader.advance(budget)
        if self._reader.restarts != self._restarts:  # resumed: the file was written again
            self._restarts = self._reader.restarts
            self.columns.clear()
            self._hours, self._last = 0.0, (0.0, 0.0)
        for point in points:
            values = {metric.name: number(point, *metric.path) for metric in self._metrics}
            iteration, hours = values["iteration"] or 0.0, (number(point, MEASURED, "seconds") or 0.0) / 3_600
            if iteration != self._last[0]:
                self._hours += self._last[1]
            self._last = iteration, hours
            updates = (self.columns.last("updates") or 0) + count(point, "updates")
            self.columns.add({**values, "updates": updates, "hours": self._hours + hours})


def joined(records: Columns, points: Columns) -> dict[str, list[float | None]]:
    """The points; before the first of them, if the run was begun without, its records."""
    first = next((step for step in points.values["steps"] if step is not None), None)
    steps = records.values["steps"]
    before = len(steps) if first is None else sum(step is not None and step < first for step in steps)
    last = {name: records.values[name][before - 1] or 0 for name in _SUMMED} if before else {}
    return {
        name: records.values[name][:before] + [None if value is None else value + last.get(name, 0) for value in column]
        for name, column in points.values.items()
    }


class WatchedRun:
    """One run directory. `refresh` looks whether its files changed and reads only what is new."""

    def __init__(self, root: Root, name: str) -> None:
        self.root, self.name = root, name  # relative to the root, "." for the root itself
        self._records = RecordReader(root, name)
        self._events = LineReader(root, name, layout.EVENTS)
        self._metrics = metrics()
        self._small: dict[str, tuple[tuple[int, int, int] | None, dict[str, Any]]] = {}
        self._looked: set[str] = set()  # small files looked at since the last refresh
        self._episodes_mark: tuple[int, int] | None = None
        self._lock_mark: tuple[int, int, int] | None = None
        self._holder = b""  # what its lock file says
        self._touched = 0.0  # when the holder last touched it
        self._observed: deque[tuple[float, int]] = deque(maxlen=120)  # (time, step)
        self.columns = Columns(_column_names(), _MOST)
        self._group: tuple[Any, str] = (None, "")  # by which config it was found
        self.events: list[dict[str, Any]] = []
        self.lines_read = 0  # in the last refresh
        self.last_game_step = 0
        self.checkpoints: list[str] = []
        self._checkpoints_changed: int | None = None
        self._score: float | None = None  # of the last iteration in which games ended
        self._best: float | None = None
        self._spark: tuple[int, list[float]] = (0, [])  # made of this number of records
        self.restarts = 0

    # ------------------------------------------------------------------- reading

    def refresh(self, now: float, budget: Budget | None = None) -> None:
        """`budget`: what may be read; the rest is read in the next refreshes."""
        budget = Budget() if budget is None else budget
        left = budget.lines
        self._looked.clear()
        self._read_records(budget)
        self._read_events(budget)
        self.lines_read = left - budget.lines
        self._read_last_game()
        changed = self.root.directory_changed(self.name, layout.CHECKPOINTS)
        if changed != self._checkpoints_changed:
            self._checkpoints_changed = changed
            names = self.root.directories(self.name, layout.CHECKPOINTS)
            self.checkpoints = [name for name in names if CHECKPOINT.fullmatch(name)]
        self._read_lock()
        if self.reading:
            self._observed.clear()  # what is read moves faster than the run
        elif not self._observed or self._observed[-1][1] != self.steps:
            self._observed.append((now, self.steps))

    def _read_records(self, budget: Budget) -> None:
        records = self._records.advance(budget)
        if self._records.restarts != self.restarts:  # resumed: the file was written again
            self.restarts = self._records.restarts
            self.columns.clear()
            self._score = self._best = None
            self._spark = (0, [])
            self._observed.clear()
        for record in records:
            self._add(record)

    def _add(self, record: dict[str, Any]) -> None:
        if (score := number(record, "mean_score")) is not None:
            self._score = score
            self._best = score if self._best is None else max(self._best, score)
        values = {metric.name: number(record, *metric.path) for metric in self._metrics}
        hours = (number(record, MEASURED, "seconds") or 0.0) / 3_600
        for name, more in zip(_SUMMED, (count(record, "updates"), hours), strict=True):
            values[name] = (self.columns.last(name) or 0) + more
        self.columns.add(values)

    def _read_events(self, budget: Budget) -> None:
        before = self._events.restarts
        lines = self._events.advance(budget)
        if self._events.restarts != before:
            self.events = []
        for line in lines:
            try:
                self.events.append(browser_safe(parse(line)))
            except ValueError:
                continue
        del self.events[:-1_000]

    def _read_last_game(self) -> None:
        info = self.root.stat(self.name, layout.EPISODES)
        mark = None if info is None else (info.st_size, info.st_mtime_ns)
        if mark == self._episodes_mark:
            return
        self._episodes_mark = mark
        try:
            self.last_game_step = last_game_step(self.root.read_end(self.name, layout.EPISODES, count=4_096))
        except OSError:
            self.last_game_step = 0

    def _read_lock(self) -> None:
        """Its content is read again only after it was touched."""
        info = self.root.stat(self.name, layout.LOCK)
        mark = None if info is None else (info.st_ino, info.st_size, info.st_ctime_ns)
        self._touched = 0.0 if info is None else info.st_mtime
        if mark != self._lock_mark:
            self._lock_mark = mark
            try:
                self._holder = self.root.read_end(self.name, layout.LOCK, count=LONGEST) if info is not None else b""
            except OSError:
                self._holder = b""

    def small(self, name: str) -> dict[str, Any]:
        """A small JSON file, looked at once per refresh and read again when it changed; {} if it cannot be read."""
        if name in self._looked:
            return self._small[name][1]
        self._looked.add(name)
        info = self.root.stat(self.name, name)
        mark = None if info is None else (info.st_ino, info.st_size, info.st_mtime_ns)
        if name not in self._small or self._small[name][0] != mark:
            try:
                value = self.root.read_json(self.name, name) if info else {}
            except (OSError, ValueError):
                value = {}
            self._small[name] = (mark, value)
        return self._small[name][1]

    # ------------------------------------------------------------------ what is known

    @property
    def trouble(self) -> str | None:
        """Why its records cannot be read; None if they can."""
        return self._records.trouble

    @property
    def reading(self) -> bool:
        """Whether more of its files waits for the next refresh."""
        return self._records.behind or self._events.behind

    @property
    def header(self) -> dict[str, Any]:
        safe: dict[str, Any] = browser_safe(self._records.header or {})
        return safe

    @property
    def damaged(self) -> int:
        """Lines of its records that cannot be read."""
        return self._records.damaged

    @property
    def damage(self) -> list[dict[str, Any]]:
        """The first of them."""
        return [{"line": line, "reason": reason[:200]} for line, reason in self._records.damage[:20]]

    @property
    def config(self) -> dict[str, Any]:
        config = self.small(layout.CONFIG) or entry(self.header, "config")
        return upgraded(config) if isinstance(config, dict) else {}

    @property
    def group(self) -> str:
        """Runs of one group differ in nothing but their seed, and in what changes no result."""
        config = self.config
        mark = self._small.get(layout.CONFIG, (None,))[0]
        if mark is None or self._group[0] != mark:
            same = {name: value for name, value in config.items() if name not in (*FREE, "seed")}
            text = json.dumps(same, sort_keys=True, default=str)
            self._group = (mark, hashlib.sha256(text.encode(errors="replace")).hexdigest()[:12])
        return self._group[1]

    @property
    def steps(self) -> int:
        recorded = int(self.columns.last("steps") or 0)
        return max(recorded, self.last_game_step, count(self.small(layout.SUMMARY), "steps"))

    @property
    def total(self) -> int:
        return count(self.config, "iterations") * count(self.config, "recipe", "schedule", "steps_per_iteration")

    @property
    def envs(self) -> int:
        """Environments that play, those of all actors together."""
        own, actors = count(self.config, "recipe", "envs"), max(1, count(self.config, "actors"))
        return max(1, min(own * actors, MOST_ENVS))

    @property
    def epsilons(self) -> list[float] | None:
        """ε of each environment by now; None if the settings do not say."""
        schedule = entry(self.config, "recipe", "schedule")
        first, last = (number(schedule, name) for name in ("epsilon_initial", "epsilon_min"))
        decay, ladder = count(schedule, "epsilon_decay_steps"), number(schedule, "epsilon_ladder") or 0.0
        if first is None or last is None or not (0 <= first <= 1 and 0 <= last <= 1 and ladder >= 0):
            return None
        kind, off = text(schedule, "epsilon_decay") or "linear", number(schedule, "epsilon_off_steps")
        now = epsilon_at(max(0, self.steps), first, last, decay, kind, off)
        if not (actors := count(self.config, "actors")):
            return epsilon_ladder(now, ladder, self.envs)
        noisy = entry(self.config, "recipe", "noisy") is True
        base = None if noisy else number(entry(self.config, "actor"), "epsilon")
        ladder = number(entry(self.config, "actor"), "epsilon_ladder") or 0.0
        if not (ladder >= 0 and (base is None or 0 <= base <= 1)):
            return None
        each = epsilon_ladder(now if base is None else base, ladder, min(actors, MOST_ENVS))
        return [value for value in each for _ in range(max(1, count(self.config, "recipe", "envs")))][: self.envs]

    def state(self, now: float) -> str:
        """running, finished, failed or stopped."""
        if is_alive(self._holder, self._touched, now):
            return "running"
        if self.total and self.steps >= self.total:
            return "finished"
        return "failed" if text(self.small(layout.SUMMARY), "state") == "failed" else "stopped"

    def speed(self, state: str) -> float | None:
        """Agent steps per second: as observed while it runs, else as last recorded."""
        recorded = self.columns.last("steps_per_second")
        if state == "running" and len(self._observed) > 1:
            last, end = self._observed[-1]
            first, begin = next(point for point in self._observed if point[0] >= last - _WINDOW)
            if last - first >= 5.0 and end > begin:
                return (end - begin) / (last - first)
        return recorded

    def row(self, now: float) -> dict[str, Any]:
        """What the table shows."""
        config, state = self.config, self.state(now)
        speed, records = self.speed(state), self.columns.count
        if self._spark[0] != records:
            scores = [score for score in self.columns.values["mean_score"] if score is not None]
            self._spark = (records, _thin(scores, _SPARK))
        left = max(0, self.total - self.steps)
        summary = self.small(layout.SUMMARY)
        return {
            "id": self.name,
            "name": self.name if self.name != "." else self.root.path.name,
            "env": text(config, "env", default="unknown"),
            "recipe": text(config, "recipe_name", default="unknown"),
            "seed": number(config, "seed"),
            "group": self.group,
            "protocol": text(config, "protocol"),
            "envs": self.envs,
            "state": state,
            "resumable": state in ("stopped", "failed") and bool(self.checkpoints),
            "steps": self.steps,
            "total": self.total,
            "frames_per_step": count(self.small(layout.ENV), "frames_per_step") or 1,
            "score": self._score,
            "best": self._best,
            "games": self.columns.last("episodes"),
            "speed": speed,
            "eta": left / speed if state == "running" and speed else None,
            "started": number(self.header, MEASURED, "started"),
            "records": records,
            "points": getattr(self.root.stat(self.name, layout.POINTS), "st_size", 0),
            "reading": self.reading,
            "restarts": self.restarts,
            "spark": self._spark[1],
            "error": text(summary, "error" if state == "failed" else "reason")
            if state in ("failed", "stopped")
            else "",
            "warnings": self.damaged + sum(event.get("event") == "warning" for event in self.events),
            "weights": self.root.stat(self.name, layout.WEIGHTS) is not None,
        }


def _thin(values: list[float], most: int) -> list[float]:
    if len(values) <= most:
        return list(values)
    return [values[round(k * (len(values) - 1) / (most - 1))] for k in range(most)]
