"""The two operations that are written for speed, each with its plain twin in PyTorch.

Column normalization: batch normalization of image columns, then ReLU. C2D's own normalization (deviates: D01), which no
library has.
Keras normalizes the last axis by default. On channels-first images that is the width, so each image *column* has one
mean and one variance over batch, height and channels. The C loop saves 3 to 4 % of training with one thread and 6 to
7 % with two (docs/results/kernels.md). F.batch_norm on a permuted view is slower than the twin below.

Dense layers with few rows and many weights: the layer behind the convolutions, in batches of 32.
The matrix product that PyTorch calls first copies the weights into another order, which takes as long as the product
with 32 rows. oneDNN's convolution does not, with AVX-512: so the layer is computed as a convolution whose kernel covers
the whole image. This saves 5 to 7 % of training with one thread and 2 to 5 % with two (docs/results/kernels.md). No C
is needed, and gradients are plain products. Without AVX-512 that convolution is two to four times slower than the
product, hence the check.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from c2d import native

# ----------------------------------------------------------------------------------------------- column normalization


def column_norm_relu(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """ReLU(weight_w · (x − mean_w)/√(var_w + eps) + bias_w), and the mean and variance of each column.

    [B, C, H, W], [W], [W] -> [B, C, H, W] in channels-last memory, [W], [W]
    """
    if supports_column_norm(x, weight):
        y, statistics = torch.ops.c2d.column_norm_relu(x, weight, bias, eps)
        mean, var, _, _ = statistics.detach().unbind()
        return y, mean, var
    batch, channels, height, width = x.shape
    if width != len(weight):
        raise RuntimeError(f"images {width} columns wide do not fit a normalization of {len(weight)} columns")
    matrix = x.permute(0, 2, 3, 1).reshape(batch * height, width * channels)  # a view if channels-last
    y, mean, var = _Twin.apply(matrix, weight, bias, eps)  # type: ignore[no-untyped-call]
    y = F.relu(y, inplace=True).view(batch, height, width, channels)
    return y.permute(0, 3, 1, 2), mean, var


def supports_column_norm(x: Tensor, weight: Tensor) -> bool:
    """Whether the compiled operator takes these: nonempty float32 images on the CPU. [B, C, H, W], [W]"""
    on_cpu = x.device.type == weight.device.type == "cpu"
    fits = x.dim() == 4 and 0 < x.shape[3] == len(weight) < x.numel()
    return native.AVAILABLE and on_cpu and fits and _float32(x, weight)


# ------------------------------------------------------------------------------------------------- compiled operator


# Not `custom_op`, which does the same but imports torch._dynamo at its first call: 0.6 s and 70 MB in every process.
torch.library.define("c2d::column_norm_relu", "(Tensor x, Tensor weight, Tensor bias, float eps) -> (Tensor, Tensor)")
torch.library.define(
    "c2d::column_norm_relu_backward",
    "(Tensor grad, Tensor x, Tensor weight, Tensor statistics, float eps) -> (Tensor, Tensor, Tensor)",
)


@torch.library.impl("c2d::column_norm_relu", "cpu")
def _forward(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """-> y, statistics [4, W]: mean, variance, and the scale and shift that y was made with."""
    _check(x, weight, bias)
    x, weight, bias = _channels_last(x), weight.contiguous(), bias.contiguous()
    y, statistics = torch.empty_like(x), x.new_empty(4, x.shape[3])
    native._column_norm.forward(
        x.data_ptr(),
        y.data_ptr(),
        *_sizes(x),
        weight.data_ptr(),
        bias.data_ptr(),
        eps,
        statistics.data_ptr(),
        torch.get_num_threads(),
    )
    return y, statistics


@torch.library.impl("c2d::column_norm_relu_backward", "cpu")
def _backward(grad: Tensor, x: Tensor, weight: Tensor, statistics: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """-> the gradients of x, weight and bias."""
    _check(x, weight)
    if grad.shape != x.shape or statistics.shape != (4, len(weight)) or not _float32(grad, statistics):
        raise ValueError("column_norm_relu_backward takes a float32 gradient like x and statistics [4, W]")
    grad, x, weight, statistics = _channels_last(grad), _channels_last(x), weight.contiguous(), statistics.contiguous()
    grad_x, grad_weight, grad_bias = torch.empty_like(x), torch.empty_like(weight), torch.empty_like(weight)
    native._column_norm.backward(
        grad.data_ptr(),
        x.data_ptr(),
        grad_x.data_ptr(),
        *_sizes(x),
        weight.data_ptr(),
        statistics.data_ptr(),
        eps,
        grad_weight.data_ptr(),
        grad_bias.data_ptr(),
        torch.get_num_threads(),
    )
    return grad_x, grad_weight, grad_bias


def _forward_fake(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    return torch.empty_like(_channels_last(x)), x.new_empty(4, x.shape[3])


def _backward_fake(
    grad: Tensor, x: Tensor, weight: Tensor, statistics: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(_channels_last(x)), weight.new_empty(len(weight)), weight.new_empty(len(weight))


def _keep(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor, float], output: tuple[Tensor, Tensor]) -> None:
    x, weight, _, ctx.eps = inputs
    ctx.save_for_backward(x, weight, output[1])


def _gradients(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    x, weight, statistics = ctx.saved_tensors
    return *torch.ops.c2d.column_norm_relu_backward(grad, x, weight, statistics, ctx.eps), None


torch.library.register_fake("c2d::column_norm_relu", _forward_fake)
torch.library.register_fake("c2d::column_norm_relu_backward", _backward_fake)
torch.library.register_autograd("c2d::column_norm_relu", _gradients, setup_context=_keep)


def _check(x: Tensor, *per_column: Tensor) -> None:
    """The loops read memory as these shapes say, so nothing else may reach them."""
    if x.dim() != 4 or x.numel() == 0 or any(tensor.shape != x.shape[3:] for tensor in per_column):
        raise ValueError("column_norm_relu takes nonempty images [B, C, H, W] and one weight and bias per column [W]")
    if not _float32(x, *per_column):
        raise ValueError("column_norm_relu takes float32 tensors")


def _float32(*tensors: Tensor) -> bool:
    return all(tensor.dtype is torch.float32 for tensor in tensors)


def _channels_last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)


def _sizes(x: Tensor) -> tuple[int, int, int]:
    """Rows of all images, columns, channels. [B, C, H, W]"""
    batch, channels, height, width = x.shape
    return batch * height, width, channels


# ------------------------------------------------------------------------------------------------- twin in PyTorch


class _Twin(torch.autograd.Function):
    """The normalization without ReLU, on channels-last memory seen as a matrix [B·H, W·C].

    Sums over its rows run at full speed; the statistics of an image column are merged from those of its C matrix
    columns.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, ...]:
        if not len(x):
            raise RuntimeError("normalization over a batch takes at least one element")
        width, channels = len(weight), x.shape[1] // len(weight)
        mean = x.mean(0)  # [W·C]
        apart = x - mean
        between, center = torch.var_mean(mean.view(width, channels), 1, correction=0)  # [W]
        var = apart.mul_(apart).mean(0).view(width, channels).mean(1).add_(between)  # law of total variance
        invstd = torch.rsqrt(var + eps)
        scale = weight * invstd
        wide_scale, shift = _widen(channels, scale, torch.addcmul(bias, center, scale, value=-1.0))
        y = torch.addcmul(shift, x, wide_scale)
        ctx.save_for_backward(x, center, invstd, scale, wide_scale)
        ctx.mark_non_differentiable(center, var)
        return y, center, var

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        x, center, invstd, scale, wide_scale = ctx.saved_tensors
        width, channels = center.numel(), x.shape[1] // center.numel()
        sums = torch.stack(((g * x).sum(0), g.sum(0)))  # [2, W·C]
        sum_gx, grad_bias = sums.view(2, width, channels).sum(-1).unbind()  # [W]
        grad_weight = torch.addcmul(sum_gx, center, grad_bias, value=-1.0) * invstd  # Σ g·x̂
        # dx = scale · (g − mean(g) − x̂·mean(g·x̂)), gathered as a·g + b·x + d per column
        per_value = scale * (-width / x.numel())
        b = per_value * invstd * grad_weight
        wide_b, d = _widen(channels, b, torch.addcmul(per_value * grad_bias, b, center, value=-1.0))
        grad_x = torch.addcmul(d, x, wide_b).addcmul_(g, wide_scale)
        return grad_x, grad_weight, grad_bias, None


