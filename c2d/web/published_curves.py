"""Published learning curves of a game, drawn with one's own."""

from __future__ import annotations

import statistics
from functools import cache
from typing import Any

from c2d.reporting.published import bundled_runs

_FRAMES = 1_000_000  # the unit of the tables, and of one iteration
_WINDOW = 5.0  # million frames over which the points of the tables are averages


@cache
def _scores() -> dict[str, dict[str, dict[int, list[float]]]]:
    """game -> agent -> frames -> score of each seed."""
    table: dict[str, dict[str, dict[int, list[float]]]] = {}
    for run in bundled_runs():
        early = {int(end): float(value) for end, value in zip(run.ends, run.values, strict=True)}
        # the last point ends at 199 million frames, because the baselines have no iteration 199; it stands for 200
        points = {round(end, -1): score for (window, end), score in run.points.items() if window == _WINDOW}
        agent = table.setdefault(run.key.game, {}).setdefault(run.key.agent, {})
        for millions, score in (early | points).items():
            agent.setdefault(int(millions) * _FRAMES, []).append(score)
    return table


def published(env: str) -> list[dict[str, Any]]:
    """For each agent with published scores: frames, mean over seeds, smallest and largest seed. [] if there is none."""
    family, _, game = env.partition("/")
    if family != "atari":
        return []
    return [
        {
            "agent": agent,
            "seeds": max(map(len, scores.values())),
            "frames": sorted(scores),
            "mean": [statistics.fmean(scores[at]) for at in sorted(scores)],
            "low": [min(scores[at]) for at in sorted(scores)],
            "high": [max(scores[at]) for at in sorted(scores)],
        }
        for agent, scores in _scores().get(game, {}).items()
    ]
