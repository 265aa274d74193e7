"""Increasing homeomorphisms φ of the real line onto an open interval J: ours, a user's own, or a formula.

`study` tests monotonicity, image, inverse and slopes of a function in floating point, on a grid that is dense around 0
and reaches far out: it can prove failure, not success.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from c2d.errors import UserError, unknown_name
from c2d.returns import phi as ours
from c2d.types import Phi

Function = Callable[[np.ndarray], np.ndarray]
Map = Callable[[Tensor], Tensor]
TYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16}
_FAR, _NEAR, _DECADE = 30, 9, 200  # the grid reaches from 10^-9 to 10^30 in size, 200 points in each decade
_ROUND = np.concatenate([-(g := np.logspace(-4, 6, 2001))[::-1], g])  # where the inverse is tried
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
        """Reject atoms outside J: laws in φ-space have their atoms in J."""
        wrong = ~((atoms > self.low) & (atoms < self.high))
        if wrong.any():
            place = tuple(int(i) for i in np.argwhere(wrong)[0])
            interval = f"({self.low:g}, {self.high:g})"
            raise UserError(f"{what}{list(place)} is {atoms[place]}, outside J = {interval}, the image of {self.name}")


def named(name: str, eps: float = 1e-3, beta: float = 1.99) -> Homeomorphism:
    """One of the agents' functions: the code that trains them, in float64."""
    if name not in ours.KINDS:
        raise unknown_name("φ", name, ours.KINDS)
    details = {"h": f" (ε = {eps:g})", "scaled_h": f" (β = {beta:g}, ε = {eps:g})"}.get(name, "")
    return from_phi(ours.KINDS[name](beta, eps), name + details)


def from_phi(phi: Phi, name: str) -> Homeomorphism:
    """Functions of tensors, applied to arrays."""
    return Homeomorphism(name, on_arrays(phi.to), on_arrays(phi.back), phi.low, phi.high)


def from_callables(to: Function, back: Function | None = None, name: str = "φ", low: float | None = None,
                   high: float | None = None) -> Homeomorphism:  # fmt: skip
    """A user's own functions of arrays. The inverse defaults to bisection, the ends of J to those of the image.

    Rejected if `to` is not increasing on a grid, or if `back` is not its inverse there.
    """
    places = np.sinh(np.linspace(-20, 20, 2001))  # ± 2.4e8, dense around 0
    with np.errstate(all="ignore"):
        values = np.asarray(to(places), np.float64)
    finite = np.isfinite(values)  # exponentials overflow, but only beyond 600
    if values.shape != places.shape or not finite[np.abs(places) < 600].all():
        raise UserError(f"{name} is not finite everywhere; accepted: a finite number for every real number")
    check_increasing(name, places[finite], values[finite])
    if back is not None:
        check_inverse(name, to, back)
    ends = image(to)
    return Homeomorphism(
        name, to, back or inverse_of(to), ends[0] if low is None else low, ends[1] if high is None else high
    )


def check_inverse(name: str, to: Function, back: Function) -> None:
    """Compare near 0, where every homeomorphism in use is still precise."""
    places = np.linspace(-2, 2, 41)
    with np.errstate(all="ignore"):
        restored = np.asarray(back(to(places)), np.float64)
    wrong = ~(np.abs(restored - places) < 1e-2)
    if wrong.any():
        k = int(np.argmax(wrong))
        raise UserError(
            f"the given inverse is not that of {name}: it maps {name}({places[k]:.3g}) to {restored[k]:.6g}"
        )


def image(to: Function) -> tuple[float, float]:
    """J = φ(R), as far as float64 shows: an end is finite if φ is constant between ±10^100 and ±10^150."""
    ends = []
    for side in (-1.0, 1.0):
        with np.errstate(all="ignore"):
            one, two = np.asarray(to(np.array([side * 1e100, side * 1e150])), np.float64).tolist()
        constant = np.isfinite([one, two]).all() and abs(two - one) <= 1e-9 * abs(two)
        ends.append(float(two) if constant else side * np.inf)
    return ends[0], ends[1]


