"""Increasing homeomorphisms φ of the real line onto an open interval J, as functions of float64 arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from c2d.errors import UserError, did_you_mean
from c2d.returns import phi as ours
from c2d.types import Phi

Function = Callable[[np.ndarray], np.ndarray]
_FARTHEST = 710.0  # sinh of this is the largest double


@dataclass(frozen=True, eq=False)
class Homeomorphism:
    """φ: R → J = (low, high) and its inverse."""

    name: str
    to: Function
    back: Function
    low: float = -np.inf
    high: float = np.inf

    def check_inside(self, atoms: np.ndarray, what: str = "atom") -> None:
        """Laws in φ-space live on J."""
        wrong = ~((atoms > self.low) & (atoms < self.high))
        if wrong.any():
            place = tuple(int(i) for i in np.argwhere(wrong)[0])
            interval = f"({self.low:g}, {self.high:g})"
            raise UserError(f"{what}{list(place)} is {atoms[place]}, outside J = {interval}, where {self.name} ends")


def named(name: str, eps: float = 1e-3, beta: float = 1.99) -> Homeomorphism:
    """One of the agents' own functions: the very code that trains them, in float64."""
    if name not in ours.KINDS:
        raise UserError(f'unknown φ "{name}".{did_you_mean(name, ours.KINDS)} Accepted: {", ".join(ours.KINDS)}')
    details = {"h": f" (ε = {eps:g})", "scaled_h": f" (β = {beta:g}, ε = {eps:g})"}.get(name, "")
    return from_phi(ours.KINDS[name](beta, eps), name + details)


def from_phi(phi: Phi, name: str) -> Homeomorphism:
    """A pair of functions of tensors as one of arrays."""
    return Homeomorphism(name, on_arrays(phi.to), on_arrays(phi.back), phi.low, phi.high)


def from_callables(to: Function, back: Function | None = None, name: str = "φ", low: float | None = None,
                   high: float | None = None) -> Homeomorphism:  # fmt: skip
    """The user's own, of arrays. Without an inverse one is found by bisection, without ends those of its image.

    Refused if it is not increasing where it is tried, or if `back` is not its inverse there.
    """
    places = np.sinh(np.linspace(-20, 20, 2001))  # ± 2.4e8, dense around 0
    with np.errstate(all="ignore"):
        values = np.asarray(to(places), np.float64)
    finite = np.isfinite(values)  # exponentials overflow, but not below 600
    if values.shape != places.shape or not finite[np.abs(places) < 600].all():
        raise UserError(f"{name} does not give a finite number for every real one")
    check_increasing(name, places[finite], values[finite])
    if back is not None:
        check_inverse(name, to, back)
    ends = image(to)
    return Homeomorphism(
        name, to, back or inverse_of(to), ends[0] if low is None else low, ends[1] if high is None else high
    )


def check_inverse(name: str, to: Function, back: Function) -> None:
    """Tried near 0, where no homeomorphism in use has lost its digits."""
    places = np.linspace(-2, 2, 41)
    with np.errstate(all="ignore"):
        again = np.asarray(back(to(places)), np.float64)
    wrong = ~(np.abs(again - places) < 1e-2)
    if wrong.any():
        k = int(np.argmax(wrong))
        raise UserError(f"the inverse given is none of {name}: it maps {name}({places[k]:.3g}) to {again[k]:.6g}")


def image(to: Function) -> tuple[float, float]:
    """J = φ(R), as far as float64 shows: an end is finite if φ has settled between ±10^100 and ±10^150."""
    ends = []
    for side in (-1.0, 1.0):
        with np.errstate(all="ignore"):
            one, two = np.asarray(to(np.array([side * 1e100, side * 1e150])), np.float64).tolist()
        settled = np.isfinite([one, two]).all() and abs(two - one) <= 1e-9 * abs(two)
        ends.append(float(two) if settled else side * np.inf)
    return ends[0], ends[1]


def check_increasing(name: str, x: np.ndarray, values: np.ndarray) -> float | None:
    """Refuse a function that falls or stands still; the size beyond which only rounding makes it stand still."""
    rises = np.diff(values)
    ulp = np.spacing(np.maximum(np.abs(values[:-1]), np.abs(values[1:])))
    still = np.flatnonzero(rises <= 0)
    if still.size == 0:
        return None
    place = np.minimum(np.abs(x[:-1]), np.abs(x[1:]))
    k = int(still[np.argmin(place[still])])  # the one nearest to 0
    if rises[k] < -4 * ulp[k]:
        raise UserError(
            f"{name} is not increasing: φ({x[k]:.6g}) = {values[k]:.6g} but φ({x[k + 1]:.6g}) = {values[k + 1]:.6g}"
        )
    inward = int(np.clip(k - 1 if x[k] > 0 else k + 1, 0, rises.size - 1))
    if place[k] < 1 or rises[inward] > 1e3 * ulp[k]:
        raise UserError(f"{name} is not strictly increasing: it is constant, {values[k]:.6g}, around x = {x[k]:.6g}")
    return float(place[k])


def inverse_of(to: Function) -> Function:
    """φ⁻¹ by bisection of t, x = sinh(t): as fine near 0 as far out, to the last digits of float64."""

    def back(y: np.ndarray) -> np.ndarray:
        y = np.asarray(y, np.float64)
        low, high = np.full(y.shape, -_FARTHEST), np.full(y.shape, _FARTHEST)
        with np.errstate(all="ignore"):
            for _ in range(72):  # 1420 / 2^72 < 1e-18
                middle = (low + high) / 2
                value = to(np.sinh(middle))
                below = np.where(np.isnan(value), np.abs(middle) > 300, value < y)  # ∞/∞ of an overflow far out
                low, high = np.where(below, middle, low), np.where(below, high, middle)
        return np.asarray(np.sinh((low + high) / 2))

    return back


def on_arrays(function: Callable[[torch.Tensor], torch.Tensor]) -> Function:
    def applied(x: np.ndarray) -> np.ndarray:
        values: np.ndarray = function(torch.from_numpy(np.array(x, np.float64))).numpy()
        return values

    return applied
