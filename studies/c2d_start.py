"""The scores of the runs that docs/plans/c2d-minatar.md and docs/plans/c2d-atari.md ask for, as far as they were made.

python studies/c2d_start.py --minatar RUNS --atari LOOKS      # RUNS/ROW/GAME-sSEED, LOOKS/GAME-ROW
python studies/c2d_start.py --stage2 RUNS --published learning_curves.csv.gz      # RUNS/GAME-ROW-sSEED

Scores are kept in docs/results/c2d-start.csv; those of runs that are not in the directories stay as they are there.
`--published`: columns agent, game, seed, iteration, value. `--fingerprints`: also supp_max, of C2D.
Of runs on MinAtar, also what their newest `c2d evaluate RUN --calibration --nets K` has found.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from c2d.files import write_atomically
from c2d.plotting import BLUE, GREEN, PINK, SKY, VERMILION, canvas, drawing, write_figure
from c2d.reporting.run_statistics import intervals, iqm
from c2d.returns.phi import scaled_h
from c2d.runs.layout import EPISODES
from c2d.runs.reader import read_iterations

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CORRECTED = "corrected"  # of laws: by other games
COLUMNS = ("study", "row", "game", "seed", "iteration", "steps", "games", "score")
MINATAR = ("breakout", "space_invaders", "asterix", "freeway", "seaquest")
RESAMPLES = 2_000
ITERATIONS, LAST = 10, 2  # of a run on MinAtar, and how many of them make its score
GAMES, PUBLISHED, PART = (
    ("boxing", "breakout", "crazy_climber"),
    ("C2D", "IQN", "Rainbow"),
    50_000,
)  # of stage 2 on Atari
DIAGNOSTICS = {"bias in play": "bias", "spread": "law_std"}  # name in the table: key in a record
WIDE = "decay-dueling-average"  # starts with wide laws, and copies every 1,000 steps
FORGETTING, COPIES = ("boxing", "pong"), 250_000 / 8_000  # copies of the target network in an iteration
DRAWN = ("decay-dueling-average", "decay-scale-copies", "decay-all")  # of MinAtar's rows in the figure
BIAS, COVERED = 0.05, (0.72, 0.88)  # what counts as calibrated
Line = dict[str, str]


def gather(minatar: Path | None, atari: Path | None, stage2: Path | None) -> list[Line]:
    """One line per iteration of every run; of a run of stage 2 also one for every 50,000 steps."""
    runs = []
    for path in sorted(minatar.glob("*/*-s*")) if minatar else ():
        game, _, seed = path.name.rpartition("-s")
        runs.append((("minatar", path.parent.name, game, seed), path))
    for path in sorted(atari.iterdir()) if atari else ():
        game, _, row = path.name.partition("-")
        runs.append((("atari", row, game, "1"), path))
    staged = []
    for path in sorted(stage2.glob("*-s*")) if stage2 else ():
        name, _, seed = path.name.rpartition("-s")
        game, _, row = name.partition("-")
        runs.append((("stage2", row, game, seed), path))
        staged.append((("course", row, game, seed), path))
    lines: list[tuple[object, ...]] = [
        (*key, r["iteration"], r["steps"], r["episodes"], r["mean_score"])
        for key, path in runs
        for r in read_iterations(path)
    ]
    lines += [(*key, *part) for key, path in staged for part in course(path)]
    for (study, *key), path in runs:
        if study == "minatar":
            lines += [(each[0], *key, *each[1:]) for each in (*calibration(path), *diagnostics(path))]
    return [dict(zip(COLUMNS, map(str, line), strict=True)) for line in lines]


def course(run: Path) -> Iterator[tuple[int, int, int, float]]:
    """Number, last step, games and mean score of each whole 50,000 steps, by the steps at which games ended."""
    games = [line.split(",") for line in (run / EPISODES).read_text().splitlines()[1:]]
    ends = [(int(step), float(score)) for _, step, score, *_ in games]
    for part in range(max((step for step, _ in ends), default=0) // PART):
        scores = [score for step, score in ends if part * PART < step <= (part + 1) * PART]
        if scores:
            yield part, (part + 1) * PART, len(scores), sum(scores) / len(scores)


def calibration(run: Path) -> Iterator[tuple[str, int, int, int, float]]:
    """Of each network of the newest evaluation of several: what was measured, number, steps, games, value."""
    found = [json.loads(path.read_text()) for path in sorted((run / "evaluations").glob("evaluation-*.json"))]
    for number, net in enumerate(([e["nets"]["each"] for e in found if e.get("nets")] or [[]])[-1]):
        returned = abs(net["bias"]) / net["relative_bias"] if net["relative_bias"] else 0.0  # no share of nothing
        measured = {"bias": net["bias"], "coverage": net["coverage"], "return": returned}
        if "recalibrated" in net:
            corrected = net["recalibrated"]
            measured |= {f"{CORRECTED} {name}": corrected[name] for name in ("bias", "coverage")}
            measured[f"{CORRECTED} return"] = returned
        for name, value in measured.items():
            yield name, number, net["steps"], len(net["scores"]), value


def diagnostics(run: Path) -> Iterator[tuple[str, int, int, int, float]]:
    """Of each iteration that has them: name, number, steps, games, value."""
    for record in read_iterations(run):
        for name, key in DIAGNOSTICS.items():
            if record.get(key) is not None:
                yield name, record["iteration"], record["steps"], record["episodes"], round(record[key], 5)


def published(path: Path | None) -> list[Line]:
    """The first iterations of agents on the games of stage 2."""
    if path is None:
        return []
    names, lines = {game.replace("_", ""): game for game in GAMES}, []
    with gzip.open(path, "rt") as file:
        for r in csv.DictReader(file):
            iteration, rest = int(r["iteration"]), {"seed": r["seed"], "iteration": r["iteration"], "score": r["value"]}
            line = {**dict.fromkeys(COLUMNS, ""), "row": r["agent"], "game": names.get(r["game"], ""), **rest}
            if r["agent"] in PUBLISHED and line["game"] and iteration < 2:
                lines.append({**line, "study": "published"})
            if line["game"] == "boxing" and iteration < 10:
                lines.append({**line, "study": "field"})
    return lines


def fingerprints(path: Path | None) -> list[Line]:
    """The largest atoms of the published C2D, in each of the iterations that its authors recorded."""
    if path is None:
        return []
    return [
        {**dict.fromkeys(COLUMNS, ""), "study": "largest atom", "row": r["agent"], "game": r["game"]}
        | {"seed": r["seed"], "iteration": r["iteration"], "score": r["supp_max"]}
        for r in csv.DictReader(path.read_text().splitlines())
        if r["game"] in FORGETTING
    ]


def forgotten(atom: float, iterations: int) -> float:
    """Where an atom would be if bootstrapping alone moved it: times γ in real returns at each copy."""
    phi = scaled_h()
    value = phi.back(torch.tensor(atom, dtype=torch.float64)) * 0.99 ** (iterations * COPIES)
    return float(phi.to(value))


def atoms_table(lines: list[Line]) -> list[str]:
    """Largest atoms, and what is forecast from iteration 1, after the first copies of the target network."""
    table = ["| game | seed | | " + " | ".join(map(str, range(1, 10))) + " |", "|---" * 12 + "|"]
    for game, seed in dict.fromkeys((line["game"], line["seed"]) for line in lines):
        own = [float(line["score"]) for line in lines if (line["game"], line["seed"]) == (game, seed)]
        forecast = [forgotten(own[1], k) for k in range(9)]
        for name, values in (("published", own[1:]), ("forecast", forecast)):
            table.append(f"| {game} | {seed} | {name} | " + " | ".join(f"{value:.1f}" for value in values) + " |")
    return table


def field_table(lines: list[Line]) -> list[str]:
    """Published means on Boxing in each of the first iterations."""
    table = ["| agent | " + " | ".join(map(str, range(10))) + " |", "|---" * 11 + "|"]
    for row in dict.fromkeys(line["row"] for line in lines):
        means = [_mean_of(lines, "field", row, "boxing", str(k)) for k in range(10)]
        table.append(f"| {row} | " + " | ".join(f"{mean:.1f}" for mean in means) + " |")
    return table


def stage2_table(lines: list[Line]) -> list[str]:
    """Own seeds beside published means and extremes, by iteration."""
    table = ["| game | row | iteration 0 | iteration 1 |", "|---|---|---|---|"]
    for game in GAMES:
        rows = dict.fromkeys((line["study"], line["row"]) for line in lines if line["game"] == game)
        for study, row in rows:
            cells = []
            for iteration in ("0", "1"):
                key = (study, row, game, iteration)
                own = [x for x in lines if (x["study"], x["row"], x["game"], x["iteration"]) == key]
                scores = [float(line["score"]) for line in own]
                if study == "published":
                    cells.append(f"{sum(scores) / len(scores):.1f} ({min(scores):.1f} … {max(scores):.1f})")
                else:
                    cells.append(", ".join(f"{score:.2f}" for score in scores) or "–")
            name = f"published {row}" if study == "published" else row
            table.append(f"| {game} | {name} | {cells[0]} | {cells[1]} |")
    return table


def minatar_table(lines: list[Line]) -> list[str]:
    """Mean scores of the last iterations of finished runs, one number per seed, and their IQM as a share of c2d's."""
    rows = list(dict.fromkeys(line["row"] for line in lines))
    scores = {row: [final_scores(lines, row, game) for game in MINATAR] for row in rows}
    usual = [sum(own) / len(own) if own else 0.0 for own in scores.get("c2d", [[]] * len(MINATAR))]
    table = ["| row | " + " | ".join(MINATAR) + " | IQM, c2d = 1 |", "|---" * (2 + len(MINATAR)) + "|"]
    for row in rows:
        cells = [", ".join(f"{score:.2f}" for score in own) or "–" for own in scores[row]]
        table.append(f"| {row} | " + " | ".join(cells) + f" | {share(scores[row], usual)} |")
    return table


