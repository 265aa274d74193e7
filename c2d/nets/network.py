"""ValueNetwork: encoder, core (cores.py), head (heads.py). Also the encoders, their normalization, initial weights."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Literal, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from c2d.errors import UserError
from c2d.native.operations import column_norm_relu, recorded
from c2d.nets.cores import Core
from c2d.nets.heads import Head
from c2d.nets.scales import RunningScale
from c2d.types import Purpose, ReturnDist, Sequences

Axis = Literal["column", "channel"]
Norm = Literal["column", "channel", "layer", "none"]
Padding = Literal["valid", "same"]
Initializer = Literal["glorot", "fan-in", "torch", "orthogonal"]

# ------------------------------------------------------------------------------------------------------- the network


class Encoder(Protocol):
    """A module from observations to features."""

    features: int  # D

    def __call__(self, obs: Tensor, purpose: Purpose) -> Tensor: ...  # [B, *obs] u8 or f32 -> [B, D] f32


class ValueNetwork(nn.Module):
    """Observation -> ReturnDist [B, A, N]. Every pass names its purpose, which decides how layers normalize.

    Without a core, features go straight to the head. With one, observations come as `Sequences`, and `step` acts;
    single observations count as the first ones of their episodes.
    """

    def __init__(
        self, encoder: Encoder, head: Head, scale: RunningScale | None = None, core: Core | None = None
    ) -> None:
        super().__init__()
        self.encoder, self.core, self.head = encoder, core, head
        self.scale = scale  # of its real means, for bootstraps that ask for it

    @property
    def memory(self) -> int:
        """K: numbers that it remembers of an episode."""
        return 0 if self.core is None else self.core.memory

    def features(self, obs: Tensor | Sequences, purpose: Purpose) -> Tensor:  # [B, *obs] -> [B, D]
        return self.features_and_next(obs, obs, purpose)[0]

    def features_and_next(
        self, obs: Tensor | Sequences, next_obs: Tensor | Sequences, purpose: Purpose
    ) -> tuple[Tensor, Tensor | None]:
        """Features at `obs` and, as far as the same pass has them, at `next_obs` without gradient. [B, D], [B, D]

        None: those need a pass of their own. Sequences hold both, as long as memory runs through both anyway.
        """
        if not isinstance(obs, Sequences):
            features: Tensor = self.encoder(obs, purpose)
            return features if self.core is None else self.core.first(features), None
        assert self.core is not None and isinstance(next_obs, Sequences)
        rows = self.core.unroll(self.encoder, obs, purpose)  # [rows of the grid, D]
        return rows[obs.read], rows.detach()[next_obs.read]

    def forward(
        self,
        obs: Tensor | Sequences,
        purpose: Purpose,
        rng: torch.Generator | None = None,
        like: ReturnDist | None = None,
    ) -> ReturnDist:
        law: ReturnDist = self.head(self.features(obs, purpose), purpose, rng, like)
        return law

    def step(
        self,
        obs: Tensor,  # [B, *obs]
        action: Tensor,  # [B] i64 before; -1: none
        reward: Tensor,  # [B]
        memory: Tensor,  # [B, K]
        rng: torch.Generator | None = None,
    ) -> tuple[ReturnDist, Tensor]:
        """In acting: the laws at these observations, and what is remembered then. -> [B, A, N], [B, K]"""
        assert self.core is not None
        features, memory = self.core.step(self.encoder(obs, "act"), action, reward, memory)
        law: ReturnDist = self.head(features, "act", rng)
        return law, memory

    def choose_and_target(
        self, obs: Tensor | Sequences, rng: torch.Generator | None, like: ReturnDist
    ) -> tuple[ReturnDist, ReturnDist]:
        """Two distributions from one pass of the encoder: to choose an action by, and to bootstrap from.

        Most heads give the same for both.
        """
        features = self.features(obs, "target")
        law: ReturnDist = self.head(features, "target", rng, like)
        return (self.head(features, "choose", rng) if self.head.samples else law), law

    def diagnostics(self) -> dict[str, float]:
        """What is worth recording."""
        scale = {} if self.scale is None else {"scale_of_means": self.scale.value.item()}
        return self.head.diagnostics() | scale


@torch.no_grad()
def synchronize(target: nn.Module, online: nn.Module, fraction: float = 1.0) -> None:
    """Move the target network toward the online one, statistics included; by default all the way.

    What a layer names as `copied` is always copied, since it has no mean between two networks: a unit of rewards, a
    scale of values, the vectors of spectral normalization.
    """
    online_state, copied = online.state_dict(), _copied(target) if fraction != 1.0 else set()
    for name, tensor in target.state_dict().items():
        if fraction == 1.0 or name in copied:
            tensor.copy_(online_state[name])
        else:
            tensor.lerp_(online_state[name], fraction)


def _copied(network: nn.Module) -> set[str]:
    """Names of the buffers that every synchronization copies as they are."""
    layers = network.named_modules()
    return {f"{path}.{name}".lstrip(".") for path, layer in layers for name in getattr(layer, "copied", ())}


@torch.no_grad()
def average(mean: nn.Module, online: nn.Module, fraction: float) -> None:
    """Move a running mean of weights toward the online network. Statistics are copied: they are means already.

    So are the vectors of spectral normalization: they divide the mean weights by uᵀWv, which is at most their norm.
    """
    for parameter, latest in zip(mean.parameters(), online.parameters(), strict=True):
        parameter.lerp_(latest, fraction)
    for buffer, statistic in zip(mean.buffers(), online.buffers(), strict=True):
        buffer.copy_(statistic)


# ---------------------------------------------------------------------------------------------------- normalization


class BatchNormReLU(nn.Module):
    """Batch normalization followed by ReLU, for images in channels-last memory.

    axis "channel" is the usual kind. axis "column" has one mean and one variance for each image *column*: Keras'
    default axis (the last) on channels-first tensors, which is what produced the published C2D data (deviates: D01).

    As in the authors' code, acting uses the running statistics, and learning those of the batch. Only the pass that
    predicts moves the running statistics.
    """

    constants = ("weight", "bias")  # 1 and 0 at first

    def __init__(self, axis: Axis, channels: int, width: int) -> None:
        super().__init__()
        self.axis = axis
        self.size = width if axis == "column" else channels
        self.momentum, self.eps = 0.01, 1e-3  # Keras' defaults: momentum 0.99 there is 0.01 here
        self.weight = nn.Parameter(torch.ones(self.size))
        self.bias = nn.Parameter(torch.zeros(self.size))
        self.running_mean: Tensor
        self.running_var: Tensor
        self.register_buffer("running_mean", torch.zeros(self.size))
        self.register_buffer("running_var", torch.ones(self.size))

    def forward(self, x: Tensor, purpose: Purpose) -> Tensor:  # [B, C, H, W] -> [B, C, H, W]
        if purpose == "act":
            return self._by_running(x)
        update = purpose == "predict"
        return self._columns(x, update) if self.axis == "column" else self._channels(x, update)

    def _by_running(self, x: Tensor) -> Tensor:
        scale = self.weight * torch.rsqrt(self.running_var + self.eps)
        shift = self.bias - self.running_mean * scale
        if self.axis == "channel":
            scale, shift = scale[:, None, None], shift[:, None, None]
        return torch.addcmul(shift, x, scale).relu_()

    def _columns(self, x: Tensor, update: bool) -> Tensor:
        y, mean, var = column_norm_relu(x, self.weight, self.bias, self.eps)
        if update:
            count = x.numel() // self.size
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(var * (count / (count - 1)), self.momentum)
        return y

    def _channels(self, x: Tensor, update: bool) -> Tensor:
        mean, var = (self.running_mean, self.running_var) if update else (None, None)
        y = F.batch_norm(x, mean, var, self.weight, self.bias, True, self.momentum, self.eps)
        return F.relu(y, inplace=True)


class LayerNormReLU(nn.Module):
    """Layer normalization followed by ReLU (Ba et al. 2016): one mean and variance per image, over all its units.

    Gain and bias are per channel. It is the same whatever the pass is for, and needs no other images.
    """

    constants = ("weight", "bias")  # 1 and 0 at first

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor, purpose: Purpose) -> Tensor:  # [B, C, H, W] -> [B, C, H, W]
        return F.relu(F.group_norm(x, 1, self.weight, self.bias))


class SpectralConv(nn.Conv2d):
    """A 3×3 convolution divided by the largest singular value of its weights W [C', 9C] (Miyato et al. 2018, Eq. 8).

    σ(W) = uᵀWv. Each pass that predicts makes one power iteration, u ← Wv/‖Wv‖, v ← Wᵀu/‖Wᵀu‖; all others leave u
    and v as they are, so that acting and targets change nothing (deviates: D37). Gradients flow through W in σ, with u
    and v held fixed. Both are buffers: checkpoints hold them, and a target network gets those of the online one.
    """

    copied = ("u", "v")

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, 3, padding=1)
        self.u: Tensor
        self.v: Tensor
        self.register_buffer("u", torch.full((outputs,), outputs**-0.5))
        self.register_buffer("v", torch.full((9 * inputs,), (9 * inputs) ** -0.5))

    def settle(self) -> None:
        """Power iterations for new weights."""
        for _ in range(_SETTLING):
            self._iterate()

    @torch.no_grad()
    def _iterate(self) -> tuple[Tensor, Tensor]:
        matrix = self.weight.flatten(1)
        u = F.normalize(matrix.mv(self.v), dim=0)
        v = F.normalize(matrix.t().mv(u), dim=0)
        self.u.copy_(u)
        self.v.copy_(v)
        return u, v  # no views of the buffers: those may change before the gradient is taken

    def forward(self, x: Tensor, purpose: Purpose = "act") -> Tensor:  # [B, C, H, W] -> [B, C', H, W]
        u, v = self._iterate() if purpose == "predict" else (self.u, self.v)
        sigma = u.dot(self.weight.flatten(1).mv(v))
        return F.conv2d(x, self.weight / sigma, self.bias, padding=1)


_SETTLING = 15  # power iterations for new weights


class PlainReLU(nn.Module):
    """What follows a convolution without normalization."""

    def forward(self, x: Tensor, purpose: Purpose) -> Tensor:
        return F.relu(x, inplace=True)


def _activation(norm: Norm, channels: int, width: int) -> nn.Module:
    if norm == "layer":
        return LayerNormReLU(channels)
    return PlainReLU() if norm == "none" else BatchNormReLU(norm, channels, width)


# ---------------------------------------------------------------------------------------------------------- encoders
# Observation -> features. They end at the flattened convolutions; the dense layer belongs to the head.


class ConvEncoder(nn.Module):
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
                    f"accepted: {other}an environment with larger images (84×84 is usual)"
                )
            self.convolutions.append(nn.Conv2d(channels, out, kernel, stride))
            self.activations.append(_activation(norm, out, width))
            channels = out
        self.features = channels * height * width
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, obs: Tensor, purpose: Purpose) -> Tensor:  # [B, C, H, W] u8 or f32 -> [B, D] f32
        x, scale = channels_last(obs), self.pixel_scale
        for convolution, activation, pad in zip(self.convolutions, self.activations, self.pads, strict=True):
            assert isinstance(convolution, nn.Conv2d)
            weight: Tensor = convolution.weight
            if scale != 1.0:  # scale the first layer's few weights instead of all pixels
                weight, scale = weight * scale, 1.0
            if any(pad):
                x = F.pad(x, pad)
            x = activation(F.conv2d(x, weight, convolution.bias, convolution.stride), purpose)
        return _flatten(x)


def nature_encoder(obs_shape: tuple[int, ...], norm: Norm, padding: Padding, pixel_scale: float) -> ConvEncoder:
    """The encoder of DQN for 84×84 images (Mnih et al. 2015), with C2D's normalization."""
    return ConvEncoder(obs_shape, ((32, 8, 4), (64, 4, 2), (64, 3, 1)), norm, padding, pixel_scale)


def minatar_encoder(obs_shape: tuple[int, ...], channels: int, norm: Norm, pixel_scale: float) -> ConvEncoder:
    """The encoder of Young and Tian 2019 for 10×10 planes."""
    return ConvEncoder(obs_shape, ((channels, 3, 1),), norm, "valid", pixel_scale)


class ImpalaEncoder(nn.Module):
    """The residual encoder of Espeholt et al. 2018: three blocks, each a convolution, a pooling, two residual pairs.

    Pooling pads all sides (deviates: D30). With `pool`, a last pooling leaves pool × pool places, as in BTR.
    """

    def __init__(
        self,
        obs_shape: tuple[int, ...],
        scale: int,
        pixel_scale: float,
        norm: Literal["layer", "spectral", "none"] = "none",
        pool: int = 0,
    ) -> None:
        super().__init__()
        channels, height, width = obs_shape
        self.pixel_scale, self.pool = pixel_scale, pool
        self.blocks = nn.ModuleList()
        widths = [width * scale for width in (16, 32, 32) for _ in range(4)]  # before each ReLU, the last one too
        self.norms = nn.ModuleList(LayerNormReLU(width) for width in (*widths, 32 * scale)) if norm == "layer" else None
        for out in (16 * scale, 32 * scale, 32 * scale):
            layers = [nn.Conv2d(channels, out, 3, padding=1)]
            for _ in range(4):
                layers.append(SpectralConv(out, out) if norm == "spectral" else nn.Conv2d(out, out, 3, padding=1))
            self.blocks.append(nn.ModuleList(layers))
            channels, height, width = out, (height + 1) // 2, (width + 1) // 2
        if pool > min(height, width):
            raise UserError(
                f"--encoder.pool is {pool}; accepted: at most {min(height, width)}, the side of the last feature map "
                f"of images of {obs_shape[1]}×{obs_shape[2]} pixels; 0: no pooling"
            )
        self.features = channels * (pool * pool if pool else height * width)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, obs: Tensor, purpose: Purpose) -> Tensor:  # [B, C, H, W] u8 or f32 -> [B, D] f32
        relus = iter(self.norms or ())

        def relu(x: Tensor) -> Tensor:
            return F.relu(x) if self.norms is None else next(relus)(x, purpose)

        def residual(layer: nn.Module, x: Tensor) -> Tensor:
            y: Tensor = layer(x, purpose) if isinstance(layer, SpectralConv) else layer(x)
            return y

        x = channels_last(obs) * self.pixel_scale
        for block in self.blocks:
            first, *pairs = list(block.children())
            x = F.max_pool2d(first(x), 3, stride=2, padding=1)
            for one, two in (pairs[:2], pairs[2:]):
                x = x + residual(two, relu(residual(one, relu(x))))
        x = relu(x)
        return _flatten(F.adaptive_max_pool2d(x, self.pool) if self.pool else x)


