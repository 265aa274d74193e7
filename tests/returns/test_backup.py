from __future__ import annotations

import pytest
import torch

from c2d.returns import phi as homeomorphisms
from c2d.returns.bellman import GREEDY, BootstrapLaws, at_action, backup, greedy, greedy_bootstrap, q_values
from c2d.types import Batch, ReturnDist
from tests.oracles import slow_returns

BETA, EPS = 1.99, 1e-3


def random_laws(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> ReturnDist:
    rng = torch.Generator().manual_seed(seed)
    atoms = 20 * torch.randn(*shape, generator=rng, dtype=dtype)
    return ReturnDist(atoms, torch.randn(*shape, generator=rng, dtype=dtype).log_softmax(-1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_q_values_are_expectations_of_real_returns(dtype: torch.dtype) -> None:
    law = random_laws(5, 4, 32, dtype=dtype)
    q = q_values(law, homeomorphisms.scaled_h(BETA, EPS))
    assert q.shape == (5, 4)
    for b in range(5):
        for a in range(4):
            atoms, probs = law.atoms[b, a].tolist(), law.log_probs[b, a].exp().tolist()
            expected = slow_returns.expected_return(atoms, probs, EPS, BETA)
            assert q[b, a].item() == pytest.approx(expected, rel=2e-5 if dtype == torch.float32 else 1e-10)


def test_q_values_without_a_transformation_are_means_in_any_shape() -> None:
    law = random_laws(2, 3, 4, 8)
    expected = (law.log_probs.exp() * law.atoms).sum(-1)
    torch.testing.assert_close(q_values(law, homeomorphisms.identity()), expected)
    assert q_values(ReturnDist(law.atoms[0, 0], law.log_probs[0, 0]), homeomorphisms.identity()).shape == (4,)


def test_real_and_conjugate_means_choose_differently() -> None:
    """A rare large return against a sure small one: φ⁻¹ must come before the mean, not after."""
    phi = homeomorphisms.scaled_h()
    real = torch.tensor([[[0.0, 1000.0], [60.0, 60.0]]])
    law = ReturnDist(phi.to(real), torch.tensor([[[0.9, 0.1], [0.5, 0.5]]]).log())
    torch.testing.assert_close(q_values(law, phi), torch.tensor([[100.0, 60.0]]))
    assert greedy(q_values(law, phi)).tolist() == [0]
    assert greedy((law.log_probs.exp() * law.atoms).sum(-1)).tolist() == [1]


def test_greedy_takes_the_first_of_the_largest() -> None:
    q = torch.tensor([[1.0, 3.0, 3.0, 2.0], [0.0, 0.0, 0.0, 0.0], [-1.0, -2.0, -0.5, -0.5]])
    assert greedy(q).tolist() == [1, 0, 2]
    assert greedy(q[0]).item() == 1


def test_at_action_picks_one_law_per_row_and_keeps_gradients() -> None:
    law = random_laws(3, 4, 5)
    taus = torch.rand(3, 4, 5, generator=torch.Generator().manual_seed(1))
    atoms = law.atoms.clone().requires_grad_()
    log_probs = law.log_probs.clone().requires_grad_()
    action = torch.tensor([2, 0, 3])
    chosen = at_action(ReturnDist(atoms, log_probs, taus), action)
    for b, a in enumerate(action.tolist()):
        assert torch.equal(chosen.atoms[b], atoms[b, a])
        assert torch.equal(chosen.log_probs[b], log_probs[b, a])
        assert chosen.taus is not None and torch.equal(chosen.taus[b], taus[b, a])
    (2 * chosen.atoms + 3 * chosen.log_probs).sum().backward()
    rows = torch.nn.functional.one_hot(action, 4)[:, :, None].expand(3, 4, 5).double()
    assert atoms.grad is not None and torch.equal(atoms.grad, 2 * rows)
    assert log_probs.grad is not None and torch.equal(log_probs.grad, 3 * rows)
    assert at_action(law, action).taus is None


def test_backup_equals_a_loop_over_atoms() -> None:
    law = random_laws(6, 8)
    rng = torch.Generator().manual_seed(2)
    reward = 100 * torch.randn(6, generator=rng, dtype=torch.float64)
    discount = torch.tensor([0.99, 0.0, 1.0, 0.5, 0.99**3, 0.0], dtype=torch.float64)
    target = backup(reward, discount, law, homeomorphisms.scaled_h(BETA, EPS))
    for b in range(6):
        for k in range(8):
            expected = slow_returns.backed_up_atom(
                reward[b].item(), discount[b].item(), law.atoms[b, k].item(), EPS, BETA
            )
            assert target.atoms[b, k].item() == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert target.log_probs is law.log_probs


@pytest.mark.parametrize("name", ["identity", "h", "scaled_h", "symlog", "asinh"])
def test_a_terminal_collapses_the_law_to_the_reward(name: str) -> None:
    phi = getattr(homeomorphisms, name)()
    reward = torch.tensor([0.0, 1.0, -7.25, 1e6])
    target = backup(reward, torch.zeros(4), random_laws(4, 33, dtype=torch.float32), phi)
    assert torch.equal(target.atoms, phi.to(reward[:, None].expand(4, 33).contiguous()))
    assert (target.atoms == target.atoms[:, :1]).all()


def test_backup_without_a_transformation_is_the_distributional_bellman_operator() -> None:
    law = random_laws(3, 8)
    reward, discount = torch.tensor([1.0, -2.0, 0.5]).double(), torch.tensor([0.9, 0.5, 0.0]).double()
    target = backup(reward, discount, law, homeomorphisms.identity())
    torch.testing.assert_close(target.atoms, reward[:, None] + discount[:, None] * law.atoms)


@pytest.mark.parametrize("name", ["h", "scaled_h", "symlog", "asinh"])
def test_backup_moves_expected_returns_as_the_bellman_equation_says(name: str) -> None:
    """Q of the backed-up law is r + γQ, in real returns (C2D, Prop. 3.2), whatever φ is."""
    phi = getattr(homeomorphisms, name)()
    real = random_laws(5, 16)
    law = real._replace(atoms=phi.to(real.atoms))
    reward, discount = torch.arange(5).double() - 2, torch.linspace(0, 1, 5, dtype=torch.float64)
    after = q_values(backup(reward, discount, law, phi), phi)
    torch.testing.assert_close(after, reward + discount * q_values(law, phi))


def test_conjugated_step_without_reward_contracts() -> None:
    """Without reward, φ(γφ⁻¹(z)) draws every pair of atoms together: φ(γx) has a smaller slope than φ(x)."""
    phi = homeomorphisms.scaled_h(BETA, EPS)
    law = random_laws(1, 64)
    z = law.atoms.sort().values
    reward, discount = torch.zeros(1).double(), torch.full((1,), 0.99).double()
    moved = backup(reward, discount, ReturnDist(z, law.log_probs), phi)
    assert (moved.atoms.diff() > 0).all()
    assert (moved.atoms.diff() < z.diff()).all()


def test_greedy_bootstrap_takes_the_target_networks_own_best_law() -> None:
    phi = homeomorphisms.scaled_h()
    laws = random_laws(6, 4, 8, seed=3)
    zeros = torch.zeros(6)
    reward = torch.arange(6.0)
    batch = Batch(zeros, zeros.long(), reward, zeros, zeros, zeros, zeros.long())
    given_reward, law = greedy_bootstrap(BootstrapLaws(laws, laws), batch, phi)
    assert given_reward is reward
    for b in range(6):
        rows = zip(laws.atoms[b].tolist(), laws.log_probs[b].exp().tolist(), strict=True)
        values = [slow_returns.expected_return(atoms, probs, EPS, BETA) for atoms, probs in rows]
        best = values.index(max(values))
        assert torch.equal(law.atoms[b], laws.atoms[b, best])
        assert torch.equal(law.log_probs[b], laws.log_probs[b, best])


def test_greedy_declares_that_it_needs_no_other_pass() -> None:
    assert GREEDY.fn is greedy_bootstrap
    assert not GREEDY.online_chooses and not GREEDY.needs_target_now
