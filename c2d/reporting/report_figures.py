"""The figures of a report: aggregates over all games, and one small panel per game.

Each agent has one color in every figure. The colors of published agents are distinguishable with any color
vision. Your own agents get other colors and dashed lines, so no two lines differ by color alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from c2d.plotting import BLUE, GREEN, ORANGE, PINK, SKY, VERMILION, canvas, image
from c2d.reporting.analysis import Analysis, Band, IntervalEstimate
from c2d.reporting.local_runs import SUFFIX
from c2d.reporting.run_statistics import TITLES
from c2d.reporting.scores import Dataset, RunCurve, mean_atoms

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PUBLISHED = {
    "DQN": "#7f7f7f",
    "C51": ORANGE,
    "QR-DQN": PINK,
    "IQN": BLUE,
    "Rainbow": GREEN,
    "C2D": VERMILION,
}
_OWN = ("#000000", SKY, "#882255", "#332288", "#999933", "#aa4499", "#117733", "#661100")
_OWN_FIRST = (
    "c2d",
    "rainbow-c2d",
    "iqn",
    "rainbow",
    "c51",
    "qr-dqn",
    "dqn-adam",
    "dqn",
)  # recipes with a fixed color, by position
_DASHES: tuple[Any, ...] = ((0, (5, 1.5)), (0, (2, 1)), (0, (6, 1.5, 1.5, 1.5)), (0, (1, 1)))
_MARKERS = {"DQN": "v", "C51": "s", "QR-DQN": "P", "IQN": "D", "Rainbow": "^", "C2D": "o"}


class LineStyle(NamedTuple):
    """How an agent is drawn, in every figure of a report."""

    color: str
    dash: Any
    width: float
    marker: str


def line_styles(agents: Sequence[str]) -> dict[str, LineStyle]:
    """One style per agent, independent of the other agents unless your own agents outnumber the colors."""
    styles: dict[str, LineStyle] = {}
    for agent in agents:
        if agent in _PUBLISHED:
            styles[agent] = LineStyle(_PUBLISHED[agent], "-", 1.9 if agent == "C2D" else 1.4, _MARKERS[agent])
    others = [agent for agent in agents if agent not in styles]
    taken: set[int] = set()
    for agent in sorted(others, key=lambda name: (name.removesuffix(SUFFIX) not in _OWN_FIRST, name)):
        place = _place(agent, taken)
        taken.add(place)
        dash = _DASHES[place // len(_OWN) % len(_DASHES)]
        styles[agent] = LineStyle(_OWN[place % len(_OWN)], dash, 1.7, "X")
    return {agent: styles[agent] for agent in agents}


def _place(agent: str, taken: set[int]) -> int:
    name = agent.removesuffix(SUFFIX)
    wanted = _OWN_FIRST.index(name) if name in _OWN_FIRST else 1
    return next(place for place in range(wanted, wanted + len(taken) + 1) if place not in taken)


def files(figure: Figure) -> dict[str, bytes]:
    """The figure in the formats of a report."""
    return {kind: image(figure, kind) for kind in ("svg", "png")}


def legend_columns(names: Sequence[str], inches: float) -> int:
    """As many columns as fit; a letter takes at most a tenth of an inch, and a line as much as six letters."""
    widths = sorted((len(name) + 6 for name in names), reverse=True)
    fitting = (count for count in range(len(names), 1, -1) if sum(widths[:count]) <= 10 * inches)
    return next(fitting, 1)


def short_number(value: float, _: Any = None) -> str:
    """950, 12k, 1.5M: fits a small panel."""
    size = abs(value)
    for unit, letter in ((1e6, "M"), (1e3, "k")):
        if size >= unit:
            return f"{value / unit:.3g}{letter}".replace("-", "−")
    return f"{value:.3g}".replace("-", "−")


# -------------------------------------------------------------------------------------------- over all games


_LABELS = {
    "iqm": "IQM of human-normalized scores",
    "mean": "Mean of human-normalized scores",
    "median": "Median of human-normalized scores",
}


def profile_and_progress(analysis: Analysis, progress: dict[str, Band]) -> Figure:
    """Left: fraction of runs above τ. Right: IQM over training."""
    figure, (left, right) = canvas(1, 2, 7.2, 3.0)
    drawn = line_styles(analysis.agents)
    for agent in analysis.agents:
        _line(left, analysis.profiles[agent], drawn[agent], agent)
    left.set(
        xlabel="Human-normalized score τ",
        ylabel="Fraction of runs with score > τ",
        xlim=(0, 8),
        ylim=(0, 1),
        xticks=range(0, 9, 1),
    )
    left.axvline(1, color="#999999", lw=0.7, ls=(0, (2, 2)))
    left.text(1.08, 0.985, "human", fontsize=7, color="#666666", va="top")
    _progress(right, progress, drawn, "iqm")
    for axis in (left, right):
        axis.grid(True)
    figure.legend(
        *left.get_legend_handles_labels(), loc="outside upper center", ncols=legend_columns(analysis.agents, 7.2)
    )
    return figure


def efficiency(analysis: Analysis, progress: dict[str, dict[str, Band]]) -> Figure:
    """Mean and median over training."""
    figure, axes = canvas(1, 2, 7.2, 3.0)
    drawn = line_styles(analysis.agents)
    for axis, name in zip(axes, ("mean", "median"), strict=True):
        _progress(axis, progress[name], drawn, name)
        axis.grid(True)
    figure.legend(
        *axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=legend_columns(analysis.agents, 7.2)
    )
    return figure


def aggregates(analysis: Analysis) -> Figure:
    """A point and its interval per agent and aggregate."""
    agents = list(reversed(analysis.agents))
    figure, axes = canvas(1, 4, 7.2, 0.75 + 0.24 * len(agents), sharey=True)
    drawn = line_styles(analysis.agents)
    for axis, (name, title) in zip(axes, TITLES.items(), strict=True):
        for row, agent in enumerate(agents):
            _estimate(axis, row, analysis.aggregates[agent][name], drawn[agent])
        axis.set_title(f"{title} {'↓' if name == 'optimality_gap' else '↑'}")
        axis.set(yticks=range(len(agents)), ylim=(-0.6, len(agents) - 0.4))
        axis.set_yticklabels(agents)
        axis.tick_params(axis="y", length=0)
        axis.locator_params(axis="x", nbins=4)
        axis.use_sticky_edges = False  # interval bars do not start at the edge
        axis.margins(x=0.12)
        axis.grid(True, axis="x")
        axis.spines["left"].set_visible(False)
    figure.supxlabel("Human-normalized score (↑ higher is better, ↓ lower is better)", fontsize=8)
    return figure


def improvement(rows: Sequence[tuple[str, str, IntervalEstimate]], agents: Sequence[str]) -> Figure:
    """P(first agent beats second) per pair."""
    figure, (axis,) = canvas(1, 1, 5.2, 0.8 + 0.26 * len(rows))
    drawn = line_styles(agents)
    for row, (ours, _, estimate) in enumerate(reversed(rows)):
        _estimate(axis, row, estimate, drawn[ours])
    axis.axvline(0.5, color="#999999", lw=0.8, ls=(0, (2, 2)))
    axis.set(xlim=(-0.02, 1.02), yticks=range(len(rows)), ylim=(-0.6, len(rows) - 0.4))
    axis.set_yticklabels([f"{ours} > {theirs}" for ours, theirs, _ in reversed(rows)])
    axis.set_xlabel("Probability of improvement (0.5: neither is better)")
    axis.tick_params(axis="y", length=0)
    axis.spines["left"].set_visible(False)
    axis.grid(True, axis="x")
    return figure


def differences(gaps: dict[str, IntervalEstimate], ours: str, theirs: str, titles: dict[str, str]) -> Figure:
    """One bar per game, the largest difference on top; the scale is linear up to 1 and logarithmic beyond."""
    order = sorted(gaps, key=lambda game: gaps[game].point)
    height = 0.9 + 0.155 * len(order)
    figure, (axis,) = canvas(1, 1, 6.0, height, layout=None)
    longest = max(len(titles[game]) for game in order)  # letters of 6.5 points
    figure.subplots_adjust(left=(0.25 + 0.058 * longest) / 6, right=0.97, bottom=0.5 / height, top=1 - 0.1 / height)
    drawn = line_styles((ours, theirs))
    points = np.array([gaps[game].point for game in order])
    colors = [drawn[ours if point > 0 else theirs].color for point in points]
    axis.barh(range(len(order)), points, height=0.72, color=colors)
    for row, game in enumerate(order):
        if (spread := gaps[game].interval) is not None:
            axis.plot(spread, (row, row), color="#222222", lw=0.8, solid_capstyle="butt")
    axis.set_xscale("symlog", linthresh=1, linscale=1.2)
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:+g}".replace("-", "−") if value else "0")
    largest = max(1.0, np.abs(points).max(), *(abs(end) for gap in gaps.values() for end in gap.interval or (0.0,)))
    ticks = [tick for tick in (0, 0.5, 1, 3, 10, 30, 100, 300) if tick <= 1.3 * largest]
    axis.set_xticks([*(-tick for tick in reversed(ticks[1:])), *ticks])
    axis.set_xlim(-1.3 * largest, 1.3 * largest)
    axis.minorticks_off()
    axis.set(yticks=range(len(order)), ylim=(-0.7, len(order) - 0.3))
    axis.set_yticklabels([titles[game] for game in order], fontsize=6.5)
    axis.tick_params(axis="y", length=0)
    axis.axvline(0, color="#444444", lw=0.7)
    axis.set_xlabel(f"Human-normalized score: {ours} minus {theirs}")
    axis.grid(True, axis="x")
    return figure


def _line(axis: Axes, band: Band, style: LineStyle, label: str, marker: str = "") -> None:
    axis.plot(
        band.at, band.line, color=style.color, ls=style.dash, lw=style.width, label=label, marker=marker, markersize=4
    )
    if band.low is not None and band.high is not None:
        axis.fill_between(band.at, band.low, band.high, color=style.color, alpha=0.2, lw=0)


def _progress(axis: Axes, progress: dict[str, Band], drawn: dict[str, LineStyle], name: str) -> None:
    for agent, band in progress.items():
        _line(axis, band, drawn[agent], agent, drawn[agent].marker if len(band.at) <= 8 else "")
    axis.set(xlabel="Million frames", ylabel=_LABELS[name])
    axis.set_xlim(left=0)


def _estimate(axis: Axes, row: int, estimate: IntervalEstimate, style: LineStyle) -> None:
    """The interval as a bar, the estimate as a line across it."""
    if estimate.interval is not None:
        low, high = estimate.interval
        axis.barh(row, high - low, left=low, height=0.6, color=style.color, alpha=0.65)
        axis.vlines(estimate.point, row - 0.36, row + 0.36, color="#111111", lw=1.4)
    else:
        axis.plot([estimate.point], [row], marker=style.marker, color=style.color, markersize=6)


# -------------------------------------------------------------------------------------------- panel per game


_POINTS = 70  # per line of a panel
_FEW = 12  # points of a line that are also drawn as such


def learning_curves(
    dataset: Dataset,
    agents: Sequence[str],
    games: Sequence[str],
    last: float,
    window: float | Mapping[str, float],
    titles: dict[str, str],
    own_ends: bool = False,
    means: Mapping[tuple[str, str], RunCurve] | None = None,
    pointed: Sequence[str] = (),
) -> Figure:
    """Moving averages: lines are means over seeds, bands the range of the seeds. `own_ends`: of each panel.

    `window`: millions of frames, for all games or of each.

    `means`: curves of (agent, game) without seeds, in place of them. Of the agents `pointed` only points are known.
    """
    figure, axes, small = _grid(len(games))
    drawn = line_styles(agents)
    unit, name = (1.0, "million frames") if last >= 1 else (1e3, "thousand frames")
    for axis, game in zip(axes, games, strict=False):
        for agent in agents:
            mean = (means or {}).get((agent, game))
            runs = dataset.runs_of(agent, game) if mean is None else (mean,)
            wide = window if isinstance(window, float) else window[game]
            draw = _points if agent in pointed else _curve
            draw(axis, runs, last, wide, unit, drawn[agent], small)
        longest = max((run.length for agent in agents for run in dataset.runs_of(agent, game)), default=last)
        _dress(axis, titles.get(game, game), (min(last, longest) if own_ends else last) * unit, small)
    return _finish(figure, axes, len(games), drawn, f"Mean training score against {name}", small)


def supports(
    dataset: Dataset, agents: Sequence[str], games: Sequence[str], last: float, titles: dict[str, str]
) -> Figure:
    """Largest and smallest atom predicted in each iteration, in φ-space, averaged over seeds."""
    figure, axes, small = _grid(len(games))
    drawn = line_styles(agents)
    unit, name = (1.0, "million frames") if last >= 1 else (1e3, "thousand frames")
    for axis, game in zip(axes, games, strict=False):
        for agent in agents:
            ends, low, high = mean_atoms(dataset.runs_of(agent, game))
            keep = ends <= last + 1e-6
            style = drawn[agent]
            thin = {"color": style.color, "ls": style.dash, "lw": 0.9 if small else style.width}
            axis.plot(ends[keep] * unit, high[keep], **thin)
            axis.plot(ends[keep] * unit, low[keep], **thin)
            axis.fill_between(ends[keep] * unit, low[keep], high[keep], color=style.color, alpha=0.12, lw=0)
        axis.axhline(0, color="#999999", lw=0.5)
        _dress(axis, titles.get(game, game), last * unit, small)
    return _finish(figure, axes, len(games), drawn, f"Smallest and largest atom (φ-space) against {name}", small)


def _curve(
    axis: Axes, runs: Sequence[RunCurve], last: float, window: float, unit: float, style: LineStyle, small: bool
) -> None:
    ends = _thinned(runs, last)
    lines = np.array([run.moving_averages(ends, window) for run in runs if run.ends.size])
    if not lines.size:
        return
    known = ~np.isnan(lines).all(0)
    if not known.any():
        return
    at, lines = ends[known] * unit, lines[:, known]
    width = style.width * (0.6 if small else 1.0)
    axis.plot(
        at,
        np.nanmean(lines, 0),
        color=style.color,
        ls=style.dash,
        lw=width,
        marker="o" if known.sum() <= _FEW else "",
        ms=4,
    )
    if len(lines) > 1:
        axis.fill_between(at, np.nanmin(lines, 0), np.nanmax(lines, 0), color=style.color, alpha=0.15, lw=0)


def _points(
    axis: Axes, runs: Sequence[RunCurve], last: float, window: float, unit: float, style: LineStyle, small: bool
) -> None:
    """Means over seeds where there are scores, and the range of seeds; the line between only guides the eye."""
    ends = sorted({end for run in runs for width, end in run.points if width == window and end <= last + 1e-6})
    if not ends:
        return
    values = np.array([[run.points.get((window, end), np.nan) for end in ends] for run in runs])
    at, mean = np.array(ends) * unit, np.nanmean(values, 0)
    spread = np.abs(np.array([np.nanmin(values, 0), np.nanmax(values, 0)]) - mean)
    size = 2 if small else 4
    axis.errorbar(at, mean, spread, color=style.color, ls=(0, (1, 1.5)), lw=0.8, elinewidth=0.9, marker="o", ms=size)


def _thinned(runs: Sequence[RunCurve], last: float) -> np.ndarray:
    """At most seventy ends of iterations up to `last`, including the last one."""
    ends = np.unique(np.concatenate([np.zeros(0), *(run.ends for run in runs)]).round(6))
    ends = ends[ends <= last + 1e-6]
    chosen = np.linspace(0, len(ends) - 1, min(len(ends), _POINTS)).round().astype(int)
    return ends[chosen] if len(ends) else ends


def _grid(count: int) -> tuple[Figure, list[Axes], bool]:
    """Panels as large as a page allows: 55 fit on one A4 page, six per row."""
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

    axis.set_title(title, fontsize=6.5 if small else 8.5, pad=2, y=1.0)  # a fixed y saves matplotlib a search
    axis.set_xlim(0, last)
    axis.xaxis.set_major_locator(MaxNLocator(2 if small else 5))
    axis.yaxis.set_major_locator(MaxNLocator(3 if small else 5))
    axis.yaxis.set_major_formatter(short_number)
    axis.tick_params(labelsize=5.5 if small else 7, pad=1.5)
    axis.grid(True)


def _finish(
    figure: Figure, axes: list[Axes], used: int, drawn: dict[str, LineStyle], words: str, small: bool
) -> Figure:
    from matplotlib.lines import Line2D

    for axis in axes[used:]:
        axis.set_axis_off()
    if small:  # tick labels only below each column
        for axis in axes[: max(used - 6, 0)]:
            axis.tick_params(labelbottom=False)
    handles = [Line2D([], [], color=style.color, ls=style.dash, lw=style.width) for style in drawn.values()]
    place: Any = "upper center" if small else "outside upper center"
    figure.legend(handles, list(drawn), loc=place, ncols=legend_columns(list(drawn), figure.get_figwidth()))
    figure.supxlabel(words, fontsize=7.5 if small else 8, y=0.004 if small else None)
    return figure
