"""kernels.c: the same as PyTorch's operations up to rounding, for any number of threads, and really used."""

import subprocess
import sys

import pytest
import torch

from c2d.nets import native
from c2d.nets.encoders import channels_last
from c2d.nets.layers import BatchNormReLU

pytestmark = pytest.mark.skipif(not native.AVAILABLE, reason="NO LOOPS IN C: make setup says why; they are not tested")


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def pictures(batch, height, width, channels, seed=0):
    x = 3 * drawn(batch, height, width, channels, seed=seed) + torch.arange(width)[:, None] - 2
    return x.permute(0, 3, 1, 2)  # channels-last memory


def through(norm, x, upstream):
    """What one layer makes of pictures: outputs, running statistics, gradients."""
    norm.zero_grad()
    x = x.clone().requires_grad_()
    y = norm(x)
    y.backward(upstream)
    found = (y, norm.running_mean, norm.running_var, x.grad, norm.weight.grad, norm.bias.grad)
    return [tensor.detach().double() for tensor in found]


def layer(width, channels, mode="update"):
    norm = BatchNormReLU("column", channels, width)
    norm.mode = mode
    with torch.no_grad():
        norm.weight.copy_(drawn(width, seed=1) + 1.5)
        norm.bias.copy_(drawn(width, seed=2))
    return norm


@pytest.mark.parametrize(
    ("batch", "height", "width", "channels"),
    [(32, 20, 20, 32), (32, 9, 9, 64), (32, 7, 7, 64), (3, 11, 3, 5), (1, 1, 4, 17), (10, 7, 1, 1)],
)
def test_norm_against_float64(batch, height, width, channels):
    x, upstream = pictures(batch, height, width, channels), pictures(batch, height, width, channels, seed=3)
    wanted = through(layer(width, channels).double(), x.double(), upstream.double())
    for order in (torch.channels_last, torch.contiguous_format):
        given = (tensor.contiguous(memory_format=order) for tensor in (x, upstream))
        for got, exact in zip(through(layer(width, channels), *given), wanted, strict=True):
            torch.testing.assert_close(got, exact, rtol=1e-5, atol=3e-6 * float(exact.abs().max() + 1))


@pytest.mark.parametrize("order", [torch.channels_last, torch.contiguous_format])
def test_running_norm_in_any_memory_order(order):
    x, norm = pictures(2, 3, 4, 16), layer(4, 16, "running")
    wanted = norm(x)  # with gradient: by PyTorch
    with torch.no_grad():
        torch.testing.assert_close(norm(x.contiguous(memory_format=order)), wanted)


@pytest.mark.parametrize("mode", ["batch", "update", "running"])
def test_pictures_of_another_width_are_refused(mode):
    """No loop reads or writes beyond a tensor."""
    norm = layer(4, 16, mode)
    before = norm.running_mean.clone()
    with torch.no_grad(), pytest.raises(RuntimeError):
        norm(pictures(2, 3, 6, 16))
    assert torch.equal(norm.running_mean, before)
    assert not native.takes_columns(pictures(2, 3, 4, 16), norm.half().weight)


def test_modules_of_another_version_are_left_aside():
    code = (
        "import torch; from c2d.nets import _dense; _dense.INTERFACE = 0; from c2d.nets import native;"
        "from c2d.envs import _screen; del _screen.INTERFACE; from c2d.envs import resize;"
        "print(native.AVAILABLE, resize.NATIVE)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["False", "False"]


def test_results_do_not_depend_on_the_number_of_threads():
    found = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        found.append(through(layer(20, 32), pictures(32, 20, 20, 32), pictures(32, 20, 20, 32, seed=3)))
    assert all(torch.equal(a, b) for other in found[1:] for a, b in zip(found[0], other, strict=True))


@pytest.mark.parametrize("mode", ["batch", "running"])
def test_what_is_no_number_is_not_hidden(mode):
    x = pictures(2, 3, 4, 16)
    x[0, 3, 1, 2] = torch.nan
    with torch.no_grad():
        y = layer(4, 16, mode)(x)
    assert y[0, 3, 1, 2].isnan() and y[..., 0].isfinite().all()


def test_layers_use_it_where_it_can_be_used(monkeypatch):
    calls = []
    for name in ("column_norm", "column_norm_backward", "running_norm", "channels_last"):
        kernel = getattr(native._kernels, name)
        monkeypatch.setattr(
            native._kernels, name, lambda *a, name=name, kernel=kernel: (calls.append(name), kernel(*a))
        )
    norm = BatchNormReLU("column", 2, 4)
    norm.mode = "update"
    x, scale = channels_last(torch.ones(3, 2, 5, 4, dtype=torch.uint8), 0.5)
    assert scale == 1.0 and (x == 0.5).all()  # nothing left to do
    x.requires_grad_()
    norm(x).sum().backward()
    norm.mode = "running"
    with torch.no_grad():
        norm(x.clone())
    assert calls == ["channels_last", "column_norm", "column_norm_backward", "running_norm"]
    norm(x).sum().backward()  # acting with a gradient: by PyTorch
    norm.double()(x.double())
    assert channels_last(torch.zeros(3, 2, 5, 4), 0.5)[1] == 0.5
    norm.mode = "batch"
    with pytest.raises(RuntimeError, match="at least one element"):
        norm(torch.zeros(0, 2, 5, 4))
    assert len(calls) == 4


@pytest.mark.parametrize("shape", [(32, 4, 84, 84), (1, 4, 84, 84), (3, 3, 7, 5), (2, 1, 4, 4), (1, 10, 10, 10)])
def test_pixels_in_channels_last_order(shape):
    obs = torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    for given in (obs, obs.permute(0, 1, 3, 2)):
        x, _ = channels_last(given, 1.0)
        assert x.dtype == torch.float32 and x.permute(0, 2, 3, 1).is_contiguous() and torch.equal(x, given.float())