def final_scores(lines: list[Line], row: str, game: str) -> list[float]:
    """Of every finished seed."""
    seeds = dict.fromkeys(line["seed"] for line in lines if (line["row"], line["game"]) == (row, game))
    scores = (_final(lines, row, game, seed) for seed in seeds)
    return [score for score in scores if score is not None]


def share(scores: list[list[float]], usual: list[float]) -> str:
    """IQM over games and seeds of scores divided by `usual`, with a 95 % interval if every game has several seeds."""
    if not all(scores) or not all(usual):
        return "–"
    seeds = max(map(len, scores))
    shares = [
        [score / mean for score in own] + [np.nan] * (seeds - len(own)) for own, mean in zip(scores, usual, strict=True)
    ]
    matrix = np.array(shares).T  # [seeds, games]
    several = min(map(len, scores)) > 1
    bounds = intervals(matrix, {"iqm": iqm}, RESAMPLES)["iqm"] if several else None
    return f"{float(iqm(matrix)):.2f}" + (f" ({bounds[0]:.2f} to {bounds[1]:.2f})" if bounds else "")


def _final(lines: list[Line], row: str, game: str, seed: str) -> float | None:
    own = [line for line in lines if (line["row"], line["game"], line["seed"]) == (row, game, seed)]
    last = [line for line in own if int(line["iteration"]) >= ITERATIONS - LAST and line["score"] != "None"]
    games = sum(int(line["games"]) for line in last)
    finished = len(own) == ITERATIONS and games
    return sum(int(line["games"]) * float(line["score"]) for line in last) / games if finished else None


