"""The contest of docs/plans/minatar-contest.md: the tuning of every row, the plan of stage 2, and its results.

c2d sweep docs/plans/minatar-contest.toml
python studies/minatar_contest.py --stage1 runs/minatar-contest         # also writes the plan of stage 2
c2d sweep docs/plans/minatar-contest-2.toml
python studies/minatar_contest.py --stage2 runs/minatar-contest-2

Scores are kept in docs/results/minatar-contest.csv; those of runs that are not in the directories stay there.
"""

from __future__ import annotations

import argparse
import csv
import sys
from pathlib import Path

from c2d_start import MINATAR, calibration, calibration_table, share
from minatar_study import final_score

from c2d.files import write_atomically
from c2d.runs.reader import RunRecords, read_run

PLANS, RESULTS = Path("docs/plans"), Path("docs/results")
TUNED = ("breakout", "space_invaders")
FIELDS = ("study", "row", "rate", "n", "game", "seed", "number", "score")
Line = dict[str, str]


def read_stage(where: Path | None, stage: str) -> list[Line]:
    """One line per finished run of a sweep, and those of its calibration."""
    lines = []
    for path in sorted(where.iterdir()) if where else ():
        run = read_run(path) if (path / "records.jsonl").is_file() else None
        if run is None or run.summary is None or run.summary["state"] != "finished":
            continue
        facts = _settings(run)
        lines.append({"study": stage, **facts, "number": "0", "score": f"{final_score(run):.4f}"})
        for name, number, *_, value in calibration(path):
            lines.append({"study": name, **facts, "number": str(number), "score": f"{value:.5f}"})
    return lines


def _settings(run: RunRecords) -> Line:
    recipe = run.config["recipe"]
    game = run.config["env"].removeprefix("minatar/")
    facts = (run.config["recipe_name"], recipe["optim"]["learning_rate"], recipe["n_step"], game, run.config["seed"])
    return dict(zip(FIELDS[1:6], map(str, facts), strict=True))


def shares(lines: list[Line]) -> dict[str, dict[tuple[str, str], float]]:
    """By row and setting (rate, n), the mean over both games of its score divided by the best of any row there."""
    own = [line for line in lines if line["study"] == "1"]
    best = {game: max((float(x["score"]) for x in own if x["game"] == game), default=0.0) for game in TUNED}
    found: dict[str, dict[tuple[str, str], float]] = {}
    for row in dict.fromkeys(line["row"] for line in own):
        for setting in dict.fromkeys((x["rate"], x["n"]) for x in own if x["row"] == row):
            scores = {x["game"]: float(x["score"]) for x in own if (x["row"], x["rate"], x["n"]) == (row, *setting)}
            if set(scores) == set(TUNED):
                found.setdefault(row, {})[setting] = sum(scores[game] / best[game] for game in TUNED) / len(TUNED)
    return found


def stage1_table(lines: list[Line]) -> list[str]:
    """Scores of Breakout and Space Invaders for each setting, and their share; the chosen one is bold."""
    grid = sorted({(x["rate"], x["n"]) for x in lines if x["study"] == "1"}, key=lambda s: (-float(s[0]), int(s[1])))
    titles = [f"rate {rate}, n {n}" for rate, n in grid]
    table = ["| row | " + " | ".join(titles) + " |", "|---" * (len(grid) + 1) + "|"]
    found = shares(lines)
    for row in dict.fromkeys(line["row"] for line in lines if line["study"] == "1"):
        cells, own = [], found.get(row, {})
        for setting in grid:
            key = ("1", row, *setting)
            scores = {x["game"]: x["score"] for x in lines if (x["study"], x["row"], x["rate"], x["n"]) == key}
            cell = ", ".join(f"{float(scores[game]):.1f}" if game in scores else "–" for game in TUNED)
            if setting in own:
                cell += f" ({own[setting]:.2f})"
                cell = f"**{cell}**" if len(own) == len(grid) and setting == max(own, key=lambda s: own[s]) else cell
            cells.append(cell)
        table.append(f"| {row} | " + " | ".join(cells) + " |")
    return table


def stage2_plan(lines: list[Line]) -> str:
    """A plan file with each row's chosen setting; only rows whose grid is complete."""
    text = [
        "# Stage 2 of the contest on MinAtar (minatar-contest.md): each row with the setting that stage 1 chose.",
        "# Written by: python studies/minatar_contest.py",
        'name = "minatar-contest-2"',
        'envs = ["minatar/*"]',
        "seeds = [2, 3, 4]",
        "steps = 100000",
        'settings = { "checkpoint.keep-weights" = 5 }',
    ]
    for row, own in shares(lines).items():
        if len(own) < 4:
            continue
        rate, n = max(own, key=lambda setting: own[setting])
        falls = ', "optim.decay-updates" = 50000' if row in ("c2d-fast", "rainbow-c2d") else ""
        settings = f'settings = {{ "optim.learning-rate" = {rate}, "n-step" = {n}{falls} }}'
        text += ["", "[[variants]]", f'name = "{row}"', f'recipe = "{row}"', settings]
    return "\n".join(text) + "\n"


def stage2_table(lines: list[Line]) -> list[str]:
    """Final scores, one number per seed, and the IQM over games and seeds of their shares of c2d's means."""
    own = [line for line in lines if line["study"] == "2"]
    rows = list(dict.fromkeys(line["row"] for line in own))
    scores = {
        row: [[float(x["score"]) for x in own if (x["row"], x["game"]) == (row, game)] for game in MINATAR]
        for row in rows
    }
    usual = [sum(each) / len(each) if each else 0.0 for each in scores.get("c2d", [[]] * len(MINATAR))]
    table = ["| row | " + " | ".join(MINATAR) + " | IQM, c2d = 1 |", "|---" * (2 + len(MINATAR)) + "|"]
    for row in rows:
        cells = [", ".join(f"{score:.2f}" for score in each) or "–" for each in scores[row]]
        table.append(f"| {row} | " + " | ".join(cells) + f" | {share(scores[row], usual)} |")
    return table


TABLES = {"stage 1": stage1_table, "stage 2": stage2_table, "calibration": calibration_table}


def filled(page: str, lines: list[Line]) -> str:
    """The page with each table between its marks."""
    for name, table in TABLES.items():
        begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        own = [x for x in lines if x["study"] not in ("1", "2")] if name == "calibration" else lines
        page = "\n".join([page.partition(begin)[0] + begin, "", *table(own), "", end + page.partition(end)[2]])
    return page


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stage1", type=Path)
    parser.add_argument("--stage2", type=Path)
    parser.add_argument("--out", type=Path, default=RESULTS / "minatar-contest.md")
    options = parser.parse_args()
    kept = options.out.with_suffix(".csv")
    lines = read_stage(options.stage1, "1") + read_stage(options.stage2, "2")
    read = {tuple(line.values())[:-1] for line in lines}
    before = list(csv.DictReader(kept.read_text().splitlines())) if kept.is_file() else []
    lines = [line for line in before if tuple(line.values())[:-1] not in read] + lines
    text = "\n".join([",".join(FIELDS), *(",".join(line[name] for name in FIELDS) for line in lines)]) + "\n"
    write_atomically(kept, text.encode())
    write_atomically(PLANS / "minatar-contest-2.toml", stage2_plan(lines).encode())
    page = filled(options.out.read_text(), lines)
    write_atomically(options.out, page.encode())
    sys.stdout.write(page)


if __name__ == "__main__":
    main()