def check_increasing(name: str, x: np.ndarray, values: np.ndarray) -> float | None:
    """Reject a function that is not strictly increasing. -> the |x| beyond which only rounding makes it constant"""
    rises = np.diff(values)
    ulp = np.spacing(np.maximum(np.abs(values[:-1]), np.abs(values[1:])))
    flat = np.flatnonzero(rises <= 0)
    if flat.size == 0:
        return None
    place = np.minimum(np.abs(x[:-1]), np.abs(x[1:]))
    k = int(flat[np.argmin(place[flat])])  # the nearest to 0
    if rises[k] < -4 * ulp[k]:
        raise UserError(
            f"{name} is not increasing: φ({x[k]:.6g}) = {values[k]:.6g} but φ({x[k + 1]:.6g}) = {values[k + 1]:.6g}"
        )
    inward = int(np.clip(k - 1 if x[k] > 0 else k + 1, 0, rises.size - 1))
    if place[k] < 1 or rises[inward] > 1e3 * ulp[k]:
        raise UserError(f"{name} is not strictly increasing: it is constant, {values[k]:.6g}, around x = {x[k]:.6g}")
    return float(place[k])


def inverse_of(to: Function) -> Function:
    """φ⁻¹ by bisection over t, where x = sinh(t): precise to the last digits of float64, near 0 and far out."""

    def back(y: np.ndarray) -> np.ndarray:
        y = np.asarray(y, np.float64)
        low, high = np.full(y.shape, -_FARTHEST), np.full(y.shape, _FARTHEST)
        with np.errstate(all="ignore"):
            for _ in range(72):  # 1420 / 2^72 < 1e-18
                middle = (low + high) / 2
                value = to(np.sinh(middle))
                below = np.where(np.isnan(value), np.abs(middle) > 300, value < y)  # ∞/∞: an overflow far out
                low, high = np.where(below, middle, low), np.where(below, high, middle)
        return np.asarray(np.sinh((low + high) / 2))

    return back


def on_arrays(function: Map) -> Function:
    """A function of tensors as one of float64 arrays."""

    def applied(x: np.ndarray) -> np.ndarray:
        values: np.ndarray = function(torch.from_numpy(np.array(x, np.float64))).numpy()
        return values

    return applied


@dataclass(frozen=True)
class Study:
    """The result of `study`."""

    name: str
    low: float  # J = (low, high)
    high: float
    saturates: float | None  # beyond this |x| float64 cannot distinguish its values
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
    """Examine φ. Raises UserError, with the place, if it is not strictly increasing."""
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
        raise UserError("φ does not return a tensor of its argument's shape; accepted: a function of torch tensors")
    (slope,) = torch.autograd.grad(value.sum(), place, allow_unused=True)
    if slope is None:
        raise UserError("φ has no gradient; accepted: differentiable operations of torch")
    return value.detach().numpy(), slope.numpy()


def _trustworthy(x: np.ndarray, values: np.ndarray, slopes: np.ndarray) -> np.ndarray:
    """The slopes, NaN where rounding dominates; at 0, where |x| has a kink, the mean of the neighbors."""
    center = int(np.argmin(np.abs(x)))
    neighbors = (slopes[center - 1] + slopes[center + 1]) / 2
    slopes = slopes.copy()
    if not neighbors / 2 < slopes[center] < neighbors * 2:
        slopes[center] = neighbors
    noise = 1e5 * np.finfo(np.float64).eps * np.abs(values)
    with np.errstate(over="ignore", invalid="ignore"):
        lost = ~np.isfinite(values) | (slopes * np.maximum(np.abs(x), 1e-9) < noise) | (slopes <= 0)
    return np.where(lost, np.nan, slopes)


def _finite_part(name: str, x: np.ndarray, values: np.ndarray, slopes: np.ndarray) -> tuple[np.ndarray, ...]:
    """The part around 0 up to an overflow; at least ±600, which exponentials reach."""
    bad = ~np.isfinite(values)
    center = x.size // 2
    left, right = np.flatnonzero(bad[:center]), np.flatnonzero(bad[center:])
    start = int(left[-1]) + 1 if left.size else 0
    stop = center + int(right[0]) if right.size else x.size
    if bad[center] or -x[start] < 600 or x[stop - 1] < 600:
        worst = x[center] if bad[center] else (x[start - 1] if -x[start] < 600 else x[stop])
        raise UserError(f"{name} is not a homeomorphism of the real line: it is not finite at x = {worst:.6g}")
    return x[start:stop], values[start:stop], slopes[start:stop]


def _by_bisection(to: Map) -> Map:
    inverse = inverse_of(on_arrays(to))
    return lambda y: torch.from_numpy(inverse(y.double().numpy())).to(y.dtype)


