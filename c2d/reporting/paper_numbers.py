"""The numbers of the paper: its score table, its figures and its three tables of settings, compared with ours."""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata
from typing import Any

import numpy as np

from c2d.config import Config, flat, to_json
from c2d.envs.games import BENCHMARK
from c2d.envs.protocols import PROTOCOLS
from c2d.recipes.rows import RECIPES
from c2d.reporting.ledger import (
    DIFFERS,
    NEEDS_CURVES,
    PATH,
    REDRAWN,
    REPORT,
    REPRODUCED,
    LedgerEntry,
    compared,
    without_curves,
)
from c2d.reporting.published import paper_figures, paper_score_table
from c2d.reporting.run_statistics import AGGREGATES, TITLES, intervals, profile
from c2d.reporting.scores import CONVENTIONS, Dataset, normalize
from c2d.reporting.sections import PAPER_GAMES

_RESULTS = "Score table and figures"
_TABLE, _FIGURES = CONVENTIONS["table"], CONVENTIONS["figures"]
_AS_DRAWN = f"{REPORT} --convention figures"
_AGENTS = ("DQN", "C51", "IQN", "Rainbow", "C2D")  # in the paper's figures


def tables_and_figures(dataset: Dataset, replications: int) -> list[LedgerEntry]:
    return [
        *_runs(dataset),
        *_score_table(dataset),
        *_aggregates(dataset, replications),
        _profile(dataset),
        *(_curve(dataset, name, title) for name, title in _CURVES.items()),
        *_drawn(dataset),
    ]


def _runs(dataset: Dataset) -> list[LedgerEntry]:
    """How many runs per game the paper's figures use."""
    expected = {agent: 3 if agent == "C2D" else 5 for agent in _AGENTS}
    ours = {agent: sorted({len(dataset.runs_of(agent, game)) for game in BENCHMARK}) for agent in _AGENTS}
    return [
        compared(
            _RESULTS,
            f"Captions: runs per game of {agent}",
            REPORT,
            str(expected[agent]),
            "/".join(map(str, ours[agent])),
        )
        for agent in _AGENTS
    ]


def _score_table(dataset: Dataset) -> list[LedgerEntry]:
    """220 cells, each with a mean and a standard deviation, compared as printed."""
    printed = paper_score_table()
    games = tuple(printed)
    entries = []
    for at in (10.0, 50.0, 100.0, 200.0):
        raw = dataset.matrix("C2D", games, lambda run, at=at: _TABLE.score(run, at))  # type: ignore[misc]
        cells = [(f"{mean:.1f}", f"{std:.1f}") for mean, std in zip(raw.mean(0), raw.std(0, ddof=1), strict=True)]
        same = sum(cell == printed[game][at] for cell, game in zip(cells, games, strict=True))
        different = [game for cell, game in zip(cells, games, strict=True) if cell != printed[game][at]]
        entries.append(
            LedgerEntry(
                _RESULTS,
                f"Score table, column {at:g}M: mean and standard deviation of {len(games)} games",
                REPORT,
                f"{len(games)} cells",
                f"{same} cells equal",
                "as printed (one decimal)",
                REPRODUCED if same == len(games) else DIFFERS,
                f"different: {', '.join(different)}" if different else "",
            )
        )
    return entries


