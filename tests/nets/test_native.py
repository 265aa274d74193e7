"""kernels.c: the same as PyTorch's operations up to rounding, for any number of threads, and really used."""

import pytest
import torch
import torch.nn.functional as F

from c2d.nets import layers, native
from c2d.nets.encoders import channels_last
from c2d.nets.layers import BatchNormReLU, ColumnNormReLU, PlainLinear

pytestmark = pytest.mark.skipif(not native.AVAILABLE, reason="NO C COMPILER when the package was installed")


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def through(function, x, weight, bias, upstream, width, dtype):
    leaves = [tensor.to(dtype, copy=True).requires_grad_() for tensor in (x, weight, bias)]
    y, mean, var = function.apply(*leaves, 1e-3, width)
    y.backward(upstream.to(dtype))
    return [tensor.detach().double() for tensor in (y, mean, var, *(leaf.grad for leaf in leaves))]


@pytest.mark.parametrize(
    ("rows", "width", "channels"), [(640, 20, 32), (288, 9, 64), (224, 7, 64), (33, 3, 5), (1, 4, 17), (70, 1, 1)]
)
def test_norm_against_float64(rows, width, channels):
    x = 3 * drawn(rows, width * channels) + torch.arange(width).repeat_interleave(channels) - 2
    weight, bias, upstream = drawn(width, seed=1) + 1.5, drawn(width, seed=2), drawn(rows, width * channels, seed=3)
    wanted = through(ColumnNormReLU, x, weight, bias, upstream, width, torch.float64)
    ours = through(native.ColumnNormReLU, x, weight, bias, upstream, width, torch.float32)
    for got, exact in zip(ours, wanted, strict=True):
        torch.testing.assert_close(got, exact, rtol=1e-5, atol=3e-6 * float(exact.abs().max() + 1))


def test_results_do_not_depend_on_the_number_of_threads():
    x, weight, bias, upstream = drawn(640, 640), drawn(20, seed=1), drawn(20, seed=2), drawn(640, 640, seed=3)
    found = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        found.append(through(native.ColumnNormReLU, x, weight, bias, upstream, 20, torch.float32))
    assert all(torch.equal(a, b) for other in found[1:] for a, b in zip(found[0], other, strict=True))


@pytest.mark.parametrize("mode", ["batch", "running"])
def test_what_is_no_number_is_not_hidden(mode):
    norm = BatchNormReLU("column", 16, 4)
    norm.mode = mode
    x = drawn(2, 16, 3, 4).contiguous(memory_format=torch.channels_last)
    x[0, 3, 1, 2] = torch.nan
    with torch.no_grad():
        assert norm(x)[0, 3, 1, 2].isnan() and norm(x)[..., 0].isfinite().all()


def test_layers_use_it_where_it_can_be_used(monkeypatch):
    calls = []
    for name in ("column_norm", "column_norm_backward", "running_norm", "channels_last"):
        kernel = getattr(native._kernels, name)
        monkeypatch.setattr(
            native._kernels, name, lambda *a, name=name, kernel=kernel: (calls.append(name), kernel(*a))
        )
    norm = BatchNormReLU("column", 2, 4)
    norm.mode = "update"
    x = channels_last(torch.zeros(3, 2, 5, 4, dtype=torch.uint8)).requires_grad_()
    norm(x).sum().backward()
    norm.mode = "running"
    with torch.no_grad():
        norm(x)
    assert calls == ["channels_last", "column_norm", "column_norm_backward", "running_norm"]
    norm(x).sum().backward()  # acting with a gradient: by PyTorch
    norm.double()(x.double())
    channels_last(torch.zeros(3, 2, 5, 4))
    with pytest.raises(RuntimeError, match="at least one element"):  # PyTorch's own words
        layers._column_norm_relu(torch.zeros(0, 8), torch.ones(4), torch.zeros(4), 1e-3, 4)
    assert len(calls) == 4


@pytest.mark.parametrize("shape", [(32, 4, 84, 84), (1, 4, 84, 84), (3, 3, 7, 5), (2, 1, 4, 4), (1, 10, 10, 10)])
def test_pixels_in_channels_last_order(shape):
    obs = torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    for given in (obs, obs.permute(0, 1, 3, 2)):
        x = channels_last(given)
        assert x.dtype == torch.float32 and x.permute(0, 2, 3, 1).is_contiguous() and torch.equal(x, given.float())


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize(
    ("rows", "inputs", "outputs"), [(32, 3136, 512), (64, 1024, 128), (8, 8, 1), (16, 24, 5), (40, 56, 7), (24, 904, 3)]
)
def test_dense_against_float64(rows, inputs, outputs, threads):
    torch.set_num_threads(threads)
    given = [drawn(rows, inputs), drawn(outputs, inputs, seed=1), drawn(outputs, seed=2)]
    upstream, results = drawn(rows, outputs, seed=3), []
    for function, dtype in ((native.Dense.apply, torch.float32), (F.linear, torch.float64)):
        leaves = [tensor.to(dtype, copy=True).requires_grad_() for tensor in given]
        y = function(*leaves)
        y.backward(upstream.to(dtype))
        results.append([y.detach().double(), *(leaf.grad.double() for leaf in leaves)])
    for got, exact in zip(*results, strict=True):
        torch.testing.assert_close(got, exact, rtol=1e-5, atol=2e-6 * float(exact.abs().max()))


def test_dense_results_do_not_depend_on_the_number_of_threads():
    layer, found = PlainLinear(3136, 50), []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        layer.zero_grad()
        x = drawn(32, 3136).requires_grad_()
        y = layer(x)
        y.square().sum().backward()
        found.append([y.detach(), x.grad, layer.weight.grad.clone(), layer.bias.grad.clone()])
    assert all(torch.equal(a, b) for other in found[1:] for a, b in zip(found[0], other, strict=True))


def test_dense_memory_in_any_order():
    layer = PlainLinear(16, 4)
    x = drawn(16, 32).t()  # [32, 16], not contiguous
    torch.testing.assert_close(layer(x), F.linear(x, layer.weight, layer.bias))
    (layer(x) * drawn(4, 32).t()).sum().backward()  # and such a gradient
    torch.testing.assert_close(layer.weight.grad, drawn(4, 32) @ x)
    torch.testing.assert_close(layer.bias.grad, drawn(4, 32).sum(1))


def test_a_first_dense_layer_asks_for_no_gradient_of_its_input():
    layer = PlainLinear(16, 4)
    layer(drawn(8, 16)).sum().backward()
    torch.testing.assert_close(layer.weight.grad, drawn(8, 16).sum(0).expand(4, 16))


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
    ],
)
def test_dense_layers_use_it_where_it_can_be_used(shape, dtype, used, monkeypatch):
    calls = []
    kernel = native._dense.dense
    monkeypatch.setattr(native._dense, "dense", lambda *a: (calls.append(a), kernel(*a)))
    layer, x = PlainLinear(shape[-1], 3).to(dtype), drawn(*shape).to(dtype)
    torch.testing.assert_close(layer(x), F.linear(x, layer.weight, layer.bias))
    assert bool(calls) == used
