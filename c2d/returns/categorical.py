"""C51's loss: project the target onto the prediction's grid, then cross-entropy."""

from __future__ import annotations

import torch
from torch import Tensor

from c2d.types import ReturnDist


def project(law: ReturnDist, grid: Tensor) -> Tensor:
    """Probabilities on an evenly spaced grid [K] (Bellemare et al. 2017, Eq. 7). [B, M] -> [B, K]

    Each atom, moved into the grid's range, gives its mass to its two neighbors in proportion to nearness.
    Mass is kept; so is the mean of what lies inside the range.
    """
    assert law.atoms.dim() == 2 and grid.dim() == 1, (law.atoms.shape, grid.shape)
    last = grid.numel() - 1
    step = (grid[-1] - grid[0]) / last
    place = ((law.atoms - grid[0]) / step).clamp(0, last)  # [B, M] position in units of the grid
    below = place.floor().clamp(max=last - 1)  # so that `below + 1` exists
    share = place - below  # of the upper neighbor
    mass = law.log_probs.exp()
    index = below.long()
    out = torch.zeros(law.atoms.shape[0], grid.numel(), dtype=mass.dtype, device=mass.device)
    out.scatter_add_(1, index, mass * (1 - share))
    return out.scatter_add_(1, index + 1, mass * share)


def cross_entropy(prediction: ReturnDist, target: ReturnDist) -> Tensor:
    """−Σ_k m_k log p_k, m the projected target. [B, K], [B, M] -> [B]. The grid is that of the prediction."""
    projected = project(target, prediction.atoms[0].detach())
    return -(projected * prediction.log_probs).sum(-1)
