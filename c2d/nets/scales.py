"""Scales that a network carries as buffers, so that copies, checkpoints and files of weights have them too.

The unit of rewards belongs to a head, the running scale of real means to a network whose bootstrap asks for it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class RewardUnit(nn.Module):
    """u, which returns are divided by before φ, and how much of the predictions is at the bound of the atoms.

    Training finds u and lets it grow (training/reward_unit.py). All networks of a learner have the same u.
    """

    rate = 1e-3  # of the running share, per update
    copied = ("u", "found", "share")  # a mean of two units would fit neither

    def __init__(self) -> None:
        super().__init__()
        self.u: Tensor
        self.found: Tensor
        self.share: Tensor
        self.register_buffer("u", torch.ones(()))
        self.register_buffer("found", torch.zeros(()))  # 1 from when u was found; before, every reward was 0
        self.register_buffer("share", torch.zeros(()))  # running mean of the share of saturated mass

    def watch(self, share: Tensor) -> None:
        """Moves the running share, on the device, as normalization layers move their statistics."""
        self.share.lerp_(share, self.rate)


class RunningScale(nn.Module):
    """How far the real means of a state's actions lie apart: a running mean of their standard deviation.

    The mean over all batches at first, later mostly over the last thousand. A bootstrap that adds up to one scale to
    each reward cannot make it grow without bound: of A actions all but one of which lose one scale, the deviation
    grows by √(A − 1)/A ≤ 1/2 of it.
    """

    rate = 1e-3  # least weight of a batch
    copied = ("value", "count")

    def __init__(self) -> None:
        super().__init__()
        self.value: Tensor
        self.count: Tensor
        self.register_buffer("value", torch.ones(()))
        self.register_buffer("count", torch.zeros(()))  # batches seen

    @torch.no_grad()
    def watch(self, q: Tensor, legal: Tensor | None = None) -> None:  # [B, A] real means, and which actions are legal
        """One batch more, on the device."""
        self.count.add_(1.0)
        deviation = q.std(-1, correction=0) if legal is None else _deviation(q, legal)  # [B]
        spread = deviation.mean().clamp_min(_LEAST)
        self.value.lerp_(spread, self.count.reciprocal().clamp_min(self.rate))


def _deviation(q: Tensor, legal: Tensor) -> Tensor:
    """Standard deviation of the legal ones. [B, A], [B, A] bool -> [B]"""
    count = legal.sum(-1)
    middle = (q.where(legal, 0.0).sum(-1) / count).unsqueeze(-1)
    return ((q - middle).square().where(legal, 0.0).sum(-1) / count).sqrt()


_LEAST = 1e-8  # so that something can be divided by the scale, where all actions are alike
