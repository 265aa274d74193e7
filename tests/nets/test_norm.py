"""Batch normalization with ReLU against permute + F.batch_norm, in float32 and float64, for every purpose."""

from typing import get_args

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from c2d.envs.spec import EnvSpec
from c2d.nets.network import BatchNormReLU, LayerNormReLU, ValueNetwork, initialize
from c2d.recipes.parts import Impala, MinAtar, Nature
from c2d.types import Purpose

pytestmark = pytest.mark.usefixtures("kernels")
SHAPES = [(2, 3, 4, 5), (32, 32, 20, 20), (5, 1, 1, 3), (1, 7, 6, 1), (3, 40, 23, 4)]


def images(shape, dtype=torch.float32, seed=0):
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, generator=rng, dtype=torch.float64)
    x = x * torch.linspace(0.5, 3, shape[3], dtype=torch.float64) + torch.linspace(-2, 2, shape[3], dtype=torch.float64)
    return x.to(dtype).contiguous(memory_format=torch.channels_last)


def layer(axis, shape, dtype=torch.float32):
    norm = BatchNormReLU(axis, shape[1], shape[3]).to(dtype)
    rng = torch.Generator().manual_seed(1)
    with torch.no_grad():
        norm.weight.copy_(torch.rand(norm.size, generator=rng) + 0.5)
        norm.bias.copy_(torch.rand(norm.size, generator=rng) - 0.5)
    return norm


def reference(x, norm, mean=None, var=None, training=True):
    """Move the normalized axis to where PyTorch expects it; momentum and ε are Keras' defaults."""
    order = (0, 3, 1, 2) if norm.axis == "column" else (0, 1, 2, 3)
    back = (0, 2, 3, 1) if norm.axis == "column" else (0, 1, 2, 3)
    y = F.batch_norm(x.permute(order), mean, var, norm.weight, norm.bias, training, 0.01, 1e-3)
    return F.relu(y.permute(back))


