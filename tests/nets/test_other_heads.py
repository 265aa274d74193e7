"""Heads of the other representations: shapes, sampling, noise, dueling, fractions."""

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from c2d.agents.build import build_parts
from c2d.envs.spec import EnvSpec
from c2d.nets.heads import (
    CategoricalHead,
    ConjugatedHead,
    CosineEmbedding,
    FractionHead,
    ImplicitHead,
    NoisyLinear,
    NormalizedLinear,
    Output,
    QuantileHead,
    ScalarHead,
    Streams,
    Style,
)
from c2d.nets.network import initialize
from c2d.recipes.rows import RECIPES, adapt

B, D, A = 3, 10, 4
VECTOR = EnvSpec("gym/CartPole-v1", "gym", (4,), "float32", 1, 3, 1)
HEADS = {
    ScalarHead: 1,
    CategoricalHead: 51,
    QuantileHead: 200,
    ImplicitHead: 64,
    FractionHead: 32,
    ConjugatedHead: 32,
}


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def make(kind, style=Style(), **settings):  # noqa: B008
    head = kind(D, A, style, hidden=16, **settings)
    initialize(head, rng())
    return head


def features(seed=1):
    return torch.randn(B, D, generator=rng(seed))


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("style", [Style(), Style(True), Style(noise=0.5), Style(True, 0.5), Style(layer_norm=True)])
def test_every_head_gives_laws(kind, style):
    law = make(kind, style)(features(), "predict", rng())
    assert law.atoms.shape == law.log_probs.shape == (B, A, HEADS[kind])
    torch.testing.assert_close(law.log_probs.exp().sum(-1), torch.ones(B, A))
    assert law.taus is None or ((law.taus > 0) & (law.taus < 1)).all()


def test_categorical_grid_and_quantile_fractions():
    law = make(CategoricalHead, v_min=-2.0, v_max=3.0, atoms=6)(features(), "act")
    assert law.atoms[1, 2].tolist() == [-2, -1, 0, 1, 2, 3]
    law = make(QuantileHead, atoms=4)(features(), "act")
    assert law.taus[0, 0].tolist() == [0.125, 0.375, 0.625, 0.875]


def test_implicit_counts_by_purpose_and_draws_anew():
    head = make(ImplicitHead, atoms=5, target_atoms=6, policy_atoms=7)
    generator = rng()
    counts = {p: head(features(), p, generator).atoms.shape[-1] for p in ("predict", "target", "act", "choose")}
    assert counts == {"predict": 5, "target": 6, "act": 7, "choose": 7}
    one, two = (head(features(), "predict", generator) for _ in range(2))
    assert not torch.equal(one.taus, two.taus)
    fixed = head(features(), "act")
    torch.testing.assert_close(fixed.taus[0, 0], (torch.arange(7) + 0.5) / 7)


def test_implicit_quantile_depends_on_its_own_fraction_alone():
    head = make(ImplicitHead)
    x, taus = features(), torch.rand(B, 5, generator=rng(3))
    together = head.quantile(x, taus, None)
    for k in range(5):
        torch.testing.assert_close(head.quantile(x, taus[:, k : k + 1], None), together[:, :, k : k + 1])


def test_cosine_embedding_equals_its_formula():
    layer = CosineEmbedding(3, 4)
    taus = torch.tensor([[0.2, 0.9]])
    weight, bias = layer.dense.weight.detach().numpy(), layer.dense.bias.detach().numpy()
    for k, tau in enumerate((0.2, 0.9)):
        cosines = [math.cos(math.pi * i * tau) for i in (1, 2, 3)]
        np.testing.assert_allclose(
            layer(taus)[0, k].detach().numpy(), np.maximum(weight @ cosines + bias, 0), rtol=1e-5, atol=1e-6
        )


# ------------------------------------------------------------------------------------------------ noise, dueling


def test_noisy_layer_equals_its_formula():
    layer = NoisyLinear(6, 3, 0.5)
    initialize(layer, rng())
    x = torch.randn(2, 6, generator=rng(1))
    noise = torch.randn(9, generator=rng(2)).numpy().astype(float)
    f = np.sign(noise) * np.sqrt(np.abs(noise))
    p = {name: tensor.detach().numpy().astype(float) for name, tensor in layer.named_parameters()}
    weight = p["weight"] + p["sigma_weight"] * np.outer(f[6:], f[:6])
    bias = p["bias"] + p["sigma_bias"] * f[6:]
    np.testing.assert_allclose(layer(x, rng(2)).detach().numpy(), x.numpy() @ weight.T + bias, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(layer(x).detach().numpy(), x.numpy() @ p["weight"].T + p["bias"], rtol=1e-5, atol=1e-6)
    assert p["sigma_weight"] == pytest.approx(0.5 / math.sqrt(6)) and np.abs(p["weight"]).max() <= 1 / math.sqrt(6)


def test_noise_is_drawn_anew_in_each_pass_and_shared_by_the_batch():
    layer, generator = NoisyLinear(6, 3, 0.5), rng()
    initialize(layer, rng())
    x = torch.randn(1, 6, generator=rng(1)).expand(4, 6)
    one, two = layer(x, generator), layer(x, generator)
    assert not torch.allclose(one, two)
    assert torch.allclose(one, one[:1].expand(4, 3))


def test_noise_has_gradients():
    layer = NoisyLinear(6, 3, 0.5)
    initialize(layer, rng())
    layer(torch.randn(2, 6, generator=rng(1)), rng()).sum().backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in layer.parameters())