def calibration_table(lines: list[Line]) -> list[str]:
    """Bias in % of the mean return and coverage of the 80 % interval, over the networks of all seeds.

    Where laws were also corrected by other games, a second line with these.
    """
    table = ["| row | seeds | " + " | ".join(MINATAR) + " | games within |", "|---" * (3 + len(MINATAR)) + "|"]
    corrected = {line["row"] for line in lines if line["study"].startswith(CORRECTED)}
    rows = list(dict.fromkeys(line["row"] for line in lines))
    for row, prefix in [(name, kind) for name in rows for kind in ("", *[f"{CORRECTED} "] * (name in corrected))]:
        names = [f"{prefix}{name}" for name in ("bias", "return", "coverage")]
        own = [line for line in lines if line["row"] == row and line["study"] in names]
        cells, within = [], 0
        for game in MINATAR:
            bias, returned, coverage = (_mean(own, game, name) for name in names)
            share = bias / returned if returned else 0.0
            within += returned > 0 and abs(share) <= BIAS and COVERED[0] <= coverage <= COVERED[1]
            cells.append(f"{100 * share:+.0f} %, {100 * coverage:.0f} %" if returned else "–")
        seeds = ", ".join(dict.fromkeys(line["seed"] for line in own))
        name = f"{row}, {CORRECTED}" if prefix else row
        table.append(f"| {name} | {seeds} | " + " | ".join(cells) + f" | {within} |")
    return table