@pytest.mark.parametrize("axis", ["column", "channel"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_forward_and_backward_equal_the_reference(axis, shape, dtype):
    norm = layer(axis, shape, dtype)
    upstream = images(shape, dtype, seed=2)
    results = []
    for forward in (lambda x: norm(x, "target"), lambda x: reference(x, norm)):
        x = images(shape, dtype).requires_grad_()
        norm.zero_grad()
        y = forward(x)
        y.backward(upstream)
        results.append((y.detach(), x.grad, norm.weight.grad.clone(), norm.bias.grad.clone()))
    for ours, wanted in zip(*results, strict=True):
        tolerance = {} if dtype is torch.float64 else {"rtol": 1e-4, "atol": 1e-4 * float(wanted.abs().max())}
        torch.testing.assert_close(ours, wanted, **tolerance)


def test_memory_that_is_not_channels_last_gives_the_same():
    norm = layer("column", (4, 3, 5, 6))
    x = images((4, 3, 5, 6))
    torch.testing.assert_close(norm(x.contiguous(), "target"), norm(x, "target"))


@pytest.mark.parametrize("axis", ["column", "channel"])
def test_gradient_is_that_of_finite_differences(axis):
    norm = layer(axis, (3, 2, 3, 4), torch.float64)
    x = images((3, 2, 3, 4), torch.float64).requires_grad_()

    def function(x, weight, bias):
        return torch.func.functional_call(norm, {"weight": weight, "bias": bias}, (x, "target"))

    assert torch.autograd.gradcheck(function, (x, norm.weight, norm.bias))


@pytest.mark.parametrize("axis", ["column", "channel"])
def test_large_mean_keeps_its_digits(axis):
    norm = layer(axis, (8, 4, 5, 5))
    x = images((8, 4, 5, 5)) + 1000.0
    torch.testing.assert_close(norm(x, "target"), reference(x.double(), norm.double()).float(), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("axis", ["column", "channel"])
def test_running_statistics_move_as_in_keras(axis):
    """moving ← 0.99·moving + 0.01·batch, with the variance divided by n − 1 (fused kernels do so in Keras too)."""
    shape = (4, 3, 5, 6)
    norm = layer(axis, shape)
    mean, var = torch.zeros(norm.size, dtype=torch.float64), torch.ones(norm.size, dtype=torch.float64)
    for seed in range(3):
        x = images(shape, seed=seed) + seed
        norm(x, "predict")
        kept = 3 if axis == "column" else 1
        rows = x.double().movedim(kept, 0).flatten(1)  # [kept, rest]
        mean = 0.99 * mean + 0.01 * rows.mean(1)
        var = 0.99 * var + 0.01 * rows.var(1, unbiased=True)
    torch.testing.assert_close(norm.running_mean.double(), mean, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(norm.running_var.double(), var, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("axis", ["column", "channel"])
def test_running_mode_uses_running_statistics_and_moves_nothing(axis):
    shape = (4, 3, 5, 6)
    norm = layer(axis, shape)
    norm.running_mean.uniform_(-1, 1, generator=torch.Generator().manual_seed(3))
    norm.running_var.uniform_(0.5, 2, generator=torch.Generator().manual_seed(4))
    before = {name: tensor.clone() for name, tensor in norm.named_buffers()}
    x = images(shape)
    torch.testing.assert_close(norm(x, "act"), reference(x, norm, norm.running_mean, norm.running_var, training=False))
    for name, tensor in norm.named_buffers():
        assert torch.equal(tensor, before[name])


def test_channel_axis_is_the_usual_batch_norm():
    usual = nn.BatchNorm2d(3, eps=1e-3, momentum=0.01)
    ours = BatchNormReLU("channel", 3, 6)
    for seed in range(3):
        x = images((4, 3, 5, 6), seed=seed)
        torch.testing.assert_close(ours(x, "predict"), F.relu(usual(x)))
    torch.testing.assert_close(ours.running_mean, usual.running_mean)
    torch.testing.assert_close(ours.running_var, usual.running_var)


@pytest.mark.parametrize("axis", ["column", "channel"])
@pytest.mark.parametrize("constant", ["all", "one channel", "one column", "one channel of one column"])
def test_input_without_variance_stays_finite(axis, constant):
    shape = (4, 3, 5, 6)
    norm = layer(axis, shape)
    x = images(shape)
    part = {
        "all": (slice(None),) * 4,
        "one channel": (slice(None), 1),
        "one column": (..., 2),
        "one channel of one column": (slice(None), 1, slice(None), 2),
    }[constant]
    x[part] = 0.5  # exact in binary: the variance is 0, not nearly 0
    x.requires_grad_()
    y = norm(x, "predict")
    torch.testing.assert_close(y, reference(x, norm), rtol=1e-4, atol=1e-4)
    y.square().sum().backward()
    assert x.grad.isfinite().all() and norm.weight.grad.isfinite().all()
    assert norm.running_mean.isfinite().all() and norm.running_var.isfinite().all()


class _Recorder(nn.Module):
    """A head that hands on what it is given."""

    def forward(self, features, purpose, rng=None, like=None):
        return features


@pytest.mark.parametrize("axis", ["column", "channel"])
def test_each_purpose_takes_its_statistics(axis):
    shape = (4, 3, 5, 6)
    norm = layer(axis, shape)
    network = ValueNetwork(norm, _Recorder())
    norm.running_mean.fill_(0.3)
    norm.running_var.fill_(1.7)
    x = images(shape)
    by_batch = reference(x, norm)
    by_running = reference(x, norm, norm.running_mean.clone(), norm.running_var.clone(), training=False)
    assert not torch.allclose(by_batch, by_running, atol=0.1)
    assert {"target", "choose", "act", "predict"} == set(get_args(Purpose))
    for purpose in ("target", "choose", "act", "predict", "act"):
        before = torch.cat((norm.running_mean, norm.running_var))
        if purpose == "act":
            by_running = reference(x, norm, norm.running_mean.clone(), norm.running_var.clone(), training=False)
        y = network(x, purpose)
        torch.testing.assert_close(y, by_running if purpose == "act" else by_batch, rtol=1e-4, atol=1e-4)
        moved = not torch.equal(before, torch.cat((norm.running_mean, norm.running_var)))
        assert moved == (purpose == "predict"), purpose


@pytest.mark.parametrize("axis", ["column", "channel"])
@pytest.mark.parametrize("part", ["weight", "bias", "running_mean", "running_var"])
def test_acting_follows_every_change(axis, part):
    shape = (2, 3, 4, 5)
    norm, x = layer(axis, shape), images(shape)

    def wanted(x):
        return reference(x, norm, norm.running_mean.clone(), norm.running_var.clone(), training=False)

    with torch.inference_mode():
        before = norm(x.clone(), "act")
    torch.testing.assert_close(before.clone(), wanted(x))
    with torch.no_grad():
        getattr(norm, part).mul_(0.5).add_(0.25)
    torch.testing.assert_close(norm(x, "act"), wanted(x))
    with torch.inference_mode():
        torch.testing.assert_close(norm(x.clone(), "act"), wanted(x))
    assert not torch.equal(norm(x, "act"), before)
    wider = images((1, 3, 6, 5))  # another height: the same layer, other places
    torch.testing.assert_close(norm(wider, "act"), wanted(wider))


def test_acting_leaves_its_input_as_it_was():
    norm, x = layer("column", (2, 3, 4, 5)), images((2, 3, 4, 5))
    before = x.clone()
    with torch.no_grad():
        norm(x, "act")
    assert torch.equal(x, before)


def test_gradients_pass_through_a_network_that_acted_before():
    norm = layer("column", (2, 3, 4, 5))
    with torch.inference_mode():
        norm(images((2, 3, 4, 5)), "act")
    x = images((2, 3, 4, 5)).requires_grad_()
    norm(x, "act").sum().backward()
    assert x.grad is not None and x.grad.abs().sum() > 0


# ------------------------------------------------------------------------------------------- layer normalization

IMAGES = EnvSpec("breakout", "atari", (1, 84, 84), "uint8", 4, 3, 4)
ENCODERS = [Nature(norm="layer"), MinAtar(norm="layer"), Impala(norm="layer")]


@pytest.mark.parametrize("shape", SHAPES[:3])
def test_layer_normalization_against_numpy(shape):
    """One image at a time: all units less their mean, over their deviation; then gain and bias of the channel."""
    norm, rng = LayerNormReLU(shape[1]), np.random.default_rng(0)
    gain, bias = rng.random(shape[1]) + 0.5, rng.random(shape[1]) - 0.5
    with torch.no_grad():
        norm.weight.copy_(torch.from_numpy(gain))
        norm.bias.copy_(torch.from_numpy(bias))
    x = images(shape)
    for purpose in get_args(Purpose):
        y = norm(x, purpose).detach().numpy()
        for image, found in zip(x.numpy().astype(float), y, strict=True):
            normal = (image - image.mean()) / np.sqrt(image.var() + 1e-5)
            wanted = np.maximum(normal * gain[:, None, None] + bias[:, None, None], 0)
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("declared", ENCODERS, ids=lambda spec: type(spec).__name__)
def test_features_of_a_layer_normalized_encoder_ignore_the_batch_and_the_brightness(declared):
    """Not so with batch normalization, nor with none: a factor on all first weights and biases changes nothing."""
    encoder = declared.build(IMAGES)
    initialize(encoder, torch.Generator().manual_seed(0))
    obs = torch.randint(0, 256, (6, 4, 84, 84), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    together = encoder(obs, "predict")
    torch.testing.assert_close(encoder(obs[:1], "act"), together[:1], rtol=1e-4, atol=1e-5)
    assert together.abs().max() > 0.1
    first = next(layer for layer in encoder.modules() if isinstance(layer, nn.Conv2d))
    with torch.no_grad():
        first.weight *= 7.0
    changed = encoder(obs, "act")
    plain = type(declared)(norm="none").build(IMAGES)
    plain.load_state_dict(encoder.state_dict(), strict=False)
    bright = plain(obs, "act")
    with torch.no_grad():
        next(layer for layer in plain.modules() if isinstance(layer, nn.Conv2d)).weight /= 7.0
    assert (bright - plain(obs, "act")).abs().max() > 1.0
    if not isinstance(declared, Impala):  # whose residual sums pass their size on to the next block
        torch.testing.assert_close(changed, together, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("declared", ENCODERS, ids=lambda spec: type(spec).__name__)
def test_every_gain_of_a_layer_normalized_encoder_is_used_and_trained(declared):
    encoder = declared.build(IMAGES)
    initialize(encoder, torch.Generator().manual_seed(0))
    norms = [layer for layer in encoder.modules() if isinstance(layer, LayerNormReLU)]
    assert len(norms) == {Nature: 3, MinAtar: 1, Impala: 13}[type(declared)]
    obs = torch.randint(0, 256, (2, 4, 84, 84), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    encoder(obs, "predict").square().sum().backward()
    for norm in norms:
        assert (norm.weight == 1).all() and (norm.bias == 0).all()
        assert norm.weight.grad.abs().max() > 0 and norm.bias.grad.abs().max() > 0
