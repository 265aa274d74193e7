"""The fingerprint of a run: its first iterations compared with those of the published C2D seeds, as a Markdown page.

A command updates the page again and again while people's notes in it are kept:

    <!-- intro --> ... <!-- /intro -->
    <!-- section NAME --> ... <!-- notes --> people write here <!-- /notes --> <!-- /section NAME -->

Text outside these marks is kept as it is.
"""

from __future__ import annotations

import math
import re
import shlex
import statistics
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from c2d.config import Config, flat, to_json
from c2d.envs.protocols import PROTOCOLS, AtariRules
from c2d.errors import UserError
from c2d.files import LINES, read_text, write_atomically
from c2d.formatting import plural
from c2d.recipes.rows import RECIPES
from c2d.reporting.local_runs import agent_names
from c2d.reporting.published import QUANTITIES, early_iterations
from c2d.runs.reader import RunRecords

AUTHORS_STEPS = 250_000  # agent steps in one of the authors' iterations
SEEDS = 3  # of the authors, per game
INSIDE = "inside the range of the seeds"

INTRO = """# Fingerprint: first iterations compared with the published ones

Each section compares one training run with the three seeds that the paper's authors published for the same game
(data/supplementary of github.com/bjliaa/c2d, copied to `c2d/reporting/data/early_iterations.csv`).
An iteration is 250,000 agent steps, or 1M frames. Per iteration:

- mean loss: squared Cramér distance, averaged over the gradient steps;
- smallest and largest atom: of the predicted return distributions of the sampled actions in all training batches, in
  φ-space;
- largest gradient norm: before clipping;
- games ended, and mean score: complete training episodes, raw scores.

The verdict says whether a value lies in the range of the three seeds, or else its gap to the nearest seed, in percent
of that seed. The distance is measured from the mean of the seeds, in their standard deviations. A fourth seed of the
same kind would fall outside the range of three seeds half of the time. The last column compares with the seeds
themselves: the share of the 24 published seeds (eight games, same iteration) that lie at least as far from the range of
the other two seeds as this run lies from the range of two seeds.

To update a section, train with the command it gives (45 to 90 minutes per iteration, depending on the machine), then:

    c2d fingerprint RUN [RUN ...] --out {out}

Several runs that differ only in their seeds also get a joint section. The command rewrites everything except the text
between the marks for notes."""


class QuantityComparison(NamedTuple):
    """One quantity of one iteration."""

    iteration: int
    quantity: str  # key of the record
    ours: float | None  # None: nothing was recorded
    seeds: tuple[float, ...]


def compare_quantities(run: RunRecords) -> list[QuantityComparison]:
    """Every quantity with published values."""
    published = early_iterations()[game_of(run)]
    return [
        QuantityComparison(record["iteration"], quantity, record[quantity], published[record["iteration"]][quantity])
        for record in run.iterations
        if record["iteration"] in published
        for quantity in QUANTITIES
    ]


def verdict(ours: float, seeds: tuple[float, ...]) -> str:
    """Whether a value lies in the range of the seeds, or else how far it is from the nearest seed."""
    if math.isnan(ours):
        return "outside: NaN"
    share = relative_gap(ours, seeds)
    if share == 0:
        return INSIDE
    side = "below" if ours < min(seeds) else "above"
    far = f"{100 * share:.1f} %" if math.isfinite(share) else _number(abs(ours))
    return f"outside: {far} {side} the nearest seed"


def distance(ours: float, seeds: tuple[float, ...]) -> str:
    """Distance from the mean of the seeds, in standard deviations (n - 1) of the seeds."""
    difference, spread = ours - statistics.fmean(seeds), statistics.stdev(seeds)
    if math.isfinite(difference) and spread > 0:
        return f"{difference / spread:+.1f}"
    return "0.0" if difference == 0 else "–"


