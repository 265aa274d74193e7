"""C51's head: learned probabilities on a fixed grid (Bellemare, Dabney and Munos 2017)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from c2d.nets.heads.output import Output, Style
from c2d.types import Purpose, ReturnDist


class CategoricalHead(nn.Module):
    """features -> dense -> ReLU -> logits on the atoms v_min … v_max, which lie in φ-space."""

    samples = False

    def __init__(
        self,
        features: int,
        actions: int,
        style: Style,
        atoms: int = 51,
        v_min: float = -10.0,
        v_max: float = 10.0,
        hidden: int = 512,
    ) -> None:
        super().__init__()
        self.dense = style.linear(features, hidden)
        self.output = Output(hidden, actions, atoms, style)
        self.grid: Tensor
        self.register_buffer("grid", torch.linspace(v_min, v_max, atoms), persistent=False)  # [N]

    def forward(
        self, features: Tensor, purpose: Purpose, rng: torch.Generator | None = None, like: ReturnDist | None = None
    ) -> ReturnDist:  # [B, D] -> [B, A, N]
        log_probs = self.output(F.relu(self.dense(features, rng)), rng).log_softmax(-1)
        return ReturnDist(self.grid.expand_as(log_probs), log_probs)

    def diagnostics(self) -> dict[str, float]:
        return {}
