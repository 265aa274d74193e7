"""Acting: how often at random, and by which mean."""

import numpy as np
import pytest
import torch
from c2d.agents.actor import Actor
from torch import nn

from c2d.agents.learner import linear
from c2d.returns.phi import identity, scaled_h
from c2d.types import ReturnDist


class Fixed(nn.Module):
    """The same law for every observation, counting passes and their purposes."""

    def __init__(self, atoms, probs):
        super().__init__()
        self.atoms, self.log_probs = nn.Parameter(torch.tensor(atoms)), torch.tensor(probs).log()
        self.purposes = []

    def forward(self, obs, purpose, rng=None):
        self.purposes.append(purpose)
        size = (len(obs), *self.atoms.shape)
        return ReturnDist(self.atoms.expand(size), self.log_probs.expand(size))


def actor(phi=None, atoms=((0.0,), (1.0,), (-1.0,)), probs=((1.0,), (1.0,), (1.0,)), seed=0):
    return Actor(Fixed(atoms, probs), phi or identity(), len(atoms), np.random.default_rng(seed))


OBS = np.zeros(4, dtype=np.float32)


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("batched", [False, True])
def test_random_share_is_epsilon(epsilon, batched):
    """P(greedy action) = 1 − ε + ε/3; each other ε/3. Bounds are five standard errors."""
    player, n = actor(), 3000
    if batched:
        actions = np.concatenate([player.act_batch(np.stack([OBS] * 300), epsilon) for _ in range(10)])
    else:
        actions = np.array([player.act(OBS, epsilon) for _ in range(n)])
    wanted = np.full(3, epsilon / 3)
    wanted[1] += 1 - epsilon
    bound = 5 * np.sqrt(wanted * (1 - wanted) / n) + 1e-12
    assert (np.abs(np.bincount(actions, minlength=3) / n - wanted) <= bound).all()


def test_network_runs_only_when_its_answer_is_used_and_in_acting_mode():
    player = actor()
    for _ in range(50):
        player.act(OBS, 1.0)
    assert player.network.purposes == []
    player.act(OBS, 0.0)
    player.act_batch(OBS[None], 0.5)
    assert player.network.purposes == ["act", "act"]


def test_greedy_goes_by_the_mean_of_real_returns():
    """φ is concave for gains: a gamble of 0 or 100 has mean 50 but a smaller φ-mean than a sure 40."""
    phi = scaled_h()
    gamble, sure = phi.to(torch.tensor([0.0, 100.0])), phi.to(torch.tensor([40.0, 40.0]))
    assert sure.mean() > gamble.mean()  # the two readings disagree
    player = actor(phi, atoms=(sure.tolist(), gamble.tolist()), probs=((0.5, 0.5), (0.5, 0.5)))
    assert player.act(OBS, 0.0) == 1
    loss = actor(phi, atoms=((-sure).tolist(), (-gamble).tolist()), probs=((0.5, 0.5), (0.5, 0.5)))
    assert loss.act(OBS, 0.0) == 0


def test_greedy_weighs_by_probabilities():
    player = actor(atoms=((0.0, 10.0), (3.0, 3.0)), probs=((0.9, 0.1), (0.5, 0.5)))
    assert player.act(OBS, 0.0) == 1
    player = actor(atoms=((0.0, 10.0), (3.0, 3.0)), probs=((0.1, 0.9), (0.5, 0.5)))
    assert player.act(OBS, 0.0) == 0


def test_same_generator_same_actions():
    first, second, other = ([player.act(OBS, 0.9) for _ in range(50)] for player in (actor(), actor(), actor(seed=1)))
    assert first == second != other


def test_linear_schedule_at_start_middle_end():
    values = [linear(step, 1.0, 0.01, 250_000) for step in (0, 125_000, 250_000, 10**9)]
    assert values == [1.0, pytest.approx(0.505), 0.01, 0.01]
    assert linear(0, 1.0, 0.1, 0) == 0.1  # no decay: at its end from the first step
