"""QR-DQN's head: learned atoms of equal probability (Dabney et al. 2018a)."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from c2d.nets.heads.output import Output, Style
from c2d.types import Purpose, ReturnDist


class QuantileHead(nn.Module):
    """features -> dense -> ReLU -> the quantiles at τ̂_i = (2i − 1)/2N of each action."""

    samples = False

    def __init__(self, features: int, actions: int, style: Style, atoms: int = 200, hidden: int = 512) -> None:
        super().__init__()
        self.dense = style.linear(features, hidden)
        self.output = Output(hidden, actions, atoms, style)
        self.taus: Tensor
        self.register_buffer("taus", (torch.arange(atoms) + 0.5) / atoms, persistent=False)  # [N]

    def forward(
        self, features: Tensor, purpose: Purpose, rng: torch.Generator | None = None, like: ReturnDist | None = None
    ) -> ReturnDist:  # [B, D] -> [B, A, N]
        atoms = self.output(F.relu(self.dense(features, rng)), rng)
        share = atoms.new_full((), -math.log(atoms.shape[-1])).expand_as(atoms)
        return ReturnDist(atoms, share, self.taus.expand_as(atoms))

    def diagnostics(self) -> dict[str, float]:
        return {}
