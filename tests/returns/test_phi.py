from __future__ import annotations

from collections.abc import Callable

import mpmath
import pytest
import torch
from torch import Tensor

from c2d.errors import UserError
from c2d.returns import phi as homeomorphisms
from c2d.returns.bellman import backup, q_values
from c2d.returns.phi import in_units, scaled_h
from c2d.types import Phi, ReturnDist
from tests.oracles import slow_returns

EVERY: dict[str, tuple[Callable[[], Phi], float, float]] = {  # factory, largest |x| promised, relative error
    "identity": (homeomorphisms.identity, 1e7, 1e-6),
    "h": (homeomorphisms.h, 1e7, 1e-6),
    "h without linear part": (lambda: homeomorphisms.h(eps=0.0), 1e7, 1e-6),
    "h eps 0.01": (lambda: homeomorphisms.h(eps=1e-2), 1e7, 1e-6),
    "scaled_h": (homeomorphisms.scaled_h, 1e7, 1e-6),
    "scaled_h 0.5": (lambda: homeomorphisms.scaled_h(beta=0.5), 1e7, 1e-6),
    "symlog": (homeomorphisms.symlog, 1e6, 3e-6),
    "asinh": (homeomorphisms.asinh, 1e6, 3e-6),
}
every = pytest.mark.parametrize("name", EVERY)


def grid(largest: float, count: int = 40_001, dtype: torch.dtype = torch.float32) -> Tensor:
    """Both signs of a logarithmic grid from 1e-6 to `largest`."""
    exponents = torch.linspace(-6, torch.tensor(largest).log10().item(), count, dtype=torch.float64)
    x = (10**exponents).clamp(max=largest).to(dtype)
    return torch.cat((-x.flip(0), x))


def relative_error(found: Tensor, expected: Tensor) -> float:
    return ((found.double() - expected.double()) / expected.double()).abs().max().item()


@every
def test_round_trip_in_float32(name: str) -> None:
    factory, largest, bound = EVERY[name]
    phi = factory()
    x = grid(largest)
    y = phi.to(x)
    assert y.dtype == torch.float32
    assert relative_error(phi.back(y), x) <= bound
    assert relative_error(phi.back(phi.to(x.reshape(2, -1, 1))), x.reshape(2, -1, 1)) <= bound


@every
def test_round_trip_in_float64(name: str) -> None:
    factory, largest, _ = EVERY[name]
    phi = factory()
    x = grid(largest, dtype=torch.float64)
    assert phi.to(x).dtype == torch.float64
    assert relative_error(phi.back(phi.to(x)), x) <= 1e-14


@every
def test_zero_is_exactly_zero_and_functions_are_odd(name: str) -> None:
    factory, largest, _ = EVERY[name]
    phi = factory()
    zero = torch.zeros(3)
    assert phi.to(zero).tolist() == [0.0] * 3
    assert phi.back(zero).tolist() == [0.0] * 3
    x = grid(largest, 1001)
    torch.testing.assert_close(phi.to(-x), -phi.to(x), rtol=2e-7, atol=0)
    torch.testing.assert_close(phi.back(phi.to(-x)), -phi.back(phi.to(x)), rtol=2e-6, atol=0)


@every
def test_increasing(name: str) -> None:
    factory, largest, _ = EVERY[name]
    phi = factory()
    x = torch.cat((grid(largest, 2001), torch.zeros(1))).sort().values
    y = phi.to(x)
    assert (y.diff() > 0).all()
    assert (phi.back(y).diff() > 0).all()


@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_are_finite_positive_and_inverse_to_each_other(name: str, dtype: torch.dtype) -> None:
    factory, _, _ = EVERY[name]
    phi = factory()
    ends = torch.tensor([0.0, -0.0, 1e-30, -1e-30, 1e-38, 1e7, -1e7, 1e12, -1e12], dtype=dtype)
    x = torch.cat((ends, grid(1e7, 1001, dtype))).requires_grad_()
    (slope,) = torch.autograd.grad(phi.to(x).sum(), x)
    y = phi.to(x).detach().requires_grad_()
    (inverse_slope,) = torch.autograd.grad(phi.back(y).sum(), y)
    assert slope.isfinite().all() and inverse_slope.isfinite().all()
    assert (slope > 0).all() and (inverse_slope > 0).all()
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    torch.testing.assert_close(slope * inverse_slope, torch.ones_like(slope), rtol=tolerance, atol=0)


@every
def test_derivatives_match_finite_differences(name: str) -> None:
    factory, _, _ = EVERY[name]
    phi = factory()
    points = torch.tensor([-300.0, -2.5, -0.1, 0.02, 1.0, 40.0, 5e3], dtype=torch.float64)
    for function, at in ((phi.to, points), (phi.back, phi.to(points))):
        z = at.clone().requires_grad_()
        (slope,) = torch.autograd.grad(function(z).sum(), z)
        step = 1e-5 * at.abs()
        numeric = (function(at + step) - function(at - step)) / (2 * step)
        torch.testing.assert_close(slope, numeric, rtol=1e-7, atol=0)


@pytest.mark.parametrize("large", [1e20, 1e30])
def test_far_out_scaled_h_neither_overflows_nor_loses_its_gradient(large: float) -> None:
    phi = homeomorphisms.scaled_h()
    x = torch.tensor([large, -large], requires_grad=True)
    back = phi.back(phi.to(x))
    torch.testing.assert_close(back, x, rtol=1e-6, atol=0)
    back.sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, torch.ones(2), rtol=1e-5, atol=0)


