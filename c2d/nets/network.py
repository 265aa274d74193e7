"""ValueNetwork = encoder, then head; and the one place that sets normalization modes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor, nn

from c2d.nets.heads import Head
from c2d.nets.layers import BatchNormReLU, NormMode
from c2d.types import Purpose, ReturnDist

MODES: dict[Purpose, NormMode] = {"act": "running", "choose": "batch", "predict": "update", "target": "batch"}


class Encoder(Protocol):
    """A module from observations to features."""

    features: int  # D

    def __call__(self, obs: Tensor) -> Tensor: ...  # [B, *obs] u8 or f32 -> [B, D] f32

    def modules(self) -> Iterator[nn.Module]: ...


class ValueNetwork(nn.Module):
    """Observation -> ReturnDist [B, A, N]. Every pass names its purpose; modes are never set elsewhere."""

    def __init__(self, encoder: Encoder, head: Head) -> None:
        super().__init__()
        self.encoder, self.head = encoder, head
        self._norms = [layer for layer in encoder.modules() if isinstance(layer, BatchNormReLU)]

    def features(self, obs: Tensor, purpose: Purpose) -> Tensor:  # [B, *obs] -> [B, D]
        with_mode(self._norms, purpose)
        return self.encoder(obs)

    def forward(
        self, obs: Tensor, purpose: Purpose, rng: torch.Generator | None = None, like: ReturnDist | None = None
    ) -> ReturnDist:
        law: ReturnDist = self.head(self.features(obs, purpose), purpose, rng, like)
        return law

    def choose_and_target(
        self, obs: Tensor, rng: torch.Generator | None, like: ReturnDist
    ) -> tuple[ReturnDist, ReturnDist]:
        """Two laws over one pass of the encoder: to choose an action by, and to bootstrap from; mostly one."""
        features = self.features(obs, "target")
        law: ReturnDist = self.head(features, "target", rng, like)
        return (self.head(features, "choose", rng) if self.head.samples else law), law

    def diagnostics(self) -> dict[str, float]:
        """What the head finds worth recording."""
        return self.head.diagnostics()


def with_mode(norms: list[BatchNormReLU], purpose: Purpose) -> None:
    """act = running statistics; predict and target = batch statistics, as in the authors' code."""
    for layer in norms:
        layer.mode = MODES[purpose]


@torch.no_grad()
def synchronize(target: nn.Module, online: nn.Module, fraction: float = 1.0) -> None:
    """Move the target network toward the online one, statistics included; by default all the way."""
    online_state = online.state_dict()
    for name, tensor in target.state_dict().items():
        if fraction == 1.0:
            tensor.copy_(online_state[name])
        else:
            tensor.lerp_(online_state[name], fraction)
