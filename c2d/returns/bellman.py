"""The conjugated Bellman backup of one observed transition."""

from __future__ import annotations

import torch
from torch import Tensor

from c2d.types import Phi, ReturnDist


def backup(reward: Tensor, discount: Tensor, law: ReturnDist, phi: Phi) -> ReturnDist:
    """Push a law in φ-space through z ↦ φ(r + γ φ⁻¹(z)), atom by atom (C2D, Eq. 7 and Alg. 2).

    reward [B], discount [B], law [B, N] -> [B, N]; probabilities are untouched. Where the discount is 0 every
    atom is φ(r) exactly: a point mass, whatever the probabilities.
    """
    assert reward.dim() == 1 and reward.shape == discount.shape, (reward.shape, discount.shape)
    assert law.atoms.dim() == 2, law.atoms.shape
    returns = torch.addcmul(reward[:, None], discount[:, None], phi.back(law.atoms))  # [B, N] real returns
    return law._replace(atoms=phi.to(returns))