class MlpEncoder(nn.Module):
    """Dense layers with ReLU on vectors."""

    def __init__(self, obs_shape: tuple[int, ...], widths: tuple[int, ...]) -> None:
        super().__init__()
        sizes = (obs_shape[0], *widths)
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.features = sizes[-1]

    def forward(self, obs: Tensor, purpose: Purpose) -> Tensor:  # [B, D] -> [B, D']
        x = obs.to(torch.float32)
        for layer in self.layers:
            x = F.relu(layer(x))
        return x


def channels_last(obs: Tensor) -> Tensor:
    """Planes of bytes (or floats) as float32 in channels-last memory. [B, C, H, W] -> [B, C, H, W]"""
    if recorded():
        return obs.to(torch.float32, memory_format=torch.channels_last)
    batch, channels, height, width = obs.shape
    x = torch.empty(batch, height, width, channels, device=obs.device)
    for channel in range(channels):  # plane by plane, which is faster than `.to`
        x[..., channel] = obs[:, channel]
    return x.permute(0, 3, 1, 2)


def _flatten(x: Tensor) -> Tensor:
    """As rows, columns, channels: free in channels-last memory, and only an order of the weights behind it."""
    return x.permute(0, 2, 3, 1).flatten(1)


def _pad(size: int, kernel: int, stride: int, padding: Padding) -> tuple[int, int]:
    """Zeros before and after; "same" as TensorFlow counts it (the output has ⌈size/stride⌉ places)."""
    if padding == "valid":
        return 0, 0
    total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    return total // 2, total - total // 2


