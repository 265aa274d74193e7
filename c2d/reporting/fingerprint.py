"""First iterations of runs beside those of the three published C2D seeds, as Markdown sections."""

from __future__ import annotations

import math
import shlex
import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

from c2d.errors import UserError
from c2d.reporting.commands import train_command
from c2d.reporting.likeness import gap, permutation_p, share_as_far
from c2d.reporting.published import QUANTITIES, early_iterations
from c2d.reporting.runs import RunRecords
from c2d.words import plural

AUTHORS_STEPS = 250_000  # agent steps in one of the authors' iterations
SEEDS = 3  # of the authors, per game
INSIDE = "inside the range of the seeds"


class Comparison(NamedTuple):
    """One figure of one iteration."""

    iteration: int
    quantity: str  # key of the record
    ours: float | None  # None: there was nothing to record
    seeds: tuple[float, ...]


def compare(run: RunRecords) -> list[Comparison]:
    """Every figure for which there are published ones."""
    published = early_iterations()[game_of(run)]
    return [
        Comparison(record["iteration"], quantity, record[quantity], published[record["iteration"]][quantity])
        for record in run.iterations
        if record["iteration"] in published
        for quantity in QUANTITIES
    ]


def verdict(ours: float, seeds: tuple[float, ...]) -> str:
    """Whether a value lies in the range of the seeds, else how far it is from the nearest."""
    if math.isnan(ours):
        return "outside: not a number"
    share = gap(ours, seeds)
    if share == 0:
        return INSIDE
    side = "below" if ours < min(seeds) else "above"
    far = f"{100 * share:.1f} %" if math.isfinite(share) else _number(abs(ours))
    return f"outside: {far} {side} the nearest seed"


def distance(ours: float, seeds: tuple[float, ...]) -> str:
    """Distance from the mean of the seeds, in standard deviations (n - 1) of the seeds."""
    gap, spread = ours - statistics.fmean(seeds), statistics.stdev(seeds)
    if math.isfinite(gap) and spread > 0:
        return f"{gap / spread:+.1f}"
    return "0.0" if gap == 0 else "–"


def section(run: RunRecords, out: str | None = None) -> str:
    """The section of one run, without the notes people add to it."""
    comparisons = compare(run)
    lines = [f"## {game_of(run)}: {run.name}", "", *_facts(run, out), ""]
    if comparisons:
        lines += [
            "| iteration | quantity | this run | seed 1 | seed 2 | seed 3 | verdict | distance | as far among seeds |",
            "|---:|---|---:|---:|---:|---:|---|---:|---:|",
            *map(_row, comparisons),
            "",
        ]
    for remark in _remarks(run, comparisons):
        lines += [remark, ""]
    return "\n".join(lines[:-1]) + "\n"


def together(runs: Sequence[RunRecords]) -> str:
    """The section of several runs that differ in their seeds only."""
    lines = [
        f"## {game_of(runs[0])}: {', '.join(run.name for run in runs)} together",
        "",
        "| iteration | quantity | these runs | published seeds | mean | of the seeds | p |",
        "|---:|---|---|---|---:|---:|---:|",
    ]
    figures: dict[tuple[int, str], list[Comparison]] = {}
    for one in (one for run in runs for one in compare(run)):
        figures.setdefault((one.iteration, one.quantity), []).append(one)
    for (iteration, quantity), found in figures.items():
        ours, seeds = [one.ours for one in found if one.ours is not None], found[0].seeds
        if not ours:
            continue
        several = [", ".join(map(_number, sorted(values))) for values in (ours, seeds)]
        means = [_number(statistics.fmean(values)) for values in (ours, seeds)]
        cells = [str(iteration), QUANTITIES[quantity], *several, *means, f"{permutation_p(ours, seeds):.2f}"]
        lines.append(f"| {' | '.join(cells)} |")
    ways = math.comb(len(runs) + SEEDS, SEEDS)
    lines += [
        "",
        f"p: share of the {ways} ways to split the figures of {plural(len(runs), 'run')} and {SEEDS} seeds whose means "
        f"differ at least as much (exact permutation test; the smallest possible is {_smallest_p(len(runs)):.2g}).",
    ]
    return "\n".join(lines) + "\n"


