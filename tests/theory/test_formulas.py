import math

import numpy as np
import pytest
import torch

from c2d.errors import UserError
from c2d.returns import phi
from c2d.theory.homeomorphism import FUNCTIONS, parse_formula, study

X = torch.linspace(-3, 3, 61, dtype=torch.float64)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("x / sqrt(1 + x*x)", X / (1 + X * X).sqrt()),
        ("-x**2 + 3", -(X**2) + 3),
        ("2*sinh(x)/(1 + abs(x)) - +x**-1*0", 2 * X.sinh() / (1 + X.abs()) - 0 / X),
        ("sign(x)*log1p(abs(x))**(1/3)", X.sign() * X.abs().log1p() ** (1 / 3)),
        ("pi*x + e", math.pi * X + math.e),
    ],
)
def test_formulas_mean_what_python_means(text, wanted):
    torch.testing.assert_close(parse_formula(text)(X), wanted, equal_nan=True)
    assert parse_formula(text)(X.float()).dtype == torch.float32


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("__import__('os').system('true')", "not accepted"),
        ("x.real", "not accepted"),
        ("(lambda: x)()", "not accepted"),
        ("[x for x in x]", "not accepted"),
        ("x if x else 1", "not accepted"),
        ("x[0]", "not accepted"),
        ("sqrt(x, x)", "not accepted"),
        ("sqrt(input=x)", "not accepted"),
        ("x ** x", "exponent"),
        ("x ** 9", "from -8 to 8"),
        ("9**9**9*x", "exponent"),
        ("x ** (1/0)", "exponent"),
        ("x % 2", "not accepted"),
        ("x < 1", "not accepted"),
        ("'x'", "not accepted"),
        ("True*x", "not accepted"),
        ("1e999*x", "overflows"),
        ("9" * 199 + "*", "is not a formula"),
        ("x" * 201, "201 characters"),
        ("(" * 150 + "x" + ")" * 49, "is not a formula"),
        ("y + x", 'unknown name "y"'),
        ("sqr(x)", "Did you mean 'sqrt'"),
        ("1 + 2", "does not contain x"),
        ("", "is not a formula"),
        ("x\x00", "is not a formula"),
    ],
)
def test_nothing_else_is_accepted(text, words):
    with pytest.raises(UserError, match=words):
        parse_formula(text)


def test_every_function_takes_one_argument():
    for name in FUNCTIONS:
        assert parse_formula(f"{name}(x)")(torch.ones(2)).shape == (2,)


@pytest.mark.parametrize("eps", [0.0, 1e-3, 1e-2])
def test_the_bound_of_the_paper_on_beta(eps):
    """β·h is a contraction for β < 2/(1 + 2ε)."""
    h = phi.h(eps)
    found = study("h", h.to, h.back)
    assert found.lipschitz == pytest.approx(0.5 + eps, rel=1e-12)
    assert found.largest_scale == pytest.approx(2 / (1 + 2 * eps), rel=1e-9)
    assert found.lipschitz_back == (pytest.approx(1 / eps, rel=1e-6) if eps else math.inf)
    gamma, r = 0.99, 100.0  # steepest where r + γx = 0
    wanted = gamma * (0.5 + eps) / (0.5 / math.sqrt(1 + r / gamma) + eps)
    assert found.lipschitz_step[100.0] == pytest.approx(wanted, rel=1e-6)
    beta = 0.999 * 2 / (1 + 2 * eps)
    scaled = phi.scaled_h(beta, eps)
    assert study("s", scaled.to, scaled.back).lipschitz < 1 < 1.002 * study("s", scaled.to, scaled.back).lipschitz


def test_known_functions_are_described_correctly():
    bounded = study("b", parse_formula("x / sqrt(1 + x*x)"), gamma=0.9)
    assert (bounded.low, bounded.high) == (-1, 1) and bounded.inverse_by_bisection
    assert bounded.lipschitz == 1 and bounded.lipschitz_back == math.inf
    assert bounded.lipschitz_step[0.0] == pytest.approx(0.9**-2, rel=1e-3)  # γ((1+x²)/(1+γ²x²))^(3/2), x → ∞
    assert 1e6 < bounded.saturates < 1e9
    assert bounded.round_trip["float64"][0] < 1e-3 and bounded.round_trip["float32"][0] == math.inf
    cubic = study("c", parse_formula("x**3"))
    assert cubic.lipschitz == cubic.lipschitz_back == math.inf and cubic.high == math.inf
    angle = study("a", parse_formula("atan(x)"), lambda y: torch.tan(y))
    assert angle.high == pytest.approx(math.pi / 2) and not angle.inverse_by_bisection
    assert angle.lipschitz_step[100.0] == pytest.approx(0.99 * (1 + (100 / 0.99) ** 2), rel=1e-3)
    growing = study("e", parse_formula("exp(x)"))
    assert (growing.low, growing.high) == (0, math.inf)
    for name in ("scaled_h", "symlog", "asinh", "identity"):
        own = phi.KINDS[name](1.99, 1e-3)
        trip = study(name, own.to, own.back).round_trip
        assert trip["float64"][0] < 1e-14 and trip["float32"][0] < 3e-6 and trip["bfloat16"][0] < 0.05
    for text, slope, inverse in (("x + 0.9*sin(x)", 1.9, 10), ("x/10 + tanh(1e6*(x-3))", None, 10), ("2*x", 2, 0.5)):
        found = study(text, parse_formula(text))
        assert found.lipschitz_back == pytest.approx(inverse, rel=1e-3)
        assert found.lipschitz == pytest.approx(slope, rel=1e-6) if slope else found.lipschitz > 5e5
    root = study("r", parse_formula("sign(x)*sqrt(abs(x))"))
    assert root.lipschitz == root.lipschitz_back == root.lipschitz_step[1.0] == math.inf
    assert (
        growing.lipschitz_step[0.0] == math.inf
        and study("s", parse_formula("log1p(exp(x))")).lipschitz_step[1.0] == math.inf
    )
    shifted = study("shift", parse_formula("x"), parse_formula("y + 0.001*y", "y"))  # a wrong inverse is noticed
    assert shifted.round_trip["float64"][0] == pytest.approx(1e-3)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sin(x)", "not increasing"),
        ("-x", "not increasing"),
        ("x - x**3/9", "not increasing"),
        ("(abs(x + 1) - abs(x - 1))/2", "not strictly increasing: it is constant"),
        ("x - x", "not strictly increasing"),
        ("x + sign(x)", "it jumps from -1 to 0"),
        ("x + sign(x - 3)", "it jumps"),
        ("log(x)", "not finite at x = "),
        ("1/x", "not finite at x = 0"),
    ],
)
def test_functions_that_are_not_homeomorphisms_are_rejected(text, words):
    with pytest.raises(UserError, match=words):
        study(text, parse_formula(text))
    with pytest.raises(UserError, match=r"gamma is 1\.5"):
        study("x", parse_formula("x"), gamma=1.5)
    assert np.isfinite(study("x", parse_formula("x")).lipschitz)
