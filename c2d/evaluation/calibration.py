"""Are the predicted return distributions right? Predictions at visited states against the returns that followed.

PIT: F(y), uniform on [0, 1] if the return y follows the predicted distribution. Coverage: how often y lies in central
intervals. CRPS: ∫ (F(w) − 1{w ≥ y})² dw, the squared Cramér distance to the outcome; smaller is better. Its reference
is the climatology: one distribution for all states, made of all realized returns. Steps of a game are not independent,
so intervals come from resampling whole games.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from c2d.evaluation.prediction_log import Sample
from c2d.evaluation.statistics import percentile_interval
from c2d.plotting import BLUE, SKY, canvas, drawing, write_figure
from c2d.returns.losses import cramer
from c2d.types import ReturnDist

if TYPE_CHECKING:
    from matplotlib.axes import Axes


BINS = 10
LEVELS = (0.5, 0.8, 0.95)
CURVE = tuple(round(0.05 * k, 2) for k in range(1, 20))
EQUAL = 0.01  # returns closer than this fraction of the standard deviation of realized returns count as equal
SPREAD = 0.02  # a PIT between atoms is spread over half the mass of the adjacent atoms, at most this
_CHUNK = 100  # resamples per block: bounds memory
FEW = 20  # with fewer games, bootstrap intervals are too short
_INK, _FILL, _REFERENCE = BLUE, SKY, "#555555"


@dataclass(frozen=True)
class Estimate:
    """A number and its 95 % bootstrap interval over games; None with one game."""

    value: float
    interval: tuple[float, float] | None


@dataclass(frozen=True)
class Calibration:
    """Predictions compared with realized returns."""

    games: int
    steps: int  # used, after thinning
    stride: int
    dropped: int  # too close to the earliest cut, before thinning
    cut_after: int | None
    horizon: int
    equal: float  # returns closer than this count as equal
    predicted: Estimate  # mean of the predicted means
    realized: Estimate
    bias: Estimate  # predicted minus realized
    crps: Estimate
    climatology: Estimate  # its CRPS
    skill: Estimate | None  # 1 − CRPS / CRPS of climatology; None if all returns are equal
    coverage: dict[str, Estimate]  # by level in LEVELS
    curve: dict[str, Estimate]  # by level in CURVE
    histogram: list[Estimate]  # fraction of PIT values in each of BINS equal bins
    groups: list[tuple[float, float, float, float]]  # mean prediction; realized mean, 10 % and 90 % quantiles


def pit(
    returns: np.ndarray, probs: np.ndarray, realized: np.ndarray, rng: np.random.Generator, equal: float = 0.0
) -> np.ndarray:
    """Randomized probability integral transform. [n, N], [n, N], [n] -> [n] in [0, 1]

    If atoms lie within `equal` of y, the value is drawn from the mass they cover (Czado et al. 2009), so that a
    distribution with atoms in the right places is uniform. Otherwise y lies between atoms, which represent the returns
    around them: F(y) is spread over half of the mass on either side, but at most by SPREAD. So distributions with many
    small atoms leave no stripes, and a single point does not count as a wide distribution.
    """
    order = returns.argsort(-1, kind="stable")
    z, p = np.take_along_axis(returns, order, -1), np.take_along_axis(probs, order, -1)
    p = p / p.sum(-1, keepdims=True)
    y = realized[:, None]
    first, last = (z < y - equal).sum(-1), (z <= y + equal).sum(-1)  # numbers of atoms below y, and not above it
    masses = np.concatenate((np.zeros((len(z), 1)), p.cumsum(-1)), -1)  # [n, N + 1]
    low, high = (np.take_along_axis(masses, count[:, None], -1)[:, 0] for count in (first, last))
    padded = np.pad(p, ((0, 0), (1, 1)))  # [n, N + 2]
    adjacent = [np.take_along_axis(padded, at[:, None], -1)[:, 0] for at in (first, first + 1)]
    between = first == last
    low = low - np.where(between, np.minimum(adjacent[0] / 2, SPREAD), 0.0)
    high = high + np.where(between, np.minimum(adjacent[1] / 2, SPREAD), 0.0)
    return np.asarray(np.clip(low + (high - low) * rng.random(len(z)), 0.0, 1.0))


def crps(returns: np.ndarray, probs: np.ndarray, realized: np.ndarray) -> np.ndarray:
    """Continuous ranked probability score. [n, N], [n, N], [n] -> [n]"""
    p = torch.from_numpy(probs / probs.sum(-1, keepdims=True))
    point = torch.from_numpy(realized)[:, None]
    law, outcome = ReturnDist(torch.from_numpy(returns), p.log()), ReturnDist(point, torch.zeros_like(point))
    return np.asarray(cramer(law, outcome))


def covered(values: np.ndarray, level: float) -> np.ndarray:
    """Whether each PIT lies in the central interval with this probability. [n] -> [n] bool"""
    return np.asarray(np.abs(values - 0.5) <= level / 2)


def climatology(realized: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Mean CRPS of the weighted distribution of these returns on the same returns. [n], [R, n] -> [R]

    ∫ F (1 − F) dw, which is half the mean distance between two returns.
    """
    order = realized.argsort(kind="stable")
    below = weights[:, order].cumsum(-1)
    below /= below[:, -1:]
    return np.asarray((below * (1 - below))[:, :-1] @ np.diff(realized[order]))