def _mean(lines: list[Line], game: str, name: str) -> float:
    values = [float(line["score"]) for line in lines if (line["game"], line["study"]) == (game, name)]
    return sum(values) / len(values) if values else 0.0


def atari_table(lines: list[Line], every: str = "10,000") -> list[str]:
    """The mean scores of each so many steps."""
    table = [f"| game | row | seed | mean score of each {every} steps |", "|---|---|---|---|"]
    for run in dict.fromkeys((line["game"], line["row"], line["seed"]) for line in lines):
        scores = [float(line["score"]) for line in lines if (line["game"], line["row"], line["seed"]) == run]
        table.append(f"| {' | '.join(run)} | {', '.join(f'{score:.2f}' for score in scores)} |")
    return table


def course_table(lines: list[Line]) -> list[str]:
    return atari_table(lines, f"{PART:,}")


def spread_table(lines: list[Line]) -> list[str]:
    """Spread of laws and bias in play after each second iteration."""
    table = ["| game | row | seed | " + " | ".join(f"{k}0,000 steps" for k in range(1, 11, 3)) + " |", "|---" * 7 + "|"]
    for run in dict.fromkeys((line["game"], line["row"], line["seed"]) for line in lines):
        own = [line for line in lines if (line["game"], line["row"], line["seed"]) == run]
        values = {(line["study"], int(line["iteration"])): float(line["score"]) for line in own}
        cells = [
            " ".join(f"{values[name, k]:.2f}" if (name, k) in values else "–" for name in DIAGNOSTICS)
            for k in range(0, ITERATIONS, 3)
        ]
        table.append(f"| {' | '.join(run)} | {' | '.join(cells)} |")
    return table


@drawing()
def figure(lines: list[Line], path: Path) -> None:
    """The course of Boxing and Breakout beside published means; how wide laws become narrow, there and on MinAtar."""
    picture, (boxing, breakout, atoms, spread) = canvas(2, 2, 7.4, 5.2)
    _draw_course(boxing, lines, "boxing")
    _draw_course(breakout, lines, "breakout")
    breakout.legend(fontsize=7, loc="upper left")
    _draw_atoms(atoms, lines)
    _draw_spread(spread, lines)
    write_figure(picture, path)


def _draw_course(axis: Axes, lines: list[Line], game: str) -> None:
    axis.set(title=f"{game.capitalize()}, by the paper's protocol", xlabel="thousand agent steps", ylabel="score")
    for name, color in zip(PUBLISHED, (VERMILION, GREEN, PINK), strict=True):
        means = [_mean_of(lines, "published", name, game, iteration) for iteration in ("0", "1")]
        axis.plot([125, 375], means, "o--", color=color, label=f"{name}, published", lw=1)
    runs = [line for line in lines if (line["study"], line["game"]) == ("course", game)]
    colors = dict(zip(dict.fromkeys(line["row"] for line in runs), (BLUE, SKY), strict=False))
    for row, seed in dict.fromkeys((line["row"], line["seed"]) for line in runs):
        own = [(int(x["steps"]) / 1000, float(x["score"])) for x in runs if (x["row"], x["seed"]) == (row, seed)]
        axis.plot(*zip(*own, strict=True), color=colors[row], lw=1.2, label=row if seed == "1" else None)


