"""One small panel per game: learning curves, and the range of predicted atoms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from c2d.drawing import canvas
from c2d.reporting.curves import Run
from c2d.reporting.field import Field
from c2d.reporting.figures.style import Look, legend_columns, looks, short_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_POINTS = 70  # per line in a small panel


def learning_curves(
    field: Field, agents: Sequence[str], games: Sequence[str], last: float, window: float, titles: dict[str, str]
) -> Figure:
    """Moving averages; a line is the mean over seeds, its band their range."""
    figure, axes, small = _grid(len(games))
    drawn = looks(agents)
    unit, name = (1.0, "million frames") if last >= 1 else (1e3, "thousand frames")
    for axis, game in zip(axes, games, strict=False):
        for agent in agents:
            _curve(axis, field.of(agent, game), last, window, unit, drawn[agent], small)
        _dress(axis, titles.get(game, game), last * unit, small)
    return _finish(figure, axes, len(games), drawn, f"Mean training score against {name}", small)


def supports(field: Field, agents: Sequence[str], games: Sequence[str], last: float, titles: dict[str, str]) -> Figure:
    """Mean over seeds of the largest and the smallest atom that an iteration predicted, in φ-space."""
    figure, axes, small = _grid(len(games))
    drawn = looks(agents)
    unit, name = (1.0, "million frames") if last >= 1 else (1e3, "thousand frames")
    for axis, game in zip(axes, games, strict=False):
        for agent in agents:
            ends, low, high = mean_atoms(field.of(agent, game))
            keep = ends <= last + 1e-6
            look = drawn[agent]
            thin = {"color": look.color, "ls": look.dash, "lw": 0.9 if small else look.width}
            axis.plot(ends[keep] * unit, high[keep], **thin)
            axis.plot(ends[keep] * unit, low[keep], **thin)
            axis.fill_between(ends[keep] * unit, low[keep], high[keep], color=look.color, alpha=0.12, lw=0)
        axis.axhline(0, color="#999999", lw=0.5)
        _dress(axis, titles.get(game, game), last * unit, small)
    return _finish(figure, axes, len(games), drawn, f"Smallest and largest atom (φ-space) against {name}", small)


def mean_atoms(runs: Sequence[Run]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(ends, mean smallest, mean largest) over the runs that have atoms, where all of them have."""
    runs = [run for run in runs if run.atom_ends.size]
    if not runs:
        return np.zeros(0), np.zeros(0), np.zeros(0)
    ends = runs[0].atom_ends
    for run in runs[1:]:
        ends = np.intersect1d(ends, run.atom_ends)
    chosen = [np.searchsorted(run.atom_ends, ends) for run in runs]
    low = np.mean([run.low[at] for run, at in zip(runs, chosen, strict=True)], axis=0)
    high = np.mean([run.high[at] for run, at in zip(runs, chosen, strict=True)], axis=0)
    return ends, low, high


def _curve(axis: Axes, runs: Sequence[Run], last: float, window: float, unit: float, look: Look, small: bool) -> None:
    ends = _thinned(runs, last)
    lines = np.array([run.averages(ends, window) for run in runs if run.ends.size])
    if not lines.size:
        return
    told = ~np.isnan(lines).all(0)
    if not told.any():
        return
    at, lines = ends[told] * unit, lines[:, told]
    width = look.width * (0.6 if small else 1.0)
    axis.plot(at, np.nanmean(lines, 0), color=look.color, ls=look.dash, lw=width, marker="." if told.sum() < 3 else "")
    if len(lines) > 1:
        axis.fill_between(at, np.nanmin(lines, 0), np.nanmax(lines, 0), color=look.color, alpha=0.15, lw=0)


def _thinned(runs: Sequence[Run], last: float) -> np.ndarray:
    """Ends of iterations up to `last`, at most seventy, the last among them."""
    ends = np.unique(np.concatenate([np.zeros(0), *(run.ends for run in runs)]).round(6))
    ends = ends[ends <= last + 1e-6]
    chosen = np.linspace(0, len(ends) - 1, min(len(ends), _POINTS)).round().astype(int)
    return ends[chosen] if len(ends) else ends


def _grid(count: int) -> tuple[Figure, list[Axes], bool]:
    """As large a panel as a page allows: 55 go on one A4 page, six in a row."""
    if count > 12:
        columns, rows = 6, math.ceil(count / 6)
        height = 0.75 + 1.08 * rows
        figure, axes = canvas(rows, columns, 8.1, height, layout=None)
        edges = {"left": 0.045, "right": 0.985, "bottom": 0.5 / height, "top": 1 - 0.5 / height}
        figure.subplots_adjust(**edges, wspace=0.32, hspace=0.34)
        return figure, axes, True
    columns = min(count, 2 if count <= 4 else 3)
    rows = math.ceil(count / columns)
    figure, axes = canvas(rows, columns, 3.6 * columns if columns > 1 else 5.0, 0.5 + 2.2 * rows)
    return figure, axes, False


def _dress(axis: Axes, title: str, last: float, small: bool) -> None:
    from matplotlib.ticker import MaxNLocator

    axis.set_title(title, fontsize=6.5 if small else 8.5, pad=2, y=1.0)  # a given y saves a search for one
    axis.set_xlim(0, last)
    axis.xaxis.set_major_locator(MaxNLocator(2 if small else 5))
    axis.yaxis.set_major_locator(MaxNLocator(3 if small else 5))
    axis.yaxis.set_major_formatter(short_number)
    axis.tick_params(labelsize=5.5 if small else 7, pad=1.5)
    axis.grid(True)


def _finish(figure: Figure, axes: list[Axes], used: int, drawn: dict[str, Look], words: str, small: bool) -> Figure:
    from matplotlib.lines import Line2D

    for axis in axes[used:]:
        axis.set_axis_off()
    if small:  # one axis of frames for each column
        for axis in axes[: max(used - 6, 0)]:
            axis.tick_params(labelbottom=False)
    handles = [Line2D([], [], color=look.color, ls=look.dash, lw=look.width) for look in drawn.values()]
    place: Any = "upper center" if small else "outside upper center"
    figure.legend(handles, list(drawn), loc=place, ncols=legend_columns(list(drawn), figure.get_figwidth()))
    figure.supxlabel(words, fontsize=7.5 if small else 8, y=0.004 if small else None)
    return figure
