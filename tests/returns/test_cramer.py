from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import energy_distance
from torch import Tensor

from c2d.returns.losses import cramer
from c2d.types import ReturnDist
from tests.oracles.slow_cramer import squared_cramer


def law(atoms: object, probs: object, dtype: torch.dtype = torch.float64) -> ReturnDist:
    """[B, N], or one row given as [N]."""
    z = torch.as_tensor(atoms, dtype=dtype)
    p = torch.as_tensor(probs, dtype=dtype)
    return ReturnDist(z, p.log()) if z.dim() == 2 else ReturnDist(z[None], p.log()[None])


def random_law(seed: int, batch: int, n: int, dtype: torch.dtype = torch.float64, scale: float = 3) -> ReturnDist:
    rng = torch.Generator().manual_seed(seed)
    atoms = torch.randn(batch, n, generator=rng, dtype=dtype) * scale
    return ReturnDist(atoms, torch.randn(batch, n, generator=rng, dtype=dtype).log_softmax(-1))


def through_the_sort(prediction: ReturnDist, target: ReturnDist) -> Tensor:
    """Algorithm 1 left to automatic differentiation."""
    w, order = torch.cat((prediction.atoms, target.atoms), -1).sort(stable=True)
    masses = torch.cat((prediction.log_probs.exp(), -target.log_probs.exp()), -1).gather(-1, order)
    return (masses.cumsum(-1)[:, :-1] ** 2 * w.diff()).sum(-1)


def gradients(function: object, *laws: ReturnDist) -> list[Tensor]:
    inputs = [t.clone().requires_grad_() for each in laws for t in (each.atoms, each.log_probs)]
    pairs = [ReturnDist(*inputs[i : i + 2]) for i in range(0, len(inputs), 2)]
    weight = torch.arange(1, laws[0].atoms.shape[0] + 1, dtype=laws[0].atoms.dtype)
    loss = (function(*pairs) * weight).sum()  # type: ignore[operator]
    return list(torch.autograd.grad(loss, inputs))


few = st.integers(1, 6)
atom = st.integers(-4, 4).map(lambda k: k / 4)  # a coarse grid: ties are the rule
weight = st.integers(1, 16)


@st.composite
def small_laws(draw: st.DrawFn) -> tuple[list[float], list[float]]:
    """Probabilities are multiples of 1/total: in float64 the exact oracle sees what the code sees."""
    n = draw(few)
    weights = draw(st.lists(weight, min_size=n, max_size=n))
    return draw(st.lists(atom, min_size=n, max_size=n)), [k / sum(weights) for k in weights]


@settings(max_examples=150)
@given(small_laws(), small_laws())
def test_equals_the_integral_in_exact_arithmetic(
    mu: tuple[list[float], list[float]], nu: tuple[list[float], list[float]]
) -> None:
    expected = float(squared_cramer(list(zip(*mu, strict=True)), list(zip(*nu, strict=True))))
    found = cramer(law(*mu), law(*nu)).item()
    assert found >= 0
    assert found == pytest.approx(expected, rel=1e-12, abs=1e-14)
    assert cramer(law(*nu), law(*mu)).item() == pytest.approx(expected, rel=1e-12, abs=1e-14)


@pytest.mark.parametrize(("n", "m"), [(32, 32), (1, 32), (51, 7), (200, 1)])
def test_is_half_the_squared_energy_distance_of_scipy(n: int, m: int) -> None:
    mu, nu = random_law(n, 5, n), random_law(1000 + m, 5, m)
    expected = [
        0.5 * energy_distance(x.numpy(), y.numpy(), p.exp().numpy(), q.exp().numpy()) ** 2
        for x, p, y, q in zip(*mu[:2], *nu[:2], strict=True)
    ]
    np.testing.assert_allclose(cramer(mu, nu).numpy(), expected, rtol=1e-10)
    in_float32 = cramer(*(ReturnDist(each.atoms.float(), each.log_probs.float()) for each in (mu, nu)))
    assert in_float32.dtype == torch.float32
    np.testing.assert_allclose(in_float32.numpy(), expected, rtol=2e-5)


def test_a_case_worked_by_hand() -> None:
    """F − G is 1/4 on [0, 1), −1/4 on [1, 3) and 1/2 on [3, 4): 1/16 + 2/16 + 1/4."""
    mu, nu = law([3.0, 0.0], [0.75, 0.25]), law([1.0, 4.0], [0.5, 0.5])
    assert cramer(mu, nu).tolist() == pytest.approx([0.4375])


def test_point_masses_are_as_far_as_their_atoms() -> None:
    x, y = torch.tensor([[3.0], [-2.0], [1.5]]), torch.tensor([[-1.0], [5.0], [1.5]])
    one = torch.zeros(3, 1)
    torch.testing.assert_close(cramer(ReturnDist(x, one), ReturnDist(y, one)), torch.tensor([4.0, 7.0, 0.0]))


def test_zero_exactly_when_equal() -> None:
    mu = random_law(1, 8, 32)
    assert cramer(mu, mu).max() < 1e-28
    assert cramer(mu, mu._replace(atoms=mu.atoms + 1e-3)).min() > 1e-8
    tilted = (mu.log_probs + 1e-3 * mu.atoms).log_softmax(-1)
    assert cramer(mu, mu._replace(log_probs=tilted)).min() > 1e-10