def test_dueling_is_value_plus_centered_advantages():
    output = Output(5, A, 3, Style(dueling=True))
    x = torch.randn(B, 5, generator=rng())
    value, advantage = output.value(x), output.advantage(x).view(B, A, 3)
    torch.testing.assert_close(output(x, None), value[:, None] + advantage - advantage.mean(1, keepdim=True))
    torch.testing.assert_close(output(x, None).mean(1), value)  # so the two parts can be told apart


@pytest.mark.parametrize("kind", [CategoricalHead, ConjugatedHead])
def test_dueling_shares_a_part_among_actions(kind):
    """A change of the state's part moves all actions' laws alike, and not the advantages between them."""
    head = make(kind, Style(dueling=True))
    output = head.output if kind is CategoricalHead else head.logits
    before = head(features(), "act").log_probs
    with torch.no_grad():
        output.value.bias[0] += 1.0
    after = head(features(), "act").log_probs
    assert (after[..., 0] > before[..., 0]).all()


def test_conjugated_atoms_can_be_fixed():
    head = make(ConjugatedHead, atoms=5, alpha=8.0, train_atoms=False)
    assert head(features(), "act").atoms[0, 0].tolist() == [-8, -4, 0, 4, 8]
    assert not any("support" in name or "embedding" in name for name, _ in head.named_parameters())


# -------------------------------------------------------------------------------------------------------- FQF


def test_fractions_are_increasing_and_their_shares_the_probabilities():
    head = make(FractionHead, atoms=6)
    law = head(features(), "predict")
    edges = torch.cat((torch.zeros(B, 1), law.log_probs[:, 0].exp().cumsum(-1)), -1)
    torch.testing.assert_close(law.taus[:, 0], (edges[:, 1:] + edges[:, :-1]) / 2)
    torch.testing.assert_close(edges[:, -1], torch.ones(B))
    assert not law.taus.requires_grad and not law.log_probs.requires_grad and law.atoms.requires_grad


def test_target_takes_over_the_fractions_of_the_prediction():
    head, other = make(FractionHead, atoms=6), make(FractionHead, atoms=6)
    prediction = head(features(1), "predict")
    law = other(features(2), "target", None, prediction)
    assert torch.equal(law.taus, prediction.taus) and torch.equal(law.log_probs, prediction.log_probs)
    torch.testing.assert_close(law.atoms, other.quantile(features(2), prediction.taus[:, 0], None))


def test_fraction_loss_moves_the_fraction_network_alone():
    head, x = make(FractionHead, atoms=6), features().requires_grad_()
    action = torch.tensor([0, 3, 1])
    law = head(x, "predict")
    at = law._replace(atoms=law.atoms[torch.arange(B), action], log_probs=law.log_probs[:, 0], taus=law.taus[:, 0])
    head.auxiliary(x, at, action, None).sum().backward()
    moved = {name for name, p in head.named_parameters() if p.grad is not None and p.grad.abs().max() > 0}
    assert moved == {"fractions.weight", "fractions.bias"} and x.grad is None
    assert {id(p) for _, group in head.trained_apart() for p in group} == {
        id(p) for n, p in head.named_parameters() if n in moved
    }


