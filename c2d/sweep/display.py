"""What users see of a sweep: the plan before the start, then progress: live in a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import textwrap
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from c2d.formatting import duration, printable, size, text_table
from c2d.runs.layout import RunDir
from c2d.sweep.directory import is_finished
from c2d.sweep.forecast import Rates, ResourceEstimate, makespan
from c2d.sweep.plan import ExpandedPlan, PlannedRun

Estimates = dict[str, ResourceEstimate]  # by the name of the run

# -------------------------------------------------------------------------------------------- before a sweep starts

_MANY_ENVS = 4  # more environments are counted instead of listed


def plan_lines(plan: ExpandedPlan, estimates: Estimates) -> list[str]:
    """A table: one line per variant and environment, or per variant if there are many environments."""
    envs = list(dict.fromkeys(run.config.env for run in plan.runs))
    groups: dict[tuple[str, str], list[PlannedRun]] = {}
    for run in plan.runs:
        env = run.config.env if len(envs) <= _MANY_ENVS else f"{len(envs)} environments"
        groups.setdefault((run.variant, env), []).append(run)
    cells = [("variant", "environment", "seeds", "steps", "finished", "time each")]
    for (variant, env), group in groups.items():
        seeds = ", ".join(dict.fromkeys(str(run.config.seed) for run in group))
        steps = _range(f"{run.config.steps:,}" for run in group)
        done = f"{sum(is_finished(run.config) for run in group)} of {len(group)}"
        times = [seconds for run in group if (seconds := estimates[run.name].seconds) is not None]
        cells.append((variant, env, seeds, steps, done, duration(sum(times) / len(times)) if times else "?"))
    lines = [f"  {line}" for line in text_table(cells, left=len(cells[0]))]
    if len(envs) > _MANY_ENVS:
        lines += textwrap.wrap(f"environments: {', '.join(envs)}", 118, initial_indent="  ", subsequent_indent="    ")
    lines += [f"  {variant} is omitted: identical to {other}" for variant, other in plan.duplicates.items()]
    return lines


def _range(texts: Iterable[str]) -> str:
    distinct = list(dict.fromkeys(texts))
    return distinct[0] if len(distinct) == 1 else f"{distinct[0]} … {distinct[-1]}"


def forecast_lines(
    todo: Sequence[PlannedRun], estimates: Estimates, rates: Rates, slots: int, memory: int, disk: tuple[int, int]
) -> list[str]:
    """Time, memory and disk of the remaining runs. `disk`: bytes needed and free."""
    if not todo:
        return []
    largest = max(estimates[run.name].memory for run in todo)
    at_once = sum(sorted((estimates[run.name].memory for run in todo), reverse=True)[:slots])
    return [
        f"time    {_time(todo, estimates, slots)}; {rates.source}",
        f"memory  up to {size(largest)} per run, {size(at_once)} with {slots} at once, {size(memory)} available",
        f"disk    up to {size(disk[0])}, {size(disk[1])} free",
    ]


def _time(todo: Sequence[PlannedRun], estimates: Estimates, slots: int) -> str:
    seconds = {run.name: estimates[run.name].seconds for run in todo}
    times = [time for time in seconds.values() if time is not None]
    if len(times) < len(seconds):
        rest = f" for {len(times)} of {len(seconds)} runs, the speed of the others is unknown" if times else ""
        return f"about {duration(makespan(times, slots))}{rest}" if times else "unknown"
    first_seed = todo[0].config.seed
    comparison = makespan([seconds[run.name] or 0.0 for run in todo if run.config.seed == first_seed], slots)
    several = any(run.config.seed != first_seed for run in todo)
    early = f", a first comparison (one seed of everything) after {duration(comparison)}" if several else ""
    return f"about {duration(makespan(times, slots))} with {slots} at once{early}"


def budget_line(todo: Sequence[PlannedRun], estimates: Estimates, slots: int, budget: float) -> str:
    """How many seeds a time budget covers."""
    seeds = list(dict.fromkeys(run.config.seed for run in todo))
    covered = 0
    for count in range(1, len(seeds) + 1):
        times = [estimates[run.name].seconds for run in todo if run.config.seed in seeds[:count]]
        if any(time is None for time in times):
            return f"budget  {duration(budget)}; what it covers is unknown until a rate is known"
        if makespan([time or 0.0 for time in times], slots) > budget:
            break
        covered = count
    whole = f"{covered} of {len(seeds)} seeds of everything" if covered else "not one seed of everything"
    return (
        f"budget  {duration(budget)}: by the forecast, {whole}; then everything is saved; rerun the command to resume"
    )


# -------------------------------------------------------------------------------------------------------- progress

State = Literal["waiting", "running", "done", "failed", "stopped"]
STATES: tuple[State, ...] = ("done", "running", "waiting", "failed")
BUDGET_USED = "the budget is used up"  # why a sweep stops
_SMOOTHING = 0.7


@dataclass
class RunProgress:
    """Progress of one run."""

    run: PlannedRun
    state: State = "waiting"
    starting: bool = False  # has a place, but its process has not started yet
    lost: int = 0  # times its process or node died
    misplaced: int = 0  # times it was sent to a node that was already dead
    steps: int = 0  # including random ones
    rate: float = 0.0  # recent steps per second
    score: float | None = None  # mean of the last whole iteration
    where: str = ""
    error: str | None = None
    last_report: tuple[float, int] | None = field(default=None, repr=False)  # time and steps

    @property
    def total(self) -> int:
        """Steps of the whole run."""
        return self.run.config.steps + self.run.config.recipe.schedule.random_history

    def update(self, steps: int, score: float | None) -> None:
        """Take in a report of the run."""
        now, last = time.monotonic(), self.last_report
        if last is not None and steps > last[1] and self.steps:
            rate = (steps - last[1]) / max(now - last[0], 1e-3)
            self.rate = rate if not self.rate else _SMOOTHING * self.rate + (1 - _SMOOTHING) * rate
        if last is None or steps != last[1]:
            self.last_report = (now, steps)
        self.steps = steps
        self.score = self.score if score is None else score

    def leave(self, state: State, error: str | None = None) -> None:
        """The run no longer runs: it ended, or it waits for a restart."""
        self.state, self.error, self.rate, self.last_report, self.starting = state, error, 0.0, None, False


class SweepProgress:
    """Progress of all runs."""

    def __init__(self, entries: Sequence[RunProgress], rates: Rates) -> None:
        self.entries, self.rates = list(entries), rates
        self.slots = 1  # runs at once
        self.notes: list[str] = []  # messages for the user
        self.stopping: str | None = None  # the reason

    def with_state(self, state: State) -> list[RunProgress]:
        return [entry for entry in self.entries if entry.state == state]

    def count(self, state: State) -> int:
        return len(self.with_state(state))

    @property
    def rate(self) -> float:
        """Steps per second of all running runs together."""
        return sum(entry.rate for entry in self.with_state("running"))

    def seconds_left(self) -> float | None:
        """None if no rate is known."""
        left = []
        for entry in (*self.with_state("running"), *self.with_state("waiting")):
            rate = entry.rate or self.rates.for_run(entry.run)
            if rate is None:
                known = [other.rate for other in self.with_state("running") if other.rate]
                if not known:
                    return None
                rate = sum(known) / len(known)
            left.append(max(entry.total - entry.steps, 0) / rate)
        return makespan(left, self.slots)


def summary(progress: SweepProgress) -> str:
    """Everything in one line."""
    starting = sum(entry.starting for entry in progress.entries)
    numbers = {state: progress.count(state) - starting * (state == "waiting") for state in STATES}
    counts = ", ".join(f"{number} {state}" for state, number in numbers.items())
    counts += f", {starting} starting" * (starting > 0)
    left = progress.seconds_left()
    eta = "…" if left is None else duration(left)
    end = f" | {progress.stopping}: saving all runs" if progress.stopping else f" | ETA {eta}"
    return f"{counts} | {progress.rate:,.0f} steps/s{end}"


def outcome_line(entry: RunProgress) -> str:
    """How a run ended, in one line."""
    deaths = f" (its process or node died {entry.lost} times)" if entry.lost > 1 else ""
    deaths = " (its process or node died once, resumed from its checkpoint)" if entry.lost == 1 else deaths
    score = "" if entry.score is None else f", score {entry.score:.2f}"
    if entry.state == "failed":
        return f"{entry.run.name}: failed: {entry.error}; log: {RunDir(entry.run.config.directory).log}{deaths}"
    if entry.state == "stopped":
        return f"{entry.run.name}: saved at step {entry.steps:,}"
    return f"{entry.run.name}: done{score}{deaths}"


# --------------------------------------------------------------------------------------------------------- display

_REFRESH = 0.5  # seconds between live updates
_LINE = 30.0  # seconds between lines when there is no terminal
_ROWS = 16  # runs shown one by one


class Display:
    """Prints the progress of a sweep."""

    def __init__(self, progress: SweepProgress, console: Console | None = None) -> None:
        self.progress = progress
        self.console = console or Console(file=sys.stdout, soft_wrap=True, highlight=False)
        self._live: Live | None = None
        self._last_shown = 0.0
        self._states = {entry.run.name: entry.state for entry in progress.entries}
        self._notes_shown = 0

    def __enter__(self) -> Display:
        if self.console.is_terminal:
            self._live = Live(
                console=self.console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False
            )
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()
        self._print_changes()

    def show(self, progress: SweepProgress) -> None:
        """To be called whenever something may have changed."""
        self._print_changes()
        now = time.monotonic()
        if now - self._last_shown < (_REFRESH if self._live else _LINE):
            return
        self._last_shown = now
        if self._live is not None:
            self._live.update(self._live_table(), refresh=True)
        else:
            self.console.print(summary(progress), markup=False)

    def _print_changes(self) -> None:
        for text in self.progress.notes[self._notes_shown :]:
            self.console.print(printable(text), markup=False, style="yellow")
        self._notes_shown = len(self.progress.notes)
        for entry in self.progress.entries:
            if entry.state == self._states[entry.run.name]:
                continue
            self._states[entry.run.name] = entry.state
            if entry.state in ("done", "failed", "stopped"):
                style = {"done": None, "failed": "red", "stopped": "yellow"}[entry.state]
                count = f"[{self.progress.count('done')}/{len(self.progress.entries)}]"
                self.console.print(printable(f"{count} {outcome_line(entry)}"), markup=False, style=style)

    def _live_table(self) -> Table:
        table = Table.grid(expand=True)
        table.add_row(Text(summary(self.progress), style="bold"))
        rows = Table.grid(padding=(0, 2))
        running = sorted(self.progress.with_state("running"), key=lambda entry: -entry.steps / entry.total)
        for entry in running[:_ROWS]:
            score = "" if entry.score is None else f"score {entry.score:.2f}"
            attempt = f"attempt {entry.lost + 1}" if entry.lost else ""
            bar = ProgressBar(total=entry.total, completed=entry.steps, width=20)
            rows.add_row(entry.run.name, bar, f"{entry.steps:,}", f"{entry.rate:.0f} steps/s", score, attempt)
        table.add_row(rows)
        if len(running) > _ROWS:
            table.add_row(f"… and {len(running) - _ROWS} more")
        return table
