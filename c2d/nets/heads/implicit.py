"""IQN's head: the quantile function itself, at fractions drawn anew in each pass (Dabney et al. 2018b)."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from c2d.nets.heads.output import Output, Style
from c2d.nets.layers import CosineEmbedding
from c2d.types import Purpose, ReturnDist


class QuantileFunction(nn.Module):
    """(features ⊙ embedding(τ)) -> dense -> ReLU -> F⁻¹(τ) of each action. [B, D], [B, K] -> [B, A, K]"""

    def __init__(self, features: int, actions: int, style: Style, cosines: int, hidden: int) -> None:
        super().__init__()
        self.embedding = CosineEmbedding(cosines, features)
        self.dense = style.linear(features, hidden)
        self.output = Output(hidden, actions, 1, style)

    def forward(self, features: Tensor, taus: Tensor, rng: torch.Generator | None) -> Tensor:
        x = self.embedding(taus) * features.unsqueeze(1)  # [B, K, D]
        rows = F.relu(self.dense(x.flatten(0, 1), rng))  # [B·K, hidden]
        atoms: Tensor = self.output(rows, rng)  # [B·K, A, 1]
        return atoms.view(*taus.shape, -1).transpose(1, 2)


class ImplicitHead(nn.Module):
    """Atoms of equal probability at random fractions; at midpoints of equal fractions when there is no generator."""

    samples = True

    def __init__(
        self,
        features: int,
        actions: int,
        style: Style,
        atoms: int = 64,
        target_atoms: int = 64,
        policy_atoms: int = 32,
        cosines: int = 64,
        hidden: int = 512,
    ) -> None:
        super().__init__()
        self.counts: dict[Purpose, int] = {
            "act": policy_atoms,
            "choose": policy_atoms,
            "predict": atoms,
            "target": target_atoms,
        }
        self.quantile = QuantileFunction(features, actions, style, cosines, hidden)

    def forward(
        self, features: Tensor, purpose: Purpose, rng: torch.Generator | None = None, like: ReturnDist | None = None
    ) -> ReturnDist:  # [B, D] -> [B, A, K]
        shape = (features.shape[0], self.counts[purpose])
        if rng is None:
            taus = ((torch.arange(shape[1], device=features.device) + 0.5) / shape[1]).expand(shape)
        else:
            taus = torch.rand(shape, generator=rng, device=features.device)
        atoms = self.quantile(features, taus, rng)
        share = atoms.new_full((), -math.log(shape[1])).expand_as(atoms)
        return ReturnDist(atoms, share, taus.unsqueeze(1).expand_as(atoms))

    def diagnostics(self) -> dict[str, float]:
        return {}