def test_order_of_atoms_is_irrelevant() -> None:
    mu, nu = random_law(2, 4, 32), random_law(3, 4, 20)
    shuffle = torch.randperm(32, generator=torch.Generator().manual_seed(0))
    shuffled = ReturnDist(mu.atoms[:, shuffle], mu.log_probs[:, shuffle])
    torch.testing.assert_close(cramer(shuffled, nu), cramer(mu, nu), rtol=1e-12, atol=0)


def test_splitting_an_atom_or_adding_one_of_no_mass_changes_nothing() -> None:
    mu, nu = random_law(4, 4, 9), random_law(5, 4, 7)
    half = mu.log_probs - np.log(2)
    split = ReturnDist(torch.cat((mu.atoms, mu.atoms), -1), torch.cat((half, half), -1))
    torch.testing.assert_close(cramer(split, nu), cramer(mu, nu), rtol=1e-12, atol=0)
    far = torch.full((4, 1), 100.0, dtype=torch.float64)
    massless = ReturnDist(torch.cat((mu.atoms, far), -1), torch.cat((mu.log_probs, -far * torch.inf), -1))
    torch.testing.assert_close(cramer(massless, nu), cramer(mu, nu), rtol=1e-12, atol=0)
    assert all(g.isfinite().all() for g in gradients(cramer, massless, nu))


def test_scales_linearly_and_ignores_translation() -> None:
    mu, nu = random_law(6, 4, 32), random_law(7, 4, 32)
    distance = cramer(mu, nu)

    def moved(each: ReturnDist, scale: float, shift: float) -> ReturnDist:
        return each._replace(atoms=each.atoms * scale + shift)

    torch.testing.assert_close(cramer(moved(mu, 0.25, 0), moved(nu, 0.25, 0)), 0.25 * distance)
    torch.testing.assert_close(cramer(moved(mu, -3, 0), moved(nu, -3, 0)), 3 * distance)
    torch.testing.assert_close(cramer(moved(mu, 1, 7), moved(nu, 1, 7)), distance)


@pytest.mark.parametrize("seed", range(20))
def test_never_negative_in_float32_for_nearly_equal_laws(seed: int) -> None:
    mu = random_law(seed, 64, 32, torch.float32, scale=10.0 ** (seed % 7))
    rng = torch.Generator().manual_seed(seed)
    jitter = 1e-7 * torch.randn(64, 32, generator=rng)
    nu = ReturnDist(mu.atoms * (1 + jitter), (mu.log_probs + jitter.flip(0)).log_softmax(-1))
    for target in (nu, mu, nu._replace(atoms=nu.atoms[:, :1].expand(64, 32))):
        distance = cramer(mu, target)
        assert distance.isfinite().all() and (distance >= 0).all()
    assert (cramer(mu, mu) <= 1e-12 * mu.atoms.abs().amax(-1)).all()


