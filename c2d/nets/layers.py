"""Layers that PyTorch does not have as we need them."""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

# How a normalization layer takes its statistics; set only by `network.with_mode`.
NormMode = Literal["running", "batch", "update"]


class _ColumnNormReLU(torch.autograd.Function):
    """ReLU(weight_w · (x − mean_w)/√(var_w + eps) + bias_w), statistics over batch, height and channels.

    Works on the memory of a channels-last tensor seen as a matrix [B·H, W·C]: PyTorch's per-column kernels then run
    at full speed, and the statistics of an image column are merged from those of its C matrix columns.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float, width: int) -> tuple[Tensor, ...]:
        channels = x.shape[1] // width  # x is [B·H, W·C]
        # The kernel returns 1/√(var + tiny); tiny, because for var = 0 without it the kernel returns 0.
        _, mean, invstd = torch.native_batch_norm(x, None, None, None, None, True, 0.0, 1e-30)  # [W·C]
        mean, var = mean.view(width, channels), invstd.pow(-2).view(width, channels)
        center = mean.mean(1)  # [W]
        var = var.mean(1) + mean.sub(center[:, None]).square().mean(1)  # law of total variance
        scale = weight * torch.rsqrt(var + eps)
        shift = bias - center * scale
        spread = scale.repeat_interleave(channels)  # [W·C]
        y = torch.addcmul(shift.repeat_interleave(channels), x, spread).relu_()
        ctx.save_for_backward(x, y, center, var, scale)
        ctx.eps = eps
        ctx.mark_non_differentiable(center, var)
        return y, center, var

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        x, y, center, var, scale = ctx.saved_tensors
        width, channels = center.numel(), x.shape[1] // center.numel()
        count = x.numel() // width
        g = torch.ops.aten.threshold_backward(grad, y, 0.0)  # through the ReLU
        _, sum_gx, sum_g = torch.ops.aten.native_batch_norm_backward(  # Σ g·x̂ and Σ g of each matrix column
            g, x, None, center.repeat_interleave(channels), var.repeat_interleave(channels),
            None, None, False, ctx.eps, [False, True, True],
        )  # fmt: skip
        grad_weight = sum_gx.view(width, channels).sum(1)  # [W]
        sum_g = sum_g.view(width, channels).sum(1)
        invstd = torch.rsqrt(var + ctx.eps)
        # dx = scale · (g − mean(g) − x̂·mean(g·x̂)), gathered as a·g + b·x + d per column
        b = -scale * invstd * grad_weight / count
        d = -scale * sum_g / count - b * center
        grad_x = torch.addcmul(d.repeat_interleave(channels), x, b.repeat_interleave(channels))
        grad_x.addcmul_(g, scale.repeat_interleave(channels))
        return grad_x, grad_weight, sum_g, None, None


def _column_norm_relu(x: Tensor, weight: Tensor, bias: Tensor, eps: float, width: int) -> tuple[Tensor, ...]:
    y: tuple[Tensor, ...] = _ColumnNormReLU.apply(x, weight, bias, eps, width)  # type: ignore[no-untyped-call]
    return y


class BatchNormReLU(nn.Module):
    """Batch normalization followed by ReLU, for pictures in channels-last memory.

    axis "channel" is the usual kind. axis "column" takes one mean and variance for each image *column*: Keras'
    default axis (the last) on channels-first tensors, which is what produced the published C2D data (deviates: D01).
    """

    def __init__(self, axis: Literal["column", "channel"], channels: int, width: int) -> None:
        super().__init__()
        self.axis = axis
        self.size = width if axis == "column" else channels
        self.momentum, self.eps = 0.01, 1e-3  # Keras' defaults: momentum 0.99 there is 0.01 here
        self.mode: NormMode = "running"
        self.weight = nn.Parameter(torch.ones(self.size))
        self.bias = nn.Parameter(torch.zeros(self.size))
        self.running_mean: Tensor
        self.running_var: Tensor
        self.register_buffer("running_mean", torch.zeros(self.size))
        self.register_buffer("running_var", torch.ones(self.size))

    def forward(self, x: Tensor) -> Tensor:  # [B, C, H, W] -> [B, C, H, W]
        if self.mode == "running":
            return self._by_running(x)
        return self._columns(x) if self.axis == "column" else self._channels(x)

    def _by_running(self, x: Tensor) -> Tensor:
        scale = self.weight * torch.rsqrt(self.running_var + self.eps)
        shift = self.bias - self.running_mean * scale
        if self.axis == "channel":
            scale, shift = scale[:, None, None], shift[:, None, None]
        return torch.addcmul(shift, x, scale).relu_()

    def _columns(self, x: Tensor) -> Tensor:
        batch, channels, height, width = x.shape
        matrix = x.permute(0, 2, 3, 1).reshape(batch * height, width * channels)  # a view if channels-last
        y, mean, var = _column_norm_relu(matrix, self.weight, self.bias, self.eps, width)
        if self.mode == "update":
            count = x.numel() // width
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(var * (count / (count - 1)), self.momentum)
        return y.view(batch, height, width, channels).permute(0, 3, 1, 2)

    def _channels(self, x: Tensor) -> Tensor:
        update = self.mode == "update"
        mean, var = (self.running_mean, self.running_var) if update else (None, None)
        y = F.batch_norm(x, mean, var, self.weight, self.bias, True, self.momentum, self.eps)
        return F.relu(y, inplace=True)


def glorot(module: nn.Module, rng: torch.Generator) -> None:
    """Keras' defaults for dense layers and convolutions: Glorot uniform weights, zero biases."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            nn.init.xavier_uniform_(layer.weight, generator=rng)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
