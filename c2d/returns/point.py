"""Losses between point masses: those of DQN."""

from __future__ import annotations

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor

from c2d.types import ReturnDist


def squared(prediction: ReturnDist, target: ReturnDist) -> Tensor:
    """(z − y)², the whole of it, as in Dopamine. [B, 1], [B, 1] -> [B]"""
    return (_point(prediction) - _point(target)).square()


def huber(kappa: float) -> Callable[[ReturnDist, ReturnDist], Tensor]:
    """(z − y)²/2 up to |z − y| = κ, then κ(|z − y| − κ/2)."""

    def loss(prediction: ReturnDist, target: ReturnDist) -> Tensor:
        return F.huber_loss(_point(prediction), _point(target), reduction="none", delta=kappa)

    return loss


def _point(law: ReturnDist) -> Tensor:
    assert law.atoms.dim() == 2 and law.atoms.shape[-1] == 1, law.atoms.shape
    return law.atoms.squeeze(-1)
