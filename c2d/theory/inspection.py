"""Is a function a homeomorphism fit for φ? Monotone, onto which interval, how exact its inverse, how steep.

All by trial in floating point on a grid dense around 0 and reaching far out: a proof of failure, not of success.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from c2d.errors import UserError
from c2d.theory.homeomorphism import check_increasing, image, inverse_of, on_arrays

Map = Callable[[Tensor], Tensor]
TYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16}
_FAR, _NEAR, _DECADE = 30, 9, 200  # the grid reaches from 10^-9 to 10^30 in size, 200 points in each decade
_ROUND = np.concatenate([-(g := np.logspace(-4, 6, 2001))[::-1], g])  # where the inverse is tried


@dataclass(frozen=True)
class Study:
    """What was found."""

    name: str
    low: float  # J = (low, high)
    high: float
    saturates: float | None  # beyond this size float64 cannot tell its values apart
    round_trip: dict[str, tuple[float, float]]  # type -> largest relative error of φ⁻¹(φ(x)), and the x
    inverse_by_bisection: bool
    lipschitz: float  # of φ
    lipschitz_back: float  # of φ⁻¹
    lipschitz_step: dict[float, float]  # reward -> of φ∘f_{r,γ}∘φ⁻¹
    gamma: float

    @property
    def largest_scale(self) -> float:
        """c·φ is a contraction for every c below this: 1 over the Lipschitz constant of φ."""
        return 1 / self.lipschitz if self.lipschitz > 0 else np.inf


def study(
    name: str,
    to: Map,
    back: Map | None = None,
    gamma: float = 0.99,
    rewards: tuple[float, ...] = (0.0, 1.0, 100.0),
    interval: tuple[float, float] | None = None,
) -> Study:
    """Examine φ. Raises UserError, saying where, if it is not strictly increasing."""
    if not 0.0 < gamma < 1.0:
        raise UserError(f"gamma is {gamma}; accepted: a number between 0 and 1, both excluded")
    x = _grid()
    values, slopes = _values_and_slopes(to, x)
    x, values, slopes = _finite_part(name, x, values, slopes)
    saturates = check_increasing(name, x, values)
    steepest = _steepest(name, to, x, values)
    slopes = _trustworthy(x, values, slopes)
    low, high = image(on_arrays(to)) if interval is None else interval
    inverse = back if back is not None else _by_bisection(to)
    steps = {reward: _steepest_step(to, x, slopes, reward, gamma) for reward in rewards}
    return Study(
        name, low, high, saturates,
        {kind: _round_trip(to, inverse, dtype, low, high) for kind, dtype in TYPES.items()},
        back is None, max(_supremum(x, slopes), steepest), _supremum(x, _reciprocal(slopes)), steps, gamma,
    )  # fmt: skip


def _grid() -> np.ndarray:
    half = np.logspace(-_NEAR, _FAR, _DECADE * (_FAR + _NEAR) + 1)
    return np.concatenate((-half[::-1], [0.0], half))


def _values_and_slopes(to: Map, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    place = torch.from_numpy(x.copy()).requires_grad_()
    value = to(place)
    if not isinstance(value, Tensor) or value.shape != place.shape:
        raise UserError("φ must take a tensor and return one of the same shape")
    (slope,) = torch.autograd.grad(value.sum(), place, allow_unused=True)
    if slope is None:
        raise UserError("φ must depend on x by differentiable operations of torch")
    return value.detach().numpy(), slope.numpy()


def _trustworthy(x: np.ndarray, values: np.ndarray, slopes: np.ndarray) -> np.ndarray:
    """Slopes as they are, but NaN where rounding has eaten them; at 0, where |x| has a kink, those beside it."""
    center = int(np.argmin(np.abs(x)))
    beside = (slopes[center - 1] + slopes[center + 1]) / 2
    slopes = slopes.copy()
    if not beside / 2 < slopes[center] < beside * 2:
        slopes[center] = beside
    noise = 1e5 * np.finfo(np.float64).eps * np.abs(values)
    with np.errstate(over="ignore", invalid="ignore"):
        eaten = ~np.isfinite(values) | (slopes * np.maximum(np.abs(x), 1e-9) < noise) | (slopes <= 0)
    return np.where(eaten, np.nan, slopes)


def _finite_part(name: str, x: np.ndarray, values: np.ndarray, slopes: np.ndarray) -> tuple[np.ndarray, ...]:
    """Around 0, up to where it overflows; at least ±600, which exponentials reach."""
    bad = ~np.isfinite(values)
    center = x.size // 2
    left, right = np.flatnonzero(bad[:center]), np.flatnonzero(bad[center:])
    start = int(left[-1]) + 1 if left.size else 0
    stop = center + int(right[0]) if right.size else x.size
    if bad[center] or -x[start] < 600 or x[stop - 1] < 600:
        worst = x[center] if bad[center] else (x[start - 1] if -x[start] < 600 else x[stop])
        raise UserError(f"{name} is no homeomorphism of the real line: it gives no finite number at x = {worst:.6g}")
    return x[start:stop], values[start:stop], slopes[start:stop]


def _by_bisection(to: Map) -> Map:
    inverse = inverse_of(on_arrays(to))
    return lambda y: torch.from_numpy(inverse(y.double().numpy())).to(y.dtype)


def _round_trip(to: Map, back: Map, dtype: torch.dtype, low: float, high: float) -> tuple[float, float]:
    """Largest relative error of φ⁻¹(φ(x)) for 1e-4 ≤ |x| ≤ 1e6, with every operation in `dtype`, and the x.

    ∞, with the smallest such |x|, if φ(x) is rounded to an end of J or overflows.
    """
    x = torch.from_numpy(_ROUND).to(dtype)
    y = to(x)
    again = back(y).double().numpy()
    start = x.double().numpy()
    error = np.abs(again - start) / np.abs(start)
    value = y.double().numpy()
    error = np.where(np.isfinite(error) & (value > low) & (value < high), error, np.inf)
    if np.isinf(error).any():
        return float(np.inf), float(np.abs(start[np.isinf(error)]).min())
    worst = int(np.argmax(error))
    return float(error[worst]), float(start[worst])


def _steepest(name: str, to: Map, x: np.ndarray, values: np.ndarray) -> float:
    """Look into the intervals where φ rises far more than beside them: a jump is refused, a slope returned."""
    rises = np.diff(values)
    beside = np.maximum(np.r_[rises[:2], rises[:-2]], np.r_[rises[2:], rises[-2:]])  # two further: 0 is on the grid
    ulp = np.spacing(np.maximum(np.abs(values[:-1]), np.abs(values[1:])))
    found = 0.0
    function = on_arrays(to)
    for k in np.flatnonzero((rises / 10 > beside) & (rises > 1e6 * ulp))[:50]:
        low, high = float(x[k]), float(x[k + 1])
        ends = function(np.array([low, high]))
        while low < (middle := (low + high) / 2) < high:
            value = float(function(np.array([middle]))[0])
            if value - ends[0] > ends[1] - value:
                high, ends = middle, np.array([ends[0], value])
            else:
                low, ends = middle, np.array([value, ends[1]])
            rise = float(ends[1] - ends[0])
            if rise < 0.3 * rises[k]:  # it splits: no jump, but steep
                found = max(found, rise / (high - low))
                break
        else:
            raise UserError(
                f"{name} is no homeomorphism: it jumps from {ends[0]:.6g} to {ends[1]:.6g} at x = {low:.6g}"
            )
    return found


def _supremum(x: np.ndarray, slopes: np.ndarray) -> float:
    """The largest slope found; ∞ if it grows from decade to decade, outward or towards 0. NaN: not known."""
    if np.isinf(slopes).any():
        return float(np.inf)
    found, center = _largest(slopes), int(np.argmin(np.abs(x)))
    for side in (slopes[center + 1 :], slopes[:center][::-1]):  # from 0 outward
        known = side[~np.isnan(side)]
        count = known.size // _DECADE
        outward = known[known.size - count * _DECADE :].reshape(count, _DECADE).max(-1)  # of each decade
        inward = known[: count * _DECADE].reshape(count, _DECADE).max(-1)[::-1]
        for last in (outward[-4:], inward[-4:]):
            if last.size == 4 and last[-1] > 0.999 * found and (np.diff(last) > 0.01 * last[:-1]).all():
                return float(np.inf)
    return found


def _reciprocal(slopes: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore", over="ignore"):
        return np.where(np.isnan(slopes), np.nan, 1.0 / slopes)


def _steepest_step(to: Map, x: np.ndarray, slopes: np.ndarray, reward: float, gamma: float) -> float:
    """Lipschitz constant of φ∘f_{r,γ}∘φ⁻¹, r = ±reward: the largest γφ'(r + γx)/φ'(x).

    Tried where x is on the grid, which finds growth far out, and where r + γx is, which finds the peak around 0.
    """
    found = 0.0
    for r in {reward, -reward}:
        moved, origin = r + gamma * x, (x - r) / gamma
        with np.errstate(all="ignore"):
            after = _trustworthy(moved, *_values_and_slopes(to, moved))
            before = _trustworthy(origin, *_values_and_slopes(to, origin))
            found = max(found, _supremum(x, gamma * after / slopes), _supremum(x, gamma * slopes / before))
    return found


def _largest(slopes: np.ndarray) -> float:
    """∞ also if nothing is known."""
    known = slopes[~np.isnan(slopes)]
    return float(known.max()) if known.size else float(np.inf)
