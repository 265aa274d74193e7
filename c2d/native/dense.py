"""Dense layers with few rows and many weights: the layer behind the convolutions, in batches of 32.

The matrix product that PyTorch calls first copies the weights into another order, which takes as long as the product
with 32 rows. oneDNN's convolution does not, with AVX-512: so the layer is computed as a convolution whose kernel covers
the whole image. This saves 5 to 8 % of training with one thread (docs/results/kernels.md) and no C is needed; gradients
are plain products. Without AVX-512 that convolution is two to four times slower than the product, hence the check.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from c2d import native

_WIDE_VECTORS = (
    torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    and torch.backends.cpu.get_cpu_capability() == "AVX512"
)
_ROWS = range(2, 65)  # with more, the plain product is as fast
_WEIGHTS = 1 << 19  # with fewer, they stay in the cache
_CHANNELS = 64  # any divisor of the inputs would do; this many are fast


def dense(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x·weightᵀ + bias. [..., D], [D', D], [D'] -> [..., D']"""
    if supports(x, weight):
        y: Tensor = _AsConvolution.apply(x, weight, bias)  # type: ignore[no-untyped-call]
        return y
    if x.dim() == 2 and len(x) > 1:  # W·xᵀ: BLAS divides it better between threads
        return torch.addmm(bias.unsqueeze(1), weight, x.t()).t()
    return F.linear(x, weight, bias)


def supports(x: Tensor, weight: Tensor) -> bool:
    """Whether the layer is computed as a convolution. [B, D], [D', D]"""
    return (
        native.AVAILABLE
        # a trace holds plain operations only, so that it can be saved
        and not torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
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
