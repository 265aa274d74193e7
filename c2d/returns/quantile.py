"""The loss of quantile regression."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from c2d.types import ReturnDist


def quantile_huber(kappa: float) -> Callable[[ReturnDist, ReturnDist], Tensor]:
    """Σ_i (1/M) Σ_j |τ_i − 1{u_ij < 0}| H_κ(u_ij)/κ, u_ij = y_j − z_i (Dabney et al. 2018a, Eq. 10).

    prediction [B, N] with fractions τ_i, target [B, M] -> [B]. Every atom of the target counts alike, in FQF too, whose
    atoms have unequal probabilities: so do its authors. For κ = 0 the plain quantile loss, |τ_i − 1{u_ij < 0}| |u_ij|.
    """

    def loss(prediction: ReturnDist, target: ReturnDist) -> Tensor:
        assert prediction.taus is not None, "quantile regression needs the fractions of the prediction"
        result: Tensor = _QuantileHuber.apply(  # type: ignore[no-untyped-call]
            prediction.atoms, prediction.taus, target.atoms, kappa
        )
        return result

    return loss


class _QuantileHuber(torch.autograd.Function):
    """In O((N + M) log M) per row instead of O(N·M), with the derivative in the predicted atoms taken on the way.

    For one z the sorted targets fall into four runs: below z − κ, up to z, up to z + κ, above. In the outer runs the
    summand is linear in u = y − z, in the inner ones u²/2κ, so running sums of 1, y and y² tell each run's share.
    Sums are in float64: differences of long sums would lose float32's digits.
    """

    @staticmethod
    def forward(ctx: Any, z: Tensor, tau: Tensor, y: Tensor, kappa: float) -> Tensor:
        y = y.double().sort(-1).values
        powers = torch.stack((torch.ones_like(y), y, y * y), -2).cumsum(-1) / y.shape[-1]  # [B, 3, M]
        sums = torch.nn.functional.pad(powers, (1, 0))  # [B, 3, M + 1], from 0
        x, tau = z.double(), tau.double()  # [B, N]
        ends = torch.cat((x - kappa, x), -1)
        first, middle = torch.searchsorted(y, ends).chunk(2, -1)  # targets below z − κ, below z
        last = torch.searchsorted(y, x + kappa, right=True)  # up to z + κ
        places = torch.stack((first, middle, last), -2)  # [B, 3, N]
        at = sums.unsqueeze(-2).expand(-1, -1, 3, -1).gather(-1, places.unsqueeze(1).expand(-1, 3, -1, -1))
        (q1, q2, q3), (y1, y2, y3), (s1, s2, s3) = (part.unbind(-2) for part in at.unbind(1))  # [B, N] each
        all_q, all_y = sums[:, 0, -1:], sums[:, 1, -1:]
        low, slope_low = (x - kappa / 2) * q1 - y1, -q1
        high, slope_high = (all_y - y3) - (x + kappa / 2) * (all_q - q3), all_q - q3
        if kappa > 0:
            low = low + ((s2 - s1) - 2 * x * (y2 - y1) + x * x * (q2 - q1)) / (2 * kappa)
            slope_low = slope_low + ((y2 - y1) - x * (q2 - q1)) / kappa
            high = high + ((s3 - s2) - 2 * x * (y3 - y2) + x * x * (q3 - q2)) / (2 * kappa)
            slope_high = slope_high + ((y3 - y2) - x * (q3 - q2)) / kappa
        ctx.save_for_backward(((1 - tau) * slope_low + tau * slope_high).to(z.dtype))
        total: Tensor = ((1 - tau) * low + tau * high).sum(-1).to(z.dtype)  # [B]
        return total

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        (slope,) = ctx.saved_tensors
        return slope * upstream.neg().unsqueeze(-1), None, None, None
