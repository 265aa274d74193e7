"""Layers that PyTorch does not have as we need them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from c2d.nets import native

# How a normalization layer takes its statistics; set only by `network.with_mode`.
NormMode = Literal["running", "batch", "update"]
Initializer = Literal["glorot", "fan-in", "orthogonal"]


class ColumnNorm(torch.autograd.Function):
    """weight_w · (x − mean_w)/√(var_w + eps) + bias_w, statistics over batch, height and channels.

    Works on the memory of a channels-last tensor seen as a matrix [B·H, W·C]: sums over its rows run at full speed,
    and the statistics of an image column are merged from those of its C matrix columns. On processors, native.py has
    a faster twin.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float, width: int) -> tuple[Tensor, ...]:
        if not len(x):
            raise RuntimeError("normalization over a batch takes at least one element")
        channels = x.shape[1] // width  # x is [B·H, W·C]
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
        return grad_x, grad_weight, grad_bias, None, None


def _widen(channels: int, *per_column: Tensor) -> tuple[Tensor, ...]:
    """Values of image columns [W] as values of matrix columns [W·C]."""
    wide = torch.stack(per_column).unsqueeze(-1).expand(-1, -1, channels).contiguous()
    return wide.flatten(1).unbind()  # kernels read these as plain memory


def _column_norm_relu(x: Tensor, weight: Tensor, bias: Tensor, eps: float, width: int) -> tuple[Tensor, ...]:
    y, mean, var = ColumnNorm.apply(x, weight, bias, eps, width)  # type: ignore[no-untyped-call]
    return F.relu(y, inplace=True), mean, var


class BatchNormReLU(nn.Module):
    """Batch normalization followed by ReLU, for pictures in channels-last memory. Acting may overwrite its input.

    axis "channel" is the usual kind. axis "column" takes one mean and variance for each image *column*: Keras'
    default axis (the last) on channels-first tensors, which is what produced the published C2D data (deviates: D01).
    """

    constants = ("weight", "bias")  # 1 and 0 at first

    def __init__(self, axis: Literal["column", "channel"], channels: int, width: int) -> None:
        super().__init__()
        self.axis = axis
        self.size = width if axis == "column" else channels
        self.momentum, self.eps = 0.01, 1e-3  # Keras' defaults: momentum 0.99 there is 0.01 here
        self.mode: NormMode = "running"
        self.weight = nn.Parameter(torch.ones(self.size))
        self.bias = nn.Parameter(torch.zeros(self.size))
        self._wide: tuple[Tensor, Tensor]
        self._affine_of: tuple[object, ...] = ()
        self.running_mean: Tensor
        self.running_var: Tensor
        self.register_buffer("running_mean", torch.zeros(self.size))
        self.register_buffer("running_var", torch.ones(self.size))

    def forward(self, x: Tensor) -> Tensor:  # [B, C, H, W] -> [B, C, H, W]
        if self.mode == "running":
            return self._by_running(x)
        if self.mode == "update":
            self._affine_of = ()  # not every kernel counts a new version of what it changes
        return self._columns(x) if self.axis == "column" else self._channels(x)

    def _by_running(self, x: Tensor) -> Tensor:
        if self.axis == "column" and not torch.is_grad_enabled() and native.takes_columns(x, self.weight):
            past = (self.weight, self.bias, self.running_mean, self.running_var)
            return native.running_norm_relu_(x, *past, self.eps)
        scale, shift = self._affine(x)
        return torch.addcmul(shift, x, scale).relu_()

    def _affine(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The running statistics as a factor and a summand of every place, until something they follow from changes."""
        origin = (self.weight, self.bias, self.running_mean, self.running_var)
        version = (*(tensor._version for tensor in origin), x.shape[1:], x.device)
        if version != self._affine_of:
            with torch.inference_mode(False), torch.no_grad():  # a plain constant, whoever asks first
                scale = self.weight * torch.rsqrt(self.running_var + self.eps)
                pair = torch.stack((scale, self.bias - self.running_mean * scale))
                pair = pair[:, None, None, :] if self.axis == "column" else pair[:, :, None, None]
                wide = pair.expand(2, *x.shape[1:]).contiguous(memory_format=torch.channels_last)
            self._wide, self._affine_of = (wide[0], wide[1]), version
        return self._wide

    def _columns(self, x: Tensor) -> Tensor:
        if native.takes_columns(x, self.weight):
            running = (self.running_mean, self.running_var, self.momentum) if self.mode == "update" else None
            out: Tensor = native.ColumnNormReLU.apply(  # type: ignore[no-untyped-call]
                x, self.weight, self.bias, self.eps, running
            )
            return out
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


def _fan_in_uniform(weight: Tensor, generator: torch.Generator) -> Tensor:
    """Uniform in ±√(√3/inputs): a variance of 1/(√3·inputs), Dopamine's for all of its laws of returns."""
    bound = math.sqrt(math.sqrt(3.0) / weight[0].numel())
    return nn.init.uniform_(weight, -bound, bound, generator=generator)


@torch.no_grad()
def _orthogonal(weight: Tensor, generator: torch.Generator) -> Tensor:
    """PyTorch's, which cannot write into channels-last memory."""
    return weight.copy_(nn.init.orthogonal_(torch.empty(weight.shape), generator=generator))


INITIALIZERS: dict[Initializer, Callable[..., Tensor]] = {
    "glorot": nn.init.xavier_uniform_,
    "fan-in": _fan_in_uniform,
    "orthogonal": _orthogonal,
}


def initialize(module: nn.Module, rng: torch.Generator, how: Initializer = "glorot") -> None:
    """Initial weights, all from `rng`, and biases of 0. Glorot uniform is Keras' default; noisy layers have their own.

    PyTorch's layers come with weights of the global generator. So a layer whose weights this function does not know
    is an error: it would start from them. Parameters that start at a constant are named in the layer's `constants`;
    a layer with a method `initialize(rng)` draws its own, and those of all layers within it.
    """
    done: set[int] = set()
    for layer in module.modules():
        known: set[str] = set(getattr(layer, "constants", ()))
        known |= {name for name, parameter in layer.named_parameters(recurse=False) if id(parameter) in done}
        if callable(own := getattr(layer, "initialize", None)):
            own(rng)
            done |= {id(parameter) for parameter in layer.parameters()}
            continue
        if isinstance(layer, nn.Linear | nn.Conv2d) and "weight" not in known:
            INITIALIZERS[how](layer.weight, generator=rng)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
            known |= {"weight", "bias"}
        unknown = {name for name, _ in layer.named_parameters(recurse=False)} - known
        if unknown:
            names = ", ".join(sorted(unknown))
            raise TypeError(f"{type(layer).__name__} has parameters without a rule for their initial values: {names}")
