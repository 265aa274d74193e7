"""What is known of one run, kept up to date from its files."""

from __future__ import annotations

import re
import socket
from collections import deque
from typing import Any

from c2d.web.columns import Columns
from c2d.web.inside import Root
from c2d.web.locks import Place, is_held
from c2d.web.plain import count, entry, number, text
from c2d.web.tail import Budget, Tail, parsed

# name of a column -> where it stands in a record
COLUMNS: dict[str, tuple[str, ...]] = {
    "steps": ("steps",),
    "frames": ("frames",),
    "score": ("mean_score",),
    "games": ("episodes",),
    "loss": ("mean_loss",),
    "atom_min": ("atom_min",),
    "atom_max": ("atom_max",),
    "gradient": ("gradient_norm_max",),
    "alpha": ("alpha",),
    "epsilon": ("epsilon",),
    "speed": ("measured", "steps_per_second"),
    "memory": ("measured", "peak_memory_mb"),
}
CHECKPOINT = re.compile(r"[0-9]{12}")  # as training/checkpoint.py names them
WEIGHTS = "weights"  # the newest weights, beside the checkpoints
_SPARK = 40  # points of the small curve in the table
_FRESH = 120.0  # seconds without a sign after which a process on another machine counts as gone
_WINDOW = 60.0  # seconds over which speed is observed between records
_MOST = 20_000  # records kept of a run


