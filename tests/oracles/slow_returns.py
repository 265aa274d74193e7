"""The paper's formulas one number at a time, in Python floats or mpmath: slow and obvious."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import mpmath

Scalar = Callable[[mpmath.mpf], mpmath.mpf]


def h(eps: float, beta: float = 1.0) -> tuple[Scalar, Scalar]:
    """β·h and its inverse as printed in the paper's main text, with 60 digits."""
    with mpmath.workdps(60):
        e, b = mpmath.mpf(eps), mpmath.mpf(beta)

    def to(x: mpmath.mpf) -> mpmath.mpf:
        with mpmath.workdps(60):
            return b * (mpmath.sign(x) * (mpmath.sqrt(1 + abs(x)) - 1) + e * x)

    def back(y: mpmath.mpf) -> mpmath.mpf:
        with mpmath.workdps(60):
            u = y / b
            root = (mpmath.sqrt(1 + 4 * e * (abs(u) + 1 + e)) - 1) / (2 * e)
            return mpmath.sign(u) * (root**2 - 1)

    return to, back


def symlog(x: mpmath.mpf) -> mpmath.mpf:
    with mpmath.workdps(60):
        return mpmath.sign(x) * mpmath.log(1 + abs(x))


def asinh(x: mpmath.mpf) -> mpmath.mpf:
    with mpmath.workdps(60):
        return mpmath.asinh(x)


def h_float(x: float, eps: float, beta: float) -> float:
    return beta * (math.copysign(math.sqrt(1 + abs(x)) - 1, x) + eps * x)


def h_inverse_float(y: float, eps: float, beta: float) -> float:
    u = abs(y) / beta
    return math.copysign(((math.sqrt(1 + 4 * eps * (u + 1 + eps)) - 1) / (2 * eps)) ** 2 - 1, y)


def expected_return(atoms: Sequence[float], probs: Sequence[float], eps: float, beta: float) -> float:
    total = 0.0
    for z, p in zip(atoms, probs, strict=True):
        total += p * h_inverse_float(z, eps, beta)
    return total


def backed_up_atom(reward: float, discount: float, z: float, eps: float, beta: float) -> float:
    return h_float(reward + discount * h_inverse_float(z, eps, beta), eps, beta)
