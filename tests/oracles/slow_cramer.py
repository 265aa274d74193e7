"""Squared Cramér distance by its definition, in exact rational arithmetic: slow and obvious."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

Law = Sequence[tuple[float, float]]  # (atom, probability) pairs; floats are rationals, so nothing is rounded


def distribution_function(law: Law, w: Fraction) -> Fraction:
    """F(w): the mass at or below w."""
    return sum((Fraction(p) for z, p in law if Fraction(z) <= w), Fraction(0))


def squared_cramer(mu: Law, nu: Law) -> Fraction:
    """∫ (F_μ − F_ν)² dw, piece by piece: both functions are constant between neighboring breakpoints."""
    breakpoints = sorted({Fraction(z) for z, _ in [*mu, *nu]})
    total = Fraction(0)
    for left, right in pairwise(breakpoints):
        height = distribution_function(mu, left) - distribution_function(nu, left)
        total += height**2 * (right - left)
    return total