class Run:
    """One run directory. `refresh` looks whether its files changed and reads only what is new."""

    def __init__(self, root: Root, name: str) -> None:
        self.root, self.name = root, name  # relative to the root, "." for the root itself
        self._records = Tail(root, name, "records.jsonl")
        self._events = Tail(root, name, "events.jsonl")
        self._small: dict[str, tuple[tuple[int, int, int] | None, dict[str, Any]]] = {}
        self._looked: set[str] = set()  # small files looked at since the last refresh
        self._episodes_mark: tuple[int, int] | None = None
        self._seen: deque[tuple[float, int]] = deque(maxlen=120)  # (time, step) as observed
        self.header: dict[str, Any] = {}
        self.columns = Columns((*COLUMNS, "updates", "hours"), _MOST)
        self.events: list[dict[str, Any]] = []
        self.damaged = 0  # lines that could not be read
        self.taken = 0  # lines read in the last look
        self.last_game_step = 0
        self.checkpoints: list[str] = []
        self._checkpoints_changed: int | None = None
        self._score: float | None = None  # of the last iteration in which games ended
        self._best: float | None = None
        self._spark: tuple[int, list[float]] = (0, [])  # made of so many records
        self.restarts = 0
        self._locked = False  # whether a process here holds its lock

    # ------------------------------------------------------------------- reading

    def refresh(self, locks: frozenset[Place], now: float, budget: Budget | None = None) -> None:
        """`locks`: files that are locked. `budget`: what may be read; the rest is read in the next looks."""
        budget = Budget() if budget is None else budget
        left = budget.lines
        self._looked.clear()
        self._take_records(budget)
        self._take_events(budget)
        self.taken = left - budget.lines
        self._take_last_game()
        changed = self.root.directory_changed(self.name, "checkpoints")
        if changed != self._checkpoints_changed:
            self._checkpoints_changed = changed
            self.checkpoints = [n for n in self.root.directories(self.name, "checkpoints") if CHECKPOINT.fullmatch(n)]
        lock = self.root.stat(self.name, "lock")
        self._locked = lock is not None and is_held(f"{self.root.path}/{self.name}/lock", lock, locks)
        if self.reading:
            self._seen.clear()  # what is read moves faster than the run
        elif not self._seen or self._seen[-1][1] != self.steps:
            self._seen.append((now, self.steps))

    def _take_records(self, budget: Budget) -> None:
        lines = self._records.advance(budget)
        if self._records.restarts != self.restarts:  # resumed: the file was written anew
            self.restarts, self.damaged = self._records.restarts, 0
            self.header = {}
            self.columns.clear()
            self._score = self._best = None
            self._spark = (0, [])
            self._seen.clear()
        for line in lines:
            record = parsed(line)
            if record is None:
                self.damaged += bool(line)
            elif record.get("kind") == "run":
                self.header = record
            elif record.get("kind") == "iteration" and number(record, "steps") is not None:
                self._add(record)
            else:
                self.damaged += 1

    def _add(self, record: dict[str, Any]) -> None:
        if (score := number(record, "mean_score")) is not None:
            self._score = score
            self._best = score if self._best is None else max(self._best, score)
        values = {name: number(record, *keys) for name, keys in COLUMNS.items()}
        for name, more in (
            ("updates", count(record, "updates")),
            ("hours", (number(record, "measured", "seconds") or 0.0) / 3_600),
        ):
            values[name] = (self.columns.last(name) or 0) + more
        self.columns.add(values)

    def _take_events(self, budget: Budget) -> None:
        before = self._events.restarts
        lines = self._events.advance(budget)
        if self._events.restarts != before:
            self.events = []
        self.events += [event for line in lines if (event := parsed(line)) is not None]
        del self.events[:-1_000]

    def _take_last_game(self) -> None:
        info = self.root.stat(self.name, "episodes.csv")
        mark = None if info is None else (info.st_size, info.st_mtime_ns)
        if mark == self._episodes_mark:
            return
        self._episodes_mark = mark
        try:
            end = self.root.read_end(self.name, "episodes.csv", count=4_096)
            self.last_game_step = int(end.rpartition(b"\n")[0].rpartition(b"\n")[2].split(b",")[1])
        except (OSError, ValueError, IndexError):
            self.last_game_step = 0

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

    # ------------------------------------------------------------------ telling

    @property
    def trouble(self) -> str | None:
        """Why its records cannot be read, if so."""
        return self._records.trouble

    @property
    def reading(self) -> bool:
        """Whether more of its files waits for the next look."""
        return self._records.behind or self._events.behind

    @property
    def config(self) -> dict[str, Any]:
        from c2d.config import upgraded

        found = self.small("config.json") or entry(self.header, "config")
        return upgraded(found) if isinstance(found, dict) else {}

    @property
    def steps(self) -> int:
        recorded = int(self.columns.last("steps") or 0)
        return max(recorded, self.last_game_step, count(self.small("summary.json"), "steps"))

    @property
    def total(self) -> int:
        return count(self.config, "iterations") * count(self.config, "recipe", "schedule", "steps_per_iteration")

    def state(self, now: float) -> str:
        """running, finished, failed or stopped."""
        if self._locked or self._alive_elsewhere(now):
            return "running"
        told = text(self.small("summary.json"), "state")
        if self.total and self.steps >= self.total:
            return "finished"
        return "failed" if told == "failed" else "stopped"

    def _alive_elsewhere(self, now: float) -> bool:
        """A process on another machine that shares the disk shows only by what it writes."""
        lock, games = self.root.stat(self.name, "lock"), self.root.stat(self.name, "episodes.csv")
        if lock is None or games is None or now - games.st_mtime > _FRESH:
            return False
        try:
            return _host() not in self.root.read_end(self.name, "lock", count=300).decode(errors="replace")
        except OSError:
            return False

    def speed(self, state: str) -> float | None:
        """Agent steps per second: as observed while it runs, else as last recorded."""
        recorded = self.columns.last("speed")
        if state == "running" and len(self._seen) > 1:
            (first, begin), (last, end) = (
                next(s for s in self._seen if s[0] >= self._seen[-1][0] - _WINDOW),
                self._seen[-1],
            )
            if last - first >= 5.0 and end > begin:
                return (end - begin) / (last - first)
        return recorded

    def row(self, now: float) -> dict[str, Any]:
        """What the table shows."""
        config, state = self.config, self.state(now)
        speed, records = self.speed(state), self.columns.count
        if self._spark[0] != records:
            scores = [score for score in self.columns.values["score"] if score is not None]
            self._spark = (records, _thin(scores, _SPARK))
        left = max(0, self.total - self.steps)
        summary = self.small("summary.json")
        return {
            "id": self.name,
            "name": self.name if self.name != "." else self.root.path.name,
            "env": text(config, "env", default="unknown"),
            "recipe": text(config, "recipe_name", default="unknown"),
            "seed": number(config, "seed"),
            "protocol": text(config, "protocol"),
            "state": state,
            "resumable": state in ("stopped", "failed") and bool(self.checkpoints),
            "steps": self.steps,
            "total": self.total,
            "frames_per_step": count(self.small("env.json"), "frames_per_step") or 1,
            "score": self._score,
            "best": self._best,
            "games": self.columns.last("games"),
            "speed": speed,
            "eta": left / speed if state == "running" and speed else None,
            "started": number(self.header, "measured", "started"),
            "records": records,
            "reading": self.reading,
            "restarts": self.restarts,
            "spark": self._spark[1],
            "error": text(summary, "error") if state == "failed" else "",
            "warnings": self.damaged + sum(event.get("event") == "warning" for event in self.events),
            "weights": self.root.stat(self.name, "weights.safetensors") is not None,
        }


def _thin(values: list[float], most: int) -> list[float]:
    if len(values) <= most:
        return list(values)
    return [values[round(k * (len(values) - 1) / (most - 1))] for k in range(most)]


def _host() -> str:
    return f" on {socket.gethostname()}"
