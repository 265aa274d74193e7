"""The figures of `c2d theory`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from c2d.plotting import BLUE, GREEN, ORANGE, PINK, SKY, VERMILION, canvas, drawing, write_figure
from c2d.theory.examples import Cell, Counterexample, LargestLoss
from c2d.theory.homeomorphism import Function, Study

COLORS = (BLUE, ORANGE, GREEN, PINK, SKY, VERMILION)


@drawing()
def counterexample_figure(example: Counterexample, path: Path) -> None:
    """The value of b under each operator as its sure reward r varies, and the value of a."""
    figure, (left, right) = canvas(1, 2, 8.5, 3.3, width_ratios=[1, 1.25])
    _draw_mdp(left, example)
    r = np.linspace(min(0.0, 1.15 * example.sure), max(example.prize * 0.7, 1.15 * example.sure), 200)
    right.axvspan(example.low, example.high, color=VERMILION, alpha=0.13, lw=0)
    right.plot(r, r, color="black", lw=1.8, label="b, every operator: r")
    right.axhline(example.q["T*"][0], color=BLUE, lw=1.8, label="a, T* and Tᵩ: R/2")
    right.axhline(example.q["T_h"][0], color=ORANGE, lw=1.8, ls="--", label="a, Tₕ: h⁻¹(h(R)/2)")
    right.plot([example.sure], [example.sure], "o", color="black", ms=6, zorder=3)
    right.annotate("this MDP", (example.sure, example.sure), (8, -14), textcoords="offset points", fontsize=9)
    middle = (example.low + example.high) / 2
    right.text(middle, example.prize * 0.03, "Tₕ takes b\nand should not", ha="center", color=VERMILION, fontsize=9)
    right.set(
        xlabel="sure reward r of action b", ylabel="value, in real returns", xlim=(r[0], r[-1]), ylim=(r[0], r[-1])
    )
    right.legend(loc="upper left", fontsize=8.5, frameon=False)
    right.set_title(f"h = {example.h.name}, R = {example.prize:g}", fontsize=10)
    write_figure(figure, path)


def _draw_mdp(axis: Any, example: Counterexample) -> None:
    axis.set(xlim=(0, 10), ylim=(0, 10))
    axis.axis("off")
    nodes = {
        "s": (1.2, 5),
        "0": (8.2, 8.6),
        f"R = {example.prize:g}": (8.2, 5.8),
        f"r = {example.sure:.4g}": (8.2, 1.6),
    }
    forks = {"a": ((4.2, 7.2), BLUE), "b": ((4.2, 3.0), VERMILION)}
    axis.text(*nodes["s"], "s", ha="center", va="center", fontsize=12, bbox={"boxstyle": "circle", "fc": "white"})
    for name, (place, color) in forks.items():
        axis.annotate(
            "",
            place,
            (1.65, 5 + 0.35 * np.sign(place[1] - 5)),
            arrowprops={"arrowstyle": "-", "color": color, "lw": 2},
        )
        axis.plot(*place, "o", color=color, ms=7)
        axis.text(place[0] - 1.3, place[1] + (0.35 if place[1] > 5 else -0.9), name, color=color, fontsize=12)
    ends = list(nodes)[1:]
    for end, fork, chance in zip(ends, ("a", "a", "b"), ("½", "½", "1"), strict=True):
        (x, y), (start, color) = nodes[end], forks[fork]
        axis.annotate("", (x - 1.2, y), start, arrowprops={"arrowstyle": "->", "color": color, "lw": 1.5})
        axis.text((x + start[0]) / 2 - 0.6, (y + start[1]) / 2 + 0.3, chance, color=color, fontsize=10)
        axis.text(
            x, y, end, ha="center", va="center", fontsize=10, bbox={"boxstyle": "round", "fc": "#eeeeee", "lw": 0}
        )
    axis.set_title("a coin for R, or a sure r; then the end", fontsize=10)


@drawing()
def phi_figure(study: Study, to: Function, back: Function, path: Path) -> None:
    """φ near 0 and far out, with its inverse."""
    figure, (near, far) = canvas(1, 2, 8.5, 3.3)
    for axis, size in ((near, 5.0), (far, 1000.0)):
        x = np.linspace(-size, size, 1001)
        with np.errstate(all="ignore"):
            y = np.where(np.isfinite(to(x)), to(x), np.nan)
            axis.plot(x, y, color=BLUE, lw=1.8, label="φ")
            top = float(np.nanmax(np.abs(y)))
            w = np.linspace(max(study.low, -size), min(study.high, size), 1001)[1:-1]
            inverse = back(w)
            axis.plot(w, np.where(np.abs(inverse) <= size, inverse, np.nan), color=ORANGE, lw=1.8, ls="--", label="φ⁻¹")
        axis.plot(x, x, color="#999999", lw=0.8, label="identity")
        for end in (study.low, study.high):
            if np.isfinite(end):
                axis.axhline(end, color=BLUE, lw=0.8, ls=":")
        reach = min(size, 3 * top) if size > 10 else size
        axis.set(xlabel="x", xlim=(-size, size), ylim=(-reach, reach))
        axis.legend(fontsize=9, frameon=False, loc="upper left")
    figure.suptitle(f"φ(x) = {study.name}", fontsize=11)
    write_figure(figure, path)


@drawing()
def search_figure(by_stochasticity: Sequence[Cell], by_eps: Sequence[Cell], by_spread: Sequence[Cell],
                  worst: Sequence[LargestLoss], path: Path) -> None:  # fmt: skip
    """Four panels: share of wrong policies by stochasticity, by ε, by spread; the largest loss by ε."""
    figure, (chance, epsilon, prizes, single) = canvas(2, 2, 8.5, 6.2)
    _lines(
        chance,
        by_stochasticity,
        "stochasticity",
        "weight of chance in the transitions",
        "by stochasticity, ε = 0.001",
    )
    _lines(epsilon, by_eps, "eps", "ε of h", "by ε, stochasticity 0.5")
    _logarithmic(epsilon, [cell.eps for cell in by_eps])
    _losses(prizes, by_spread)
    single.plot([w.eps for w in worst], [100 * w.loss for w in worst], "o-", color=VERMILION)
    _logarithmic(single, [w.eps for w in worst])
    single.set(xlabel="ε of h", ylabel="value lost, %", ylim=(0, 103))
    single.set_title("one decision, the worst there is (prizes up to 10⁶)", fontsize=10)
    write_figure(figure, path)


def _logarithmic(axis: Any, values: Sequence[float]) -> None:
    """A logarithmic axis that includes 0."""
    axis.set_xscale("symlog", linthresh=1e-4)
    axis.set_xlim(-1e-5 if min(values) == 0 else 0.7 * min(values), 1.5 * max(max(values), 1e-4))


def _lines(axis: Any, cells: Sequence[Cell], key: str, label: str, title: str) -> None:
    for number, scale in enumerate(sorted({cell.reward_scale for cell in cells})):
        row = [cell for cell in cells if cell.reward_scale == scale]
        x = [getattr(cell, key) for cell in row]
        axis.plot(x, [100 * c.wrong for c in row], "o-", color=COLORS[number % 6], ms=4, label=f"{scale:g}")
        axis.fill_between(
            x, [100 * c.low for c in row], [100 * c.high for c in row], color=COLORS[number % 6], alpha=0.15, lw=0
        )
    axis.set(xlabel=label, ylabel="MDPs with a wrong policy, %")
    axis.set_ylim(bottom=0)
    axis.legend(title="reward scale", fontsize=8, title_fontsize=8, frameon=False)
    axis.set_title(f"{title} (bands: 95 % intervals)", fontsize=10)


def _losses(axis: Any, cells: Sequence[Cell]) -> None:
    x = [cell.spread for cell in cells]
    axis.plot(x, [100 * c.wrong for c in cells], "o-", color=BLUE, label="MDPs with a wrong policy")
    axis.plot(x, [100 * c.mean_loss for c in cells], "s--", color=GREEN, label="value lost, mean over MDPs")
    axis.plot(x, [100 * c.worst_loss for c in cells], "^:", color=VERMILION, label="value lost, worst MDP")
    axis.set(xlabel="spread of the rewards (σ of their logarithm)", ylabel="%")
    axis.set_ylim(bottom=0)
    axis.legend(fontsize=8, frameon=False)
    axis.set_title("rare large prizes: stochasticity 0.5, ε = 0.001, scale 1", fontsize=10)
