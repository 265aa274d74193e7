"""Criteria by their definitions, in exact rational arithmetic where there is one: slow and obvious."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, localcontext
from fractions import Fraction

Law = Sequence[tuple[float, float]]  # (return, probability) pairs; floats are rationals, so nothing is rounded


def total(law: Law) -> Fraction:
    return sum((Fraction(p) for _, p in law), Fraction(0))


def mean(law: Law) -> Fraction:
    return sum((Fraction(p) * Fraction(z) for z, p in law), Fraction(0)) / total(law)


def cvar(law: Law, alpha: float) -> Fraction:
    """Fill a glass of size α from the worst return upward; its mean content."""
    room = Fraction(alpha)
    content = Fraction(0)
    for z, p in sorted(law):
        poured = min(room, Fraction(p))
        content += poured * Fraction(z)
        room -= poured
    return content / (Fraction(alpha) - room)


def variance(law: Law) -> Fraction:
    middle = mean(law)
    return sum((Fraction(p) * (Fraction(z) - middle) ** 2 for z, p in law), Fraction(0)) / total(law)


def above(law: Law, x: float) -> Fraction:
    return sum((Fraction(p) for z, p in law if z > x), Fraction(0))


def entropic(law: Law, beta: float) -> float:
    """As it is written, with 60 digits and exponents without bound."""
    with localcontext() as context:
        context.prec, context.Emax, context.Emin = 60, 10**9, -(10**9)
        sums = sum(Decimal(p) * (Decimal(beta) * Decimal(z)).exp() for z, p in law)
        return float((sums / sum(Decimal(p) for _, p in law)).ln() / Decimal(beta))
