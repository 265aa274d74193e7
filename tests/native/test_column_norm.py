"""The compiled column normalization: float64's result up to rounding, one operator to every tool, and really used."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from c2d import native
from c2d.native import operations as column_norm
from c2d.nets.network import BatchNormReLU

needs_compiled = pytest.mark.skipif(
    not native.AVAILABLE, reason="NO COMPILED CODE: make setup says why; it is not tested"
)
SHAPES = [(32, 32, 20, 20), (32, 64, 9, 9), (32, 64, 7, 7), (3, 5, 11, 3), (1, 17, 1, 4), (10, 1, 7, 1)]


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def images(batch, channels, height, width, seed=0):
    x = 3 * drawn(batch, height, width, channels, seed=seed) + torch.arange(width)[:, None] - 2
    return x.permute(0, 3, 1, 2)  # channels-last memory


def layer(channels, width):
    norm = BatchNormReLU("column", channels, width)
    with torch.no_grad():
        norm.weight.copy_(drawn(width, seed=1) + 1.5)
        norm.bias.copy_(drawn(width, seed=2))
    return norm


def through(norm, x, upstream):
    """What one layer makes of images: outputs, running statistics, gradients."""
    norm.zero_grad()
    x = x.clone().requires_grad_()
    y = norm(x, "predict")
    y.backward(upstream)
    found = (y, norm.running_mean, norm.running_var, x.grad, norm.weight.grad, norm.bias.grad)
    return [tensor.detach().double() for tensor in found]


def counted(monkeypatch):
    """The names of the loops that ran, in order."""
    calls = []
    for name in ("forward", "backward"):
        loop = getattr(native._column_norm, name)
        monkeypatch.setattr(native._column_norm, name, lambda *a, name=name, loop=loop: (calls.append(name), loop(*a)))
    return calls


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("shape", SHAPES)
def test_against_float64(shape):
    x, upstream = images(*shape), images(*shape, seed=3)
    wanted = through(layer(shape[1], shape[3]).double(), x.double(), upstream.double())
    for order in (torch.channels_last, torch.contiguous_format):
        given = (tensor.contiguous(memory_format=order) for tensor in (x, upstream))
        for got, exact in zip(through(layer(shape[1], shape[3]), *given), wanted, strict=True):
            torch.testing.assert_close(got, exact, rtol=1e-5, atol=3e-6 * float(exact.abs().max() + 1))


@needs_compiled
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("order", [torch.channels_last, torch.contiguous_format])
def test_the_operators_pass_the_checks_of_pytorch(shape, order):
    """Schema, fake tensors, autograd registration, and compiled autograd against the real thing."""
    x = images(*shape).contiguous(memory_format=order)
    weight, bias = drawn(shape[3], seed=1) + 1.5, drawn(shape[3], seed=2)
    leaves = [tensor.clone().requires_grad_() for tensor in (x, weight, bias)]
    torch.library.opcheck(torch.ops.c2d.column_norm_relu.default, (*leaves, 1e-3))
    y, statistics = torch.ops.c2d.column_norm_relu(x, weight, bias, 1e-3)
    torch.library.opcheck(torch.ops.c2d.column_norm_relu_backward.default, (y, x, weight, statistics, 1e-3))


@needs_compiled
def test_nothing_that_does_not_fit_reaches_the_loops(monkeypatch):
    """They read memory as the shapes say."""
    calls, operator = counted(monkeypatch), torch.ops.c2d.column_norm_relu
    x, ones = images(2, 16, 3, 4), torch.ones(4)
    for wrong in ((x, torch.ones(6), ones), (x, ones, torch.ones(3)), (x[0], ones, ones), (x[:0], ones, ones)):
        with pytest.raises(ValueError, match="takes nonempty images"):
            operator(*wrong, 1e-3)
    with pytest.raises(ValueError, match="takes float32 tensors"):
        operator(x, ones.double(), ones, 1e-3)
    y, statistics = operator(x, ones, ones, 1e-3)
    for wrong in ((y[:1], statistics), (y, statistics[:2]), (y.double(), statistics)):
        with pytest.raises(ValueError, match="a float32 gradient like x and statistics"):
            torch.ops.c2d.column_norm_relu_backward(wrong[0], x, ones, wrong[1], 1e-3)
    assert calls == ["forward"]


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("purpose", ["target", "predict", "act"])
def test_images_of_another_width_are_rejected(purpose):
    norm = layer(16, 4)
    before = norm.running_mean.clone()
    with torch.no_grad(), pytest.raises(RuntimeError):
        norm(images(2, 16, 3, 6), purpose)
    assert torch.equal(norm.running_mean, before)
    assert not column_norm.supports_column_norm(images(2, 16, 3, 4), norm.half().weight)


@needs_compiled
def test_results_do_not_depend_on_the_number_of_threads():
    found = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        found.append(through(layer(32, 20), images(32, 32, 20, 20), images(32, 32, 20, 20, seed=3)))
    assert all(torch.equal(a, b) for other in found[1:] for a, b in zip(found[0], other, strict=True))


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("purpose", ["target", "act"])
def test_nan_is_not_hidden(purpose):
    x = images(2, 16, 3, 4)
    x[0, 3, 1, 2] = torch.nan
    with torch.no_grad():
        y = layer(16, 4)(x, purpose)
    assert y[0, 3, 1, 2].isnan() and y[..., 0].isfinite().all()


@needs_compiled
def test_the_layer_uses_the_loops_where_it_can(monkeypatch):
    calls, norm, x = counted(monkeypatch), BatchNormReLU("column", 2, 4), images(3, 2, 5, 4).requires_grad_()
    norm(x, "predict").sum().backward()
    assert calls == ["forward", "backward"]
    norm(x, "act")
    norm.double()(x.double(), "target")
    with pytest.raises(RuntimeError, match="at least one element"):
        norm(torch.zeros(0, 2, 5, 4, dtype=torch.float64), "target")
    monkeypatch.setattr(native, "AVAILABLE", False)
    norm.float()(x, "predict").sum().backward()
    assert len(calls) == 2


@needs_compiled
def test_flop_counters_are_not_disturbed():
    norm, x = BatchNormReLU("column", 2, 4), images(3, 2, 5, 4).requires_grad_()
    with FlopCounterMode(display=False) as counter:
        (norm(x, "predict").flatten(1) @ torch.ones(40, 7)).sum().backward()
    assert counter.get_total_flops() == 2 * (2 * 3 * 40 * 7)  # forward, and the gradient of one factor


ALONE = """
import importlib, json, os, sys, torch
from c2d import native
from c2d.nets.network import BatchNormReLU

available = [native.AVAILABLE]
x = torch.ones(2, 3, 5, 4, requires_grad=True)
BatchNormReLU("column", 3, 4)(x, "predict").sum().backward()
compiler = "torch._dynamo" in sys.modules

def loaded_again():
    importlib.reload(native)
    available.append(native.AVAILABLE)

interface, native._column_norm.INTERFACE = native._column_norm.INTERFACE, 0
loaded_again()
native._column_norm.INTERFACE = interface
loaded_again()
os.environ["C2D_KERNELS"] = "off"
loaded_again()
print(json.dumps([available, compiler]))
"""


@pytest.fixture(scope="module")
def alone():
    """From a process of its own: whether the compiled code is used, and whether the compiler was loaded."""
    root = Path(native.__file__).parents[2]
    told = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, check=True, cwd=root)
    return json.loads(told.stdout)


@needs_compiled
def test_an_older_module_or_the_switch_leaves_the_twins(alone):
    """At first, as an older module, as it was again, and switched off."""
    assert alone[0] == [True, False, True, False]


@needs_compiled
def test_the_compiler_is_not_loaded_for_training(alone):
    """It takes half a second and 70 MB in every process."""
    assert alone[1] is False
