"""Spectral normalization and the last pooling of the residual encoder, against PyTorch's own and against an SVD."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

from c2d.agents.build import build_learner, build_network
from c2d.envs.spec import EnvSpec
from c2d.errors import UserError
from c2d.nets.network import SpectralConv, average, initialize, synchronize
from c2d.recipes.parts import Conjugated, Impala
from c2d.recipes.recipe import Recipe
from tests.agents.test_learner import batch

PLANES = EnvSpec("minatar/breakout", "minatar", (4, 10, 10), "uint8", 1, 3, 1)
SCREEN = EnvSpec("atari/pong", "atari", (1, 84, 84), "uint8", 4, 18, 4)
SPECTRAL = Recipe(encoder=Impala(norm="spectral"), head=Conjugated(atoms=4, hidden=8, embedding=8))


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def screens(env, count=2, seed=0):
    return torch.randint(
        0, 2 if env is PLANES else 256, (count, *env.obs_shape), dtype=torch.uint8, generator=rng(seed)
    )


def encoder(env=PLANES, **settings):
    built = Impala(norm="spectral", **settings).build(env)
    initialize(built, rng())
    return built


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.one, self.two = (spectral_norm(nn.Conv2d(channels, channels, 3, padding=1)) for _ in range(2))

    def forward(self, x):
        return x + self.two(torch.relu(self.one(torch.relu(x))))


def plain(env, scale, pool):
    """The same network out of PyTorch's parts."""
    channels, layers = env.obs_shape[0], []
    for width in (16, 32, 32):
        layers += [nn.Conv2d(channels, width * scale, 3, padding=1), nn.MaxPool2d(3, 2, padding=1)]
        layers += [Residual(width * scale), Residual(width * scale)]
        channels = width * scale
    return nn.Sequential(*layers, nn.ReLU(), *([nn.AdaptiveMaxPool2d(pool)] if pool else []))


def take_over(reference, built):
    """Weights and vectors of `built`."""
    mine = [layer for layer in built.modules() if isinstance(layer, nn.Conv2d)]
    theirs = [layer for layer in reference.modules() if isinstance(layer, nn.Conv2d)]
    assert len(mine) == len(theirs) == 15
    with torch.no_grad():
        for ours, other in zip(mine, theirs, strict=True):
            other.bias.copy_(ours.bias)
            if isinstance(ours, SpectralConv):
                normal = other.parametrizations.weight[0]
                other.parametrizations.weight.original.copy_(ours.weight)
                normal._u.copy_(ours.u)
                normal._v.copy_(ours.v)
            else:
                other.weight.copy_(ours.weight)
    return list(zip(mine, theirs, strict=True))


@pytest.mark.parametrize(("env", "settings"), [(PLANES, {"scale": 2}), (SCREEN, {"scale": 1, "pool": 6})])
def test_passes_and_gradients_against_pytorchs_own(env, settings):
    """Three predictions with a change of the weights after each; then a pass that is not one."""
    built, reference = encoder(env, **settings), plain(env, settings["scale"], settings.get("pool", 0))
    pairs = take_over(reference, built)
    for seed in range(3):
        obs = screens(env, seed=seed)
        found, wanted = built(obs, "predict"), reference(obs.float() * built.pixel_scale)
        wanted = wanted.permute(0, 2, 3, 1).flatten(1)
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
        toward = torch.randn(found.shape, generator=rng(seed))
        (found * toward).sum().backward()
        (wanted * toward).sum().backward()
        with torch.no_grad():
            for ours, theirs in pairs:
                other = theirs.parametrizations.weight.original if isinstance(ours, SpectralConv) else theirs.weight
                size = other.grad.abs().max().item()
                assert size > 0
                torch.testing.assert_close(ours.weight.grad, other.grad, rtol=1e-3, atol=1e-4 * size)
                for parameter in (ours.weight, other):
                    parameter -= 0.02 / size * other.grad
                    parameter.grad = None
    reference.eval()  # PyTorch iterates in training only
    obs = screens(env, seed=9)
    wanted = reference(obs.float() * built.pixel_scale).permute(0, 2, 3, 1).flatten(1)
    torch.testing.assert_close(built(obs, "act"), wanted, rtol=1e-3, atol=1e-4)