def _widen(channels: int, *per_column: Tensor) -> tuple[Tensor, ...]:
    """Values of image columns [W] as values of matrix columns [W·C], in memory of their own."""
    wide = torch.stack(per_column).unsqueeze(-1).expand(-1, -1, channels).contiguous()
    return wide.flatten(1).unbind()


# ------------------------------------------------------------------------------------------------------- dense layers

_WIDE_VECTORS = (
    torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    and torch.backends.cpu.get_cpu_capability() == "AVX512"
)
_ROWS = range(2, 65)  # with more, the plain product is as fast
_WEIGHTS = 1 << 19  # with fewer, they stay in the cache
_CHANNELS = 64  # any divisor of the inputs would do; this many are fast


def dense(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x·weightᵀ + bias. [..., D], [D', D], [D'] -> [..., D']"""
    if recorded():
        return F.linear(x, weight, bias)
    if supports_dense(x, weight):
        y: Tensor = _AsConvolution.apply(x, weight, bias)  # type: ignore[no-untyped-call]
        return y
    if x.dim() == 2 and len(x) > 1:  # W·xᵀ: BLAS divides it better between threads
        return torch.addmm(bias.unsqueeze(1), weight, x.t()).t()
    return F.linear(x, weight, bias)


# PyTorch before 2.7 does not tell exporters from compilers.
_exporting: Callable[[], bool] = getattr(torch.compiler, "is_exporting", torch.compiler.is_compiling)


def recorded() -> bool:
    """Whether a trace or an export is made of what runs: plain operations then, and the same ones for any batch."""
    return _exporting() or bool(torch.jit.is_tracing())  # type: ignore[attr-defined, no-untyped-call]


def supports_dense(x: Tensor, weight: Tensor) -> bool:
    """Whether the layer is computed as a convolution. [B, D], [D', D]"""
    return (
        native.AVAILABLE
        and _WIDE_VECTORS
        and x.dim() == 2
        and len(x) in _ROWS
        and x.shape[1] == weight.shape[1]
        and x.shape[1] % _CHANNELS == 0
        and weight.numel() >= _WEIGHTS
        and all(tensor.dtype is torch.float32 and tensor.device.type == "cpu" for tensor in (x, weight))
    )


class _AsConvolution(torch.autograd.Function):
    """[B, D], [D', D], [D'] -> [B, D']"""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        image, kernel = (rows.reshape(len(rows), 1, -1, _CHANNELS).permute(0, 3, 1, 2) for rows in (x, weight))
        return F.conv2d(image, kernel, bias).flatten(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        return grad @ weight if ctx.needs_input_grad[0] else None, grad.t() @ x, grad.sum(0)
