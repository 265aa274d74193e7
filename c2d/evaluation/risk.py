"""Criteria: what one number is made of a law of returns, so that actions can be compared by something but the mean.

Each is a pure function of real returns [..., N], in any order, and their probabilities [..., N] -> [...]. They hold
for any discrete law: free atoms, grids, quantiles, one atom (where every criterion orders actions as the mean does).
`CRITERIA` is the table of names and help texts; `criterion("cvar:0.1")` reads what a user writes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from c2d.errors import UserError, did_you_mean

Measure = Callable[[Tensor, Tensor], Tensor]  # returns [..., N], probabilities [..., N] -> [...]

_EQUAL = 1e-6  # probabilities nearer than this are equal: float32 sums of a softmax differ by as much


def mean(returns: Tensor, probs: Tensor) -> Tensor:
    """E Z = Σ p_k z_k."""
    return (probs * returns).sum(-1)


def cvar(returns: Tensor, probs: Tensor, alpha: float) -> Tensor:
    """(1/α) ∫₀^α F⁻¹(τ) dτ: the mean of the worst fraction α; an atom across its edge counts in part.

    (Rockafellar and Uryasev 2002, Prop. 8.) α = 1 is the mean. Probabilities that sum to 1 only nearly are
    taken as they are, and the result is divided by what was taken.
    """
    ordered, order = returns.sort(-1)
    mass = probs.gather(-1, order)
    taken = (alpha - (mass.cumsum(-1) - mass)).clamp(min=0.0).minimum(mass)
    return (taken * ordered).sum(-1) / taken.sum(-1)


def entropic(returns: Tensor, probs: Tensor, beta: float) -> Tensor:
    """(1/β) log E exp(βZ): β < 0 fears bad returns, β > 0 seeks good ones; near 0 it is mean + β/2 · variance.

    In float64 and about the mean m. Where all |β(z − m)| are small, the logarithm of nearly 1 is taken by
    log1p; elsewhere the largest exponent is taken out first, so that returns of any size are safe.
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
    """E Z − c·√Var Z. c < 0 seeks spread."""
    middle = mean(returns, probs)
    variance = (probs * (returns - middle.unsqueeze(-1)).square()).sum(-1)
    return middle - c * variance.sqrt()


def above(returns: Tensor, probs: Tensor, x: float) -> Tensor:
    """P(Z > x)."""
    return (probs * (returns > x)).sum(-1)


class Kind(NamedTuple):
    """A row of the table: a criterion whose number is still open."""

    number: str | None  # what its number is called; None: it takes none
    example: str
    help: str
    accepted: str  # which numbers, in words
    accepts: Callable[[float], bool]
    measure: Callable[..., Tensor]  # (returns, probs[, number])


CRITERIA: dict[str, Kind] = {
    "mean": Kind(None, "mean", "the expected return, as in training", "", lambda _: True, mean),
    "cvar": Kind(
        "ALPHA",
        "cvar:0.1",
        "the mean of the worst fraction ALPHA of returns: careful",
        "a number above 0 and at most 1",
        lambda alpha: 0.0 < alpha <= 1.0,
        cvar,
    ),
    "entropic": Kind(
        "BETA",
        "entropic:-0.5",
        "(1/BETA) log E exp(BETA·return): careful below 0, daring above",
        "any finite number but 0, where it becomes the mean",
        lambda beta: beta != 0.0,
        entropic,
    ),
    "mean-std": Kind(
        "C",
        "mean-std:1",
        "the mean less C standard deviations: careful above 0, daring below",
        "any finite number",
        lambda _: True,
        mean_std,
    ),
    "above": Kind(
        "X",
        "above:5",
        "the probability of a return greater than X; equal ones are decided by the mean",
        "any finite number",
        lambda _: True,
        above,
    ),
}
ACCEPTED = ", ".join(name if kind.number is None else f"{name}:{kind.number}" for name, kind in CRITERIA.items())


class Criterion(NamedTuple):
    """One of the table with its number."""

    name: str
    number: float | None

    def __str__(self) -> str:
        return self.name if self.number is None else f"{self.name}:{self.number:g}"

    def __call__(self, returns: Tensor, probs: Tensor) -> Tensor:
        """[..., N], [..., N] -> [...]"""
        measure = CRITERIA[self.name].measure
        return measure(returns, probs) if self.number is None else measure(returns, probs, self.number)

    def best(self, returns: Tensor, probs: Tensor) -> Tensor:
        """The action of largest value; of equals the one of largest mean; of these the first. [..., A, N] -> [...]"""
        means = mean(returns, probs)
        if self.name == "mean":
            return means.argmax(-1)
        values = self(returns, probs)  # [..., A]
        tolerance = _EQUAL if self.name == "above" else 0.0
        equal = values >= values.amax(-1, keepdim=True) - tolerance
        return means.masked_fill(~equal, -math.inf).argmax(-1)


MEAN = Criterion("mean", None)


def criterion(text: str) -> Criterion:
    """ "cvar:0.1" and the like, as users write them."""
    name, colon, number = text.strip().partition(":")
    if name not in CRITERIA:
        raise UserError(f'unknown criterion "{name}".{did_you_mean(name, CRITERIA)} Accepted: {ACCEPTED}')
    kind = CRITERIA[name]
    if kind.number is None:
        if colon:
            raise UserError(f'criterion "{text}": {name} takes no number')
        return Criterion(name, None)
    if not number:
        raise UserError(f"criterion {name} needs a number, {name}:{kind.number}, as in {kind.example}")
    try:
        value = float(number)
    except ValueError:
        raise UserError(
            f'criterion "{text}": "{number}" is no number; {name}:{kind.number}, as in {kind.example}'
        ) from None
    if not (math.isfinite(value) and kind.accepts(value)):
        raise UserError(f'criterion "{text}": {kind.number} is {number}; accepted: {kind.accepted}')
    return Criterion(name, value)