def _smallest_p(runs: int) -> float:
    """If all of one kind lie above all of the other; with equal numbers the exchanged split differs as much."""
    return (2 if runs == SEEDS else 1) / math.comb(runs + SEEDS, SEEDS)


def game_of(run: RunRecords) -> str:
    """The run's game, if it is one of those with published first iterations."""
    family, _, game = str(run.config["env"]).partition("/")
    if family != "atari" or game not in early_iterations():
        raise UserError(
            f"{run.path} is a run on {run.config['env']}, for which no first iterations are published; "
            f"games with published ones: {', '.join(sorted(early_iterations()))}"
        )
    return game


def _row(one: Comparison) -> str:
    cells = [str(one.iteration), QUANTITIES[one.quantity], _number(one.ours), *map(_number, one.seeds)]
    if one.ours is None:
        cells += ["no game ended" if one.quantity == "mean_score" else "not recorded", "–", "–"]
    else:
        share = share_as_far(one.quantity, one.iteration, one.ours, one.seeds)
        cells += [verdict(one.ours, one.seeds), distance(one.ours, one.seeds), f"{100 * share:.0f} %"]
    return f"| {' | '.join(cells)} |"


def _facts(run: RunRecords, out: str | None) -> list[str]:
    config, passport, measured = run.config, run.header["passport"], run.header["measured"]
    versions = ", ".join(f"{name} {version}" for name, version in run.header["versions"].items())
    speed = "–" if run.steps_per_second is None else f"{run.steps_per_second:.1f}"
    regenerate = ["c2d", "fingerprint", str(run.path), *(["--out", out] if out else [])]
    return [
        f"- Run: recipe {config['recipe']}, seed {config['seed']}, protocol {passport['protocol']} "
        f"[{passport['hash']}], {plural(len(run.iterations), 'whole iteration')}",
        f"- Versions: {versions}",
        f"- Measured: {speed} agent steps per second with {plural(measured['threads'], 'thread')} on "
        f"{measured['cpu']} ({plural(measured['cores'], 'core')})",
        f"- Commands: `{train_command({**config, 'run_dir': str(run.path)})}`, then `{shlex.join(regenerate)}`",
    ]


def _remarks(run: RunRecords, comparisons: list[Comparison]) -> list[str]:
    """What the reader of the table must know beyond it."""
    remarks = ["No iteration is complete yet: there is nothing to compare."]
    if comparisons:
        inside = sum(one.ours is not None and verdict(one.ours, one.seeds) == INSIDE for one in comparisons)
        remarks = [f"Inside the range of the seeds: {inside} of {len(comparisons)} figures."]
    steps = run.config["agent"]["schedule"]["steps_per_iteration"]
    if steps != AUTHORS_STEPS:
        remarks.append(f"Not comparable: an iteration here has {steps:,} steps, one of the authors' {AUTHORS_STEPS:,}.")
    if run.iterations and run.iterations[-1]["iteration"] not in early_iterations()[game_of(run)]:
        remarks.append("Later iterations of this run are left out: figures are published for the first ten only.")
    return remarks + _unfinished(run.summary, steps)


def _unfinished(summary: dict[str, Any] | None, steps: int) -> list[str]:
    if summary is None:
        return ["The run has not ended: later iterations may follow."]
    if not summary["unfinished_iteration"]:
        return []
    done = summary["steps"] - summary["iterations"] * steps
    reason = {"interrupted": "on request", "failed": "by an error"}.get(summary["state"], "early")
    return [
        f"The run was stopped {reason} in iteration {summary['iterations']}, after {done:,} of its {steps:,} "
        "steps: that iteration is unfinished and not compared."
    ]


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{int(value):,}" if math.isfinite(value) and value == int(value) else f"{value:.4g}"
