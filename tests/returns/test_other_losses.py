"""C51's projection, quantile regression, point losses, Munchausen: each against a loop that says what it means."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from c2d.recipes.parts import CrossEntropy
from c2d.returns.bellman import DOUBLE, GREEDY, BootstrapLaws, backup, munchausen
from c2d.returns.losses import cross_entropy, huber, project, quantile_huber, squared, td_error
from c2d.returns.phi import identity, scaled_h, symlog
from c2d.types import Batch, ReturnDist
from tests.oracles import slow_losses


def rng():
    return torch.Generator().manual_seed(0)


def law(batch, atoms, seed=0, scale=5.0, taus=False, dtype=torch.float64):
    rng = torch.Generator().manual_seed(seed)
    z = scale * torch.randn(batch, atoms, generator=rng, dtype=dtype)
    p = torch.rand(batch, atoms, generator=rng, dtype=dtype)
    fractions = torch.rand(batch, atoms, generator=rng, dtype=dtype) if taus else None
    return ReturnDist(z, (p / p.sum(-1, keepdim=True)).log(), fractions)


def test_projection_equals_the_loop():
    target, grid = law(6, 17, scale=8.0), torch.linspace(-10, 10, 51, dtype=torch.float64)
    found = project(target, grid)
    for b in range(6):
        wanted = slow_losses.projected(target.atoms[b].tolist(), target.log_probs[b].exp().tolist(), -10, 10, 51)
        np.testing.assert_allclose(found[b].numpy(), wanted, atol=1e-12)


@settings(max_examples=60)
@given(
    st.lists(st.floats(-30, 30), min_size=1, max_size=8),
    st.integers(2, 60),
    st.floats(-20, 0),
    st.floats(0.1, 40),
)
def test_projection_keeps_mass_and_inside_the_grid_the_mean(values, count, low, width):
    grid = torch.linspace(low, low + width, count, dtype=torch.float64)
    z = torch.tensor([values], dtype=torch.float64)
    uniform = ReturnDist(z, torch.full_like(z, -math.log(len(values))))
    found = project(uniform, grid)
    assert found.min() >= -1e-12
    assert found.sum().item() == pytest.approx(1.0, abs=1e-9)
    inside = z.clamp(low, low + width)
    assert (found @ grid).item() == pytest.approx(inside.mean().item(), abs=1e-7)


def test_atoms_on_the_grid_stay_where_they_are():
    grid = torch.linspace(-2, 2, 5)
    z = torch.tensor([[-2.0, 0.0, 2.0], [1.0, 1.0, -1.0]])
    p = torch.tensor([[0.2, 0.3, 0.5], [0.25, 0.25, 0.5]])
    found = project(ReturnDist(z, p.log()), grid)
    wanted = torch.tensor([[0.2, 0, 0.3, 0, 0.5], [0, 0.5, 0, 0.5, 0]])
    torch.testing.assert_close(found, wanted)


def test_cross_entropy_equals_the_loop_and_its_gradient_is_p_minus_m():
    grid = torch.linspace(-10, 10, 21, dtype=torch.float64)
    logits = torch.randn(4, 21, dtype=torch.float64, generator=rng()).requires_grad_()
    target = law(4, 9)
    prediction = ReturnDist(grid.expand(4, 21), logits.log_softmax(-1))
    loss = cross_entropy()(prediction, target)
    masses = project(target, grid)
    for b in range(4):
        wanted = slow_losses.cross_entropy(masses[b].tolist(), prediction.log_probs[b].tolist())
        assert loss[b].item() == pytest.approx(wanted)
    loss.sum().backward()
    torch.testing.assert_close(logits.grad, logits.detach().softmax(-1) - masses)


@pytest.mark.parametrize(("phi", "back"), [(scaled_h(), lambda z: textbook(z)), (symlog(), None), (identity(), None)])
def test_projection_by_real_returns_equals_the_loop_and_keeps_their_mean(phi, back):
    """Atoms outside the grid count as its ends."""
    back = back or (lambda z: phi.back(torch.tensor(z, dtype=torch.float64)).item())
    target, grid = law(6, 17, scale=8.0), torch.linspace(-10, 10, 21, dtype=torch.float64)
    found = project(target, grid, phi)
    for b in range(6):
        atoms, probs = target.atoms[b].tolist(), target.log_probs[b].exp().tolist()
        wanted = slow_losses.projected_returns(atoms, probs, -10, 10, 21, back)
        np.testing.assert_allclose(found[b].numpy(), wanted, atol=1e-10)
        mean = sum(p * back(min(max(z, -10.0), 10.0)) for z, p in zip(atoms, probs, strict=True))
        assert (found[b] * phi.back(grid)).sum().item() == pytest.approx(mean, rel=1e-9)


def textbook(z, eps=1e-3, beta=1.99):
    """φ⁻¹ of the paper, in float64."""
    root = math.sqrt(1 + 4 * eps * (abs(z) / beta + 1 + eps))
    return math.copysign(((root - 1) / (2 * eps)) ** 2 - 1, z)


def test_with_identity_both_projections_are_the_same():
    target, grid = law(4, 9), torch.linspace(-10, 10, 51, dtype=torch.float64)
    torch.testing.assert_close(project(target, grid, identity()), project(target, grid))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_projection_by_real_returns_keeps_atoms_on_the_grid_and_all_mass(dtype):
    grid = torch.linspace(-50, 50, 51, dtype=dtype)
    on = ReturnDist(grid[None], torch.full((1, 51), -math.log(51), dtype=dtype))
    torch.testing.assert_close(project(on, grid, scaled_h()), on.log_probs.exp())
    wide = law(8, 40, scale=60.0, dtype=dtype)
    found = project(wide, grid, scaled_h())
    assert found.min() >= 0 and found.sum(-1).tolist() == pytest.approx([1.0] * 8, abs=1e-5)


def fixed_point(interpolate):
    """Expected real return of one state that pays 1 with probability 0.05 in each step, γ 0.99, by C51 without error.

    Targets of both rewards are projected on 51 atoms on ±50 by the loss that the recipe builds: the law that a
    cross-entropy is least at is their mixture. The true mean is 0.05/(1 − 0.99) = 5.
    """
    phi, grid = scaled_h(), torch.linspace(-50, 50, 51, dtype=torch.float64)
    loss, probs = CrossEntropy(interpolate).build(phi), torch.full((51,), 1 / 51, dtype=torch.float64)
    chance, reward = torch.tensor([0.05, 0.95], dtype=torch.float64), torch.tensor([1.0, 0.0], dtype=torch.float64)
    for _ in range(2_500):
        current = ReturnDist(grid.expand(2, 51), probs.log().expand(2, 51))
        target = backup(reward, torch.full_like(reward, 0.99), current, phi)
        log_probs = torch.zeros(2, 51, dtype=torch.float64, requires_grad=True)
        loss(ReturnDist(grid.expand(2, 51), log_probs), target).sum().backward()
        probs = (-log_probs.grad * chance[:, None]).sum(0)  # the gradient in log p_k is −m_k, the projected mass
    return (probs * phi.back(grid)).sum().item()


def test_splitting_by_real_returns_removes_the_inflation_of_a_true_mean_of_5():
    assert fixed_point("real") == pytest.approx(5.0, abs=1e-6)
    assert fixed_point("phi") == pytest.approx(6.757, abs=1e-3)


@pytest.mark.parametrize("kappa", [1.0, 0.3, 0.0])
@pytest.mark.parametrize("sizes", [(5, 5), (7, 3), (1, 4)])
def test_quantile_huber_equals_its_definition(kappa, sizes):
    prediction, target = law(3, sizes[0], 1, 1.0, taus=True), law(3, sizes[1], 2, 1.0)
    found = quantile_huber(kappa)(prediction, target)
    for b in range(3):
        rows = (prediction.atoms, prediction.taus, target.atoms)  # whatever the target's probabilities
        assert found[b].item() == pytest.approx(slow_losses.quantile_huber(*(r[b].tolist() for r in rows), kappa))


@pytest.mark.parametrize("kappa", [1.0, 0.2])
def test_quantile_huber_gradient(kappa):
    prediction, target = law(2, 6, 3, taus=True), law(2, 4, 4)
    atoms = prediction.atoms.clone().requires_grad_()
    torch.autograd.gradcheck(lambda z: quantile_huber(kappa)(prediction._replace(atoms=z), target), atoms)


def test_quantile_loss_is_least_at_the_quantiles():
    """The plain loss of one fraction is minimized by the quantile of the target (numpy's, by inversion)."""
    y = torch.sort(torch.randn(1, 101, dtype=torch.float64, generator=rng())).values
    target = ReturnDist(y, torch.full_like(y, -math.log(101)))
    for tau in (0.1, 0.5, 0.83):
        places = torch.linspace(-3, 3, 4001, dtype=torch.float64)
        sure = torch.zeros(4001, 1, dtype=torch.float64)
        prediction = ReturnDist(places[:, None], sure, torch.full_like(sure, tau))
        losses = quantile_huber(0.0)(prediction, ReturnDist(y.expand(4001, -1), target.log_probs.expand(4001, -1)))
        best = places[int(losses.argmin())].item()
        assert best == pytest.approx(np.quantile(y.numpy(), tau, method="inverted_cdf"), abs=2e-3)


def test_point_losses():
    z, y = torch.tensor([[0.0], [1.0], [-4.0]]), torch.tensor([[0.5], [3.0], [1.0]])
    prediction, target = ReturnDist(z, torch.zeros_like(z)), ReturnDist(y, torch.zeros_like(y))
    torch.testing.assert_close(squared(prediction, target), torch.tensor([0.25, 4.0, 25.0]))
    wanted = [slow_losses.huber(float(a - b), 1.5) for a, b in zip(z, y, strict=True)]
    torch.testing.assert_close(huber(1.5)(prediction, target), torch.tensor(wanted))
    with pytest.raises(AssertionError):
        squared(law(2, 3), law(2, 3))


def batch(size, actions=3):
    zeros = torch.zeros(size)
    rng = torch.Generator().manual_seed(5)
    action = torch.randint(0, actions, (size,), generator=rng)
    return Batch(zeros, action, torch.randn(size, generator=rng).double(), zeros, zeros, zeros, zeros.long())


def laws(size, actions, atoms, seed, taus=False):
    rows = [law(actions, atoms, seed + b) for b in range(size)]
    fractions = torch.linspace(0.1, 0.9, atoms).double().expand(size, actions, atoms) if taus else None
    log_probs = torch.stack([r.log_probs for r in rows])
    if taus:
        log_probs = torch.full_like(log_probs, -math.log(atoms))
    return ReturnDist(torch.stack([r.atoms for r in rows]), log_probs, fractions)


def test_double_takes_the_law_of_the_target_network_at_the_choice_of_the_other():
    target, online, data = laws(5, 3, 4, 0), laws(5, 3, 4, 100), batch(5)
    assert DOUBLE.online_chooses and not GREEDY.online_chooses
    _, found = DOUBLE.fn(BootstrapLaws(target, online), data, identity())
    means = (online.log_probs.exp() * online.atoms).sum(-1)
    own = (target.log_probs.exp() * target.atoms).sum(-1)
    assert not torch.equal(means.argmax(-1), own.argmax(-1))
    for b in range(5):
        assert torch.equal(found.atoms[b], target.atoms[b, means[b].argmax()])


@pytest.mark.parametrize("taus", [True, False])
@pytest.mark.parametrize("phi", [identity(), scaled_h()])
@pytest.mark.parametrize("online", [True, False])
@pytest.mark.parametrize("scale", [None, 0.3])
def test_munchausen_adds_what_it_should(taus, phi, online, scale):
    """Reward and expected law against the formulas of the paper, written for one transition in plain numbers."""
    alpha, temperature, floor = 0.9, 0.7, -1.0
    after, before, data = laws(4, 3, 5, 0, taus), laws(4, 3, 5, 50, taus), batch(4)
    other, unit = laws(4, 3, 5, 90, taus), None if scale is None else torch.tensor(scale).double()
    given = BootstrapLaws(after, after, *((other, before) if online else (before, other)), unit)
    bootstrap = munchausen(alpha, temperature, floor, online, scale is not None)
    assert (bootstrap.needs_target_now, bootstrap.needs_online_now) == (not online, online)
    assert bootstrap.needs_scale == (scale is not None)
    reward, mixed = bootstrap.fn(given, data, phi)
    temperature, floor = temperature * (scale or 1.0), floor * (scale or 1.0)
    for b in range(4):
        now = [float((before.log_probs[b, a].exp() * phi.back(before.atoms[b, a])).sum()) for a in range(3)]
        later = [float((after.log_probs[b, a].exp() * phi.back(after.atoms[b, a])).sum()) for a in range(3)]
        pi_now = slow_losses.softmax(now, temperature)
        bonus = min(max(temperature * math.log(pi_now[data.action[b]]), floor), 0.0)
        assert reward[b].item() == pytest.approx(data.reward[b].item() + alpha * bonus)
        pi = slow_losses.softmax(later, temperature)
        wanted = sum(p * (q - temperature * math.log(p)) for p, q in zip(pi, later, strict=True))
        found = float((mixed.log_probs[b].exp() * phi.back(mixed.atoms[b])).sum())
        assert found == pytest.approx(wanted, rel=1e-6)
        assert mixed.log_probs[b].exp().sum().item() == pytest.approx(1.0)
        assert mixed.atoms.shape == ((4, 5) if taus else (4, 15))


@pytest.mark.parametrize("equal", [True, False])
def test_the_td_error_to_draw_by_pair_by_pair(equal):
    """Σ over predicted atoms of the mean over target atoms if all count alike; else weighted by both laws, times N."""
    rng = torch.Generator().manual_seed(0)
    z, y = torch.randn(5, 4, generator=rng), torch.randn(5, 6, generator=rng)
    log_p, log_q = (torch.randn(5, n, generator=rng).log_softmax(-1) for n in (4, 6))
    if equal:
        log_p, log_q = torch.full((5, 4), -math.log(4)), torch.full((5, 6), -math.log(6))
    found = td_error(ReturnDist(z, log_p), ReturnDist(y, log_q))
    for b in range(5):
        wanted = 0.0
        for i in range(4):
            row = [abs(float(y[b, j] - z[b, i])) * math.exp(log_q[b, j]) for j in range(6)]
            wanted += sum(row) * (1.0 if equal else 4 * math.exp(log_p[b, i]))
        assert float(found[b]) == pytest.approx(wanted, rel=1e-5)


def test_the_td_error_of_single_atoms_is_the_absolute_one():
    one, other = (ReturnDist(torch.tensor([[x]]), torch.zeros(1, 1)) for x in (2.0, -1.5))
    assert td_error(one, other).tolist() == [3.5]
