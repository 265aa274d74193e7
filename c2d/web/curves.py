"""Published learning curves of a game, to stand beside one's own."""

from __future__ import annotations

import csv
import statistics
from functools import cache
from importlib import resources
from typing import Any

from c2d.reporting.published import early_iterations

_FRAMES = 1_000_000  # of one iteration, and the unit of the table


@cache
def _scores() -> dict[str, dict[str, dict[int, list[float]]]]:
    """game -> agent -> millions of frames -> score of each seed."""
    text = resources.files("c2d.reporting").joinpath("data/published_scores.csv").read_text(encoding="utf-8")
    table: dict[str, dict[str, dict[int, list[float]]]] = {}
    for row in csv.DictReader(line for line in text.splitlines() if not line.startswith("#")):
        agent = table.setdefault(row["game"], {}).setdefault(row["agent"], {})
        for column, score in row.items():
            if column.startswith("at_") and score:
                agent.setdefault(int(column.removeprefix("at_")), []).append(float(score))
    return table


def published(env: str) -> list[dict[str, Any]]:
    """For each agent with published scores: frames, mean over seeds, smallest and largest seed. [] if there is none."""
    family, _, game = env.partition("/")
    if family != "atari":
        return []
    curves = []
    for agent, points in _scores().get(game, {}).items():
        found = {millions * _FRAMES: seeds for millions, seeds in points.items()}
        if agent == "C2D":
            early = early_iterations().get(game, {})
            found = {(k + 1) * _FRAMES: list(cell["mean_score"]) for k, cell in early.items()} | found
        frames = sorted(found)
        curves.append(
            {
                "agent": agent,
                "seeds": max(map(len, found.values())),
                "frames": frames,
                "mean": [statistics.fmean(found[at]) for at in frames],
                "low": [min(found[at]) for at in frames],
                "high": [max(found[at]) for at in frames],
            }
        )
    return curves
