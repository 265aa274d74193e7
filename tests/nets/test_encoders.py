"""Shapes, sizes, scaling, padding and initialization of the networks."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from c2d.agents.build import build_network, parameter_count
from c2d.envs.spec import EnvSpec
from c2d.errors import UserError
from c2d.nets import network as nets
from c2d.recipes.parts import Conjugated, Mlp, Nature
from c2d.recipes.recipe import Recipe

ATARI = EnvSpec("atari/pong", "atari", (1, 84, 84), "uint8", 4, 6, 4)
VECTOR = EnvSpec("gym/CartPole-v1", "gym", (4,), "float32", 1, 2, 1)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def frames(batch=3, shape=(4, 84, 84), seed=0):
    return torch.randint(0, 256, (batch, *shape), dtype=torch.uint8, generator=generator(seed))


@pytest.mark.parametrize(("padding", "features"), [("valid", 3136), ("same", 7744)])
def test_nature_features(padding, features):
    encoder = nets.nature_encoder((4, 84, 84), "none", padding, 1 / 255)
    assert encoder.features == features
    assert encoder(frames(), "target").shape == (3, features)


def test_minatar_and_dense_features():
    assert nets.minatar_encoder((4, 10, 10), 16, "none", 1.0).features == 1024
    assert nets.minatar_encoder((4, 10, 10), 16, "column", 1.0)(frames(2, (4, 10, 10)), "target").shape == (2, 1024)
    dense = nets.MlpEncoder((4,), (32, 16))
    assert dense.features == 16
    assert dense(torch.zeros(5, 4), "act").shape == (5, 16)


def test_picture_too_small_is_refused():
    with pytest.raises(UserError, match="20×20 pixels is too small"):
        nets.nature_encoder((4, 20, 20), "none", "valid", 1.0)


def test_encoder_that_does_not_fit_the_observation_is_refused():
    with pytest.raises(UserError, match="mlp takes vector observations"):
        build_network(Recipe(encoder=Mlp()), ATARI, generator())
    with pytest.raises(UserError, match="nature takes image observations"):
        build_network(Recipe(), VECTOR, generator())


@pytest.mark.parametrize(
    ("norm", "norm_parameters"), [("column", 2 * (20 + 9 + 7)), ("channel", 2 * (32 + 64 + 64)), ("none", 0)]
)
def test_parameter_count_is_that_of_the_paper(norm, norm_parameters):
    """Counted by hand: convolutions, dense 512, logits, embedding, atoms, α."""
    outputs = 6 * 32
    convolutions = (4 * 8 * 8 + 1) * 32 + (32 * 4 * 4 + 1) * 64 + (64 * 3 * 3 + 1) * 64
    head = (3136 + 1) * 512 + (512 + 1) * outputs + (outputs + 1) * 512 + (1024 + 1) * outputs + 1
    network = build_network(Recipe(encoder=Nature(norm=norm)), ATARI, generator())
    assert parameter_count(network) == convolutions + head + norm_parameters


@pytest.mark.parametrize("norm", ["none", "channel"])
def test_pixels_are_divided_by_255(norm):
    scaled, plain = (nets.nature_encoder((4, 84, 84), norm, "valid", scale) for scale in (1 / 255, 1.0))
    plain.load_state_dict(scaled.state_dict())
    with torch.no_grad():
        plain.convolutions[0].bias += 0.1  # the bias is not divided
        scaled.convolutions[0].bias += 0.1
    x = frames()
    torch.testing.assert_close(scaled(x, "target"), plain(x.float() / 255, "target"), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(scaled(x, "target"), plain(x.float(), "target"), rtol=0.1)


@pytest.mark.parametrize(
    ("family", "dtype", "factor"),
    [("atari", "uint8", 255), ("minatar", "uint8", 1), ("gym", "uint8", 255), ("gym", "float32", 1)],
)
def test_bytes_are_pixels_except_in_minatar(family, dtype, factor):
    env = EnvSpec("x", family, (4, 84, 84), dtype, 1, 2, 1)
    network = build_network(Recipe(encoder=Nature(norm="none")), env, generator())
    assert network.encoder.pixel_scale == pytest.approx(1 / factor)


def tensorflow_same(size, kernel, stride):
    """TensorFlow's rule, stated per case: https://www.tensorflow.org/api_docs/python/tf/nn#notes_on_padding_2."""
    total = max(kernel - stride, 0) if size % stride == 0 else max(kernel - size % stride, 0)
    return total // 2, total - total // 2