def _aggregates(dataset: Dataset, replications: int) -> list[LedgerEntry]:
    """Aggregates at 200M: estimates within 1e-6, interval ends within a tenth of the width."""
    entries = []
    for agent in _AGENTS:
        scores = dataset.scores(agent, BENCHMARK, 200.0, _FIGURES, _FIGURES.references)
        spreads = intervals(scores, AGGREGATES, replications)
        for name, function in AGGREGATES.items():
            expected = paper_figures()["aggregates"][agent][name]
            point, (low, high) = float(function(scores)), spreads[name] or (np.nan, np.nan)
            left, right = expected["ci95"]
            noise = 0.1 * (right - left)
            good = abs(point - expected["point"]) <= 1e-6 and max(abs(low - left), abs(high - right)) <= noise
            entries.append(
                LedgerEntry(
                    _RESULTS,
                    f"Aggregates at 200M: {TITLES[name]}, {agent}",
                    _AS_DRAWN,
                    f"{expected['point']:.6f} ({left:.4f}, {right:.4f})",
                    f"{point:.6f} ({low:.4f}, {high:.4f})",
                    f"1e-6; interval ends ± {noise:.4f} (a tenth of its width)",
                    REPRODUCED if good else DIFFERS,
                )
            )
    return entries


def _profile(dataset: Dataset) -> LedgerEntry:
    expected = paper_figures()["profile"]
    gaps = []
    for agent, points in expected.items():
        scores = normalize(
            dataset.matrix(agent, BENCHMARK, lambda run: run.score(199.0, 1.0)), BENCHMARK, _FIGURES.references
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


def _curve(dataset: Dataset, name: str, title: str) -> LedgerEntry:
    figures = paper_figures()
    ends = np.array(figures["curve_iterations"], dtype=np.float64) + 1
    if not dataset.has_curves:
        return without_curves(_RESULTS, title, "50 values of the figure")
    gaps = []
    for agent in _AGENTS:
        smoothed = normalize(dataset.smoothed(agent, BENCHMARK, ends, 1.0), BENCHMARK, _FIGURES.references)
        gaps.append([float(AGGREGATES[name](rows)) for rows in smoothed] - np.array(figures[f"{name}_curve"][agent]))
    return _close(title, _AS_DRAWN + PATH, np.concatenate(gaps), "50 values of the figure")


def _close(what: str, command: str, gaps: np.ndarray, expected: str) -> LedgerEntry:
    largest = float(np.abs(gaps).max())
    good = largest <= 1e-6
    text = f"largest difference {largest:.1e}"
    return LedgerEntry(_RESULTS, what, command, expected, text, "1e-6", REPRODUCED if good else DIFFERS)


def _drawn(dataset: Dataset) -> list[LedgerEntry]:
    """Figures without published numbers: redrawn from the same data, compared by eye."""
    status: Callable[[bool], str] = lambda available: REDRAWN if available else NEEDS_CURVES  # noqa: E731
    runs = [run for run in dataset.runs.values() if run.key.agent in _AGENTS and run.key.game in BENCHMARK]
    long = [run for run in runs if run.length >= 199]
    four = [run for run in long if run.key.game in PAPER_GAMES]
    atoms = [run for run in runs if run.atom_ends.size >= 180]
    rows = (
        ("Four games (Centipede, Demon Attack, Double Dunk, Tennis)", "close-up", len(four), 4 * 23),
        ("Mean learning curves of all games", "curves", len(long), 55 * 23),
        ("Maximal possible support of C2D", "supports", len(atoms), 55 * 3),
    )
    return [
        LedgerEntry(
            _RESULTS,
            f"Figure: {title}",
            f"{REPORT}{PATH}",
            "curves",
            f"figures/{name}.svg" if dataset.has_curves else "–",
            "by eye",
            status(dataset.has_curves and count >= needed),
            f"from {count} published runs" if dataset.has_curves else "",
        )
        for title, name, count, needed in rows
    ]


# ------------------------------------------------------------------------------------------ tables of settings


_COMMAND = "c2d train breakout --help"
_GAMES = "c2d report --published-only"
_SETTINGS = "Tables of settings"

_Rows = dict[str, tuple[str, int | None, Any]]

# row of the paper's table -> (our setting, factor from our unit to the paper's, value in the paper)
_PROTOCOL: _Rows = {
    "min. training ε": ("schedule.epsilon-min", 1, 0.01),
    "ε-decay schedule, frames": ("schedule.epsilon-decay-steps", 4, 1_000_000),
    "min. history to start learning, frames": ("schedule.random-history", 4, 80_000),
    "target network update frequency, frames": ("schedule.target-period", 4, 32_000),
    "sticky actions": ("rules.sticky", 1, 0.25),
}
_ATARI: _Rows = {
    "frame dimensions, pixels": ("rules.frame-size", 1, 84),
    "max episode length, steps": ("rules.cap-steps", 1, 27_000),
    "max episode length, frames": ("rules.cap-steps", 4, 108_000),
    "action repetition": ("rules.action-repeat", 1, 4),
    "state observation stacking": ("rules.stack", 1, 4),
    "terminal on life loss": ("rules.life-loss-ends-episode", None, True),
    "sticky actions": ("rules.sticky", 1, 0.25),
    "discount γ": ("schedule.gamma", 1, 0.99),
}
_C2D: _Rows = {
    "number of atoms N": ("head.atoms", 1, 32),
    "learning rate": ("optim.learning-rate", 1, 0.5e-4),
    "Adam ε": ("optim.eps", 1, 3.125e-4),
    "Adam global clip norm": ("optim.clip-norm", 1, 10.0),
    "replay buffer, transitions": ("schedule.replay-capacity", 1, 1_000_000),
    "random history, steps": ("schedule.random-history", 1, 20_000),
    "initial training ε": ("schedule.epsilon-initial", 1, 1.0),
    "minimum training ε": ("schedule.epsilon-min", 1, 0.01),
    "ε-decay schedule, steps": ("schedule.epsilon-decay-steps", 1, 250_000),
    "target network update frequency, steps": ("schedule.target-period", 1, 8_000),
    "training frequency, steps": ("schedule.update-period", 1, 4),
    "batch size": ("schedule.batch-size", 1, 32),
    "sampling of the replay": ("sampler", None, "uniform"),
    "loss": ("loss", None, "cramer"),
    "ϵ of h": ("phi.eps", 1, 0.001),
    "transformation scaling β": ("phi.beta", 1, 1.99),
    "homeomorphism φ = βh": ("phi.kind", None, "scaled_h"),
    "support scale initialization α": ("head.alpha", 1, 50.0),
    "support scale is trainable": ("head.train-alpha", None, True),
    "internal output scaling c": ("head.c", 1, 5.0),
}
_SETTING_TABLES = {
    'Table "Dopamine protocol"': _PROTOCOL,
    'Table "Atari specific settings"': _ATARI,
    'Table "C2D settings"': _C2D,
}


def settings() -> list[LedgerEntry]:
    ours = flat(to_json(Config(env="atari/breakout", rules=PROTOCOLS["c2d-paper"], recipe=RECIPES["c2d"])))
    entries = []
    for table, rows in _SETTING_TABLES.items():
        for what, (setting, factor, expected) in rows.items():
            value = ours[setting] if factor in (None, 1) else ours[setting] * factor
            entries.append(compared(_SETTINGS, f"{table}: {what} (`--{setting}`)", _COMMAND, expected, value))
    frames = ours["iterations"] * ours["schedule.steps-per-iteration"] * ours["rules.action-repeat"]
    entries += [
        compared(_SETTINGS, 'Table "C2D settings": training volume, frames', _COMMAND, 200_000_000, frames),
        compared(_SETTINGS, "Evaluation: number of games", _GAMES, 55, len(BENCHMARK)),
        _version('Table "Atari specific settings": ALE version', "6.2", "ale-py"),
        _version('Table "C2D settings": TensorFlow version', "2.5", "torch"),
    ]
    return entries


def _version(what: str, expected: str, package: str) -> LedgerEntry:
    try:
        version = f"{package} {metadata.version(package)}"
    except metadata.PackageNotFoundError:
        version = f"{package} is not installed"
    return LedgerEntry(
        _SETTINGS, what, "c2d --version", expected, version, "–", DIFFERS, "different software, by design"
    )
