"""Two policies of the same weights on the same games: what one gains and the other loses, and how surely."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from c2d.evaluation.play import PlayedGames
from c2d.evaluation.risk import Criterion, criterion
from c2d.evaluation.statistics import percentile_interval, resampled_indices

TAIL = 0.1  # of the CVaR in the table, unless the criterion is a CVaR itself


@dataclass(frozen=True)
class Row:
    """One statistic of realized games under both policies. The interval is of the difference, 95 %."""

    of: str  # "score" or "return"
    statistic: str
    by_mean: float
    by_criterion: float
    difference: float
    interval: tuple[float, float]

    @property
    def significant(self) -> bool:
        return not self.interval[0] <= 0.0 <= self.interval[1]


@dataclass(frozen=True)
class Tradeoff:
    criterion: str
    games: int
    rows: list[Row]
    decisions: tuple[int, int]  # in the games of the mean, in those of the criterion
    different: tuple[int, int]  # decisions among them on which the two disagree

    def to_json(self, course: PlayedGames) -> dict[str, Any]:
        return {
            **asdict(self),
            "scores": course.scores,
            "returns": course.returns,
            "lengths": [end.steps for end in course.ends],
        }


def compare(by_mean: PlayedGames, by_criterion: PlayedGames, resamples: int = 10_000, seed: int = 0) -> Tradeoff:
    """Games are drawn anew in pairs, since game k of both has the same seed."""
    chosen = by_criterion.by
    rows = []
    for of, first, second in (
        ("score", by_mean.scores, by_criterion.scores),
        ("return", by_mean.returns, by_criterion.returns),
    ):
        pair = np.array([first, second], dtype=np.float64)  # [2, G]
        names = _statistics(chosen, own=of == "return")
        draws = _draws(pair, names, resamples, seed)
        for name in names:
            one, other = (float(_statistic(name, row[None])[0]) for row in pair)
            low, high = percentile_interval(draws[name])
            rows.append(Row(of, name, one, other, other - one, (float(low), float(high))))
    return Tradeoff(
        str(chosen),
        len(by_mean.ends),
        rows,
        (by_mean.decisions, by_criterion.decisions),
        (by_mean.different, by_criterion.different),
    )


def _statistics(chosen: Criterion, own: bool) -> list[str]:
    """Mean, spread and tail; and the criterion itself, where it is of what it was applied to."""
    tail = chosen if chosen.name == "cvar" else Criterion("cvar", TAIL)
    return ["mean", "std", str(tail), *([str(chosen)] if own and chosen.name not in ("mean", "cvar") else [])]


def _statistic(name: str, values: np.ndarray) -> np.ndarray:
    """A statistic of each row, every value as likely as the others. [R, G] -> [R]"""
    if name == "std":
        return np.asarray(values.std(1, ddof=1))
    tensor = torch.from_numpy(values)
    return criterion(name)(tensor, torch.full_like(tensor, 1 / tensor.shape[1])).numpy()


def _draws(pair: np.ndarray, names: Sequence[str], resamples: int, seed: int) -> dict[str, np.ndarray]:
    """Differences of each statistic over games drawn anew. [2, G] -> {name: [resamples]}"""
    found: dict[str, list[np.ndarray]] = {name: [] for name in names}
    for picks in resampled_indices(pair.shape[1], resamples, seed):  # [R, G]
        for name in names:
            found[name].append(_statistic(name, pair[1][picks]) - _statistic(name, pair[0][picks]))
    return {name: np.concatenate(parts) for name, parts in found.items()}


def lines(found: Tradeoff) -> list[str]:
    """The report for people."""
    width = max(9, len(found.criterion))
    report = [
        f"{'':<34}{'by mean':>11}  {'by ' + found.criterion:>{width + 3}}  difference (95 % interval)",
        *(_row(row, width + 3) for row in found.rows),
    ]
    shares = [f"{100 * part / whole:.1f} %" for part, whole in zip(found.different, found.decisions, strict=True)]
    report.append(
        f"the two choose differently in {shares[0]} of {found.decisions[0]:,} decisions in the games of the mean, "
        f"and in {shares[1]} of {found.decisions[1]:,} in those of {found.criterion}"
    )
    report.append(_verdict(found))
    tail = next(row.statistic for row in found.rows if row.statistic.startswith("cvar"))
    worst = float(tail.partition(":")[2]) * found.games
    if worst < 5:
        report.append(
            f"note: {tail} of {found.games} games is the mean of the worst {worst:g}, and its interval too short; "
            f"take --games {math.ceil(5 * found.games / worst):,} or more"
        )
    return report


def _row(row: Row, width: int) -> str:
    name = f"{'score' if row.of == 'score' else 'return from the start'}: {row.statistic}"
    largest = max(map(abs, (row.by_mean, row.by_criterion, *row.interval)))
    digits = 3 if largest < 10 else 2 if largest < 100 else 1
    low, high = row.interval
    mark = "  *" if row.significant else ""
    return (
        f"{name:<34}{row.by_mean:>11.{digits}f}  {row.by_criterion:>{width}.{digits}f}  "
        f"{row.difference:+.{digits}f} ({low:+.{digits}f} to {high:+.{digits}f}){mark}"
    )


def _verdict(found: Tradeoff) -> str:
    if not any(found.different):
        return f"{found.criterion} chose as the mean did at every step: there is no difference to judge"
    clear = [row for row in found.rows if row.significant]
    if not clear:
        return "nothing here is significant: every interval of a difference contains 0"
    return (
        f"* marks intervals without 0, here {len(clear)} of {len(found.rows)}; "
        "where nothing differs, chance marks one in twenty"
    )