@pytest.mark.parametrize(("n", "m"), [(1, 1), (5, 5), (6, 3), (2, 9)])
def test_gradcheck_in_all_four_arguments(n: int, m: int) -> None:
    mu, nu = random_law(n, 3, n), random_law(50 + m, 3, m)
    inputs = tuple(t.clone().requires_grad_() for t in (mu.atoms, mu.log_probs, nu.atoms, nu.log_probs))

    def function(x: Tensor, log_p: Tensor, y: Tensor, log_q: Tensor) -> Tensor:
        return cramer(ReturnDist(x, log_p), ReturnDist(y, log_q))

    assert torch.autograd.gradcheck(function, inputs, eps=1e-7, atol=1e-6, rtol=1e-5)
    for i in range(4):  # each argument alone: the others' gradients are not asked for
        alone = tuple(t if k == i else t.detach() for k, t in enumerate(inputs))
        assert torch.autograd.gradcheck(function, alone, eps=1e-7, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradient_equals_that_through_the_sort(dtype: torch.dtype) -> None:
    mu, nu = random_law(8, 32, 32, dtype), random_law(9, 32, 32, dtype)
    tolerance = {"rtol": 1e-4, "atol": 2e-5} if dtype == torch.float32 else {"rtol": 1e-10, "atol": 1e-12}
    for found, expected in zip(gradients(cramer, mu, nu), gradients(through_the_sort, mu, nu), strict=True):
        torch.testing.assert_close(found, expected, **tolerance)


def test_gradient_of_the_probabilities_survives_softmax_in_float32() -> None:
    """Through log_softmax, where only differences count, float32 agrees with float64 relative to its size."""
    mu, nu = random_law(10, 16, 32, scale=50), random_law(11, 16, 32, scale=50)

    def through_softmax(dtype: torch.dtype) -> Tensor:
        logits = mu.log_probs.to(dtype).requires_grad_()
        target = ReturnDist(nu.atoms.to(dtype), nu.log_probs.to(dtype))
        loss = cramer(ReturnDist(mu.atoms.to(dtype), logits.log_softmax(-1)), target).sum()
        return torch.autograd.grad(loss, logits)[0].double()

    reference = through_softmax(torch.float64)
    error = (through_softmax(torch.float32) - reference).abs().amax(-1) / reference.abs().amax(-1)
    assert error.max() < 2e-5


def test_gradient_is_finite_at_ties_and_follows_the_documented_order() -> None:
    """Prediction before target: a tied predicted atom reads as standing just left of the target's."""
    tied = law([[1.0, 1.0, 2.0]], [[0.5, 0.25, 0.25]])
    for target in (tied, law([[1.0, 1.0]], [[0.5, 0.5]]), law([[2.0, 1.0, 1.0]], [[0.2, 0.4, 0.4]])):
        nudge = torch.tensor([[-2e-9, -1e-9, -1e-9]], dtype=torch.float64)
        at_tie = gradients(cramer, tied, target)
        near = gradients(through_the_sort, tied._replace(atoms=tied.atoms + nudge), target)
        assert all(g.isfinite().all() for g in at_tie)
        for found, expected in zip(at_tie[:2], near[:2], strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-7)


def test_tied_atoms_keep_the_order_given_however_many_they_are() -> None:
    """All 64 atoms of both laws are one: the gradient reads them as x_1 < … < x_32 < y_1 < … < y_32."""
    mu, nu = (random_law(seed, 4, 32, torch.float32) for seed in (21, 22))
    mu, nu = (each._replace(atoms=torch.full((4, 32), 1.5)) for each in (mu, nu))
    spread = 1.5 + torch.arange(64.0).expand(4, 64)
    apart = mu._replace(atoms=spread[:, :32]), nu._replace(atoms=spread[:, 32:])
    torch.testing.assert_close(gradients(cramer, mu, nu)[0], gradients(cramer, *apart)[0], rtol=0, atol=0)
    assert cramer(mu, nu).tolist() == [0.0] * 4


def test_collapsed_target_pulls_every_atom_toward_it() -> None:
    """After a terminal all target atoms are one: left of it gradients are negative, right of it positive."""
    mu = random_law(12, 4, 32, torch.float32)
    target = mu._replace(atoms=torch.full((4, 32), 0.5))
    in_atoms = gradients(cramer, mu, target)[0]
    assert torch.equal(in_atoms.sign(), (mu.atoms - 0.5).sign())


def test_nothing_is_recorded_for_a_target_without_gradient() -> None:
    mu, nu = random_law(13, 4, 8), random_law(14, 4, 8)
    x = mu.atoms.clone().requires_grad_()
    cramer(mu._replace(atoms=x), nu).sum().backward()
    assert x.grad is not None and x.grad.abs().sum() > 0
    assert not nu.atoms.requires_grad and nu.atoms.grad is None
    assert not cramer(mu, nu).requires_grad
    with torch.no_grad():
        assert not cramer(mu._replace(atoms=x), nu).requires_grad


def test_a_second_derivative_is_refused_rather_than_wrong() -> None:
    mu, nu = random_law(17, 2, 4), random_law(18, 2, 4)
    x = mu.atoms.clone().requires_grad_()
    with pytest.raises(RuntimeError, match="once"):
        torch.autograd.grad(cramer(mu._replace(atoms=x), nu).sum(), x, create_graph=True)


def test_any_number_of_leading_dimensions() -> None:
    mu, nu = random_law(19, 6, 5), random_law(20, 6, 7)
    folded = [ReturnDist(d.atoms.view(2, 3, -1), d.log_probs.view(2, 3, -1)) for d in (mu, nu)]
    torch.testing.assert_close(cramer(*folded), cramer(mu, nu).view(2, 3), rtol=0, atol=0)
    single = [ReturnDist(d.atoms[0], d.log_probs[0]) for d in (mu, nu)]
    torch.testing.assert_close(cramer(*single), cramer(mu, nu)[0])


def test_inputs_are_left_alone() -> None:
    mu, nu = random_law(15, 4, 8), random_law(16, 4, 5)
    copies = [t.clone() for t in (mu.atoms, mu.log_probs, nu.atoms, nu.log_probs)]
    gradients(cramer, mu, nu)
    cramer(mu, nu)
    for kept, now in zip(copies, (mu.atoms, mu.log_probs, nu.atoms, nu.log_probs), strict=True):
        assert torch.equal(kept, now)


def test_descent_reaches_the_target_law() -> None:
    target = law([[-5.0, 0.0, 20.0]], [[0.3, 0.5, 0.2]], torch.float32)
    rng = torch.Generator().manual_seed(0)
    atoms = torch.randn(1, 8, generator=rng).requires_grad_()
    logits = torch.zeros(1, 8, requires_grad=True)
    optimizer = torch.optim.Adam([atoms, logits], lr=0.1)
    first = None
    for step in range(1200):
        for group in optimizer.param_groups:
            group["lr"] = 0.1 * (1 - step / 1200)
        loss = cramer(ReturnDist(atoms, logits.log_softmax(-1)), target).mean()
        first = loss.item() if first is None else first
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert first is not None and first > 1
    assert loss.item() < 1e-3
