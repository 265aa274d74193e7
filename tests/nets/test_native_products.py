"""dense.c and convolution.c: products against float64, in any memory order, and really used."""

import pytest
import torch
import torch.nn.functional as F

from c2d.nets import native
from c2d.nets.encoders import Convolutions
from c2d.nets.heads import PlainLinear
from tests.nets.test_native import drawn

pytestmark = pytest.mark.skipif(not native.AVAILABLE, reason="NO LOOPS IN C: make setup says why; they are not tested")


def compare(ours, exact, given, upstream):
    """One function and its gradients in float32, another in float64."""
    results = []
    for function, dtype in ((ours, torch.float32), (exact, torch.float64)):
        leaves = [tensor.to(dtype, copy=True).requires_grad_() for tensor in given]
        y = function(*leaves)
        y.backward(upstream.to(dtype))
        results.append([y.detach().double(), *(leaf.grad.double() for leaf in leaves)])
    for got, wanted in zip(*results, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-5, atol=3e-6 * float(wanted.abs().max()))


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize(
    ("rows", "inputs", "outputs"), [(32, 3136, 512), (64, 1024, 128), (8, 8, 1), (16, 24, 5), (40, 56, 7), (24, 904, 3)]
)
def test_dense_against_float64(rows, inputs, outputs, threads):
    torch.set_num_threads(threads)
    given = [drawn(rows, inputs), drawn(outputs, inputs, seed=1), drawn(outputs, seed=2)]
    compare(lambda *leaves: native.Dense.apply(*leaves).t(), F.linear, given, drawn(rows, outputs, seed=3))


def test_dense_results_do_not_depend_on_the_number_of_threads():
    linear, found = PlainLinear(3136, 170), []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        linear.zero_grad()
        x = drawn(32, 3136).requires_grad_()
        y = linear(x)
        y.square().sum().backward()
        found.append([y.detach(), x.grad, linear.weight.grad.clone(), linear.bias.grad.clone()])
    assert all(torch.equal(a, b) for other in found[1:] for a, b in zip(found[0], other, strict=True))


def test_dense_memory_in_any_order(monkeypatch):
    monkeypatch.setattr(native, "_LARGE", 1)
    linear = PlainLinear(16, 4)
    x = drawn(16, 32).t()  # [32, 16], not contiguous
    torch.testing.assert_close(linear(x), F.linear(x, linear.weight, linear.bias))
    (linear(x) * drawn(4, 32).t()).sum().backward()  # and such a gradient
    torch.testing.assert_close(linear.weight.grad, drawn(4, 32) @ x)
    torch.testing.assert_close(linear.bias.grad, drawn(4, 32).sum(1))


def test_a_first_dense_layer_asks_for_no_gradient_of_its_input(monkeypatch):
    linear, asked = PlainLinear(16, 4), []
    monkeypatch.setattr(native, "_LARGE", 1)
    kernel = native._dense.dense_backward
    monkeypatch.setattr(native._dense, "dense_backward", lambda *a: (asked.append(a[3] != 0), kernel(*a)))
    linear(drawn(8, 16).requires_grad_()).sum().backward()
    linear.zero_grad()
    linear(drawn(8, 16)).sum().backward()
    assert asked == [True, False]
    torch.testing.assert_close(linear.weight.grad, drawn(8, 16).sum(0).expand(4, 16))


@pytest.mark.parametrize(
    ("shape", "dtype", "used"),
    [
        ((32, 24), torch.float32, True),
        ((64, 24), torch.float32, True),
        ((1, 24), torch.float32, False),
        ((33, 24), torch.float32, False),
        ((256, 24), torch.float32, False),
        ((32, 21), torch.float32, False),
        ((32, 24), torch.float64, False),
        ((4, 8, 24), torch.float32, False),
        ((32, 16), torch.float32, False),
    ],
)
def test_dense_layers_use_it_where_it_can_be_used(shape, dtype, used, monkeypatch):
    calls = []
    monkeypatch.setattr(native, "_LARGE", 3 * 20)
    kernel = native._dense.dense
    monkeypatch.setattr(native._dense, "dense", lambda *a: (calls.append(a), kernel(*a)))
    linear, x = PlainLinear(shape[-1], 3).to(dtype), drawn(*shape).to(dtype)
    torch.testing.assert_close(linear(x), F.linear(x, linear.weight, linear.bias))
    assert bool(calls) == used


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize(
    ("pictures", "channels", "height", "width", "outputs", "kernel", "stride"),
    [
        (32, 32, 20, 20, 64, 4, 2),  # the second of the encoder
        (32, 64, 9, 9, 64, 3, 1),  # and the third
        (3, 8, 5, 7, 4, 3, 1),
        (2, 2, 11, 8, 12, 2, 3),  # rows and columns that no patch covers
        (1, 8, 1, 1, 4, 1, 1),
    ],
)
def test_convolution_against_float64(pictures, channels, height, width, outputs, kernel, stride, threads):
    torch.set_num_threads(threads)
    x, weight = drawn(pictures, channels, height, width), drawn(outputs, channels, kernel, kernel, seed=1)
    bias = drawn(outputs, seed=2)
    upstream = torch.zeros_like(F.conv2d(x, weight, bias, stride))
    upstream = drawn(*upstream.shape, seed=3)

    def exact(x, weight, bias):
        return F.conv2d(x, weight, bias, stride)

    def ours(x, weight, bias):
        return native.Convolution.apply(x, weight, bias, stride)

    for order in (torch.contiguous_format, torch.channels_last):
        compare(
            ours, exact, [x.contiguous(memory_format=order), weight.contiguous(memory_format=order), bias], upstream
        )


def test_encoders_use_it_where_it_can_be_used(monkeypatch):
    calls = []
    kernel = native._convolution.gradients
    monkeypatch.setattr(native._convolution, "gradients", lambda *a: (calls.append(a), kernel(*a)))
    shape, layers = (2, 12, 12), ((8, 3, 1), (4, 2, 1), (6, 2, 1), (4, 1, 1))
    encoder = Convolutions(shape, layers, norm="none", padding="same", pixel_scale=1.0)
    encoder(drawn(2, *shape)).sum().backward()
    assert len(calls) == 1  # not the first layer, which has no gradient to hand on, nor 6 outputs, nor 6 channels
    with torch.no_grad():
        encoder(drawn(2, *shape))
    calls.clear()
    monkeypatch.setattr(native, "AVAILABLE", False)
    encoder(drawn(2, *shape)).sum().backward()
    assert calls == []


def test_what_does_not_fit_is_left_to_pytorch_to_refuse(monkeypatch):
    """No loop reads or writes beyond a tensor: these never reach C."""
    monkeypatch.setattr(native, "_LARGE", 1)
    for x, linear in ((drawn(8, 24), PlainLinear(16, 4)), (drawn(8, 8), PlainLinear(16, 4))):
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            linear(x)
    with pytest.raises(RuntimeError, match="same dtype"):
        PlainLinear(16, 4).double()(drawn(8, 16))
    assert not native.takes_gradients(drawn(2, 8, 5, 5).requires_grad_(), drawn(4, 8, 3, 1))
    assert native.takes_gradients(drawn(2, 8, 5, 5).requires_grad_(), drawn(4, 8, 3, 3))
