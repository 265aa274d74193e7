"""The head against Figure 1, recomputed in numpy atom by atom."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from c2d.errors import UserError
from c2d.nets.heads import ConjugatedHead, Style
from c2d.recipes.parts import Conjugated, Munchausen, PhiSpec
from c2d.recipes.recipe import check_recipe
from c2d.recipes.rows import RECIPES

B, D, A, N = 3, 10, 2, 4


def make(**settings):
    torch.manual_seed(0)
    head = ConjugatedHead(D, A, Style(), atoms=N, hidden=6, **{"alpha": 9.0, "c": 0.7, "embedding": 5, **settings})
    return head, torch.randn(B, D, generator=torch.Generator().manual_seed(0))


def figure_1(head, features):
    """One sample and one action at a time."""
    p = {name: tensor.detach().numpy().astype(float) for name, tensor in head.named_parameters()}
    atoms, probs = np.zeros((B, A, N)), np.zeros((B, A, N))
    for b, feature in enumerate(features.numpy().astype(float)):
        psi = np.maximum(p["dense.weight"] @ feature + p["dense.bias"], 0)
        logits = (p["logits.advantage.weight"] @ psi + p["logits.advantage.bias"]).reshape(A, N)
        for a in range(A):
            probs[b, a] = np.exp(logits[a]) / np.exp(logits[a]).sum()  # softmax over the atoms of one action
        joined = psi
        if "embedding.weight" in p:
            joined = np.concatenate(
                (np.maximum(p["embedding.weight"] @ probs[b].ravel() + p["embedding.bias"], 0), psi)
            )
        x = p["support.advantage.weight"] @ joined + p["support.advantage.bias"]
        atoms[b] = (p["alpha"] * np.tanh(x / head.c)).reshape(A, N)
    return atoms, probs


@pytest.mark.parametrize("embedding", [5, 0])
def test_equals_figure_1(embedding):
    head, features = make(embedding=embedding)
    law = head(features, "predict")
    atoms, probs = figure_1(head, features)
    np.testing.assert_allclose(law.atoms.detach().numpy(), atoms, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(law.log_probs.exp().detach().numpy(), probs, rtol=1e-4, atol=1e-6)
    assert law.taus is None


def test_probabilities_of_each_action_sum_to_one():
    head, features = make()
    law = head(features * 100, "act")
    torch.testing.assert_close(law.log_probs.exp().sum(-1), torch.ones(B, A))
    assert law.log_probs.isfinite().all()


def test_atoms_stay_within_alpha():
    head, features = make()
    assert (head(features * 1e4, "act").atoms.abs() <= 9.0).all()


@pytest.mark.parametrize(("embedding", "coupled"), [(5, True), (0, False)])
def test_embedding_couples_atoms_to_probabilities(embedding, coupled):
    """A change of the logits alone moves the atoms if, and only if, there is an embedding."""
    head, features = make(embedding=embedding)
    before = head(features, "act").atoms
    with torch.no_grad():
        head.logits.advantage.bias += torch.linspace(-3, 3, A * N)
    assert torch.equal(before, head(features, "act").atoms) is not coupled


def test_gradient_reaches_the_logits_through_the_atoms():
    head, features = make()
    head(features, "predict").atoms.sum().backward()
    assert head.logits.advantage.weight.grad.abs().max() > 0


@pytest.mark.parametrize("trained", [True, False])
def test_alpha_is_trained_or_not(trained):
    head, features = make(train_alpha=trained)
    head(features, "predict").atoms.square().sum().backward()
    assert head.alpha.requires_grad is trained
    assert (head.alpha.grad is not None and float(head.alpha.grad.abs()) > 0) is trained
    assert head.diagnostics() == {"alpha": 9.0}
    assert "alpha" in head.state_dict()


@pytest.mark.parametrize("scale", [0.25, 3.0])
def test_the_logits_scale_sharpens_or_flattens_the_probabilities_alone(scale):
    """Softmax by hand of the logits times the scale; without an embedding the atoms are the same."""
    plain, features = make(embedding=0)
    scaled, _ = make(embedding=0, logit_scale=scale)
    scaled.load_state_dict(plain.state_dict())
    one, other = plain(features, "act"), scaled(features, "act")
    powered = one.log_probs.exp().detach().numpy().astype(float) ** scale  # softmax(kx) = softmax(x)^k, normalized
    np.testing.assert_allclose(other.log_probs.exp().detach(), powered / powered.sum(-1, keepdims=True), rtol=1e-4)
    assert torch.equal(one.atoms, other.atoms)


def test_the_logits_scale_is_a_factor_on_their_gradient():
    """At equal logits, 0, the gradient of a function of the probabilities is the scale times that without it."""
    gradients = []
    for scale in (1.0, 4.0):
        head, features = make(embedding=0, logit_scale=scale)
        torch.nn.init.zeros_(head.logits.advantage.weight)
        torch.nn.init.zeros_(head.logits.advantage.bias)
        head(features, "predict").log_probs[..., 0].exp().sum().backward()
        gradients.append(head.logits.advantage.bias.grad)
    torch.testing.assert_close(4.0 * gradients[0], gradients[1])


def test_fixed_probabilities_are_uniform_and_leave_only_atoms_to_train():
    head, features = make(fixed_probabilities=True)
    law = head(features * 10, "predict")
    assert law.atoms.shape == law.log_probs.shape == (B, A, N)
    np.testing.assert_allclose(law.log_probs.exp().numpy(), 1 / N, rtol=1e-6)
    assert not any(name.startswith(("logits", "embedding")) for name in head.state_dict())
    law.atoms.square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in head.parameters())
    joined = torch.relu(features * 10 @ head.dense.weight.T + head.dense.bias)  # [B, 6]: the dense layer alone
    x = joined @ head.support.advantage.weight.T + head.support.advantage.bias
    torch.testing.assert_close(law.atoms, (9.0 * torch.tanh(x / 0.7)).unflatten(-1, (A, N)))


def test_fixed_probabilities_of_fixed_atoms_are_rejected():
    recipe = replace(RECIPES["c2d"], head=Conjugated(fixed_probabilities=True, train_atoms=False))
    with pytest.raises(UserError, match=r"--head\.train-atoms is False; accepted: True"):
        check_recipe(recipe)


def test_both_settings_reach_the_head_from_its_declaration():
    head = Conjugated(logit_scale=2.0, fixed_probabilities=True).build(D, A, Style())
    assert head.logit_scale == 2.0 and head.logits is None


# ---------------------------------------------------------------------------------------------- the unit of rewards


def test_a_larger_unit_keeps_returns_nearly():
    """Exactly where an atom is α/2; nearly below and above, and further out atoms leave the bound."""
    phi, alpha, c = PhiSpec().build(), 50.0, 5.0
    head, _ = make(unit="auto", alpha=alpha, c=c)
    places = torch.tensor([0.1, 0.3, 0.5, 0.7, 0.95, 0.99])
    before = phi.back(alpha * places)
    weight = head.support.advantage.weight.detach().clone()
    head.enlarge_unit(2.0, phi)
    factor = head.support.advantage.weight.detach() / weight
    torch.testing.assert_close(factor.min(), factor.max())
    assert head.unit.u == 2.0
    after = 2.0 * phi.back(alpha * torch.tanh(torch.atanh(places) * factor.mean()))
    np.testing.assert_allclose((after / before - 1)[:4], [0.05, -0.03, 0.0, 0.11], atol=0.01)
    assert (after / before - 1)[2].abs() < 1e-5
    assert (
        1.3 < (after / before)[4] < 1.7
        and (alpha * torch.tanh(torch.atanh(places) * factor.mean()) < 0.95 * alpha).all()
    )


def test_noise_and_biases_get_the_factor_of_the_weights():
    torch.manual_seed(0)
    head = ConjugatedHead(D, A, Style(dueling=True, noise=0.5), atoms=N, hidden=6, embedding=5, unit="auto")
    for parameter in head.support.parameters():
        parameter.data.fill_(1.0)
    head.enlarge_unit(2.0, PhiSpec().build())
    values = torch.cat([parameter.detach().flatten() for parameter in head.support.parameters()])
    assert values.min() == values.max() and 0.6 < values[0] < 0.7
    assert {name for name, _ in head.support.named_parameters()} >= {"advantage.sigma_weight", "value.bias"}


def test_the_share_of_saturated_mass_moves_in_the_predicting_pass_only():
    head, features = make(unit="auto", alpha=9.0)
    with torch.no_grad():
        head.support.advantage.bias.fill_(100.0)  # every atom is α
    for purpose in ("act", "choose", "target"):
        head(features, purpose)
    assert head.unit.share == 0
    head(features, "predict")
    assert head.unit.share.item() == pytest.approx(head.unit.rate)
    head.unit.share.zero_()
    with torch.no_grad():
        head.support.advantage.bias.copy_(torch.tensor([100.0, 0, 0, 0] * A))
        head.support.advantage.weight.zero_()
    law = head(features, "predict")
    assert head.unit.share.item() == pytest.approx(head.unit.rate * law.log_probs.exp()[..., 0].mean().item(), rel=1e-4)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"clip_reward": 1.0},
            "--head.unit is auto; accepted: one with --clip-reward 1.0, which sets the scale of rew",
        ),
        ({"bootstrap": Munchausen()}, "--head.unit is auto; accepted: one with --bootstrap munchausen, whose temperat"),
    ],
)
def test_what_a_unit_does_not_go_with(changes, reason):
    recipe = replace(RECIPES["c2d"], **changes)
    check_recipe(recipe)
    with pytest.raises(UserError, match=reason):
        check_recipe(replace(recipe, head=Conjugated(unit="auto")))


def test_a_unit_goes_with_munchausen_terms_of_any_scale():
    soft = Munchausen(scale="running")
    check_recipe(replace(RECIPES["c2d"], head=Conjugated(unit="auto"), bootstrap=soft))


def test_fixed_atoms_have_no_unit():
    with pytest.raises(UserError, match=r"--head.unit is auto; accepted: one with --head.train-atoms False"):
        check_recipe(replace(RECIPES["c2d"], head=Conjugated(unit="auto", train_atoms=False)))
    head, _ = make(train_atoms=False)
    assert head.bound is None  # whose atoms are at the bound from the start
