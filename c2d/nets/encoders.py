"""Encoders: observation -> features. They end at the flattened convolutions; the dense layer belongs to the head."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from c2d.errors import UserError
from c2d.nets import native
from c2d.nets.layers import BatchNormReLU

Norm = Literal["column", "channel", "none"]
Padding = Literal["valid", "same"]


class Convolutions(nn.Module):
    """Convolutions in channels-last memory, each followed by normalization (or none) and ReLU."""

    def __init__(
        self,
        obs_shape: tuple[int, ...],
        layers: tuple[tuple[int, int, int], ...],  # (channels, kernel, stride)
        norm: Norm,
        padding: Padding,
        pixel_scale: float,
    ) -> None:
        super().__init__()
        channels, height, width = obs_shape
        self.pixel_scale = pixel_scale
        self.convolutions = nn.ModuleList()
        self.activations = nn.ModuleList()
        self.pads: list[tuple[int, int, int, int]] = []
        for out, kernel, stride in layers:
            left, right = _pad(width, kernel, stride, padding)
            top, bottom = _pad(height, kernel, stride, padding)
            self.pads.append((left, right, top, bottom))
            height = (height + top + bottom - kernel) // stride + 1
            width = (width + left + right - kernel) // stride + 1
            if height < 1 or width < 1:
                other = "--encoder minatar or " if layers[0][1] > 3 else ""  # that one's kernel is the smallest
                raise UserError(
                    f"observation of {obs_shape[1]}×{obs_shape[2]} pixels is too small for this encoder; "
                    f"use {other}an environment with larger pictures (84×84 is usual)"
                )
            self.convolutions.append(nn.Conv2d(channels, out, kernel, stride))
            self.activations.append(nn.ReLU(inplace=True) if norm == "none" else BatchNormReLU(norm, out, width))
            channels = out
        self.features = channels * height * width
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, obs: Tensor) -> Tensor:  # [B, C, H, W] u8 or f32 -> [B, D] f32
        x, scale = channels_last(obs, self.pixel_scale)
        for convolution, activation, pad in zip(self.convolutions, self.activations, self.pads, strict=True):
            assert isinstance(convolution, nn.Conv2d)
            weight: Tensor = convolution.weight
            if scale != 1.0:  # scale the first layer's few weights instead of all pixels
                weight, scale = weight * scale, 1.0
            if any(pad):
                x = F.pad(x, pad)
            x = activation(_convolve(x, weight, convolution.bias, convolution.stride[0]))
        # Flattened as rows, columns, channels: free in channels-last memory, and only an order of the weights.
        return x.permute(0, 2, 3, 1).flatten(1)


def _convolve(x: Tensor, weight: Tensor, bias: Tensor | None, stride: int) -> Tensor:
    if native.takes_gradients(x, weight):
        y: Tensor = native.Convolution.apply(x, weight, bias, stride)  # type: ignore[no-untyped-call]
        return y
    return F.conv2d(x, weight, bias, stride)


def channels_last(obs: Tensor, scale: float) -> tuple[Tensor, float]:
    """Planes of bytes as floats in channels-last memory, and by what they are still to be multiplied."""
    if native.takes(obs, kind=torch.uint8):
        return native.channels_last(obs, scale), 1.0
    batch, channels, height, width = obs.shape
    x = torch.empty(batch, height, width, channels, device=obs.device)
    for channel in range(channels):  # plane by plane, which is three times faster than `.to`
        x[..., channel] = obs[:, channel]
    return x.permute(0, 3, 1, 2), scale


def _pad(size: int, kernel: int, stride: int, padding: Padding) -> tuple[int, int]:
    """Zeros before and after; "same" as TensorFlow counts it (the output has ⌈size/stride⌉ places)."""
    if padding == "valid":
        return 0, 0
    total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    return total // 2, total - total // 2


class Dense(nn.Module):
    """Dense layers with ReLU on vectors."""

    def __init__(self, obs_shape: tuple[int, ...], widths: tuple[int, ...]) -> None:
        super().__init__()
        sizes = (obs_shape[0], *widths)
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.features = sizes[-1]

    def forward(self, obs: Tensor) -> Tensor:  # [B, D] -> [B, D']
        x = obs.to(torch.float32)
        for layer in self.layers:
            x = F.relu(layer(x))
        return x


class Impala(nn.Module):
    """The residual encoder of Espeholt et al. 2018: three blocks, each a convolution, a pooling, two residual pairs.

    Pooling pads all sides (deviates: D30).
    """

    def __init__(self, obs_shape: tuple[int, ...], scale: int, pixel_scale: float) -> None:
        super().__init__()
        channels, height, width = obs_shape
        self.pixel_scale = pixel_scale
        self.blocks = nn.ModuleList()
        for out in (16 * scale, 32 * scale, 32 * scale):
            layers = [nn.Conv2d(channels, out, 3, padding=1), *(nn.Conv2d(out, out, 3, padding=1) for _ in range(4))]
            self.blocks.append(nn.ModuleList(layers))
            channels, height, width = out, (height + 1) // 2, (width + 1) // 2
        self.features = channels * height * width
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, obs: Tensor) -> Tensor:  # [B, C, H, W] u8 or f32 -> [B, D] f32
        x, scale = channels_last(obs, self.pixel_scale)
        x = x * scale
        for block in self.blocks:
            first, *residual = list(block.children())
            x = F.max_pool2d(first(x), 3, stride=2, padding=1)
            for one, two in (residual[:2], residual[2:]):
                x = x + two(F.relu(one(F.relu(x))))
        return F.relu(x).permute(0, 2, 3, 1).flatten(1)


def nature(obs_shape: tuple[int, ...], norm: Norm, padding: Padding, pixel_scale: float) -> Convolutions:
    """The encoder of DQN for 84×84 pictures (Mnih et al. 2015), with C2D's normalization."""
    return Convolutions(obs_shape, ((32, 8, 4), (64, 4, 2), (64, 3, 1)), norm, padding, pixel_scale)


def minatar(obs_shape: tuple[int, ...], channels: int, norm: Norm, pixel_scale: float) -> Convolutions:
    """The encoder of Young and Tian 2019 for 10×10 planes."""
    return Convolutions(obs_shape, ((channels, 3, 1),), norm, "valid", pixel_scale)