def _round_trip(to: Map, back: Map, dtype: torch.dtype, low: float, high: float) -> tuple[float, float]:
    """Largest relative error of φ⁻¹(φ(x)) for 1e-4 ≤ |x| ≤ 1e6, with every operation in `dtype`, and its x.

    If φ(x) is rounded to an end of J or overflows: ∞, and the smallest such |x|.
    """
    x = torch.from_numpy(_ROUND).to(dtype)
    y = to(x)
    restored = back(y).double().numpy()
    start = x.double().numpy()
    error = np.abs(restored - start) / np.abs(start)
    value = y.double().numpy()
    error = np.where(np.isfinite(error) & (value > low) & (value < high), error, np.inf)
    if np.isinf(error).any():
        return float(np.inf), float(np.abs(start[np.isinf(error)]).min())
    worst = int(np.argmax(error))
    return float(error[worst]), float(start[worst])


def _steepest(name: str, to: Map, x: np.ndarray, values: np.ndarray) -> float:
    """Bisect the intervals where φ rises far more than in adjacent ones: reject a jump, return the slope otherwise."""
    rises = np.diff(values)
    adjacent = np.maximum(np.r_[rises[:2], rises[:-2]], np.r_[rises[2:], rises[-2:]])  # two away: 0 is on the grid
    ulp = np.spacing(np.maximum(np.abs(values[:-1]), np.abs(values[1:])))
    steepest = 0.0
    function = on_arrays(to)
    for k in np.flatnonzero((rises / 10 > adjacent) & (rises > 1e6 * ulp))[:50]:
        low, high = float(x[k]), float(x[k + 1])
        ends = function(np.array([low, high]))
        while low < (middle := (low + high) / 2) < high:
            value = float(function(np.array([middle]))[0])
            if value - ends[0] > ends[1] - value:
                high, ends = middle, np.array([ends[0], value])
            else:
                low, ends = middle, np.array([value, ends[1]])
            rise = float(ends[1] - ends[0])
            if rise < 0.3 * rises[k]:  # it splits: steep, but not a jump
                steepest = max(steepest, rise / (high - low))
                break
        else:
            raise UserError(
                f"{name} is not a homeomorphism: it jumps from {ends[0]:.6g} to {ends[1]:.6g} at x = {low:.6g}"
            )
    return steepest


def _supremum(x: np.ndarray, slopes: np.ndarray) -> float:
    """The largest slope; ∞ if it grows from decade to decade, outward or toward 0. NaN slopes are ignored."""
    if np.isinf(slopes).any():
        return float(np.inf)
    largest, center = _largest(slopes), int(np.argmin(np.abs(x)))
    for side in (slopes[center + 1 :], slopes[:center][::-1]):  # from 0 outward
        known = side[~np.isnan(side)]
        count = known.size // _DECADE
        outward = known[known.size - count * _DECADE :].reshape(count, _DECADE).max(-1)  # per decade
        inward = known[: count * _DECADE].reshape(count, _DECADE).max(-1)[::-1]
        for last in (outward[-4:], inward[-4:]):
            if last.size == 4 and last[-1] > 0.999 * largest and (np.diff(last) > 0.01 * last[:-1]).all():
                return float(np.inf)
    return largest


def _reciprocal(slopes: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore", over="ignore"):
        return np.where(np.isnan(slopes), np.nan, 1.0 / slopes)


def _steepest_step(to: Map, x: np.ndarray, slopes: np.ndarray, reward: float, gamma: float) -> float:
    """Lipschitz constant of φ∘f_{r,γ}∘φ⁻¹, r = ±reward: the largest γφ'(r + γx)/φ'(x).

    Evaluated where x is on the grid, to find growth far out, and where r + γx is, to find the peak around 0.
    """
    steepest = 0.0
    for r in {reward, -reward}:
        moved, origin = r + gamma * x, (x - r) / gamma
        with np.errstate(all="ignore"):
            after = _trustworthy(moved, *_values_and_slopes(to, moved))
            before = _trustworthy(origin, *_values_and_slopes(to, origin))
            steepest = max(steepest, _supremum(x, gamma * after / slopes), _supremum(x, gamma * slopes / before))
    return steepest


def _largest(slopes: np.ndarray) -> float:
    """The largest known slope; ∞ if none is known."""
    known = slopes[~np.isnan(slopes)]
    return float(known.max()) if known.size else float(np.inf)


# ----------------------------------------------------------------------------------------------------- formulas
#
# A formula in x, typed by the user, as a function of tensors. Parsed into a tree of allowed nodes, never executed.


LONGEST = 200
LARGEST_POWER = 8.0
FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "sqrt": torch.sqrt,
    "abs": torch.abs,
    "sign": torch.sign,
    "exp": torch.exp,
    "expm1": torch.expm1,
    "log": torch.log,
    "log1p": torch.log1p,
    "sinh": torch.sinh,
    "cosh": torch.cosh,
    "tanh": torch.tanh,
    "asinh": torch.asinh,
    "atan": torch.atan,
    "erf": torch.erf,
    "sin": torch.sin,
    "cos": torch.cos,
}
CONSTANTS = {"pi": math.pi, "e": math.e}
_OPERATORS: dict[type[ast.operator], Callable[[Tensor, Tensor], Tensor]] = {
    ast.Add: torch.add,
    ast.Sub: torch.sub,
    ast.Mult: torch.mul,
    ast.Div: torch.true_divide,
}
_ACCEPTED = f"x, numbers, pi, e, + - * / **, and {', '.join(FUNCTIONS)}"


