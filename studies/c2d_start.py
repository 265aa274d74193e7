"""The scores of the runs that docs/plans/c2d-minatar.md and docs/plans/c2d-atari.md ask for, as far as they were made.

python studies/c2d_start.py --minatar RUNS --atari LOOKS      # RUNS/ROW/GAME-sSEED, LOOKS/GAME-ROW

Without directories it reads docs/results/c2d-start.csv, which it writes otherwise.
"""

from __future__ import annotations

import argparse
import csv
import sys
from pathlib import Path

from c2d.files import write_atomically
from c2d.runs.reader import read_iterations

COLUMNS = ("study", "row", "game", "seed", "iteration", "steps", "games", "score")
MINATAR = ("breakout", "space_invaders", "asterix", "freeway", "seaquest")
ITERATIONS, LAST = 10, 2  # of a run on MinAtar, and how many of them make its score
Line = dict[str, str]


def gather(minatar: Path | None, atari: Path | None) -> list[Line]:
    """One line per iteration of every run."""
    runs = []
    for path in sorted(minatar.glob("*/*-s*")) if minatar else ():
        game, _, seed = path.name.rpartition("-s")
        runs.append((("minatar", path.parent.name, game, seed), path))
    for path in sorted(atari.iterdir()) if atari else ():
        game, _, row = path.name.partition("-")
        runs.append((("atari", row, game, "1"), path))
    return [
        dict(zip(COLUMNS, map(str, (*key, r["iteration"], r["steps"], r["episodes"], r["mean_score"])), strict=True))
        for key, path in runs
        for r in read_iterations(path)
    ]


def minatar_table(lines: list[Line]) -> list[str]:
    """Mean scores of the last iterations of finished runs, one number per seed."""
    table = ["| row | " + " | ".join(MINATAR) + " |", "|---" * (1 + len(MINATAR)) + "|"]
    for row in dict.fromkeys(line["row"] for line in lines):
        cells = []
        for game in MINATAR:
            seeds = dict.fromkeys(line["seed"] for line in lines if (line["row"], line["game"]) == (row, game))
            scores = [_final(lines, row, game, seed) for seed in seeds]
            cells.append(", ".join(f"{score:.2f}" for score in scores if score is not None) or "–")
        table.append(f"| {row} | " + " | ".join(cells) + " |")
    return table


def _final(lines: list[Line], row: str, game: str, seed: str) -> float | None:
    own = [line for line in lines if (line["row"], line["game"], line["seed"]) == (row, game, seed)]
    last = [line for line in own if int(line["iteration"]) >= ITERATIONS - LAST and line["score"] != "None"]
    games = sum(int(line["games"]) for line in last)
    finished = len(own) == ITERATIONS and games
    return sum(int(line["games"]) * float(line["score"]) for line in last) / games if finished else None


def atari_table(lines: list[Line]) -> list[str]:
    """The mean score of each 10,000 steps."""
    table = ["| game | row | mean score of each 10,000 steps |", "|---|---|---|"]
    for game, row in dict.fromkeys((line["game"], line["row"]) for line in lines):
        scores = [float(line["score"]) for line in lines if (line["game"], line["row"]) == (game, row)]
        table.append(f"| {game} | {row} | {', '.join(f'{score:.2f}' for score in scores)} |")
    return table


TABLES = {"minatar": minatar_table, "atari": atari_table}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minatar", type=Path)
    parser.add_argument("--atari", type=Path)
    parser.add_argument("--out", type=Path, default=Path("docs/results/c2d-start.md"))
    options = parser.parse_args()
    kept = options.out.with_suffix(".csv")
    lines = gather(options.minatar, options.atari) or list(csv.DictReader(kept.read_text().splitlines()))
    text = "\n".join([",".join(COLUMNS), *(",".join(line[name] for name in COLUMNS) for line in lines)]) + "\n"
    write_atomically(kept, text.encode())
    page = options.out.read_text()
    for study, table in TABLES.items():  # between their marks
        begin, end = f"<!-- {study} -->", f"<!-- end of {study} -->"
        before, after = page.partition(begin)[0], page.partition(end)[2]
        own = [line for line in lines if line["study"] == study]
        page = "\n".join([f"{before}{begin}", "", *table(own), "", f"{end}{after}"])
    write_atomically(options.out, page.encode())
    sys.stdout.write(page)


if __name__ == "__main__":
    main()
