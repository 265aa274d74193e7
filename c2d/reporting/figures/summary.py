"""Figures over all games: profile, aggregates, progress, probability of improvement, differences per game."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from c2d.drawing import canvas
from c2d.reporting.aggregate import TITLES
from c2d.reporting.figures.style import Look, legend_columns, looks
from c2d.reporting.study import Band, Estimate, Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LABELS = {
    "iqm": "IQM of human-normalized scores",
    "mean": "Mean of human-normalized scores",
    "median": "Median of human-normalized scores",
}


def profile_and_progress(study: Study, progress: dict[str, Band]) -> Figure:
    """Left: fraction of runs above τ. Right: IQM over training."""
    figure, (left, right) = canvas(1, 2, 7.2, 3.0)
    drawn = looks(study.agents)
    for agent in study.agents:
        _line(left, study.profiles[agent], drawn[agent], agent)
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
        *left.get_legend_handles_labels(), loc="outside upper center", ncols=legend_columns(study.agents, 7.2)
    )
    return figure


def efficiency(study: Study, progress: dict[str, dict[str, Band]]) -> Figure:
    """Mean and median over training."""
    figure, axes = canvas(1, 2, 7.2, 3.0)
    drawn = looks(study.agents)
    for axis, name in zip(axes, ("mean", "median"), strict=True):
        _progress(axis, progress[name], drawn, name)
        axis.grid(True)
    figure.legend(
        *axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=legend_columns(study.agents, 7.2)
    )
    return figure


def aggregates(study: Study) -> Figure:
    """A point and its interval per agent and aggregate."""
    agents = list(reversed(study.agents))
    figure, axes = canvas(1, 4, 7.2, 0.75 + 0.24 * len(agents), sharey=True)
    drawn = looks(study.agents)
    for axis, (name, title) in zip(axes, TITLES.items(), strict=True):
        for row, agent in enumerate(agents):
            _estimate(axis, row, study.aggregates[agent][name], drawn[agent])
        axis.set_title(f"{title} {'↓' if name == 'optimality_gap' else '↑'}")
        axis.set(yticks=range(len(agents)), ylim=(-0.6, len(agents) - 0.4))
        axis.set_yticklabels(agents)
        axis.tick_params(axis="y", length=0)
        axis.locator_params(axis="x", nbins=4)
        axis.use_sticky_edges = False  # bars of intervals do not begin at the edge
        axis.margins(x=0.12)
        axis.grid(True, axis="x")
        axis.spines["left"].set_visible(False)
    figure.supxlabel("Human-normalized score (↑ more is better, ↓ less is better)", fontsize=8)
    return figure


def improvement(rows: Sequence[tuple[str, str, Estimate]], agents: Sequence[str]) -> Figure:
    """P(first agent beats second) per pair."""
    figure, (axis,) = canvas(1, 1, 5.2, 0.8 + 0.26 * len(rows))
    drawn = looks(agents)
    for row, (ours, _, estimate) in enumerate(reversed(rows)):
        _estimate(axis, row, estimate, drawn[ours])
    axis.axvline(0.5, color="#999999", lw=0.8, ls=(0, (2, 2)))
    axis.set(xlim=(-0.02, 1.02), yticks=range(len(rows)), ylim=(-0.6, len(rows) - 0.4))
    axis.set_yticklabels([f"{ours} > {theirs}" for ours, theirs, _ in reversed(rows)])
    axis.set_xlabel("Probability of improvement (at 0.5 neither is better)")
    axis.tick_params(axis="y", length=0)
    axis.spines["left"].set_visible(False)
    axis.grid(True, axis="x")
    return figure


def differences(gaps: dict[str, Estimate], ours: str, theirs: str, titles: dict[str, str]) -> Figure:
    """Bars of difference per game, the best on top, on a scale that is linear up to 1 and logarithmic beyond."""
    order = sorted(gaps, key=lambda game: gaps[game].point)
    height = 0.9 + 0.155 * len(order)
    figure, (axis,) = canvas(1, 1, 6.0, height, layout=None)
    longest = max(len(titles[game]) for game in order)  # letters of 6.5 points
    figure.subplots_adjust(left=(0.25 + 0.058 * longest) / 6, right=0.97, bottom=0.5 / height, top=1 - 0.1 / height)
    drawn = looks((ours, theirs))
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


def _line(axis: Axes, band: Band, look: Look, label: str, marker: str = "") -> None:
    axis.plot(
        band.at, band.line, color=look.color, ls=look.dash, lw=look.width, label=label, marker=marker, markersize=4
    )
    if band.low is not None and band.high is not None:
        axis.fill_between(band.at, band.low, band.high, color=look.color, alpha=0.2, lw=0)


def _progress(axis: Axes, progress: dict[str, Band], drawn: dict[str, Look], name: str) -> None:
    for agent, band in progress.items():
        _line(axis, band, drawn[agent], agent, drawn[agent].marker if len(band.at) <= 8 else "")
    axis.set(xlabel="Million frames", ylabel=_LABELS[name])
    axis.set_xlim(left=0)


def _estimate(axis: Axes, row: int, estimate: Estimate, look: Look) -> None:
    """The interval as a bar, the point as a line across it."""
    if estimate.interval is not None:
        low, high = estimate.interval
        axis.barh(row, high - low, left=low, height=0.6, color=look.color, alpha=0.65)
        axis.vlines(estimate.point, row - 0.36, row + 0.36, color="#111111", lw=1.4)
    else:
        axis.plot([estimate.point], [row], marker=look.marker, color=look.color, markersize=6)
