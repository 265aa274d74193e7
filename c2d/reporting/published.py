"""Published figures the project compares itself with. Sources stand in the tables themselves."""

from __future__ import annotations

import csv
from functools import cache
from importlib import resources

QUANTITIES: dict[str, str] = {
    "mean_loss": "mean loss",
    "atom_min": "smallest atom",
    "atom_max": "largest atom",
    "gradient_norm_max": "largest gradient norm",
    "episodes": "games ended",
    "mean_score": "mean score",
}  # column of the table and key of a record -> its name in words


@cache
def early_iterations() -> dict[str, dict[int, dict[str, tuple[float, ...]]]]:
    """game -> iteration -> quantity -> value of each of the authors' seeds, in order."""
    text = resources.files("c2d.reporting").joinpath("data/early_iterations.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    table: dict[str, dict[int, dict[str, tuple[float, ...]]]] = {}
    for row in sorted(rows, key=lambda row: int(row["seed"])):
        cell = table.setdefault(row["game"], {}).setdefault(int(row["iteration"]), {})
        for quantity in QUANTITIES:
            cell[quantity] = (*cell.get(quantity, ()), float(row[quantity]))
    return table
