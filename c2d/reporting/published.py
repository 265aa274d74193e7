"""Published figures that come with the project. Sources stand in the tables themselves."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from c2d.reporting.curves import Key, Run

QUANTITIES: dict[str, str] = {
    "mean_loss": "mean loss",
    "atom_min": "smallest atom",
    "atom_max": "largest atom",
    "gradient_norm_max": "largest gradient norm",
    "episodes": "games ended",
    "mean_score": "mean score",
}  # column of the table and key of a record -> its name in words

# column of the table of scores -> (millions of frames averaged, where they end)
_POINTS = {
    "at_10": (5.0, 10.0),
    "at_50": (5.0, 50.0),
    "at_100": (5.0, 100.0),
    "at_150": (5.0, 150.0),
    "at_200": (5.0, 199.0),
    "iteration_198": (1.0, 199.0),
    "iteration_199": (1.0, 200.0),
}


def _rows(name: str) -> Iterator[dict[str, str]]:
    return csv.DictReader(line for line in _text(name).splitlines() if not line.startswith("#"))


def _text(name: str) -> str:
    return resources.files("c2d.reporting").joinpath(f"data/{name}").read_text(encoding="utf-8")


@cache
def early_iterations() -> dict[str, dict[int, dict[str, tuple[float, ...]]]]:
    """game -> iteration -> quantity -> value of each of the authors' seeds, in order."""
    table: dict[str, dict[int, dict[str, tuple[float, ...]]]] = {}
    for row in sorted(_rows("early_iterations.csv"), key=lambda row: int(row["seed"])):
        cell = table.setdefault(row["game"], {}).setdefault(int(row["iteration"]), {})
        for quantity in QUANTITIES:
            cell[quantity] = (*cell.get(quantity, ()), float(row[quantity]))
    return table


@cache
def bundled_runs() -> tuple[Run, ...]:
    """The published agents as points at 10, 50, 100, 150 and 200M frames; C2D's first ten iterations on eight games."""
    early = {run.key: run for run in _early_runs()}
    runs = []
    for row in _rows("published_scores.csv"):
        key = Key(row["agent"], row["game"], int(row["seed"]))
        points = {at: float(row[column]) for column, at in _POINTS.items() if row[column]}
        run = Run(key, points=points, source="the project's table of published scores")
        runs.append(run.joined(early[key]) if key in early else run)
    return tuple(runs)


def _early_runs() -> Iterator[Run]:
    for game, iterations in early_iterations().items():
        ends = np.array(sorted(iterations), dtype=np.float64) + 1
        for place in range(3):
            figures = {
                name: np.array([iterations[at][name][place] for at in sorted(iterations)])
                for name in ("mean_score", "atom_min", "atom_max")
            }
            yield Run(
                Key("C2D", game, place + 1),
                ends=ends,
                values=figures["mean_score"],
                atom_ends=ends,
                low=figures["atom_min"],
                high=figures["atom_max"],
            )


@cache
def paper_score_table() -> dict[str, dict[float, tuple[str, str]]]:
    """game -> millions of frames -> (mean, standard deviation) as printed in the paper's score table."""
    return {
        row["game"]: {float(at): (row[f"mean_{at}"], row[f"std_{at}"]) for at in (10, 50, 100, 200)}
        for row in _rows("paper_score_table.csv")
    }


@cache
def paper_figures() -> dict[str, Any]:
    """Values read from the paper's figures."""
    value: dict[str, Any] = json.loads(_text("paper_figures.json"))
    return value


@cache
def reward_statistics() -> dict[str, tuple[float, float]]:
    """game -> (share of steps with a reward, mean size of those rewards) under random play, as we measured it."""
    return {row["game"]: (float(row["density"]), float(row["magnitude"] or "nan")) for row in _rows("rewards.csv")}