def test_the_divisor_is_the_largest_singular_value():
    """Nearly so for fresh weights, and in the limit."""
    built = encoder()
    layers = [layer for layer in built.modules() if isinstance(layer, SpectralConv)]
    assert len(layers) == 12

    def largest(layer):
        divisor = layer.u.dot(layer.weight.flatten(1).mv(layer.v))
        return float(torch.linalg.svdvals(layer.weight.detach().flatten(1) / divisor.detach())[0])

    assert all(1.0 - 1e-5 < largest(layer) < 1.1 for layer in layers)
    for _ in range(300):
        built(screens(PLANES, 1), "predict")
    for layer in layers:
        assert largest(layer) == pytest.approx(1.0, abs=1e-3)
        assert layer.u.norm() == pytest.approx(1.0, abs=1e-5) and layer.v.norm() == pytest.approx(1.0, abs=1e-5)


def vectors(network):
    return torch.cat([layer.v.clone() for layer in network.modules() if isinstance(layer, SpectralConv)])


def test_only_predictions_move_the_vectors():
    built = encoder()
    with torch.no_grad():  # else they hardly move any more
        for parameter in built.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=rng(3))
    before = vectors(built)
    for purpose in ("act", "choose", "target"):
        built(screens(PLANES), purpose)
        assert torch.equal(vectors(built), before)
    built(screens(PLANES), "predict")
    assert not torch.equal(vectors(built), before)


def test_the_size_of_residual_weights_does_not_matter_and_that_of_first_convolutions_does():
    built = encoder()
    before = built(screens(PLANES), "act")
    with torch.no_grad():
        for layer in built.modules():
            if isinstance(layer, SpectralConv):
                layer.weight *= 5.0
        torch.testing.assert_close(built(screens(PLANES), "act"), before, rtol=1e-4, atol=1e-5)
        built.blocks[0][0].weight *= 5.0
    assert not torch.allclose(built(screens(PLANES), "act"), before, rtol=0.1)


@pytest.mark.parametrize("fraction", [1.0, 0.25])
def test_copies_and_means_of_weights_take_the_vectors_as_they_are(fraction):
    online = encoder()
    with torch.no_grad():
        for parameter in online.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=rng(3))
    online(screens(PLANES), "predict")
    for move in (synchronize, average):
        other = encoder()
        start = other.blocks[0][1].weight.detach().clone()
        assert not torch.equal(vectors(other), vectors(online))
        move(other, online, fraction)
        assert torch.equal(vectors(other), vectors(online))
        wanted = start + fraction * (online.blocks[0][1].weight - start)
        torch.testing.assert_close(other.blocks[0][1].weight, wanted)


def test_an_update_makes_one_iteration_of_the_online_network_alone():
    learner = build_learner(SPECTRAL, PLANES, rng(), rng(1))
    data = batch(planes=True)
    frozen = vectors(learner.target_network)
    assert torch.equal(vectors(learner.online), frozen)
    wanted = copy.deepcopy(learner.online)
    wanted.features(data.obs, "predict")
    learner.update(data)
    assert torch.equal(vectors(learner.target_network), frozen)
    assert torch.equal(vectors(learner.online), vectors(wanted))
    other = build_learner(SPECTRAL, PLANES, rng(5), rng(6))
    other.load_state_dict(learner.state_dict())
    assert torch.equal(vectors(other.online), vectors(learner.online))
    assert other.update(data).loss == learner.update(data).loss


def test_vectors_come_from_the_weights_alone():
    one, two = (vectors(build_network(SPECTRAL, PLANES, rng(seed))) for seed in (1, 1))
    assert torch.equal(one, two) and not torch.equal(one, vectors(build_network(SPECTRAL, PLANES, rng(2))))


def test_a_pooling_that_would_repeat_places_is_rejected():
    assert encoder(SCREEN, scale=2, pool=6).features == 6 * 6 * 64
    assert encoder(SCREEN, scale=2).features == 11 * 11 * 64
    with pytest.raises(UserError, match=r"--encoder\.pool is 6; accepted: at most 2, the side of the last feature map"):
        encoder(PLANES, pool=6)