def _draw_atoms(axis: Axes, lines: list[Line]) -> None:
    seeds = dict.fromkeys((line["game"], line["seed"]) for line in lines if line["study"] == "largest atom")
    colors = dict(zip(FORGETTING, (VERMILION, BLUE), strict=True))
    for number, (game, seed) in enumerate(seeds):
        key = ("largest atom", game, seed)
        own = [float(x["score"]) for x in lines if (x["study"], x["game"], x["seed"]) == key][1:]
        axis.plot(range(1, 10), own, color=colors[game], lw=1.2, label=game.capitalize() if seed == "1" else None)
        label = None if number else "forecast: γ per copy of the target network"
        axis.plot(range(1, 10), [forgotten(own[0], k) for k in range(9)], color="#555555", lw=0.8, ls=":", label=label)
    axis.set(title="Published C2D: largest atom, φ-space", xlabel="iteration (250,000 agent steps)")
    axis.legend(fontsize=7)


def _draw_spread(axis: Axes, lines: list[Line]) -> None:
    for row, color in zip(DRAWN, (SKY, PINK, GREEN), strict=True):
        own = [line for line in lines if (line["study"], line["row"], line["game"]) == ("spread", row, "seaquest")]
        points = [(int(x["steps"]) / 1000, float(x["score"])) for x in own if x["seed"] == own[0]["seed"]]
        axis.plot(*zip(*points, strict=True), color=color, label=row, lw=1.2)
        if row == WIDE:
            (first, width), ends = points[0], (points[0][0], points[-1][0])
            fall = [width * 0.99 ** (3 * (end - first)) for end in ends]
            axis.plot(ends, fall, color="#555555", lw=0.8, ls=":", label="γ³ per copy of the target network")
    axis.set(title="MinAtar Seaquest: spread of laws, φ-space", xlabel="thousand agent steps", yscale="log")
    axis.legend(fontsize=7)
    axis.minorticks_off()
    axis.set_yticks([0.5, 1, 2, 5], labels=["0.5", "1", "2", "5"])


def _mean_of(lines: list[Line], study: str, row: str, game: str, iteration: str) -> float:
    key = (study, row, game, iteration)
    own = [float(x["score"]) for x in lines if (x["study"], x["row"], x["game"], x["iteration"]) == key]
    return sum(own) / len(own) if own else float("nan")


TABLES: dict[str, tuple[tuple[str, ...], Callable[[list[Line]], list[str]]]] = {
    "minatar": (("minatar",), minatar_table),
    "calibration": (
        tuple(f"{prefix}{name}" for prefix in ("", f"{CORRECTED} ") for name in ("bias", "return", "coverage")),
        calibration_table,
    ),
    "spread": (tuple(DIAGNOSTICS), spread_table),
    "atari": (("atari",), atari_table),
    "stage2": (("stage2", "published"), stage2_table),
    "course": (("course",), course_table),
    "atoms": (("largest atom",), atoms_table),
    "field": (("field",), field_table),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minatar", type=Path)
    parser.add_argument("--atari", type=Path)
    parser.add_argument("--stage2", type=Path)
    parser.add_argument("--published", type=Path)
    parser.add_argument("--fingerprints", type=Path)
    parser.add_argument("--out", type=Path, default=Path("docs/results/c2d-start.md"))
    options = parser.parse_args()
    kept = options.out.with_suffix(".csv")
    lines = gather(options.minatar, options.atari, options.stage2) + published(options.published)
    lines += fingerprints(options.fingerprints)
    read = {tuple(line[name] for name in COLUMNS[:4]) for line in lines}
    before = csv.DictReader(kept.read_text().splitlines())
    lines = [line for line in before if tuple(line[name] for name in COLUMNS[:4]) not in read] + lines
    text = "\n".join([",".join(COLUMNS), *(",".join(line[name] for name in COLUMNS) for line in lines)]) + "\n"
    write_atomically(kept, text.encode())
    figure(lines, options.out.with_suffix(".svg"))
    page = options.out.read_text()
    for study, (studies, table) in TABLES.items():  # between their marks
        begin, end = f"<!-- {study} -->", f"<!-- end of {study} -->"
        before, after = page.partition(begin)[0], page.partition(end)[2]
        own = [line for line in lines if line["study"] in studies]
        page = "\n".join([f"{before}{begin}", "", *table(own), "", f"{end}{after}"])
    write_atomically(options.out, page.encode())
    sys.stdout.write(page)


if __name__ == "__main__":
    main()
