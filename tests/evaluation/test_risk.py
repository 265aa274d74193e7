"""Criteria against their definitions in exact arithmetic, by hand, and by integration of the quantile function."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate

from c2d.errors import UserError
from c2d.evaluation.risk import CRITERIA, MEAN, Criterion, above, criterion, cvar, entropic, mean, mean_std
from tests.oracles import slow_risk

ALPHAS = (1e-6, 0.05, 0.1, 0.3, 0.5, 0.999, 1.0)
BETAS = (-3.0, -0.5, -1e-3, -1e-9, 1e-6, 0.2, 2.0)


def laws(count=40, seed=0, scale=1.0):
    """Unsorted, with ties, atoms of no mass and sizes from tiny to large. [count, 7] twice"""
    rng = np.random.default_rng(seed)
    returns = rng.normal(size=(count, 7)) * scale * 10.0 ** rng.uniform(-2, 2, size=(count, 1))
    returns[::3, 4] = returns[::3, 1]
    probs = rng.dirichlet(np.full(7, 0.6), size=count)
    probs[::4, 2] = 0.0
    return torch.from_numpy(returns), torch.from_numpy(probs / probs.sum(1, keepdims=True))


def pairs(returns, probs):
    return [list(zip(z, p, strict=True)) for z, p in zip(returns.tolist(), probs.tolist(), strict=True)]


def check(ours, theirs, scale):
    np.testing.assert_allclose(ours.numpy(), np.array([float(value) for value in theirs]), atol=1e-12 * scale)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_cvar_against_exact_arithmetic(alpha):
    returns, probs = laws()
    check(cvar(returns, probs, alpha), [slow_risk.cvar(law, alpha) for law in pairs(returns, probs)], 1e4)


@pytest.mark.parametrize("alpha", [0.1, 0.35, 1.0])
def test_cvar_is_the_integral_of_the_quantile_function(alpha):
    returns, probs = laws(count=8, seed=3)
    for z, p in zip(returns.numpy(), probs.numpy(), strict=True):
        order = z.argsort()
        edges = p[order].cumsum()

        def quantile(tau, z=z, order=order, edges=edges):
            return z[order][min(np.searchsorted(edges, tau), 6)]

        whole, _ = integrate.quad(quantile, 0, alpha, points=[e for e in edges if e < alpha], limit=200)
        assert float(cvar(torch.tensor(z), torch.tensor(p), alpha)) == pytest.approx(whole / alpha, abs=1e-7)


def test_cvar_by_hand_takes_an_atom_in_part():
    """Worst 0.5 of {−10: 0.2, 0: 0.4, 5: 0.4}: all of −10, and 0.3 of the 0."""
    law = torch.tensor([5.0, -10.0, 0.0]), torch.tensor([0.4, 0.2, 0.4])
    assert float(cvar(*law, 0.5)) == pytest.approx(-4.0)
    assert float(cvar(*law, 0.8)) == pytest.approx((-2.0 + 0.2 * 5) / 0.8)
    assert float(cvar(*law, 0.2)) == pytest.approx(-10.0)


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_entropic_against_sixty_digits(beta, scale):
    returns, probs = laws(scale=scale)
    wanted = [slow_risk.entropic(law, beta) for law in pairs(returns, probs)]
    ours = entropic(returns, probs, beta)
    assert ours.isfinite().all()
    size = returns.abs().amax(-1).numpy() + 1.0
    assert (np.abs(ours.numpy() - wanted) <= 2e-7 * size).all()
    if abs(beta) > 1e-4:
        assert (np.abs(ours.numpy() - wanted) <= 1e-12 * size).all()


def test_entropic_for_returns_of_any_size_and_kind():
    huge = torch.tensor([1e6, -1e6, 0.0])
    even = torch.full((3,), 1 / 3)
    assert float(entropic(huge, even, -1.0)) == pytest.approx(-1e6, rel=1e-5)
    assert float(entropic(huge, even, 1.0)) == pytest.approx(1e6, rel=1e-5)
    assert entropic(huge, even, 1.0).dtype == torch.float32
    sure = torch.tensor([3.5, 3.5, 3.5])
    assert float(entropic(sure, even, -7.0)) == pytest.approx(3.5)


@pytest.mark.parametrize("c", [0.0, 1.0, -2.5])
def test_mean_std_and_mean_against_exact_arithmetic(c):
    returns, probs = laws()
    wanted = [float(slow_risk.mean(law)) - c * math.sqrt(slow_risk.variance(law)) for law in pairs(returns, probs)]
    check(mean_std(returns, probs, c), wanted, 1e3)
    check(mean(returns, probs), [slow_risk.mean(law) for law in pairs(returns, probs)], 1e3)


@pytest.mark.parametrize("x", [-1.0, 0.0, 2.0])
def test_above_against_exact_arithmetic_and_strictly(x):
    returns, probs = laws()
    returns[:, 0] = x
    check(above(returns, probs, x), [slow_risk.above(law, x) for law in pairs(returns, probs)], 1.0)


@pytest.mark.parametrize("text", [kind.example for kind in CRITERIA.values()])
def test_any_leading_shape_any_order_of_atoms_and_no_side_effects(text):
    measure = criterion(text)
    returns, probs = laws(count=12)
    before = returns.clone(), probs.clone()
    flat = measure(returns, probs)
    assert flat.shape == (12,)
    torch.testing.assert_close(measure(returns.view(2, 3, 2, 7), probs.view(2, 3, 2, 7)).flatten(), flat)
    order = torch.randperm(7, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(measure(returns[:, order], probs[:, order]), flat)
    assert torch.equal(returns, before[0]) and torch.equal(probs, before[1])
    torch.testing.assert_close(measure(returns.float(), probs.float()).double(), flat, rtol=1e-4, atol=1e-3)


def test_choices_by_hand():
    """A sure 2, a gamble of 0 or 5 (mean 2.5), and one of −10 or 20 with mean 2: by action."""
    returns = torch.tensor([[2.0, 2.0], [0.0, 5.0], [-10.0, 20.0]])
    probs = torch.tensor([[0.5, 0.5], [0.5, 0.5], [0.6, 0.4]])
    chosen = {text: int(criterion(text).best(returns, probs)) for text in
              ("mean", "cvar:0.2", "cvar:1", "mean-std:1", "mean-std:-1", "entropic:-2", "entropic:2",
               "above:1", "above:4", "above:6", "above:50", "above:-11")}  # fmt: skip
    assert chosen == {
        "mean": 1, "cvar:0.2": 0, "cvar:1": 1, "mean-std:1": 0, "mean-std:-1": 2, "entropic:-2": 0, "entropic:2": 2,
        "above:1": 0, "above:4": 1, "above:6": 2,
        "above:50": 1,  # all 0: the mean decides
        "above:-11": 1,  # all 1, up to rounding
    }  # fmt: skip


def test_equal_probabilities_are_equal_in_spite_of_rounding():
    """Sums of a float32 softmax are 1 only nearly; the better mean must win, not the luckier rounding."""
    logits = torch.randn(200, 3, 32, generator=torch.Generator().manual_seed(0))
    probs, returns = logits.softmax(-1), torch.rand(200, 3, 32, generator=torch.Generator().manual_seed(1)) + 1
    sums = above(returns, probs, 0.0)
    assert (sums.argmax(-1) != mean(returns, probs).argmax(-1)).any()
    assert torch.equal(Criterion("above", 0.0).best(returns, probs), MEAN.best(returns, probs))


@pytest.mark.parametrize("text", [kind.example for kind in CRITERIA.values()])
def test_one_atom_every_criterion_chooses_as_the_mean(text):
    returns = 10 * torch.randn(300, 4, 1, generator=torch.Generator().manual_seed(2))
    probs = torch.ones_like(returns)
    assert torch.equal(criterion(text).best(returns, probs), returns.squeeze(-1).argmax(-1))
    if not text.startswith("above"):
        torch.testing.assert_close(criterion(text)(returns, probs), returns.squeeze(-1))


def test_parsing_and_names():
    assert criterion(" cvar:0.1") == Criterion("cvar", 0.1) and str(criterion("cvar:0.10")) == "cvar:0.1"
    assert str(criterion("entropic:-1e-3")) == "entropic:-0.001" and str(MEAN) == "mean"
    for name, kind in CRITERIA.items():
        assert kind.help and criterion(kind.example).name == name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "cvr:0.1",
            "\"cvr\"; accepted: mean, cvar:ALPHA, entropic:BETA, mean-std:C, above:X. Did you mean 'cvar'?",
        ),
        ("", 'unknown criterion ""'),
        ("cvar", 'criterion "cvar" has no number; accepted: cvar:ALPHA, as in cvar:0.1'),
        ("cvar:", 'criterion "cvar:" has no number'),
        ("cvar:ten", '"ten" is not a number'),
        ("cvar:0", "ALPHA is 0; accepted: a number above 0 and at most 1"),
        ("cvar:1.5", "ALPHA is 1.5"),
        ("cvar:nan", "ALPHA is nan"),
        ("entropic:0", "BETA is 0; accepted: any finite number except 0"),
        ("mean-std:inf", "C is inf"),
        ("mean:1", 'criterion "mean:1" has a number; accepted: mean'),
    ],
)
def test_bad_criteria(text, message):
    with pytest.raises(UserError) as error:
        criterion(text)
    assert message in str(error.value) and "\n" not in str(error.value)
