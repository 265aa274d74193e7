"""The results of `c2d sweep minatar` or `minatar-c2d`: a table with IQM and bootstrap intervals, and a figure.

c2d sweep minatar --seeds 2
python studies/minatar_study.py runs/minatar --out docs/results/minatar.md
c2d sweep minatar-c2d --seeds 1
python studies/minatar_study.py runs/minatar-c2d --plan minatar-c2d --out docs/results/minatar-c2d.md
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from c2d.config import from_json, upgraded
from c2d.files import write_atomically
from c2d.plotting import canvas, drawing, write_figure
from c2d.reporting.report_figures import line_styles
from c2d.reporting.run_statistics import intervals, iqm
from c2d.runs.reader import RunRecords, read_run
from c2d.sweep.plan import Plan, builtin_plan, multiply

LAST = 2  # final iterations over which scores are averaged
RESAMPLES = 2_000
TITLES = {"minatar": "The field on MinAtar", "minatar-c2d": "C2D on MinAtar with one setting changed at a time"}


def final_score(run: RunRecords) -> float:
    """Mean training score of the last iterations, weighted by games."""
    last = run.iterations[-LAST:]
    games = sum(r["episodes"] for r in last)
    return sum(r["mean_score"] * r["episodes"] for r in last if r["episodes"]) / max(games, 1)


def collect(where: Path) -> dict[tuple[str, str], list[RunRecords]]:
    """Finished runs by (variant, game)."""
    found: dict[tuple[str, str], list[RunRecords]] = {}
    for path in sorted(where.iterdir()):
        if not (path / "records.jsonl").is_file():
            continue
        run = read_run(path)
        if run.summary is not None and run.summary["state"] == "finished":
            game, seed = run.config["env"], run.config["seed"]
            variant = path.name.removeprefix(f"{game.replace('/', '-')}-").removesuffix(f"-s{seed}")
            found.setdefault((variant, game), []).append(run)
    return found


def interval(groups: list[np.ndarray]) -> tuple[float, float, float]:
    """IQM over games and seeds, and its 95 % interval: seeds resampled within each game."""
    rows = max(map(len, groups))
    scores = np.array([[*group, *[np.nan] * (rows - len(group))] for group in groups]).T  # [seeds, games]
    low, high = intervals(scores, {"iqm": iqm}, RESAMPLES)["iqm"] or (np.nan, np.nan)
    return float(iqm(scores)), low, high


def table(
    found: dict[tuple[str, str], list[RunRecords]], variants: list[str]
) -> tuple[list[str], list[dict[str, Any]]]:
    games = sorted({game for _, game in found})
    best = {
        g: max(np.mean([final_score(r) for r in runs]) for (_, game), runs in found.items() if game == g) for g in games
    }
    lines = ["| row | " + " | ".join(games) + " | IQM of scores over the best mean of each game | steps/s |"]
    lines.append("|---" * (len(games) + 3) + "|")
    rows = []
    for variant in variants:
        cells, groups, speeds = [], [], []
        for game in games:
            runs = found.get((variant, game), [])
            scores = [final_score(run) for run in runs]
            cells.append(", ".join(f"{s:.1f}" for s in scores) or "–")
            speeds += [run.steps_per_second for run in runs]
            if scores:
                groups.append(np.array(scores) / best[game])
            rows += [{"recipe": variant, "game": game, "seed": r.config["seed"], "score": s}
                     for r, s in zip(runs, scores, strict=True)]  # fmt: skip
        if not groups:
            continue
        whole = len(groups) == len(games) and all(len(group) > 1 for group in groups)
        middle, low, high = interval(groups)
        said = f"{middle:.2f} ({low:.2f} to {high:.2f})" if whole else f"{middle:.2f} (too few runs for an interval)"
        lines.append(f"| {variant} | {' | '.join(cells)} | {said} | {np.mean(speeds):.0f} |")
    return lines, rows


def age(found: dict[tuple[str, str], list[RunRecords]], plan: Plan) -> str:
    """The versions that produced the runs, and the rows whose settings have changed since."""
    made = sorted({run.header["versions"].get("c2d", "unknown") for runs in found.values() for run in runs})
    now = {(run.variant, run.config.env): run.config.recipe for run in multiply(plan, Path()).runs}
    changed = {
        variant
        for (variant, game), runs in found.items()
        if any(from_json(upgraded(run.config)["recipe"]) != now.get((variant, game)) for run in runs)
    }
    told = f"Trained with c2d {' and '.join(made)}."
    if not changed:
        return told
    names = ", ".join(f"`{variant.name}`" for variant in plan.variants if variant.name in changed)
    return (
        f"**{told} Since then the settings of these rows have changed, and their numbers are those of the older "
        f"settings (CHANGELOG.md): {names}.**"
    )


@drawing()
def figure(found: dict[tuple[str, str], list[RunRecords]], variants: list[str], path: Path) -> None:
    games = sorted({game for _, game in found})
    picture, axes = canvas(1, len(games), 4.4 * len(games), 3.2)
    drawn = line_styles(variants)
    for axis, game in zip(axes, games, strict=True):
        for variant, look in drawn.items():
            runs = found.get((variant, game), [])
            if runs:
                curves = np.array([[r["mean_score"] or 0.0 for r in run.iterations] for run in runs])
                steps = [r["steps"] / 1000 for r in runs[0].iterations]
                axis.plot(steps, curves.mean(0), label=variant, color=look.color, ls=look.dash, lw=1.4)
                axis.fill_between(steps, curves.min(0), curves.max(0), alpha=0.12, color=look.color, lw=0)
        axis.set(title=game, xlabel="thousand agent steps", ylabel="mean training score")
        axis.legend()
    write_figure(picture, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, help="directory of the sweep")
    parser.add_argument("--out", type=Path, help="Markdown file to write; figure and scores go into the same directory")
    parser.add_argument("--plan", choices=list(TITLES), default="minatar", help="the plan that was run")
    chosen = parser.parse_args()
    plan = builtin_plan(chosen.plan)
    variants = [variant.name for variant in plan.variants]
    if not chosen.runs.is_dir():
        parser.error(f"{chosen.runs} does not exist; create it with: c2d sweep {chosen.plan}")
    found = collect(chosen.runs)
    if not found:
        parser.error(f"{chosen.runs} has no finished run yet")
    ours = chosen.plan == "minatar-c2d"
    lines, rows = table(found, variants)
    steps = sorted({run.iterations[-1]["steps"] for runs in found.values() for run in runs})
    page = [
        f"# {TITLES[chosen.plan]}",
        "",
        f"{len(rows)} finished runs of {' or '.join(f'{s:,}' for s in steps)} agent steps; scores are means of the raw "
        f"training scores of the last {LAST} iterations, one number per seed. Commands: `c2d sweep {chosen.plan}`, "
        f"then `python {' '.join(sys.argv)}`, {time.strftime('%d %B %Y', time.gmtime())}. Settings are those of "
        "`c2d recipes --env minatar/breakout`, tuned for c2d alone"
        f"{', except for the setting in the name of a row' * ours}.",
        "",
        age(found, plan),
        "",
        *lines,
        "",
    ]
    if chosen.out is not None:
        figure(found, variants, chosen.out.with_suffix(".svg"))
        page.append(f"![Learning curves: mean and range over seeds]({chosen.out.with_suffix('.svg').name})\n")
        with open(chosen.out.with_suffix(".csv"), "w", newline="") as file:
            writer = csv.DictWriter(file, ["recipe", "game", "seed", "score"])
            writer.writeheader()
            writer.writerows(rows)
    text = "\n".join(page) + "\n"
    print(text)
    if chosen.out is not None:
        kept = ""
        if chosen.out.is_file():
            kept = chosen.out.read_text().partition("<!-- notes -->")[2]
        write_atomically(chosen.out, (text + "<!-- notes -->" + (kept or "\n")).encode())


if __name__ == "__main__":
    main()