def all_sections(runs: dict[str, RunRecords], out: str | None = None) -> dict[str, str]:
    """A section per run, and one per agent and game with several runs of different seeds."""
    groups: dict[str, dict[int, RunRecords]] = {}
    for run, agent in zip(runs.values(), agent_names(list(runs.values()), []), strict=True):
        if run.iterations:
            groups.setdefault(f"{game_of(run)}, {agent}", {}).setdefault(run.config["seed"], run)
    joint = {f"{name}, together": list(group.values()) for name, group in groups.items() if len(group) > 1}
    return {name: section(run, out) for name, run in runs.items()} | {
        name: joint_section(group) for name, group in joint.items()
    }


def section(run: RunRecords, out: str | None = None) -> str:
    """The section of one run, without people's notes."""
    comparisons = compare_quantities(run)
    lines = [f"## {game_of(run)}: {run.name}", "", *_facts(run, out), ""]
    if comparisons:
        lines += [
            "| iteration | quantity | this run | seed 1 | seed 2 | seed 3 | verdict | distance | seeds as far |",
            "|---:|---|---:|---:|---:|---:|---|---:|---:|",
            *map(_row, comparisons),
            "",
        ]
    for remark in _remarks(run, comparisons):
        lines += [remark, ""]
    return "\n".join(lines[:-1]) + "\n"


def joint_section(runs: Sequence[RunRecords]) -> str:
    """The section of several runs that differ only in their seeds."""
    lines = [
        f"## {game_of(runs[0])}: {', '.join(run.name for run in runs)} together",
        "",
        "| iteration | quantity | these runs | published seeds | mean | mean of seeds | p |",
        "|---:|---|---|---|---:|---:|---:|",
    ]
    figures: dict[tuple[int, str], list[QuantityComparison]] = {}
    for one in (one for run in runs for one in compare_quantities(run)):
        figures.setdefault((one.iteration, one.quantity), []).append(one)
    for (iteration, quantity), comparisons in figures.items():
        ours, seeds = [one.ours for one in comparisons if one.ours is not None], comparisons[0].seeds
        if not ours:
            continue
        several = [", ".join(map(_number, sorted(values))) for values in (ours, seeds)]
        means = [_number(statistics.fmean(values)) for values in (ours, seeds)]
        cells = [str(iteration), QUANTITIES[quantity], *several, *means, f"{permutation_p(ours, seeds):.2f}"]
        lines.append(f"| {' | '.join(cells)} |")
    ways = math.comb(len(runs) + SEEDS, SEEDS)
    lines += [
        "",
        f"p: share of the {ways} ways to split the values of {plural(len(runs), 'run')} and {SEEDS} seeds whose means "
        f"differ at least as much (exact permutation test; the smallest possible p is {_smallest_p(len(runs)):.2g}).",
    ]
    return "\n".join(lines) + "\n"


def _smallest_p(runs: int) -> float:
    """If all values of one kind lie above all of the other; with equal counts the swapped split differs as much."""
    return (2 if runs == SEEDS else 1) / math.comb(runs + SEEDS, SEEDS)


def game_of(run: RunRecords) -> str:
    """The run's game; rejects games without published first iterations."""
    family, _, game = str(run.config["env"]).partition("/")
    if family != "atari" or game not in early_iterations():
        raise UserError(
            f"{run.path} is a run on {run.config['env']}, which has no published first iterations; "
            f"accepted: {', '.join(sorted(early_iterations()))}"
        )
    return game


def _row(one: QuantityComparison) -> str:
    cells = [str(one.iteration), QUANTITIES[one.quantity], _number(one.ours), *map(_number, one.seeds)]
    if one.ours is None:
        cells += ["no game ended" if one.quantity == "mean_score" else "not recorded", "–", "–"]
    else:
        share = share_at_least_as_far(one.quantity, one.iteration, one.ours, one.seeds)
        cells += [verdict(one.ours, one.seeds), distance(one.ours, one.seeds), f"{100 * share:.0f} %"]
    return f"| {' | '.join(cells)} |"


