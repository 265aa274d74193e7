"""Homeomorphisms φ of the real line, each with its inverse: laws of returns are learned in φ-space.

All are odd and increasing, map 0 to 0 exactly, and have the true derivative at 0 (no `sign(x)`, whose
derivative there is 0). The formulas subtract no nearly equal numbers, so that float32 keeps its digits near 0
and far out: back(to(x)) is x up to a relative error of 1e-6 (identity, h, scaled h, 1e-6 ≤ |x| ≤ 1e7) or 3e-6
(symlog, asinh, |x| ≤ 1e6), without any float64. Elementwise on tensors of any shape and floating type.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from c2d.errors import UserError
from c2d.types import Phi


def identity() -> Phi:
    """φ(x) = x: returns as they are."""
    return Phi(lambda x: x, lambda y: y)


def h(eps: float = 1e-3) -> Phi:
    """h(x) = sign(x)(√(1+|x|) − 1) + εx (C2D, Eq. 5; Pohlen et al. 2018). ε = 0 is allowed."""
    return scaled_h(1.0, eps)


def scaled_h(beta: float = 1.99, eps: float = 1e-3) -> Phi:
    """φ(x) = β·h(x), the paper's choice (C2D, Sec. "Homeomorphism"), in forms that keep float32 accurate.

    to:   β(x / (√(1+|x|) + 1) + εx), since √(1+a) − 1 = a / (√(1+a) + 1).
    back: with a = |y|/β, b = 1+2ε, the root s = √(1+|x|) − 1 of εs² + bs = a is 2a / (b + √(b²+4εa)),
          and |x| = s(s+2). Below v = ±2s, so that x = v + v|v|/4. Valid for ε = 0 too.
    """
    if not (math.isfinite(beta) and beta > 0):
        raise UserError(f"beta of the homeomorphism is {beta}; accepted: a finite number greater than 0")
    if not (math.isfinite(eps) and eps >= 0):
        raise UserError(f"eps of the homeomorphism is {eps}; accepted: a finite number, 0 or greater")
    half_b = beta * (1 + 2 * eps) / 4  # v = y / (half_b + √(half_b² + slope·|y|))
    square, slope = half_b**2, eps * beta / 4

    def to(x: Tensor) -> Tensor:
        return torch.add(x / ((x.abs() + 1).sqrt() + 1), x, alpha=eps) * beta

    def back(y: Tensor) -> Tensor:
        v = y / ((y.abs() * slope + square).sqrt() + half_b)
        return torch.addcmul(v, v, v.abs(), value=0.25)

    return Phi(to, back)


def symlog() -> Phi:
    """φ(x) = sign(x)·log(1+|x|). back overflows float32 above |y| ≈ 88, as the returns themselves would."""
    return Phi(lambda x: _odd(torch.log1p, x), lambda y: _odd(torch.expm1, y))


def asinh() -> Phi:
    """φ(x) = log(x + √(1+x²)): like symlog but smooth at 0. back overflows float32 above |y| ≈ 89."""
    return Phi(torch.asinh, torch.sinh)


def in_units(phi: Phi, unit: Tensor) -> Phi:
    """φ_u(x) = φ(x/u) and φ_u⁻¹(z) = u·φ⁻¹(z), with the value that `unit` [] has when they are called.

    Rewards times k with u times k have the same atoms, whatever φ; so learning does not depend on the scale of rewards.
    """
    return Phi(lambda x: phi.to(x / unit), lambda z: phi.back(z) * unit, phi.low, phi.high)


def _odd(half: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """The odd extension of a function on [0, ∞); its derivative at 0 is that of `half`."""
    sign = torch.copysign(x.new_ones(()), x.detach())  # ±1, never 0
    return half(x * sign) * sign


# By name, from (β, ε); most need neither.
KINDS: dict[str, Callable[[float, float], Phi]] = {
    "identity": lambda beta, eps: identity(),
    "h": lambda beta, eps: h(eps),
    "scaled_h": scaled_h,
    "symlog": lambda beta, eps: symlog(),
    "asinh": lambda beta, eps: asinh(),
}


def _tried(function: Callable[[Tensor], Tensor], x: Tensor, name: str) -> Tensor:
    try:
        return function(x)
    except Exception as error:
        raise UserError(f"{name} fails on a tensor: {type(error).__name__}: {error}") from error


def check_homeomorphism(phi: Phi, name: str) -> None:
    """Reject a user's φ that is not finite, not increasing or not inverted by `back` in float32 on [-10, 10]."""
    x = torch.linspace(-10.0, 10.0, 401)
    y = _tried(phi.to, x, f'φ "{name}": `to`')
    if not isinstance(y, Tensor) or y.shape != x.shape or not bool(torch.isfinite(y).all()):
        raise UserError(f'φ "{name}" does not map every return from -10 to 10 to a finite number')
    falling = (y.diff() <= 0).nonzero().flatten().tolist()
    if falling:
        raise UserError(f'φ "{name}" is not increasing at {float(x[falling[0]]):g}; accepted: an increasing function')
    inverse = _tried(phi.back, y, f'φ "{name}": `back`')
    if not isinstance(inverse, Tensor) or inverse.shape != x.shape:
        raise UserError(f'φ "{name}": `back` does not give a number for every number')
    wrong = (~((inverse - x).abs() <= 1e-3 * x.abs().clamp_min(1.0))).nonzero().flatten().tolist()  # NaN is wrong too
    if wrong:
        place, value = float(x[wrong[0]]), float(inverse[wrong[0]])
        raise UserError(f'φ "{name}": back(to({place:g})) is {value:g}; accepted: a `back` that inverts `to`')
