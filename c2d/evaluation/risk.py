"""Risk criteria: one number from a return distribution, so that actions can be compared by more than the mean.

Each criterion is a pure function of real returns [..., N], in any order, and probabilities [..., N] -> [...]. They
accept any discrete distribution: free atoms, grids, quantiles, one atom (where every criterion orders actions as the
mean does). `CRITERIA` is the table of names and help texts; `criterion("cvar:0.1")` parses user input. `tradeoff`
compares two policies of the same weights on the same games.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from c2d.errors import UserError, unknown_name
from c2d.evaluation.statistics import percentile_interval, resampled_indices
from c2d.returns.bellman import greedy

if TYPE_CHECKING:
    from c2d.evaluation.play import PlayedGames


Measure = Callable[[Tensor, Tensor], Tensor]  # returns [..., N], probabilities [..., N] -> [...]

_EQUAL = 1e-6  # probabilities closer than this count as equal: float32 sums of a softmax differ by as much
TAIL = 0.1  # α of the CVaR in the table, unless the criterion is a CVaR itself


def mean(returns: Tensor, probs: Tensor) -> Tensor:
    """E Z = Σ p_k z_k."""
    return (probs * returns).sum(-1)


def cvar(returns: Tensor, probs: Tensor, alpha: float) -> Tensor:
    """(1/α) ∫₀^α F⁻¹(τ) dτ: the mean of the worst fraction α; an atom at its edge counts in part.

    (Rockafellar and Uryasev 2002, Prop. 8.) α = 1 is the mean. Probabilities that sum only approximately to 1 are
    used as they are, and the result is divided by the mass used.
    """
    ordered, order = returns.sort(-1)
    mass = probs.gather(-1, order)
    taken = (alpha - (mass.cumsum(-1) - mass)).clamp(min=0.0).minimum(mass)
    return (taken * ordered).sum(-1) / taken.sum(-1)


def entropic(returns: Tensor, probs: Tensor, beta: float) -> Tensor:
    """(1/β) log E exp(βZ): β < 0 is risk-averse, β > 0 risk-seeking; near 0 it is mean + β/2 · variance.

    In float64 and centered on the mean m. Where all |β(z − m)| are small, log1p computes the logarithm; elsewhere
    logsumexp does, so that returns of any size are safe.
    """
    z, p = returns.double(), probs.double()
    p = p / p.sum(-1, keepdim=True)
    middle = (p * z).sum(-1, keepdim=True)
    exponent = beta * (z - middle)  # [..., N]
    far = torch.logsumexp(exponent + p.log(), -1)
    near = torch.log1p((p * torch.expm1(exponent)).sum(-1))
    small = exponent.abs().amax(-1) < 0.1
    return (middle.squeeze(-1) + torch.where(small, near, far) / beta).to(returns.dtype)


def mean_std(returns: Tensor, probs: Tensor, c: float) -> Tensor:
    """E Z − c·√Var Z; c < 0 is risk-seeking."""
    middle = mean(returns, probs)
    variance = (probs * (returns - middle.unsqueeze(-1)).square()).sum(-1)
    return middle - c * variance.sqrt()


def above(returns: Tensor, probs: Tensor, x: float) -> Tensor:
    """P(Z > x)."""
    return (probs * (returns > x)).sum(-1)


class CriterionKind(NamedTuple):
    """A row of the table: a criterion without its parameter."""

    number: str | None  # name of its parameter; None: it has none
    example: str
    help: str
    accepted: str  # its values, in words
    accepts: Callable[[float], bool]
    measure: Callable[..., Tensor]  # (returns, probs[, number])


CRITERIA: dict[str, CriterionKind] = {
    "mean": CriterionKind(None, "mean", "the expected return, as in training", "", lambda _: True, mean),
    "cvar": CriterionKind(
        "ALPHA",
        "cvar:0.1",
        "the mean of the worst fraction ALPHA of returns: risk-averse",
        "a number above 0 and at most 1",
        lambda alpha: 0.0 < alpha <= 1.0,
        cvar,
    ),
    "entropic": CriterionKind(
        "BETA",
        "entropic:-0.5",
        "(1/BETA) log E exp(BETA·return): risk-averse below 0, risk-seeking above",
        "any finite number except 0, where it becomes the mean",
        lambda beta: beta != 0.0,
        entropic,
    ),
    "mean-std": CriterionKind(
        "C",
        "mean-std:1",
        "the mean minus C standard deviations: risk-averse above 0, risk-seeking below",
        "any finite number",
        lambda _: True,
        mean_std,
    ),
    "above": CriterionKind(
        "X",
        "above:5",
        "the probability of a return greater than X; the mean breaks ties",
        "any finite number",
        lambda _: True,
        above,
    ),
}
ACCEPTED = ", ".join(name if kind.number is None else f"{name}:{kind.number}" for name, kind in CRITERIA.items())


class Criterion(NamedTuple):
    """A criterion of the table with its parameter."""

    name: str
    number: float | None

    def __str__(self) -> str:
        return self.name if self.number is None else f"{self.name}:{self.number:g}"

    def __call__(self, returns: Tensor, probs: Tensor) -> Tensor:
        """[..., N], [..., N] -> [...]"""
        measure = CRITERIA[self.name].measure
        return measure(returns, probs) if self.number is None else measure(returns, probs, self.number)

    def best(self, returns: Tensor, probs: Tensor, legal: Tensor | None = None) -> Tensor:
        """The legal action with the largest value; ties go to the largest mean, then to the first. [..., A, N] -> [...]

        legal [..., A] bool; None: all actions are.
        """
        means = mean(returns, probs)
        if self.name == "mean":
            return greedy(means, legal)
        values = self(returns, probs)  # [..., A]
        if legal is not None:
            values = values.masked_fill(~legal, -math.inf)
        tolerance = _EQUAL if self.name == "above" else 0.0
        equal = values >= values.amax(-1, keepdim=True) - tolerance
        return greedy(means.masked_fill(~equal, -math.inf), legal)


MEAN = Criterion("mean", None)


def criterion(text: str) -> Criterion:
    """Parse a criterion such as "cvar:0.1"."""
    name, colon, number = text.strip().partition(":")
    if name not in CRITERIA:
        raise unknown_name("criterion", name, CRITERIA, ACCEPTED)
    kind = CRITERIA[name]
    if kind.number is None:
        if colon:
            raise UserError(f'criterion "{text}" has a number; accepted: {name}')
        return Criterion(name, None)
    if not number:
        raise UserError(f'criterion "{text}" has no number; accepted: {name}:{kind.number}, as in {kind.example}')
    try:
        value = float(number)
    except ValueError:
        raise UserError(
            f'criterion "{text}": "{number}" is not a number; accepted: {name}:{kind.number}, as in {kind.example}'
        ) from None
    if not (math.isfinite(value) and kind.accepts(value)):
        raise UserError(f'criterion "{text}": {kind.number} is {number}; accepted: {kind.accepted}')
    return Criterion(name, value)


# ------------------------------------------------------------------------------------- two policies compared


@dataclass(frozen=True)
class PolicyStatistic:
    """One statistic of played games under both policies, with the 95 % interval of the difference."""

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
    """What a criterion gains and loses against the mean."""

    criterion: str
    games: int
    rows: list[PolicyStatistic]
    decisions: tuple[int, int]  # in games played by the mean, and by the criterion
    different: tuple[int, int]  # those on which the two disagree

    def to_json(self, course: PlayedGames) -> dict[str, Any]:
        return {
            **asdict(self),
            "scores": course.scores,
            "returns": course.returns,
            "lengths": [end.steps for end in course.ends],
        }


def tradeoff(by_mean: PlayedGames, by_criterion: PlayedGames, resamples: int = 10_000, seed: int = 0) -> Tradeoff:
    """Compare games in pairs: game k of both policies has the same seed, so pairs are resampled."""
    chosen = by_criterion.by
    rows = []
    for of, first, second in (
        ("score", by_mean.scores, by_criterion.scores),
        ("return", by_mean.returns, by_criterion.returns),
    ):
        pair = np.array([first, second], dtype=np.float64)  # [2, G]
        names = _statistics(chosen, for_returns=of == "return")
        draws = _draws(pair, names, resamples, seed)
        for name in names:
            one, other = (float(_statistic(name, row[None])[0]) for row in pair)
            low, high = percentile_interval(draws[name])
            rows.append(PolicyStatistic(of, name, one, other, other - one, (float(low), float(high))))
    return Tradeoff(
        str(chosen),
        len(by_mean.ends),
        rows,
        (by_mean.decisions, by_criterion.decisions),
        (by_mean.different, by_criterion.different),
    )


def _statistics(chosen: Criterion, for_returns: bool) -> list[str]:
    """Mean, spread and tail, and for returns the criterion itself."""
    tail = chosen if chosen.name == "cvar" else Criterion("cvar", TAIL)
    return ["mean", "std", str(tail), *([str(chosen)] if for_returns and chosen.name not in ("mean", "cvar") else [])]


def _statistic(name: str, values: np.ndarray) -> np.ndarray:
    """A statistic of each row of equally likely values. [R, G] -> [R]"""
    if name == "std":
        return np.asarray(values.std(1, ddof=1))
    tensor = torch.from_numpy(values)
    return criterion(name)(tensor, torch.full_like(tensor, 1 / tensor.shape[1])).numpy()


def _draws(pair: np.ndarray, names: Sequence[str], resamples: int, seed: int) -> dict[str, np.ndarray]:
    """Differences of each statistic over resampled games. [2, G] -> {name: [resamples]}"""
    blocks: dict[str, list[np.ndarray]] = {name: [] for name in names}
    for picks in resampled_indices(pair.shape[1], resamples, seed):  # [R, G]
        for name in names:
            blocks[name].append(_statistic(name, pair[1][picks]) - _statistic(name, pair[0][picks]))
    return {name: np.concatenate(parts) for name, parts in blocks.items()}


def tradeoff_lines(result: Tradeoff) -> list[str]:
    """Text for the terminal."""
    width = max(9, len(result.criterion))
    report = [
        f"{'':<34}{'by mean':>11}  {'by ' + result.criterion:>{width + 3}}  difference (95 % interval)",
        *(_row(row, width + 3) for row in result.rows),
    ]
    shares = [f"{100 * part / whole:.1f} %" for part, whole in zip(result.different, result.decisions, strict=True)]
    report.append(
        f"the two disagree in {shares[0]} of {result.decisions[0]:,} decisions in games played by the mean, "
        f"and in {shares[1]} of {result.decisions[1]:,} in games played by {result.criterion}"
    )
    report.append(_verdict(result))
    tail = next(row.statistic for row in result.rows if row.statistic.startswith("cvar"))
    worst = float(tail.partition(":")[2]) * result.games
    if worst < 5:
        report.append(
            f"note: {tail} of {result.games} games is the mean of the worst {worst:g}, so its interval is too short; "
            f"use --games {math.ceil(5 * result.games / worst):,} or more"
        )
    return report


def _row(row: PolicyStatistic, width: int) -> str:
    name = f"{'score' if row.of == 'score' else 'return from the start'}: {row.statistic}"
    largest = max(map(abs, (row.by_mean, row.by_criterion, *row.interval)))
    digits = 3 if largest < 10 else 2 if largest < 100 else 1
    low, high = row.interval
    mark = "  *" if row.significant else ""
    return (
        f"{name:<34}{row.by_mean:>11.{digits}f}  {row.by_criterion:>{width}.{digits}f}  "
        f"{row.difference:+.{digits}f} ({low:+.{digits}f} to {high:+.{digits}f}){mark}"
    )


def _verdict(result: Tradeoff) -> str:
    if not any(result.different):
        return f"{result.criterion} and the mean chose the same actions at every step: there is no difference"
    clear = [row for row in result.rows if row.significant]
    if not clear:
        return "no difference is significant: every interval contains 0"
    return (
        f"* marks intervals that exclude 0, here {len(clear)} of {len(result.rows)}; "
        "without any difference, chance marks one in twenty"
    )