def parse_formula(text: str, variable: str = "x") -> Callable[[Tensor], Tensor]:
    """The function that a formula such as "x / sqrt(1 + x*x)" describes."""
    if len(text) > LONGEST:
        raise UserError(f"the formula has {len(text)} characters; accepted: at most {LONGEST}")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        function = _compiled(tree, variable)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise UserError(f'"{text}" is not a formula; accepted: {_ACCEPTED}') from None
    if not any(isinstance(node, ast.Name) and node.id == variable for node in ast.walk(tree)):
        raise UserError(f'"{text}" does not contain {variable}; accepted: a formula in {variable}')
    return function


def _compiled(node: ast.expr, variable: str) -> Callable[[Tensor], Tensor]:
    """The tree as nested functions."""
    match node:
        case ast.Constant() | ast.Name():
            return _leaf(node, variable)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            inner = _compiled(operand, variable)
            return lambda x: -inner(x)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _compiled(operand, variable)
        case ast.BinOp(left=base, op=ast.Pow(), right=exponent):
            power = _power(exponent)
            root = _compiled(base, variable)
            return lambda x: root(x) ** power
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OPERATORS:
            combine, one, two = _OPERATORS[type(operator)], _compiled(left, variable), _compiled(right, variable)
            return lambda x: combine(one(x), two(x))
        case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]):
            return _call(name, _compiled(argument, variable))
    raise UserError(f'"{ast.unparse(node)}" is not accepted in a formula; accepted: {_ACCEPTED}')


def _leaf(node: ast.Constant | ast.Name, variable: str) -> Callable[[Tensor], Tensor]:
    if isinstance(node, ast.Name):
        if node.id == variable:
            return lambda x: x
        if node.id not in CONSTANTS:
            accepted = _ACCEPTED.replace("x, ", f"{variable}, ", 1)
            raise UserError(f'unknown name "{node.id}" in the formula; accepted: {accepted}')
        number = CONSTANTS[node.id]
    else:
        number = _number(node)
    return lambda x: torch.full_like(x, number)


def _number(node: ast.Constant) -> float:
    if isinstance(node.value, bool) or not isinstance(node.value, int | float):
        raise UserError(f"{node.value!r} is not accepted in a formula; accepted: {_ACCEPTED}")
    try:
        number = float(node.value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise UserError("a number in the formula overflows; accepted: finite numbers")
    return number


def _power(node: ast.expr) -> float:
    """An exponent: a small constant such as 2, 0.5, -1 or 1/3."""
    match node:
        case ast.Constant():
            power = _number(node)
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            power = -_power(inner)
        case ast.BinOp(left=ast.Constant() as left, op=ast.Div(), right=ast.Constant() as right) if right.value:
            power = _number(left) / _number(right)
        case _:
            raise UserError(
                f'the exponent "{ast.unparse(node)}" is not accepted; accepted: a constant such as 2, 0.5, 1/3'
            )
    if abs(power) > LARGEST_POWER:
        raise UserError(f"the exponent {power:g} is not accepted; accepted: constants from -8 to 8")
    return power


def _call(name: str, inner: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    if name not in FUNCTIONS:
        raise unknown_name("function", name, FUNCTIONS)
    function = FUNCTIONS[name]
    return lambda x: function(inner(x))
