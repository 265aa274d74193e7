"""A plan in words, before it starts: what will run, and what it will take."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from c2d.formatting import duration, size, text_table
from c2d.sweep.directory import finished
from c2d.sweep.forecast import Need, Rates, makespan
from c2d.sweep.plan import Listing, PlannedRun

_MANY = 4  # environments; more are counted instead of listed


def plan_lines(listing: Listing, needs: dict[str, Need]) -> list[str]:
    """A table: one line per variant and environment, or per variant if there are many environments."""
    runs = listing.runs
    envs = list(dict.fromkeys(run.config.env for run in runs))
    groups: dict[tuple[str, str], list[PlannedRun]] = {}
    for run in runs:
        where = run.config.env if len(envs) <= _MANY else f"{len(envs)} environments"
        groups.setdefault((run.variant, where), []).append(run)
    cells = [("variant", "environment", "seeds", "steps", "finished", "time each")]
    for (variant, where), group in groups.items():
        seeds = ", ".join(dict.fromkeys(str(run.config.seed) for run in group))
        steps = _range(f"{run.config.steps:,}" for run in group)
        done = f"{sum(finished(run.config) for run in group)} of {len(group)}"
        each = [needs[run.name].seconds for run in group]
        known = [time for time in each if time is not None]
        cells.append((variant, where, seeds, steps, done, duration(sum(known) / len(known)) if known else "?"))
    lines = [f"  {line}" for line in text_table(cells, left=len(cells[0]))]
    if len(envs) > _MANY:
        lines += textwrap.wrap(f"environments: {', '.join(envs)}", 118, initial_indent="  ", subsequent_indent="    ")
    lines += [f"  {variant} is left out: the same as {other}" for variant, other in listing.same.items()]
    return lines


def forecast_lines(
    todo: Sequence[PlannedRun], needs: dict[str, Need], rates: Rates, slots: int, memory: int, disk: tuple[int, int]
) -> list[str]:
    """Time, memory and disk of what is left to do. `disk`: needed and free."""
    if not todo:
        return []
    largest = max(needs[run.name].memory for run in todo)
    at_once = sum(sorted((needs[run.name].memory for run in todo), reverse=True)[:slots])
    return [
        f"time    {_time(todo, needs, slots)}; {rates.source}",
        f"memory  up to {size(largest)} a run, {size(at_once)} with {slots} at once, {size(memory)} available",
        f"disk    up to {size(disk[0])}, {size(disk[1])} free",
    ]


def _time(todo: Sequence[PlannedRun], needs: dict[str, Need], slots: int) -> str:
    known = {run.name: needs[run.name].seconds for run in todo}
    times = [time for time in known.values() if time is not None]
    if len(times) < len(known):
        rest = f" for {len(times)} of {len(known)} runs, the others' speed is unknown" if times else ""
        return f"about {duration(makespan(times, slots))}{rest}" if times else "unknown"
    first = min(run.config.seed for run in todo)
    look = makespan([known[run.name] or 0.0 for run in todo if run.config.seed == todo[0].config.seed], slots)
    several = any(run.config.seed != first for run in todo)
    early = f", a first comparison (one seed of everything) after {duration(look)}" if several else ""
    return f"about {duration(makespan(times, slots))} with {slots} at once{early}"


def budget_line(todo: Sequence[PlannedRun], needs: dict[str, Need], slots: int, budget: float) -> str:
    """How far a budget reaches."""
    seeds = list(dict.fromkeys(run.config.seed for run in todo))
    reached = 0
    for count in range(1, len(seeds) + 1):
        times = [needs[run.name].seconds for run in todo if run.config.seed in seeds[:count]]
        if any(time is None for time in times):
            return f"budget  {duration(budget)}; how far it reaches is unknown until a rate is known"
        if makespan([time or 0.0 for time in times], slots) > budget:
            break
        reached = count
    whole = f"{reached} of {len(seeds)} seeds of everything" if reached else "not one seed of everything"
    return f"budget  {duration(budget)}: by the forecast, {whole}; then all is saved, and the same command goes on"


def _range(texts: object) -> str:
    found = list(dict.fromkeys(texts))  # type: ignore[call-overload]
    return found[0] if len(found) == 1 else f"{found[0]} … {found[-1]}"