def _facts(run: RunRecords, out: str | None) -> list[str]:
    config, passport, measured = run.config, run.header["passport"], run.header["measured"]
    versions = ", ".join(f"{name} {version}" for name, version in run.header["versions"].items())
    speed = "–" if run.steps_per_second is None else f"{run.steps_per_second:.1f}"
    regenerate = ["c2d", "fingerprint", str(run.path), *(["--out", out] if out else [])]
    return [
        f"- Run: recipe {config['recipe_name']}, seed {config['seed']}, protocol {passport['protocol']} "
        f"[{passport['hash']}], {plural(len(run.iterations), 'complete iteration')}",
        f"- Versions: {versions}",
        f"- Measured: {speed} agent steps per second with {plural(measured['threads'], 'thread')} on "
        f"{measured['cpu']} ({plural(measured['cores'], 'core')})",
        f"- Commands: `{train_command({**config, 'run_dir': str(run.path)})}`, then `{shlex.join(regenerate)}`",
    ]


def _remarks(run: RunRecords, comparisons: list[QuantityComparison]) -> list[str]:
    """Remarks below the table."""
    remarks = ["No iteration is complete yet: there is nothing to compare."]
    if comparisons:
        inside = sum(one.ours is not None and verdict(one.ours, one.seeds) == INSIDE for one in comparisons)
        remarks = [f"Inside the range of the seeds: {inside} of {len(comparisons)} values."]
    steps = run.config["recipe"]["schedule"]["steps_per_iteration"]
    if steps != AUTHORS_STEPS:
        remarks.append(
            f"Not comparable: an iteration of this run has {steps:,} steps, one of the authors' {AUTHORS_STEPS:,}."
        )
    if run.iterations and run.iterations[-1]["iteration"] not in early_iterations()[game_of(run)]:
        remarks.append("Later iterations of this run are left out: only the first ten are published.")
    return remarks + _unfinished(run.summary, steps)


def _unfinished(summary: dict[str, Any] | None, steps: int) -> list[str]:
    if summary is None:
        return ["The run has not ended: more iterations may follow."]
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


# ---------------------------------------------------------------- how unusual a value is among the published seeds


def relative_gap(value: float, others: Sequence[float]) -> float:
    """Distance of a value from the range of the others, relative to the nearest of them; 0 inside the range."""
    low, high = min(others), max(others)
    if math.isnan(value):
        return math.inf
    if low <= value <= high:
        return 0.0
    nearest = low if value < low else high
    return abs(value - nearest) / abs(nearest) if nearest else math.inf


def share_at_least_as_far(quantity: str, iteration: int, value: float, seeds: Sequence[float]) -> float:
    """Share of the published seeds, on all games, that lie at least as far from the other two seeds as the value lies
    from two of its `seeds`: the mean over all pairs of these.
    """
    cells = [game[iteration][quantity] for game in early_iterations().values()]
    gaps = [relative_gap(cell[k], (*cell[:k], *cell[k + 1 :])) for cell in cells for k in range(len(cell))]
    return fmean(sum(one >= relative_gap(value, pair) for one in gaps) / len(gaps) for pair in combinations(seeds, 2))


def permutation_p(first: Sequence[float], second: Sequence[float]) -> float:
    """Exact two-sided permutation test: share of all splits whose means differ at least as much as the given ones."""
    both = (*first, *second)
    if not all(map(math.isfinite, both)):
        return math.nan
    count, total, every = len(first), math.fsum(both), range(len(both))
    even = total * count / len(both)  # sum of a part with the overall mean
    observed = abs(math.fsum(first) - even)
    splits = [abs(math.fsum(both[k] for k in places) - even) for places in combinations(every, count)]
    slack = 1e-9 * max(map(abs, both))  # equal splits, summed in a different order
    return sum(split >= observed - slack for split in splits) / len(splits)


# ------------------------------------------------------------------------- the command that repeats a recorded run


_ALWAYS = ("recipe", "iterations", "seed")
_HERE_ONLY = (
    "env",
    "run-dir",
    "device",
    "compile",
    "threads",
    "compress-replay",
    "tensorboard",
)  # do not change results, or are handled separately


