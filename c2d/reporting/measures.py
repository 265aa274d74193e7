"""The tables of a report, made from a study."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from c2d.envs.games import GAMES
from c2d.reporting.aggregate import TITLES
from c2d.reporting.study import Estimate, Study
from c2d.reporting.tables import Cell, Table


def game_title(key: str) -> str:
    """bankheist -> Bank Heist"""
    if key not in GAMES:
        return key
    name = GAMES[key].gym
    return "".join(f" {letter}" if letter.isupper() and place else letter for place, letter in enumerate(name))


def said(estimate: Estimate, digits: int = 3) -> str:
    """0.512 (0.498, 0.530)"""
    if estimate.interval is None:
        return f"{estimate.point:.{digits}f}"
    low, high = estimate.interval
    return f"{estimate.point:.{digits}f} ({low:.{digits}f}, {high:.{digits}f})"


def plain(estimate: Estimate) -> dict[str, Any]:
    """For JSON."""
    return {"point": estimate.point, "ci95": None if estimate.interval is None else list(estimate.interval)}


def _ends(estimate: Estimate) -> tuple[float | None, float | None]:
    return (None, None) if estimate.interval is None else estimate.interval


def overview(study: Study, unlike: Sequence[str] = ()) -> Table:
    """Who is compared, on how many runs; `unlike` agents were scored under other rules than the own runs."""
    rows: list[tuple[str, ...]] = []
    data: list[tuple[Cell, ...]] = []
    for agent in study.agents:
        counts = (~np.isnan(study.scores(agent))).sum(0)
        runs = f"{counts.min()}" if counts.min() == counts.max() else f"{counts.min()} to {counts.max()}"
        kind = "own" if agent in study.field.own else "published"
        rules = "differ: see the notes" if agent in unlike else "–" if kind == "own" or not study.field.own else "alike"
        rows.append((agent, kind, str(len(study.games)), runs, rules))
        data.append((agent, kind, len(study.games), int(counts.min()), int(counts.max()), rules))
    return Table(
        "agents",
        f"Agents compared at {study.frames:g}M frames, and how many runs each has per game.",
        ("agent", "from", "games", "runs per game", "rules beside own"),
        tuple(rows),
        ("agent", "from", "games", "runs_min", "runs_max", "rules"),
        tuple(data),
    )


def aggregate_table(study: Study) -> Table:
    rows, data = [], []
    for agent, found in study.aggregates.items():
        rows.append((agent, *(said(found[name]) for name in TITLES)))
        data += [(agent, name, found[name].point, *_ends(found[name])) for name in TITLES]
    return Table(
        "aggregates",
        f"Human-normalized scores over {len(study.games)} games at {study.frames:g}M frames, "
        "with 95 % intervals (stratified bootstrap over runs).",
        ("agent", *TITLES.values()),
        tuple(rows),
        ("agent", "aggregate", "point", "low", "high"),
        tuple(data),
    )


def score_table(study: Study, agent: str, checkpoints: Sequence[float], name: str) -> Table:
    """Mean and standard deviation (n - 1) over seeds, per game and checkpoint, as in the paper's table."""
    columns = {at: study.raw(agent, at) for at in checkpoints}
    rows, data = [], []
    for place, game in enumerate(study.games):
        cells = [game_title(game)]
        for at in checkpoints:
            values = columns[at][:, place]
            values = values[~np.isnan(values)]
            spread = float(values.std(ddof=1)) if len(values) > 1 else None
            average = float(values.mean()) if len(values) else None
            cells.append("–" if average is None else f"{average:.1f}" + ("" if spread is None else f" ({spread:.1f})"))
            data.append((agent, game, at, average, spread, len(values)))
        rows.append(tuple(cells))
    return Table(
        name,
        f"Raw scores of {agent}: mean over seeds, one standard deviation in parentheses "
        f"({study.choice.convention.words}).",
        ("game", *(f"{at:g}M" for at in checkpoints)),
        tuple(rows),
        ("agent", "game", "frames_millions", "mean", "std", "seeds"),
        tuple(data),
    )


def rank_table(study: Study) -> Table:
    places = range(1, len(study.agents) + 1)
    order = sorted(study.agents, key=study.mean_rank)
    return Table(
        "ranks",
        f"On how many of {len(study.games)} games an agent's mean score takes each place "
        f"at {study.frames:g}M frames (1 is best; equals share the better place).",
        ("agent", "mean rank", *map(str, places)),
        tuple((a, f"{study.mean_rank(a):.2f}", *(str(study.ranks[a][p]) for p in places)) for a in order),
        ("agent", "mean_rank", *(f"rank_{p}" for p in places)),
        tuple((a, study.mean_rank(a), *(study.ranks[a][p] for p in places)) for a in order),
    )


def improvement_table(rows: Sequence[tuple[str, str, Estimate]]) -> Table:
    return Table(
        "improvement",
        "Probability that a run of the first agent scores more than one of the second on a game drawn at random, "
        "with 95 % intervals.",
        ("first", "second", "P(first > second)"),
        tuple((ours, theirs, said(p)) for ours, theirs, p in rows),
        ("first", "second", "probability", "low", "high"),
        tuple((ours, theirs, p.point, *_ends(p)) for ours, theirs, p in rows),
    )


def difference_table(gaps: dict[str, Estimate], ours: str, theirs: str, name: str) -> Table:
    order = sorted(gaps, key=lambda game: -gaps[game].point)
    return Table(
        name,
        f"Human-normalized score of {ours} minus that of {theirs}, game by game, with 95 % intervals.",
        ("game", f"{ours} − {theirs}"),
        tuple((game_title(game), said(gaps[game])) for game in order),
        ("game", "difference", "low", "high"),
        tuple((game, gaps[game].point, *_ends(gaps[game])) for game in order),
    )