# --------------------------------------------------------------------------------------------------- initial weights


def _fan_in_uniform(weight: Tensor, generator: torch.Generator) -> Tensor:
    """Uniform in ±√(√3/inputs): a variance of 1/(√3·inputs), Dopamine's for its distributional agents."""
    bound = math.sqrt(math.sqrt(3.0) / weight[0].numel())
    return nn.init.uniform_(weight, -bound, bound, generator=generator)


def _torch_uniform(weight: Tensor, generator: torch.Generator) -> Tensor:
    """Uniform in ±1/√inputs, as PyTorch draws the weights of a new layer."""
    bound = 1.0 / math.sqrt(weight[0].numel())
    return nn.init.uniform_(weight, -bound, bound, generator=generator)


@torch.no_grad()
def _orthogonal(weight: Tensor, generator: torch.Generator) -> Tensor:
    """PyTorch's, which cannot write into channels-last memory."""
    return weight.copy_(nn.init.orthogonal_(torch.empty(weight.shape), generator=generator))


INITIALIZERS: dict[Initializer, Callable[..., Tensor]] = {
    "glorot": nn.init.xavier_uniform_,
    "fan-in": _fan_in_uniform,
    "torch": _torch_uniform,
    "orthogonal": _orthogonal,
}


def initialize(module: nn.Module, rng: torch.Generator, how: Initializer = "glorot") -> None:
    """Initial weights, all from `rng`, and biases of 0. Glorot uniform is Keras' default; noisy layers have their own.

    PyTorch fills new layers from its global generator. So a layer whose weights this function does not know is an
    error: it would keep those. Parameters that start at a constant are named in the layer's `constants`;
    a layer with a method `initialize(rng)` draws its own, and those of all layers within it. Where a module has an
    `initial_scale`, all its parameters are multiplied by that. A layer's method `settle()` is
    called last, for what depends on its weights.
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
    with torch.no_grad():
        for layer in module.modules():
            if (scale := getattr(layer, "initial_scale", 1.0)) != 1.0:
                for parameter in layer.parameters():  # of noisy layers, the size of the noise too
                    parameter.mul_(scale)
            if callable(settle := getattr(layer, "settle", None)):
                settle()
