"""DQN's head: one atom per action."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from c2d.nets.heads.output import Output, Style
from c2d.types import Purpose, ReturnDist


class ScalarHead(nn.Module):
    """features -> dense -> ReLU -> one number per action: a point mass."""

    samples = False

    def __init__(self, features: int, actions: int, style: Style, hidden: int = 512) -> None:
        super().__init__()
        self.dense = style.linear(features, hidden)
        self.output = Output(hidden, actions, 1, style)

    def forward(
        self, features: Tensor, purpose: Purpose, rng: torch.Generator | None = None, like: ReturnDist | None = None
    ) -> ReturnDist:  # [B, D] -> [B, A, 1]
        atoms = self.output(F.relu(self.dense(features, rng)), rng)
        return ReturnDist(atoms, torch.zeros_like(atoms))

    def diagnostics(self) -> dict[str, float]:
        return {}
