"""What a calibration says: in lines for a terminal, and as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from c2d.evaluation.calibration import BINS, Calibration, Estimate
from c2d.plotting import BLUE, SKY, canvas, drawing, write_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FEW = 20  # games, below which a bootstrap says too much
_INK, _FILL, _REFERENCE = BLUE, SKY, "#555555"


def lines(found: Calibration) -> list[str]:
    """The report for people."""
    which = "every step" if found.stride == 1 else f"one in {found.stride} steps"
    bars = " ".join(f"{100 * bar.value:.0f}" for bar in found.histogram)
    report = [
        f"calibration: {found.steps:,} predicted laws of actions taken ({which} of {found.games} games) against the "
        "discounted returns that came",
        f"  mean            predicted {_text(found.predicted)}, realized {_text(found.realized)}",
        f"  bias            {_bias(found.bias)}",
        *(_coverage(level, estimate) for level, estimate in found.coverage.items()),
        f"  CRPS            {_text(found.crps)}; climatology, one law for all states: {_text(found.climatology)}",
        f"  PIT histogram   {bars}   (% in each tenth; {100 // BINS} if calibrated)",
    ]
    if found.skill is not None:
        skill = f"  skill           {_text(found.skill)}   (1 is perfect, 0 no better than climatology)"
        report.insert(-1, skill)
    if found.cut_after is not None:
        last = found.cut_after - found.horizon
        report.append(
            f"  a game was cut after {found.cut_after:,} steps: in every game only steps 0 to {last:,} count "
            f"(γ^{found.horizon} ≤ 1 %); {found.dropped:,} were dropped"
        )
    intervals = "of whole games drawn anew, 95 %" if found.games > 1 else "none from one game"
    if 1 < found.games < FEW:
        intervals += f"; from {found.games} games they are too short, take --games {FEW} or more"
    report.append(f"  intervals in parentheses: {intervals}")
    return report


def _text(estimate: Estimate, scale: float = 1.0, digits: int = 3) -> str:
    value = f"{scale * estimate.value:.{digits}f}"
    if estimate.interval is None:
        return value
    low, high = (f"{scale * bound:.{digits}f}" for bound in estimate.interval)
    return f"{value} ({low} to {high})"


def _bias(bias: Estimate) -> str:
    word = "no bias found"
    if bias.interval is None:
        word = "not enough games to judge"
    elif bias.interval[0] > 0:
        word = "predictions are too high"
    elif bias.interval[1] < 0:
        word = "predictions are too low"
    return f"{_text(bias)}: {word}"


def _coverage(level: str, estimate: Estimate) -> str:
    wanted = float(level)
    word = "as it should be, as far as these games tell"
    if estimate.interval is None:
        word = "not enough games to judge"
    elif estimate.interval[1] < wanted:
        word = "too narrow or misplaced"
    elif estimate.interval[0] > wanted:
        word = "too wide"
    return f"  {100 * wanted:.0f} % interval   covers {_text(estimate, 100, 1)} %: {word}"


def plot(found: Calibration, path: Path, title: str) -> None:
    """PIT histogram, coverage of all central intervals, and predicted means beside what came."""
    with drawing():
        figure, (pit, coverage, means) = canvas(1, 3, 10.5, 4.2)
        _plot_pit(pit, found)
        _plot_coverage(coverage, found)
        _plot_means(means, found)
        figure.suptitle(f"{title}: {found.steps:,} steps of {found.games} games", fontsize=10)
        write_figure(figure, path)


def _errors(estimates: list[Estimate]) -> list[list[float]] | None:
    """Distances down and up to the ends of the intervals, in percent."""
    if any(estimate.interval is None for estimate in estimates):
        return None
    pairs = [(100 * e.value, 100 * e.interval[0], 100 * e.interval[1]) for e in estimates if e.interval is not None]
    return [[max(0.0, v - low) for v, low, _ in pairs], [max(0.0, high - v) for v, _, high in pairs]]


def _plot_pit(axes: Axes, found: Calibration) -> None:
    shares = [100 * bar.value for bar in found.histogram]
    places = [(k + 0.5) / BINS for k in range(BINS)]
    axes.bar(places, shares, width=0.92 / BINS, color=_FILL)
    if (errors := _errors(found.histogram)) is not None:
        axes.errorbar(places, shares, errors, fmt="none", ecolor=_INK, capsize=2, label="95 % interval")
    axes.axhline(100 / BINS, color=_REFERENCE, linestyle="--", linewidth=1, label="calibrated")
    axes.set(title="PIT", xlabel="probability the law gave to less than what came", ylabel="% of steps", xlim=(0, 1))
    _legend(axes)


def _plot_coverage(axes: Axes, found: Calibration) -> None:
    levels = [100 * float(level) for level in found.curve]
    values = [100 * estimate.value for estimate in found.curve.values()]
    axes.plot([0, 100], [0, 100], color=_REFERENCE, linestyle="--", linewidth=1, label="calibrated")
    intervals = [estimate.interval for estimate in found.curve.values()]
    if all(interval is not None for interval in intervals):
        lows, highs = ([100 * interval[side] for interval in intervals if interval] for side in (0, 1))
        axes.fill_between(levels, lows, highs, color=_FILL, alpha=0.4, linewidth=0, label="95 % interval")
    axes.plot(levels, values, color=_INK, marker="o", markersize=3, label="these games")
    axes.set(title="Central intervals", xlabel="predicted probability, %", ylabel="realized returns inside, %")
    axes.set(xlim=(0, 100), ylim=(0, 100), aspect="equal")
    _legend(axes)


def _plot_means(axes: Axes, found: Calibration) -> None:
    predicted, realized, lows, highs = zip(*found.groups, strict=True)
    ends = min(predicted + lows), max(predicted + highs)
    axes.plot(ends, ends, color=_REFERENCE, linestyle="--", linewidth=1, label="calibrated")
    axes.vlines(predicted, lows, highs, color=_FILL, linewidth=4, label="middle 80 % of returns")
    axes.plot(predicted, realized, color=_INK, marker="o", markersize=4, linewidth=0, label="mean return")
    axes.set(title="Means, steps in 8 groups", xlabel="predicted mean", ylabel="realized discounted return")
    _legend(axes)


def _legend(axes: Axes) -> None:
    """Below, where no data can be."""
    axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2, fontsize=8)
