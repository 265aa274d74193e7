"""Loops in C for tensors in the processor's memory; absent if no compiler was there at installation.

kernels.c, dense.c and convolution.c do the same as PyTorch's operations in layers.py and encoders.py, up to rounding,
in fewer passes over memory. `C2D_KERNELS=off` leaves them aside.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from c2d.compiled import usable

try:
    from c2d.nets import _convolution, _dense, _kernels
except ImportError:
    AVAILABLE = False
else:
    AVAILABLE = usable(_convolution, _dense, _kernels)

_ROWS = (8, 16, 24, 32, 40, 48, 56, 64)
_LARGE = 1 << 19  # weights


def takes(*tensors: Tensor, kind: torch.dtype = torch.float32) -> bool:
    """Whether there are loops for such tensors."""
    return AVAILABLE and all(x.dtype is kind and x.device.type == "cpu" and x.numel() > 0 for x in tensors)


def takes_columns(x: Tensor, weight: Tensor) -> bool:
    """Whether there is a normalization for these pictures. [B, C, H, W], [W]"""
    return takes(x, weight) and x.dim() == 4 and x.shape[3] == len(weight) < x.numel()


class ColumnNormReLU(torch.autograd.Function):
    """As layers.ColumnNorm with a ReLU, on pictures; moves the running statistics if given. [B, C, H, W] -> alike"""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float, running: tuple[Tensor, Tensor, float] | None
    ) -> Tensor:
        x = x.contiguous(memory_format=torch.channels_last)
        y, statistics = torch.empty_like(x), x.new_empty(4, x.shape[3])
        mean, var, momentum = (
            (0, 0, 0.0) if running is None else (running[0].data_ptr(), running[1].data_ptr(), running[2])
        )
        _kernels.column_norm(
            x.data_ptr(),
            y.data_ptr(),
            *_sizes(x),
            weight.data_ptr(),
            bias.data_ptr(),
            eps,
            statistics.data_ptr(),
            mean,
            var,
            momentum,
            torch.get_num_threads(),
        )
        ctx.save_for_backward(x, weight, statistics)
        ctx.eps = eps
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, statistics = ctx.saved_tensors
        grad = grad.contiguous(memory_format=torch.channels_last)
        grad_x, grad_weight, grad_bias = torch.empty_like(x), torch.empty_like(weight), torch.empty_like(weight)
        _kernels.column_norm_backward(
            grad.data_ptr(),
            x.data_ptr(),
            grad_x.data_ptr(),
            *_sizes(x),
            weight.data_ptr(),
            statistics.data_ptr(),
            ctx.eps,
            grad_weight.data_ptr(),
            grad_bias.data_ptr(),
            torch.get_num_threads(),
        )
        return grad_x, grad_weight, grad_bias, None, None


def takes_rows(x: Tensor, weight: Tensor) -> bool:
    """Whether there is a product for a dense layer that is worth its call. [B, D], [D', D]"""
    few = x.dim() == 2 and len(x) in _ROWS  # with more, libraries are as fast
    return (
        few and weight.numel() >= _LARGE and x.shape[1] == weight.shape[1] and x.shape[1] % 8 == 0 and takes(x, weight)
    )


class Dense(torch.autograd.Function):
    """w·xᵀ + bias. [B, D], [D', D], [D'] -> [D', B]"""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        x, weight = x.contiguous(), weight.contiguous()
        y = x.new_empty(len(bias), len(x))
        _dense.dense(
            x.data_ptr(),
            weight.data_ptr(),
            bias.data_ptr(),
            y.data_ptr(),
            len(x),
            x.shape[1],
            len(bias),
            torch.get_num_threads(),
        )
        ctx.save_for_backward(x, weight)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        grad = grad.contiguous()
        grad_x = torch.empty_like(x) if ctx.needs_input_grad[0] else None
        grad_weight, grad_bias = torch.empty_like(weight), weight.new_empty(len(weight))
        _dense.dense_backward(
            grad.data_ptr(),
            x.data_ptr(),
            weight.data_ptr(),
            0 if grad_x is None else grad_x.data_ptr(),
            grad_weight.data_ptr(),
            grad_bias.data_ptr(),
            len(x),
            x.shape[1],
            len(weight),
            torch.get_num_threads(),
        )
        return grad_x, grad_weight, grad_bias


def takes_gradients(x: Tensor, weight: Tensor) -> bool:
    """Whether there are gradients for a convolution of these pictures. [B, C, H, W], [C', C, K, K]"""
    outputs, channels, height, width = weight.shape
    fits = height == width and outputs % 4 == 0 and channels * height * width % 8 == 0
    return fits and x.requires_grad and torch.is_grad_enabled() and takes(x, weight)


class Convolution(torch.autograd.Function):
    """PyTorch's convolution without padding, with gradients that stay in the cache. [B, C, H, W] -> [B, C', H', W']"""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, stride: int) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.stride = stride
        return F.conv2d(x, weight, bias, stride)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = (tensor.contiguous(memory_format=torch.channels_last) for tensor in ctx.saved_tensors)
        grad = grad.contiguous(memory_format=torch.channels_last)
        grad_x, grad_weight = torch.empty_like(x), torch.zeros_like(weight)
        grad_bias = weight.new_zeros(len(weight))
        batch, channels, height, width = x.shape
        _convolution.gradients(
            grad.data_ptr(),
            x.data_ptr(),
            weight.data_ptr(),
            grad_x.data_ptr(),
            grad_weight.data_ptr(),
            grad_bias.data_ptr(),
            batch,
            height,
            width,
            channels,
            grad.shape[2],
            grad.shape[3],
            len(weight),
            weight.shape[2],
            ctx.stride,
            torch.get_num_threads(),
        )
        return grad_x, grad_weight, grad_bias, None


def running_norm_relu_(x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor, eps: float) -> Tensor:
    """ReLU(weight_w · (x − mean_w)/√(var_w + eps) + bias_w), in place if channels-last. [B, C, H, W] -> alike"""
    x = x.contiguous(memory_format=torch.channels_last)
    addresses = (weight.data_ptr(), bias.data_ptr(), mean.data_ptr(), var.data_ptr())
    _kernels.running_norm(x.data_ptr(), *_sizes(x), *addresses, eps)
    return x


def channels_last(obs: Tensor, scale: float) -> Tensor:
    """Planes of bytes as floats in channels-last memory, times `scale`. [B, C, H, W] u8 -> alike f32"""
    obs = obs.contiguous()
    batch, channels, height, width = obs.shape
    x = obs.new_empty((batch, height, width, channels), dtype=torch.float32)
    threads = torch.get_num_threads()
    _kernels.channels_last(obs.data_ptr(), x.data_ptr(), batch, channels, height * width, scale, threads)
    return x.permute(0, 3, 1, 2)


def _sizes(x: Tensor) -> tuple[int, int, int]:
    """Rows of all pictures, columns, channels. [B, C, H, W]"""
    batch, channels, height, width = x.shape
    return batch * height, width, channels