def calibrate(sample: Sample, seed: int = 0, resamples: int = 2_000) -> Calibration:
    """All statistics of a sample with at least one step."""
    games, place = np.unique(sample.game, return_inverse=True)
    equal = EQUAL * float(sample.realized.std())
    values = pit(sample.returns, sample.probs, sample.realized, np.random.default_rng(seed), equal)
    means = (sample.probs * sample.returns).sum(-1) / sample.probs.sum(-1)
    bins = np.minimum((values * BINS).astype(int), BINS - 1)
    columns = {
        "predicted": means,
        "realized": sample.realized,
        "crps": crps(sample.returns, sample.probs, sample.realized),
        **{f"coverage {level}": covered(values, level) for level in (*LEVELS, *CURVE)},
        **{f"bin {k}": bins == k for k in range(BINS)},
    }
    sums = np.stack([np.bincount(place, column.astype(float), len(games)) for column in columns.values()])  # [Q, G]
    counts = np.bincount(place, minlength=len(games))
    parts = []
    for weights in _weights(len(games), resamples, seed):  # [R, G]
        climate = climatology(sample.realized, weights[:, place])
        parts.append(np.concatenate(((weights @ sums.T) / (weights @ counts)[:, None], climate[:, None]), 1))
    draws = dict(zip((*columns, "climatology"), np.concatenate(parts).T, strict=True))  # each [1 + resamples]
    climate = draws["climatology"]
    skill = 1 - np.divide(draws["crps"], climate, out=np.full_like(climate, np.nan), where=climate > 0)
    several = len(games) > 1

    def estimate(values: np.ndarray) -> Estimate:
        return _estimate(values, several)

    return Calibration(
        games=len(games),
        steps=len(values),
        stride=sample.stride,
        dropped=sample.dropped,
        cut_after=sample.cut_after,
        horizon=sample.horizon,
        equal=equal,
        predicted=estimate(draws["predicted"]),
        realized=estimate(draws["realized"]),
        bias=estimate(draws["predicted"] - draws["realized"]),
        crps=estimate(draws["crps"]),
        climatology=estimate(climate),
        skill=estimate(skill) if climate[0] > 0 else None,
        coverage={f"{level:g}": estimate(draws[f"coverage {level}"]) for level in LEVELS},
        curve={f"{level:g}": estimate(draws[f"coverage {level}"]) for level in CURVE},
        histogram=[estimate(draws[f"bin {k}"]) for k in range(BINS)],
        groups=_groups(means, sample.realized),
    )