def train_command(config: dict[str, Any]) -> str:
    """`c2d train` with every setting that differs from the game's defaults. `config` is in JSON form."""
    usual = Config(
        env=config["env"],
        recipe_name=config["recipe_name"],
        protocol=config["protocol"],
        rules=PROTOCOLS.get(config["protocol"], AtariRules()),
        recipe=RECIPES.get(config["recipe_name"], RECIPES["c2d"]),
    )
    before, now = flat(to_json(usual)), flat(config)
    words = ["c2d", "train", str(config["env"]).removeprefix("atari/")]
    for name, value in now.items():
        if name in _HERE_ONLY or name.startswith("checkpoint.") or (name not in _ALWAYS and before.get(name) == value):
            continue
        items = value if isinstance(value, list) else [value]
        words += [f"--{name}", *map(str, items)]
    if config["run_dir"] is not None:
        words += ["--run-dir", str(config["run_dir"])]
    return shlex.join(words)


# ------------------------------------------------------------------------------------ a page that keeps people's notes


_INTRO_MARKS = ("<!-- intro -->", "<!-- /intro -->")
_NOTE_MARKS = ("<!-- notes -->", "<!-- /notes -->")


def write_page(out: Path, sections: dict[str, str]) -> None:
    """Write the sections to a new page, or update the page that is there."""
    try:
        before = read_text(out, LINES) if out.exists() else None
        page = update_page(before, INTRO.format(out=out), sections, str(out))
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(out, page.encode())
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--out {out} cannot be written: {error}") from None


def update_page(page: str | None, intro: str, sections: dict[str, str], source: str = "the file") -> str:
    """`page` (None: a new one) with its intro and the given sections replaced and every note kept.

    Other sections stay; new ones go to the end. Rejects a page without the marks.
    """
    if page is None or not page.strip():
        page = "\n".join((*_INTRO_MARKS, ""))
    _check(page, source)
    page = _replace(page, _INTRO_MARKS, f"\n{intro.strip()}\n")
    for name, text in sections.items():
        marks = _marks(name)
        if marks[0] not in page:
            page = f"{page.rstrip()}\n\n{marks[0]}\n{marks[1]}\n"
        notes = _between(_between(page, marks), _NOTE_MARKS) or "\n"
        page = _replace(page, marks, f"\n{text.strip()}\n\n{_NOTE_MARKS[0]}{notes}{_NOTE_MARKS[1]}\n")
    return page


def _marks(name: str) -> tuple[str, str]:
    return f"<!-- section {name} -->", f"<!-- /section {name} -->"


def _between(page: str, marks: tuple[str, str]) -> str:
    return page.partition(marks[0])[2].partition(marks[1])[0]


def _replace(page: str, marks: tuple[str, str], inner: str) -> str:
    before, opening, rest = page.partition(marks[0])
    _, closing, after = rest.partition(marks[1])
    return f"{before}{opening}{inner}{closing}{after}"


def _check(page: str, source: str) -> None:
    """Reject a page with unmatched marks: replacing would lose text."""
    for opening, closing in [_INTRO_MARKS, *map(_marks, _names(page))]:
        if page.count(opening) != 1 or page.count(closing) != 1 or page.index(closing) < page.index(opening):
            raise UserError(
                f"{source} is not updated, to avoid losing text; accepted: a page with {opening} and {closing} exactly "
                "once, in this order. Fix it, or write to a new file"
            )
    for name in _names(page):
        part = _between(page, _marks(name))
        if part.count(_NOTE_MARKS[0]) != part.count(_NOTE_MARKS[1]) or part.count(_NOTE_MARKS[0]) > 1:
            raise UserError(
                f"{source} is not updated, to avoid losing notes; accepted: {_NOTE_MARKS[0]} and {_NOTE_MARKS[1]} once "
                f"each in section {name}. Fix it, or write to a new file"
            )


def _names(page: str) -> list[str]:
    return re.findall(r"<!-- /?section (.+?) -->", page)