def test_fraction_loss_has_the_gradient_of_the_wasserstein_error():
    """d/dτ_i of W₁(τ) = Σ_i ∫_{τ_i}^{τ_{i+1}} |F⁻¹(ω) − F⁻¹(τ̂_i)| dω for an increasing F⁻¹, numerically.

    The quantile network is replaced by the known function F⁻¹(ω) = ω³ + ω/2.
    """
    inverse = lambda w: w**3 + w / 2  # noqa: E731
    head = make(FractionHead, atoms=5).double()
    del head.quantile
    head.quantile = lambda x, taus, rng: inverse(taus).unsqueeze(1).expand(-1, A, -1)
    x, action = features().double(), torch.zeros(B, dtype=torch.long)
    law = head(x, "predict")
    at = law._replace(atoms=law.atoms[:, 0], log_probs=law.log_probs[:, 0], taus=law.taus[:, 0])
    head.auxiliary(x, at, action, None).sum().backward()
    found = head.fractions.bias.grad.clone()

    def error(bias):
        probe = copy.deepcopy(head.fractions)
        probe.bias.data.copy_(bias)
        shares = probe(x).softmax(-1)
        edges = torch.cat((torch.zeros(B, 1).double(), shares.cumsum(-1)), -1)
        total = 0.0
        for b in range(B):
            for low, high in zip(edges[b, :-1], edges[b, 1:], strict=True):
                places = torch.linspace(low.item(), high.item(), 2001, dtype=torch.float64)
                gap = (inverse(places) - inverse((low + high) / 2)).abs()
                total += torch.trapezoid(gap, places).item()
        return total

    bias, step = head.fractions.bias.detach().clone(), 1e-4
    for k in range(5):
        up, down = bias.clone(), bias.clone()
        up[k] += step
        down[k] -= step
        assert found[k].item() == pytest.approx((error(up) - error(down)) / (2 * step), rel=2e-3, abs=1e-6)


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("noise", [None, 0.5])
def test_layer_norm_normalizes_the_hidden_units(kind, noise):
    """They have mean 0 and variance 1 before the ReLU, so a factor on the dense layer's weights changes nothing."""
    head = make(kind, Style(noise=noise, layer_norm=True))
    dense = next(layer for layer in head.modules() if isinstance(layer, NormalizedLinear))
    units = dense(features(), rng()).detach().numpy()
    np.testing.assert_allclose(units.mean(-1), 0, atol=1e-5)
    np.testing.assert_allclose(units.std(-1), 1, atol=1e-2)
    large = 1e3 * features()  # so that the ε of the normalization does not count
    before = head(large, "act")
    with torch.no_grad():
        for parameter in dense.linear.parameters():
            parameter *= 100.0
    after = head(large, "act")
    torch.testing.assert_close(after.atoms, before.atoms, rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(after.log_probs, before.log_probs, rtol=1e-2, atol=1e-2)


def test_the_recipes_layer_norm_reaches_every_head():
    for name, row in RECIPES.items():
        for wanted in (False, True):
            *_, head = build_parts(replace(adapt(row, VECTOR), layer_norm=wanted), VECTOR)
            assert any(isinstance(layer, NormalizedLinear) for layer in head.modules()) is wanted, name


# ------------------------------------------------------------------------------------------- two hidden layers


def weights_of(head):
    return {name: tensor.detach().double().numpy() for name, tensor in head.named_parameters()}


def dense_by(w, name, x):
    return w[f"{name}.weight"] @ x + w[f"{name}.bias"]


def two_parts(w, output, value_units, advantage_units, size):
    """Dueling of two networks that share nothing but their inputs."""
    advantage = dense_by(w, f"{output}.advantage", advantage_units).reshape(A, size)
    return dense_by(w, f"{output}.value", value_units) + advantage - advantage.mean(0)


def units_of(w, dense, x):
    return [np.maximum(dense_by(w, f"{dense}.{part}", x), 0) for part in ("value", "advantage")]


SEPARATE = Style(dueling=True, separate=True)


def test_separate_streams_of_a_quantile_function_one_row_at_a_time():
    head = make(ImplicitHead, SEPARATE, atoms=5)
    law, w, x = head(features(), "predict"), weights_of(head.quantile), features().double().numpy()
    taus = (np.arange(5) + 0.5) / 5
    for b in range(B):
        for k, tau in enumerate(taus):
            cosines = np.cos(np.pi * np.arange(1, 65) * tau)
            embedded = np.maximum(dense_by(w, "embedding.dense", cosines), 0) * x[b]
            wanted = two_parts(w, "output", *units_of(w, "dense", embedded), 1)[:, 0]
            np.testing.assert_allclose(law.atoms[b, :, k].detach(), wanted, rtol=1e-4, atol=1e-5)


def test_separate_streams_of_the_conjugated_head_share_the_embedding():
    head = make(ConjugatedHead, SEPARATE, atoms=3, embedding=7)
    law, w, x = head(features(), "predict"), weights_of(head), features().double().numpy()
    for b in range(B):
        value, advantage = units_of(w, "dense", x[b])
        logits = two_parts(w, "logits", value, advantage, 3)
        probs = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
        embedded = np.maximum(dense_by(w, "embedding", probs.ravel()), 0)
        joined = [np.concatenate((embedded, part)) for part in (value, advantage)]
        atoms = 50.0 * np.tanh(two_parts(w, "support", *joined, 3) / 5.0)
        np.testing.assert_allclose(law.log_probs[b].exp().detach(), probs, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(law.atoms[b].detach(), atoms, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", HEADS)
def test_every_head_has_two_hidden_layers_if_asked_with_noise_of_their_own(kind):
    head = make(kind, Style(True, 0.5, True, separate=True))
    streams = [layer for layer in head.modules() if isinstance(layer, Streams)]
    assert len(streams) == 1 and all(isinstance(part, NormalizedLinear) for part in streams[0].children())
    value, advantage = (part.linear for part in streams[0].children())
    assert value.weight.shape == advantage.weight.shape == (16, D)
    with torch.no_grad():  # alike, but for their noise
        for one, other in zip(value.parameters(), advantage.parameters(), strict=True):
            other.copy_(one)
    units = streams[0](features(), rng())
    assert not torch.equal(units[:, :16], units[:, 16:])
    steady = streams[0](features(), None)
    assert torch.equal(steady[:, :16], steady[:, 16:])
    law = head(features(), "predict", rng())
    assert law.atoms.shape[:2] == (B, A) and torch.isfinite(law.atoms).all()
