"""ValueNetwork = encoder, then head; and the one place that sets normalization modes."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn

from c2d.nets.layers import BatchNormReLU, NormMode
from c2d.types import Purpose, ReturnDist

MODES: dict[Purpose, NormMode] = {"act": "running", "choose": "batch", "predict": "update", "target": "batch"}


class Head(Protocol):
    """features -> the law of every action. `taus` is for heads that sample fractions."""

    def __call__(
        self,
        features: Tensor,
        purpose: Purpose,
        rng: torch.Generator | None = None,
        taus: Tensor | None = None,
    ) -> ReturnDist: ...  # [B, D] -> [B, A, N]

    def diagnostics(self) -> dict[str, float]:
        """What is worth recording of the head, unknown to the learner."""
        ...


class ValueNetwork(nn.Module):
    """Observation -> ReturnDist [B, A, N]. Every pass names its purpose; modes are never set elsewhere."""

    def __init__(self, encoder: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.encoder, self.head = encoder, head
        self._norms = [layer for layer in encoder.modules() if isinstance(layer, BatchNormReLU)]

    def forward(self, obs: Tensor, purpose: Purpose, rng: torch.Generator | None = None) -> ReturnDist:
        with_mode(self._norms, purpose)
        law: ReturnDist = self.head(self.encoder(obs), purpose, rng)
        return law

    def diagnostics(self) -> dict[str, float]:
        """What the head finds worth recording."""
        found: dict[str, float] = self.head.diagnostics()  # type: ignore[operator]  # nn.Module hides the type
        return found


def with_mode(norms: list[BatchNormReLU], purpose: Purpose) -> None:
    """act = running statistics; predict and target = batch statistics, as in the authors' code."""
    for layer in norms:
        layer.mode = MODES[purpose]


@torch.no_grad()
def synchronize(target: nn.Module, online: nn.Module) -> None:
    """Copy parameters and buffers (normalization statistics too) to the target network."""
    online_state = online.state_dict()
    for name, tensor in target.state_dict().items():
        tensor.copy_(online_state[name])