def _weights(games: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """Blocks [R, G] of how often each game counts: first once each, then as resampled."""
    yield np.ones((1, games))
    rng = np.random.default_rng([seed, 1])
    for done in range(0, resamples if games > 1 else 0, _CHUNK):
        yield rng.multinomial(games, np.full(games, 1 / games), size=min(_CHUNK, resamples - done)).astype(float)


def _estimate(draws: np.ndarray, several: bool) -> Estimate:
    """Element 0 is the estimate from the original games; the others are resamples."""
    value = float(draws[0])
    if not several or not np.isfinite(draws).all():
        return Estimate(value, None)
    low, high = percentile_interval(draws[1:])
    return Estimate(value, (float(low), float(high)))


def _groups(means: np.ndarray, realized: np.ndarray, count: int = 8) -> list[tuple[float, float, float, float]]:
    """Steps sorted by predicted mean, in groups of equal size."""
    groups = []
    for part in np.array_split(means.argsort(kind="stable"), min(count, len(means))):
        low, high = np.quantile(realized[part], [0.1, 0.9])
        groups.append((float(means[part].mean()), float(realized[part].mean()), float(low), float(high)))
    return groups


# ------------------------------------------------------------------------------------------------ several networks


@dataclass(frozen=True)
class NetworkRow:
    """Play and calibration of one network of a run, or a statistic of several. None: it cannot be computed."""

    name: str
    score: float | None  # mean over games
    bias: float | None
    relative_bias: float | None  # |bias| / |mean realized return|
    coverage: float | None  # of the central 80 % intervals
    crps: float | None
    skill: float | None


def network_row(name: str, scores: list[float], result: Calibration | None) -> NetworkRow:
    """`result` is None if no step could be compared."""
    score = float(np.mean(scores))
    if result is None:
        return NetworkRow(name, score, *[None] * 5)
    bias, realized = result.bias.value, result.realized.value
    relative = abs(bias) / abs(realized) if realized else None
    skill = None if result.skill is None else result.skill.value
    return NetworkRow(name, score, bias, relative, result.coverage["0.8"].value, result.crps.value, skill)


def over_networks(rows: list[NetworkRow]) -> list[NetworkRow]:
    """Mean and standard deviation of every column over the networks that have a value."""
    columns = [[value for value in column if value is not None] for column in zip(*map(_numbers, rows), strict=True)]
    means = [float(np.mean(column)) if column else None for column in columns]
    stds = [float(np.std(column, ddof=1)) if len(column) > 1 else None for column in columns]
    return [NetworkRow("mean", *means), NetworkRow("std", *stds)]


def _numbers(row: NetworkRow) -> tuple[float | None, ...]:
    return (row.score, row.bias, row.relative_bias, row.coverage, row.crps, row.skill)


_COLUMNS = (
    ("score", 1.0, ".2f"),
    ("bias", 1.0, ".3f"),
    ("|bias|/return", 100.0, ".1f"),
    ("80 % covers", 100.0, ".1f"),
    ("CRPS", 1.0, ".3f"),
    ("skill", 1.0, ".3f"),
)  # title, factor, format


def network_lines(rows: list[NetworkRow], games: int) -> list[str]:
    """A table for the terminal: one line per network, then mean and standard deviation."""
    titles = [title for title, _, _ in _COLUMNS]
    lines = [
        f"the last {len(rows)} networks of the run, {games} games each, with the same seeds:",
        f"{'steps':>12}" + "".join(f"{title:>15}" for title in titles),
    ]
    for row in [*rows, *over_networks(rows)]:
        cells = [
            "–" if value is None else format(factor * value, form) + (" %" if factor == 100.0 else "")
            for value, (_, factor, form) in zip(_numbers(row), _COLUMNS, strict=True)
        ]
        lines.append(f"{row.name:>12}" + "".join(f"{cell:>15}" for cell in cells))
    return [*lines, "std: between networks of this run, not between training seeds"]


# ----------------------------------------------------------------------------------------------- text and figure


def calibration_lines(result: Calibration) -> list[str]:
    """Text for the terminal."""
    which = "every step" if result.stride == 1 else f"one in {result.stride} steps"
    bars = " ".join(f"{100 * bar.value:.0f}" for bar in result.histogram)
    report = [
        f"calibration: {result.steps:,} predictions of executed actions ({which} of {result.games} games) against the "
        "discounted returns that followed",
        f"  mean            predicted {_text(result.predicted)}, realized {_text(result.realized)}",
        f"  bias            {_bias(result.bias)}",
        *(_coverage(level, estimate) for level, estimate in result.coverage.items()),
        f"  CRPS            {_text(result.crps)}; climatology (the same for all states): {_text(result.climatology)}",
        f"  PIT histogram   {bars}   (% in each tenth; {100 // BINS} if calibrated)",
    ]
    if result.skill is not None:
        skill = f"  skill           {_text(result.skill)}   (1 is perfect, 0 is no better than climatology)"
        report.insert(-1, skill)
    if result.cut_after is not None:
        last = result.cut_after - result.horizon
        report.append(
            f"  a game was cut after {result.cut_after:,} steps: only steps 0 to {last:,} of each game are used "
            f"(γ^{result.horizon} ≤ 1 %); {result.dropped:,} were dropped"
        )
    intervals = "95 %, from resampling whole games" if result.games > 1 else "none with one game"
    if 1 < result.games < FEW:
        intervals += f"; with {result.games} games they are too short: use --games {FEW} or more"
    report.append(f"  intervals in parentheses: {intervals}")
    return report


def _text(estimate: Estimate, scale: float = 1.0, digits: int = 3) -> str:
    value = f"{scale * estimate.value:.{digits}f}"
    if estimate.interval is None:
        return value
    low, high = (f"{scale * bound:.{digits}f}" for bound in estimate.interval)
    return f"{value} ({low} to {high})"


def _bias(bias: Estimate) -> str:
    word = "no significant bias"
    if bias.interval is None:
        word = "not enough games to judge"
    elif bias.interval[0] > 0:
        word = "predictions are too high"
    elif bias.interval[1] < 0:
        word = "predictions are too low"
    return f"{_text(bias)}: {word}"


def _coverage(level: str, estimate: Estimate) -> str:
    nominal = float(level)
    word = "consistent with calibration"
    if estimate.interval is None:
        word = "not enough games to judge"
    elif estimate.interval[1] < nominal:
        word = "too narrow or misplaced"
    elif estimate.interval[0] > nominal:
        word = "too wide"
    return f"  {100 * nominal:.0f} % interval   covers {_text(estimate, 100, 1)} %: {word}"


def calibration_figure(result: Calibration, path: Path, title: str) -> None:
    """PIT histogram, coverage of central intervals, and predicted means against realized returns."""
    with drawing():
        figure, (pit, coverage, means) = canvas(1, 3, 10.5, 4.2)
        _plot_pit(pit, result)
        _plot_coverage(coverage, result)
        _plot_means(means, result)
        figure.suptitle(f"{title}: {result.steps:,} steps of {result.games} games", fontsize=10)
        write_figure(figure, path)


def _errors(estimates: list[Estimate]) -> list[list[float]] | None:
    """Distances to the lower and upper ends of the intervals, in percent."""
    if any(estimate.interval is None for estimate in estimates):
        return None
    pairs = [(100 * e.value, 100 * e.interval[0], 100 * e.interval[1]) for e in estimates if e.interval is not None]
    return [[max(0.0, v - low) for v, low, _ in pairs], [max(0.0, high - v) for v, _, high in pairs]]


def _plot_pit(axes: Axes, result: Calibration) -> None:
    shares = [100 * bar.value for bar in result.histogram]
    places = [(k + 0.5) / BINS for k in range(BINS)]
    axes.bar(places, shares, width=0.92 / BINS, color=_FILL)
    if (errors := _errors(result.histogram)) is not None:
        axes.errorbar(places, shares, errors, fmt="none", ecolor=_INK, capsize=2, label="95 % interval")
    axes.axhline(100 / BINS, color=_REFERENCE, linestyle="--", linewidth=1, label="calibrated")
    axes.set(title="PIT", xlabel="predicted probability of a smaller return", ylabel="% of steps", xlim=(0, 1))
    _legend(axes)


def _plot_coverage(axes: Axes, result: Calibration) -> None:
    levels = [100 * float(level) for level in result.curve]
    values = [100 * estimate.value for estimate in result.curve.values()]
    axes.plot([0, 100], [0, 100], color=_REFERENCE, linestyle="--", linewidth=1, label="calibrated")
    intervals = [estimate.interval for estimate in result.curve.values()]
    if all(interval is not None for interval in intervals):
        lows, highs = ([100 * interval[side] for interval in intervals if interval] for side in (0, 1))
        axes.fill_between(levels, lows, highs, color=_FILL, alpha=0.4, linewidth=0, label="95 % interval")
    axes.plot(levels, values, color=_INK, marker="o", markersize=3, label="these games")
    axes.set(title="Central intervals", xlabel="predicted probability, %", ylabel="realized returns inside, %")
    axes.set(xlim=(0, 100), ylim=(0, 100), aspect="equal")
    _legend(axes)


def _plot_means(axes: Axes, result: Calibration) -> None:
    predicted, realized, lows, highs = zip(*result.groups, strict=True)
    ends = min(predicted + lows), max(predicted + highs)
    axes.plot(ends, ends, color=_REFERENCE, linestyle="--", linewidth=1, label="calibrated")
    axes.vlines(predicted, lows, highs, color=_FILL, linewidth=4, label="middle 80 % of returns")
    axes.plot(predicted, realized, color=_INK, marker="o", markersize=4, linewidth=0, label="mean return")
    axes.set(title="Means, steps in 8 groups", xlabel="predicted mean", ylabel="realized discounted return")
    _legend(axes)


def _legend(axes: Axes) -> None:
    """Below the axes, where it hides no data."""
    axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2, fontsize=8)