@pytest.mark.parametrize(
    ("size", "kernel", "stride"), [(84, 8, 4), (21, 4, 2), (11, 3, 1), (10, 3, 1), (7, 2, 5), (85, 8, 4), (5, 2, 2)]
)
def test_same_padding_is_tensorflows(size, kernel, stride):
    before, after = nets._pad(size, kernel, stride, "same")
    assert (before, after) == tensorflow_same(size, kernel, stride)
    assert (size + before + after - kernel) // stride + 1 == math.ceil(size / stride)


def test_same_convolution_against_loops():
    """One convolution with uneven padding, computed place by place; rows and columns of different length."""
    encoder = nets.ConvEncoder((2, 7, 6), ((3, 4, 2),), "none", "same", 1.0)
    x = torch.randn(2, 2, 7, 6, generator=generator())
    weight, bias = (t.detach().numpy() for t in (encoder.convolutions[0].weight, encoder.convolutions[0].bias))
    (top, _), (left, _) = tensorflow_same(7, 4, 2), tensorflow_same(6, 4, 2)
    rows, columns = 4, 3
    wanted = np.zeros((2, rows, columns, 3))
    for i in range(rows):
        for j in range(columns):
            for k in range(4):
                for m in range(4):
                    r, c = 2 * i + k - top, 2 * j + m - left
                    if 0 <= r < 7 and 0 <= c < 6:
                        wanted[:, i, j] += x[:, :, r, c].numpy() @ weight[:, :, k, m].T
    wanted = np.maximum(wanted + bias, 0).reshape(2, -1)
    np.testing.assert_allclose(encoder(x, "act").detach().numpy(), wanted, rtol=1e-4, atol=1e-5)


def test_features_do_not_depend_on_neighbors_in_the_batch_when_acting():
    network = build_network(Recipe(), ATARI, generator())
    x = frames(4)
    torch.testing.assert_close(network(x, "act").atoms[:1], network(x[:1], "act").atoms, rtol=1e-4, atol=1e-4)


def test_weights_are_glorot_uniform_and_biases_zero():
    network = build_network(Recipe(), ATARI, generator())
    layers = [layer for layer in network.modules() if isinstance(layer, nn.Linear | nn.Conv2d)]
    assert len(layers) == 7
    for layer in layers:
        field = math.prod(layer.weight.shape[2:])
        bound = math.sqrt(6 / ((layer.weight.shape[0] + layer.weight.shape[1]) * field))
        largest = float(layer.weight.detach().abs().max())
        assert 0.99 * bound < largest <= bound
        assert float(layer.weight.detach().std()) == pytest.approx(bound / math.sqrt(3), rel=0.02)
        assert not layer.bias.any()
    assert network.head.alpha.item() == 50.0


def test_weights_come_from_the_seed_alone():
    def state(seed):
        torch.manual_seed(torch.seed())  # the global generator has no say
        return build_network(Recipe(), ATARI, generator(seed)).state_dict()

    first, second, other = state(1), state(1), state(2)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["head.dense.weight"], other["head.dense.weight"])


def test_head_settings_reach_the_network():
    head = Conjugated(atoms=7, alpha=3.0, c=2.0, hidden=11, embedding=0, train_alpha=False)
    network = build_network(Recipe(encoder=Mlp((9,)), head=head), VECTOR, generator())
    law = network(torch.zeros(5, 4), "act")
    assert law.atoms.shape == law.log_probs.shape == (5, 2, 7)
    assert network.head.dense.weight.shape == (11, 9)
    assert network.head.c == 2.0 and network.head.alpha.item() == 3.0 and not network.head.alpha.requires_grad
