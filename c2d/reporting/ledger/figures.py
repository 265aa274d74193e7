"""The paper's score table and figures beside what the published data give."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from c2d.envs.games import BENCHMARK
from c2d.reporting.aggregate import AGGREGATES, TITLES, profile
from c2d.reporting.bootstrap import intervals
from c2d.reporting.conventions import CONVENTIONS
from c2d.reporting.field import Field
from c2d.reporting.ledger.entry import (
    CURVES,
    DIFFERS,
    PATH,
    REDRAWN,
    REPORT,
    REPRODUCED,
    Entry,
    compared,
    without_curves,
)
from c2d.reporting.published import paper_figures, paper_score_table
from c2d.reporting.references import normalize
from c2d.reporting.sections import PAPER_GAMES

_PART = "Score table and figures"
_TABLE, _FIGURES = CONVENTIONS["table"], CONVENTIONS["figures"]
_AS_DRAWN = f"{REPORT} --convention figures"
_AGENTS = ("DQN", "C51", "IQN", "Rainbow", "C2D")  # of the paper's figures


def entries(field: Field, replications: int) -> list[Entry]:
    return [
        *_runs(field),
        *_score_table(field),
        *_aggregates(field, replications),
        _profile(field),
        *(_curve(field, name, title) for name, title in _CURVES.items()),
        *_drawn(field),
    ]


def _runs(field: Field) -> list[Entry]:
    """How many runs of each game the figures are computed over."""
    expected = {agent: 3 if agent == "C2D" else 5 for agent in _AGENTS}
    ours = {agent: sorted({len(field.of(agent, game)) for game in BENCHMARK}) for agent in _AGENTS}
    return [
        compared(
            _PART, f"Captions: runs per game of {agent}", REPORT, str(expected[agent]), "/".join(map(str, ours[agent]))
        )
        for agent in _AGENTS
    ]


def _score_table(field: Field) -> list[Entry]:
    """220 cells, each a mean and a standard deviation, compared as printed."""
    printed = paper_score_table()
    games = tuple(printed)
    found = []
    for at in (10.0, 50.0, 100.0, 200.0):
        raw = field.matrix("C2D", games, lambda run, at=at: _TABLE.score(run, at))  # type: ignore[misc]
        cells = [(f"{mean:.1f}", f"{std:.1f}") for mean, std in zip(raw.mean(0), raw.std(0, ddof=1), strict=True)]
        same = sum(cell == printed[game][at] for cell, game in zip(cells, games, strict=True))
        unlike = [game for cell, game in zip(cells, games, strict=True) if cell != printed[game][at]]
        found.append(
            Entry(
                _PART,
                f"Score table, column {at:g}M: mean and standard deviation of {len(games)} games",
                REPORT,
                f"{len(games)} cells",
                f"{same} cells alike",
                "as printed (one decimal)",
                REPRODUCED if same == len(games) else DIFFERS,
                f"unlike: {', '.join(unlike)}" if unlike else "",
            )
        )
    return found


def _aggregates(field: Field, replications: int) -> list[Entry]:
    """Aggregates at 200M: points to 1e-6, ends of intervals to a tenth of their width."""
    found = []
    for agent in _AGENTS:
        scores = field.scores(agent, BENCHMARK, 200.0, _FIGURES, _FIGURES.references)
        spreads = intervals(scores, AGGREGATES, replications)
        for name, function in AGGREGATES.items():
            expected = paper_figures()["aggregates"][agent][name]
            point, (low, high) = float(function(scores)), spreads[name] or (np.nan, np.nan)
            left, right = expected["ci95"]
            noise = 0.1 * (right - left)
            good = abs(point - expected["point"]) <= 1e-6 and max(abs(low - left), abs(high - right)) <= noise
            found.append(
                Entry(
                    _PART,
                    f"Aggregates at 200M: {TITLES[name]}, {agent}",
                    _AS_DRAWN,
                    f"{expected['point']:.6f} ({left:.4f}, {right:.4f})",
                    f"{point:.6f} ({low:.4f}, {high:.4f})",
                    f"1e-6; interval ends ± {noise:.4f} (a tenth of its width)",
                    REPRODUCED if good else DIFFERS,
                )
            )
    return found


def _profile(field: Field) -> Entry:
    expected = paper_figures()["profile"]
    gaps = []
    for agent, points in expected.items():
        scores = normalize(
            field.matrix(agent, BENCHMARK, lambda run: run.score(199.0, 1.0)), BENCHMARK, _FIGURES.references
        )
        gaps.append(profile(scores, np.array([float(tau) for tau in points])) - np.array(list(points.values())))
    return _close(
        "Performance profile at 200M: 5 agents at τ = 0.5, 1, 2, 5, 8",
        _AS_DRAWN,
        np.concatenate(gaps),
        "25 values of the figure",
    )


_CURVES = {
    "iqm": "IQM over training: 5 agents at 10 iterations",
    "mean": "Mean over training: 5 agents at 10 iterations",
    "median": "Median over training: 5 agents at 10 iterations",
}


def _curve(field: Field, name: str, title: str) -> Entry:
    figures = paper_figures()
    ends = np.array(figures["curve_iterations"], dtype=np.float64) + 1
    if not field.has_curves:
        return without_curves(_PART, title, "50 values of the figure")
    gaps = []
    for agent in _AGENTS:
        course = normalize(field.course(agent, BENCHMARK, ends, 1.0), BENCHMARK, _FIGURES.references)
        gaps.append([float(AGGREGATES[name](rows)) for rows in course] - np.array(figures[f"{name}_curve"][agent]))
    return _close(title, _AS_DRAWN + PATH, np.concatenate(gaps), "50 values of the figure")


def _close(what: str, command: str, gaps: np.ndarray, expected: str) -> Entry:
    largest = float(np.abs(gaps).max())
    good = largest <= 1e-6
    said = f"largest difference {largest:.1e}"
    return Entry(_PART, what, command, expected, said, "1e-6", REPRODUCED if good else DIFFERS)


def _drawn(field: Field) -> list[Entry]:
    """Figures of which no numbers are published: drawn from the same data, for the eye."""
    status: Callable[[bool], str] = lambda there: REDRAWN if there else CURVES  # noqa: E731
    runs = [run for run in field.runs.values() if run.key.agent in _AGENTS and run.key.game in BENCHMARK]
    long = [run for run in runs if run.length >= 199]
    four = [run for run in long if run.key.game in PAPER_GAMES]
    atoms = [run for run in runs if run.atom_ends.size >= 180]
    rows = (
        ("Four games (Centipede, Demon Attack, Double Dunk, Tennis)", "close-up", len(four), 4 * 23),
        ("Mean learning curves of all games", "curves", len(long), 55 * 23),
        ("Maximal possible support of C2D", "supports", len(atoms), 55 * 3),
    )
    return [
        Entry(
            _PART,
            f"Figure: {title}",
            f"{REPORT}{PATH}",
            "curves",
            f"figures/{name}.svg" if field.has_curves else "–",
            "by eye",
            status(field.has_curves and count >= needed),
            f"from {count} published runs" if field.has_curves else "",
        )
        for title, name, count, needed in rows
    ]
