"""Own runs on environments without published agents or human scores: raw scores, agent against agent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import isnan
from typing import Any

import numpy as np

from c2d.drawing import drawing
from c2d.reporting import measures
from c2d.reporting.curves import common_length
from c2d.reporting.field import Field
from c2d.reporting.figures import panels, summary
from c2d.reporting.figures.style import files
from c2d.reporting.page import Section
from c2d.reporting.study import RAW, Choice, Study
from c2d.reporting.tables import Table


def sections(field: Field, choice: Choice, numbers: dict[str, Any], told: list[str]) -> list[Section]:
    """Curves of all, then tables for agents on the environments that they share."""
    games = field.other_games
    if not games:
        return []
    own = replace(field, runs={key: run for key, run in field.runs.items() if key.agent in field.own}, agents=field.own)
    agents = tuple(agent for agent in field.own if set(own.games_of(agent)) & set(games))
    longest = max(run.length for agent in agents for game in games for run in own.of(agent, game))
    window = window_for(own, games, min(choice.convention.window, longest / 20))
    with drawing():
        found = [_curves(own, agents, games, longest, window)]
        for number, game in enumerate(games, 1):
            study = study_of(own, game, choice, told)
            found += [] if study is None else [_one(study, game, number, numbers)]
    return found


def study_of(field: Field, game: str, choice: Choice, told: list[str]) -> Study | None:
    """Own agents on one environment, at the frames that every finished run has reached; who has not is named."""
    runs = [run for agent in field.own for run in field.of(agent, game)]
    frames = common_length(runs)
    how = raw_choice(field, game, frames, choice)
    lacking = [run for run in runs if isnan(run.score(frames, how.convention.window))]
    for run in lacking:
        why = f"stops at {run.length * 1e6:,.0f} frames" if run.told else "has no game that ended yet"
        told.append(f"{run.source} {why} and does not count on {game} at {frames * 1e6:,.0f}")
    agents = tuple(agent for agent in field.own if any(run not in lacking for run in field.of(agent, game)))
    return Study(field, agents, (game,), frames, how) if agents else None


def window_for(field: Field, games: Sequence[str], window: float) -> float:
    """`window`, or an iteration of the runs if that is longer: a moving average needs one in it."""
    runs = [run for agent in field.own for game in games for run in field.of(agent, game)]
    return max(window, *(float(np.diff(run.ends, prepend=0.0).max()) for run in runs))


def raw_choice(field: Field, game: str, frames: float, choice: Choice) -> Choice:
    """Raw scores: the mean of the last fifth of training, or of the convention's window if that is shorter."""
    window = window_for(field, (game,), min(choice.convention.window, frames / 5))
    return replace(choice, references=RAW, convention=replace(choice.convention, window=window))


def _curves(field: Field, agents: Sequence[str], games: Sequence[str], last: float, window: float) -> Section:
    figure = panels.learning_curves(field, agents, games, last, window, {})
    return Section(
        "curves-elsewhere",
        "Learning curves on other environments",
        f"Mean training score of whole games, moving averages over {window * 1e6:,.0f} frames. Lines are "
        "means over seeds, "
        "bands the range from the lowest to the highest seed. No agents are published here: own runs only.",
        files(figure),
    )


def _one(study: Study, game: str, number: int, numbers: dict[str, Any]) -> Section:
    """The agents on one environment at the frames that all runs have reached."""
    rows, data = [], []
    for agent in study.agents:
        values = study.raw(agent, study.frames)[:, 0]
        spread = float(values.std(ddof=1)) if len(values) > 1 else None
        rows.append((agent, f"{values.mean():.2f}", "–" if spread is None else f"{spread:.2f}", str(len(values))))
        data.append((agent, float(values.mean()), spread, len(values)))
    where = f"{game} at {study.frames * 1e6:,.0f} frames"
    table = Table(
        f"scores-elsewhere-{number}",
        f"Raw scores on {where}, averaged over the last {study.choice.convention.window * 1e6:,.0f}: mean and standard "
        "deviation (n − 1) over seeds.",
        ("agent", "mean", "std", "seeds"),
        tuple(rows),
        ("agent", "mean", "std", "seeds"),
        tuple(data),
    )
    pairs = [
        (one, other, study.improvement(one, other))
        for place, one in enumerate(study.agents)
        for other in study.agents[place + 1 :]
    ]
    numbers.setdefault("elsewhere", {})[game] = {
        "frames": round(study.frames * 1e6),
        "scores": {row[0]: {"mean": row[1], "std": row[2], "seeds": row[3]} for row in data},
        "probability_of_improvement": [{"first": a, "second": b, **measures.plain(p)} for a, b, p in pairs],
    }
    caption = table.caption
    if pairs:
        caption = (
            f"{caption} The figure shows the probability that a run of the first agent scores more than one of "
            "the second; "
            "bars are 95 % intervals. With one seed each there is none, and it tells only which run was ahead."
        )
    picture = files(summary.improvement(pairs, study.agents)) if pairs else {}
    return Section(f"elsewhere-{number}", f"Scores on {where}", caption, picture, (table,))
