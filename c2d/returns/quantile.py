"""The loss of quantile regression."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from c2d.types import ReturnDist


def quantile_huber(kappa: float) -> Callable[[ReturnDist, ReturnDist], Tensor]:
    """Σ_i Σ_j q_j |τ_i − 1{u_ij < 0}| H_κ(u_ij)/κ, u_ij = y_j − z_i (Dabney et al. 2018a, Eq. 10).

    prediction [B, N] with fractions τ_i, target [B, M] with probabilities q_j -> [B]. For κ = 0 the plain
    quantile loss, |τ_i − 1{u_ij < 0}| |u_ij|.
    """

    def loss(prediction: ReturnDist, target: ReturnDist) -> Tensor:
        assert prediction.taus is not None, "quantile regression needs the fractions of the prediction"
        weight = target.log_probs.exp()
        result: Tensor = _QuantileHuber.apply(  # type: ignore[no-untyped-call]
            prediction.atoms, prediction.taus, target.atoms, weight, kappa
        )
        return result

    return loss


class _QuantileHuber(torch.autograd.Function):
    """With its derivative in the predicted atoms, taken on the way: −Σ_j q_j |τ_i − 1{u_ij < 0}| clip(u_ij/κ, ±1).

    One [B, N, M] array at a time instead of the dozen that automatic differentiation would keep.
    """

    @staticmethod
    def forward(ctx: Any, z: Tensor, tau: Tensor, y: Tensor, q: Tensor, kappa: float) -> Tensor:
        u = y.unsqueeze(-2) - z.unsqueeze(-1)  # [B, N, M]
        # clip(u/κ, ±1); for κ = 0 the sign
        slope = u.div(kappa).clamp_(-1.0, 1.0) if kappa > 0 else u.sign()
        # H_κ(u)/κ = s·(u − κs/2) with s the slope
        size = torch.add(u, slope, alpha=-0.5 * kappa).mul_(slope)
        asymmetry = tau.unsqueeze(-1) - (u < 0).to(u.dtype)
        asymmetry.abs_().mul_(q.unsqueeze(-2))  # |τ_i − 1{u < 0}| q_j
        ctx.save_for_backward(torch.linalg.vecdot(asymmetry, slope))  # [B, N]
        total: Tensor = torch.linalg.vecdot(asymmetry, size).sum(-1)  # [B]
        return total

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        (slope,) = ctx.saved_tensors
        return slope * upstream.neg().unsqueeze(-1), None, None, None, None