@pytest.mark.parametrize(("beta", "eps"), [(1.0, 1e-3), (1.99, 1e-3), (1.99, 1e-2), (0.3, 0.5)])
def test_h_agrees_with_the_formulas_of_the_paper(beta: float, eps: float) -> None:
    to, back = slow_returns.h(eps, beta)
    phi = homeomorphisms.scaled_h(beta, eps)
    x = grid(1e7, 60)
    y_expected = torch.tensor([float(to(mpmath.mpf(v))) for v in x.tolist()], dtype=torch.float64)
    assert relative_error(phi.to(x), y_expected) <= 5e-7
    assert relative_error(phi.to(x.double()), y_expected) <= 1e-14
    y = y_expected.float()
    x_expected = torch.tensor([float(back(mpmath.mpf(v))) for v in y.tolist()], dtype=torch.float64)
    assert relative_error(phi.back(y), x_expected) <= 5e-7
    assert relative_error(phi.back(y.double()), x_expected) <= 1e-13


def test_h_at_numbers_worked_by_hand() -> None:
    x = torch.tensor([3.0, -3.0, 8.0, -99.0], dtype=torch.float64)
    torch.testing.assert_close(homeomorphisms.h(0.0).to(x), torch.tensor([1.0, -1.0, 2.0, -9.0]).double())
    expected = torch.tensor([1.03, -1.03, 2.08, -9.99]).double()  # ε·x outside the sign: odd
    torch.testing.assert_close(homeomorphisms.h(0.01).to(x), expected)
    torch.testing.assert_close(homeomorphisms.scaled_h(2.0, 0.01).to(x), 2 * expected)
    torch.testing.assert_close(homeomorphisms.scaled_h(2.0, 0.01).back(2 * expected), x)


@pytest.mark.parametrize("name", ["symlog", "asinh"])
def test_logarithmic_ones_agree_with_their_formulas(name: str) -> None:
    exact = getattr(slow_returns, name)
    x = grid(1e6, 60)
    expected = torch.tensor([float(exact(mpmath.mpf(v))) for v in x.tolist()], dtype=torch.float64)
    assert relative_error(EVERY[name][0]().to(x), expected) <= 3e-7


def test_defaults_are_those_of_the_paper() -> None:
    x = grid(1e4, 11)
    torch.testing.assert_close(homeomorphisms.scaled_h().to(x), homeomorphisms.scaled_h(1.99, 1e-3).to(x))
    assert homeomorphisms.scaled_h().low == -float("inf")


def test_scaled_h_is_a_contraction_below_beta_two() -> None:
    """The paper takes β just below 2: φ' is largest at 0, where it is β(1/2 + ε), and must stay below 1."""
    x = grid(1e4, 2001, torch.float64).requires_grad_()
    (slope,) = torch.autograd.grad(homeomorphisms.scaled_h().to(x).sum(), x)
    assert slope.max() < 1
    x = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(homeomorphisms.scaled_h(1.99, 1e-3).to(x).sum(), x)
    torch.testing.assert_close(slope, torch.tensor([1.99 * 0.501], dtype=torch.float64))


@pytest.mark.parametrize("beta", [0.0, -1.0, float("nan"), float("inf")])
def test_bad_beta_is_refused(beta: float) -> None:
    with pytest.raises(UserError, match="beta"):
        homeomorphisms.scaled_h(beta=beta)


@pytest.mark.parametrize("eps", [-1e-3, float("nan"), float("inf")])
def test_bad_eps_is_refused(eps: float) -> None:
    with pytest.raises(UserError, match="eps"):
        homeomorphisms.h(eps=eps)


def test_in_units_follows_the_unit():
    unit = torch.tensor(4.0)
    phi = scaled_h()
    scaled = in_units(phi, unit)
    x = torch.tensor([-3e3, -1.0, 0.0, 0.5, 1e6])
    torch.testing.assert_close(scaled.to(4 * x), phi.to(x))
    torch.testing.assert_close(scaled.back(phi.to(x)), 4 * x)
    unit.fill_(1e9)
    torch.testing.assert_close(scaled.to(1e9 * x), phi.to(x))
    torch.testing.assert_close(scaled.back(scaled.to(1e9 * x)), 1e9 * x)


@pytest.mark.parametrize("factor", [1e-3, 1e6, 1e9])
def test_rewards_and_unit_times_a_factor_have_the_same_targets(factor):
    rng = torch.Generator().manual_seed(0)
    law = ReturnDist(torch.randn(64, 32, generator=rng) * 10, torch.randn(64, 32, generator=rng).log_softmax(-1))
    reward, discount = torch.randn(64, generator=rng), torch.full((64,), 0.99)
    one, other = (in_units(scaled_h(), torch.tensor(1.7 * k)) for k in (1.0, factor))
    targets = backup(reward, discount, law, one), backup(factor * reward, discount, law, other)
    torch.testing.assert_close(targets[0].atoms, targets[1].atoms, rtol=1e-6, atol=1e-5)
    torch.testing.assert_close(factor * q_values(law, one), q_values(law, other), rtol=1e-4, atol=0.0)
