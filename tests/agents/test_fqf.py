"""An update of FQF against its paper and its authors' code, network and all, one number at a time in float64."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from c2d.agents.build import build_learner
from c2d.agents.learner import fetch
from c2d.envs.spec import EnvSpec
from c2d.recipes.parts import Fraction, Mlp
from c2d.recipes.rows import find
from tests.agents.test_learner import batch
from tests.oracles import slow_losses

VECTOR = EnvSpec("gym/CartPole-v1", "gym", (4,), "float32", 1, 3, 1)
ATOMS, COSINES, SIZE = 5, 6, 16


class Slow:
    """The network of a learner, from its weights by name."""

    def __init__(self, network):
        self.w = {name: tensor.detach().double().numpy().copy() for name, tensor in network.state_dict().items()}

    def layer(self, name, x):
        return self.w[f"{name}.weight"] @ x + self.w[f"{name}.bias"]

    def features(self, obs):
        return np.maximum(self.layer("encoder.layers.0", obs), 0)

    def fractions(self, x):
        return slow_losses.fractions(self.layer("head.fractions", x).tolist())

    def quantiles(self, x, taus):
        """One row of quantiles per action."""
        columns = []
        for tau in taus:
            cosines = np.array([math.cos(math.pi * i * tau) for i in range(1, COSINES + 1)])
            embedded = np.maximum(self.layer("head.quantile.embedding.dense", cosines), 0)
            hidden = np.maximum(self.layer("head.quantile.dense", x * embedded), 0)
            columns.append(self.layer("head.quantile.output.advantage", hidden))
        return np.array(columns).T.tolist()

    def choose(self, x, edges, middles):
        return int(np.argmax([slow_losses.fqf_value(edges, row) for row in self.quantiles(x, middles)]))


@pytest.fixture
def learner():
    head = Fraction(atoms=ATOMS, cosines=COSINES, hidden=8)
    recipe = dataclasses.replace(find("fqf"), encoder=Mlp((8,)), head=head)
    made = build_learner(recipe, VECTOR, *(torch.Generator().manual_seed(seed) for seed in (3, 4)))
    rng = torch.Generator().manual_seed(5)
    with torch.no_grad():  # fractions far from equal, and a target network of its own
        for network in (made.online, made.target_network):
            for parameter in network.parameters():
                parameter += 0.3 * torch.randn(parameter.shape, generator=rng)
            network.head.fractions.weight *= 3.0
    return made


def test_loss_choice_and_the_fractions_gradient(learner):
    data = batch(SIZE)
    online, target = Slow(learner.online), Slow(learner.target_network)
    losses, slopes, chosen, by_own_fractions = [], np.zeros(ATOMS), [], []
    for b in range(SIZE):
        x, ahead = online.features(data.obs[b].numpy()), target.features(data.next_obs[b].numpy())
        action, discount = int(data.action[b]), float(data.discount[b])
        edges, middles = online.fractions(x)
        predicted = online.quantiles(x, middles)[action]
        chosen.append(target.choose(ahead, *target.fractions(ahead)))  # by the fractions proposed for s'
        by_own_fractions.append(target.choose(ahead, edges, middles))
        aimed = target.quantiles(ahead, middles)[chosen[-1]]  # at the fractions of s
        aimed = [float(data.reward[b]) + discount * value for value in aimed]
        losses.append(slow_losses.quantile_huber(predicted, middles, aimed, 1.0))
        slope = slow_losses.fqf_slope(online.quantiles(x, edges[1:-1])[action], predicted)
        shares = np.diff(edges)
        for i in range(1, ATOMS):  # ∂τ_i/∂score_k = Σ_{m ≤ i} s_m (1{m = k} − s_k), summed over the batch
            slopes += slope[i - 1] * (np.where(np.arange(ATOMS) < i, shares, 0.0) - edges[i] * shares)
    assert chosen != by_own_fractions  # else this test could not tell the two rules apart
    (made,) = fetch([learner.update(data)])
    np.testing.assert_allclose(made.priority, losses, rtol=1e-5)
    assert made.loss == pytest.approx(np.mean(losses), rel=1e-5)
    np.testing.assert_allclose(learner.online.head.fractions.bias.grad.numpy(), slopes, rtol=2e-4, atol=1e-5)


def test_the_fractions_have_the_authors_optimizer(learner):
    """Centered RMSProp: its second optimizer, on the fraction network alone."""
    law, fractions = learner.optimizers
    assert {id(p) for p in fractions.parameters} == {id(p) for p in learner.online.head.fractions.parameters()}
    weight = learner.online.head.fractions.weight
    before = weight.detach().clone()
    fractions.optim = dataclasses.replace(fractions.optim, learning_rate=1e-2)  # so that float32 shows the step
    learner.update(batch(SIZE))
    g = weight.grad.double().numpy()
    mean, square = 0.05 * g, 0.95 + 0.05 * g * g
    wanted = -1e-2 * g / np.sqrt(square - mean**2 + 1e-5)
    np.testing.assert_allclose((weight.detach() - before).numpy(), wanted, rtol=1e-3, atol=1e-7)
    assert not any(p is weight for p in law.parameters)
