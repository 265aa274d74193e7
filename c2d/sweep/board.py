"""What is known of every run of a sweep while it goes on."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from c2d.sweep.forecast import Rates, makespan
from c2d.sweep.plan import PlannedRun

State = Literal["waiting", "running", "done", "failed", "stopped"]
STATES: tuple[State, ...] = ("done", "running", "waiting", "failed")
BUDGET = "the budget is used up"  # why a sweep stops
_SMOOTHING = 0.7


@dataclass
class Entry:
    """One run."""

    run: PlannedRun
    state: State = "waiting"
    starting: bool = False  # waits no more for a place, but for a process
    lost: int = 0  # times that its process or node died
    misplaced: int = 0  # times that it was sent to a node that was dead already
    steps: int = 0  # made, random ones included
    rate: float = 0.0  # steps per second of late
    score: float | None = None  # mean of the last whole iteration
    where: str = ""
    error: str | None = None
    seen: tuple[float, int] | None = field(default=None, repr=False)  # when news came last, and the steps then

    @property
    def total(self) -> int:
        """Steps of the whole run."""
        return self.run.config.steps + self.run.config.recipe.schedule.random_history

    def at(self, steps: int, score: float | None) -> None:
        """News of it."""
        now = time.monotonic()
        if self.seen is not None and steps > self.seen[1] and self.steps:
            rate = (steps - self.seen[1]) / max(now - self.seen[0], 1e-3)
            self.rate = rate if not self.rate else _SMOOTHING * self.rate + (1 - _SMOOTHING) * rate
        if self.seen is None or steps != self.seen[1]:
            self.seen = (now, steps)
        self.steps = steps
        self.score = self.score if score is None else score

    def leave(self, state: State, error: str | None = None) -> None:
        """It is not running any more, or not yet again."""
        self.state, self.error, self.rate, self.seen, self.starting = state, error, 0.0, None, False


class Board:
    """All runs, and what can be said of them together."""

    def __init__(self, entries: Sequence[Entry], rates: Rates) -> None:
        self.entries, self.rates = list(entries), rates
        self.slots = 1  # runs that go on at once
        self.notes: list[str] = []  # what happened, for people
        self.stopping: str | None = None  # why

    def of(self, state: State) -> list[Entry]:
        return [entry for entry in self.entries if entry.state == state]

    def count(self, state: State) -> int:
        return len(self.of(state))

    @property
    def rate(self) -> float:
        """Steps per second of all that runs."""
        return sum(entry.rate for entry in self.of("running"))

    def seconds_left(self) -> float | None:
        """None if no rate is known."""
        left = []
        for entry in (*self.of("running"), *self.of("waiting")):
            rate = entry.rate or self.rates.of(entry.run)
            if rate is None:
                known = [other.rate for other in self.of("running") if other.rate]
                if not known:
                    return None
                rate = sum(known) / len(known)
            left.append(max(entry.total - entry.steps, 0) / rate)
        return makespan(left, self.slots)
