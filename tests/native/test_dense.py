"""A dense layer as a convolution: float64's result up to rounding, visible to every tool, and really used."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from c2d import native
from c2d.native import operations as module
from c2d.native.operations import dense
from tests.native.test_column_norm import drawn


@pytest.fixture
def as_convolution(monkeypatch):
    """On any processor and for small layers too; the rows that were computed so."""
    monkeypatch.setattr(native, "AVAILABLE", True)
    monkeypatch.setattr(module, "_WIDE_VECTORS", True)
    monkeypatch.setattr(module, "_WEIGHTS", 1)
    rows, apply = [], module._AsConvolution.apply
    monkeypatch.setattr(module._AsConvolution, "apply", lambda x, *rest: (rows.append(len(x)), apply(x, *rest))[1])
    return rows


@pytest.mark.parametrize(("rows", "inputs", "outputs"), [(32, 3136, 512), (64, 1024, 128), (2, 64, 1), (33, 192, 5)])
@pytest.mark.parametrize("threads", [1, 2])
def test_against_float64(rows, inputs, outputs, threads, as_convolution):
    torch.set_num_threads(threads)
    given = [drawn(rows, inputs), drawn(outputs, inputs, seed=1), drawn(outputs, seed=2)]
    upstream, results = drawn(rows, outputs, seed=3), []
    for function, dtype in ((dense, torch.float32), (F.linear, torch.float64)):
        leaves = [tensor.to(dtype, copy=True).requires_grad_() for tensor in given]
        y = function(*leaves)
        y.backward(upstream.to(dtype))
        results.append([y.detach().double(), *(leaf.grad.double() for leaf in leaves)])
    assert as_convolution == [rows]
    for got, wanted in zip(*results, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-5, atol=3e-6 * float(wanted.abs().max()))


def test_memory_in_any_order(as_convolution):
    x, weight, bias = drawn(64, 32).t(), drawn(64, 4, seed=1).t().requires_grad_(), torch.zeros(4, requires_grad=True)
    torch.testing.assert_close(dense(x, weight, bias), F.linear(x, weight, bias))
    (dense(x, weight, bias) * drawn(4, 32).t()).sum().backward()  # and such a gradient
    torch.testing.assert_close(weight.grad, drawn(4, 32) @ x)
    assert as_convolution == [32, 32]


@pytest.mark.parametrize(
    ("shape", "dtype", "used"),
    [
        ((32, 128), torch.float32, True),
        ((64, 128), torch.float32, True),
        ((1, 128), torch.float32, False),
        ((65, 128), torch.float32, False),
        ((32, 96), torch.float32, False),
        ((32, 128), torch.float64, False),
        ((4, 8, 128), torch.float32, False),
        ((32, 64), torch.float32, False),  # too few weights
    ],
)
def test_it_is_used_where_it_is_worth_its_call(shape, dtype, used, as_convolution, monkeypatch):
    monkeypatch.setattr(module, "_WEIGHTS", 3 * 96)
    x, weight, bias = (drawn(*size).to(dtype) for size in (shape, (3, shape[-1]), (3,)))
    torch.testing.assert_close(dense(x, weight, bias), F.linear(x, weight, bias))
    assert bool(as_convolution) == used
    as_convolution.clear()
    for name, owner in (("AVAILABLE", native), ("_WIDE_VECTORS", module)):  # the switch; other processors
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, False)
            dense(x, weight, bias)
    assert as_convolution == []


def test_what_does_not_fit_is_left_to_pytorch_to_reject(as_convolution):
    for inputs in (64, 192):
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            dense(drawn(8, inputs), drawn(4, 128), torch.zeros(4))


def test_a_first_layer_computes_no_gradient_of_its_input(as_convolution):
    """FLOP counters see every product: forward and weights without one for the input, three with it."""
    weight, bias = drawn(4, 64, seed=1).requires_grad_(), torch.zeros(4, requires_grad=True)
    counts = []
    for x in (drawn(8, 64), drawn(8, 64).requires_grad_()):
        with FlopCounterMode(display=False) as counter:
            dense(x, weight, bias).sum().backward()
        counts.append(counter.get_total_flops() // (2 * 8 * 4 * 64))
    assert counts == [2, 3]
