"""Losses between return distributions: prediction [B, N], target [B, M] -> [B]."""

from __future__ import annotations

from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from c2d.types import Phi, ReturnDist


class Loss(Protocol):
    """How far a prediction is from its target, for each sample."""

    def __call__(self, prediction: ReturnDist, target: ReturnDist, /) -> Tensor: ...  # [B, N], [B, M] -> [B]


# ------------------------------------------------------------------------------------------------ by which to draw


def td_error(prediction: ReturnDist, target: ReturnDist) -> Tensor:
    """N·Σ_i p_i Σ_j q_j |y_j − z_i|, in φ-space. [B, N], [B, M] -> [B]

    For N quantiles the sum over them of the mean over targets, as in BTR; for single atoms |TD error|. Unlike a
    distance it is 0 for equal laws only if they are certain: it is large where returns vary.
    """
    apart = (target.atoms.unsqueeze(-2) - prediction.atoms.unsqueeze(-1)).abs()  # [B, N, M]
    mean = (apart * target.log_probs.exp().unsqueeze(-2)).sum(-1)  # [B, N]
    return prediction.atoms.shape[-1] * (mean * prediction.log_probs.exp()).sum(-1)


def cramer_distance(prediction: ReturnDist, target: ReturnDist) -> Tensor:
    """ℓ₂, the root of the squared Cramér distance, whatever the loss is. [B, N], [B, M] -> [B]"""
    return cramer(prediction, target).clamp_min(0.0).sqrt()


# ------------------------------------------------------------------------------------------------ point masses (DQN)


def squared(prediction: ReturnDist, target: ReturnDist) -> Tensor:
    """(z − y)², the whole of it, as in Dopamine. [B, 1], [B, 1] -> [B]"""
    return (_point(prediction) - _point(target)).square()


def huber(kappa: float) -> Loss:
    """(z − y)²/2 up to |z − y| = κ, then κ(|z − y| − κ/2)."""

    def loss(prediction: ReturnDist, target: ReturnDist) -> Tensor:
        return F.huber_loss(_point(prediction), _point(target), reduction="none", delta=kappa)

    return loss


def _point(law: ReturnDist) -> Tensor:
    assert law.atoms.dim() == 2 and law.atoms.shape[-1] == 1, law.atoms.shape
    return law.atoms.squeeze(-1)


# --------------------------------------------------------------------------------------------- fixed grid (C51)


def project(law: ReturnDist, grid: Tensor, phi: Phi | None = None) -> Tensor:
    """Probabilities on an evenly spaced grid [K] (Bellemare et al. 2017, Eq. 7). [B, M] -> [B, K]

    Each atom, moved into the grid's range, gives its mass to its two neighbors in proportion to nearness.
    Mass is kept; so is the mean of what lies inside the range. With φ, nearness is that of real returns φ⁻¹, so that
    the mean of real returns is kept; without, that of the atoms themselves.
    """
    assert law.atoms.dim() == 2 and grid.dim() == 1, (law.atoms.shape, grid.shape)
    last = grid.numel() - 1
    step = (grid[-1] - grid[0]) / last
    place = ((law.atoms - grid[0]) / step).clamp(0, last)  # [B, M] position in units of the grid
    below = place.floor().clamp(max=last - 1)  # so that `below + 1` exists
    index = below.long()
    share = place - below  # of the upper neighbor
    if phi is not None:
        returns = phi.back(grid)  # [K]
        low, high, between = returns[index], returns[index + 1], phi.back(grid[0] + place * step)  # [B, M] each
        share = ((between - low) / (high - low)).clamp(0, 1)
    mass = law.log_probs.exp()
    out = torch.zeros(law.atoms.shape[0], grid.numel(), dtype=mass.dtype, device=mass.device)
    out.scatter_add_(1, index, mass * (1 - share))
    return out.scatter_add_(1, index + 1, mass * share)


def cross_entropy(phi: Phi | None = None) -> Loss:
    """−Σ_k m_k log p_k, m the projected target; by nearness of real returns if φ is given.

    [B, K], [B, M] -> [B]. The grid is that of the prediction.
    """

    def loss(prediction: ReturnDist, target: ReturnDist) -> Tensor:
        projected = project(target, prediction.atoms[0].detach(), phi)
        return -(projected * prediction.log_probs).sum(-1)

    return loss


# --------------------------------------------------------------------------- quantile regression (QR-DQN, IQN, FQF)


def quantile_huber(kappa: float) -> Loss:
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
        sums = F.pad(powers, (1, 0))  # [B, 3, M + 1], from 0
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


# ---------------------------------------------------------------------------------------- squared Cramér distance (C2D)


def cramer(prediction: ReturnDist, target: ReturnDist) -> Tensor:
    """ℓ₂²(μ, ν) = ∫ (F_μ − F_ν)² dw (C2D, Def. 3.2 and Alg. 1). [B, N], [B, M] -> [B]

    A sum of squares times gaps: never negative. Differentiable once, in the atoms and log-probabilities of
    both laws.
    """
    x, y = prediction.atoms, target.atoms
    assert x.shape[:-1] == y.shape[:-1], (x.shape, y.shape)
    distance: Tensor = _Cramer.apply(x, prediction.log_probs, y, target.log_probs)  # type: ignore[no-untyped-call]
    return distance


class _Cramer(torch.autograd.Function):
    """Algorithm 1 and its derivative, which needs no differentiation through the sort.

    Let w_1 ≤ … ≤ w_n be the atoms of both laws, r_k their signed masses (+p of the prediction, −q of the
    target) and D_k = r_1 + … + r_{k−1} the difference of the distribution functions on the gap below w_k:
        L       = Σ_{k>1} D_k² (w_k − w_{k−1})
        ∂L/∂w_k = D_k² − D_{k+1}² = −2 r_k (D_k + r_k/2)
        ∂L/∂r_k = 2 Σ_{l>k} D_l (w_l − w_{l−1}),   and ∂L/∂log p = p ∂L/∂r, ∂L/∂log q = −q ∂L/∂r.
    The sum of all masses, D_{n+1}, is 0 for laws of total mass 1 and does not enter L. In ∂L/∂w_n it is taken
    as summed, not set to 0; the difference is its square, about 1e-14 in float32.

    Ties: L itself does not depend on the order of equal atoms, but has a kink where two atoms cross. There
    the gradient is that of Algorithm 1 with equal atoms in the order prediction, target, each as given (the
    sort is stable): the limit of gradients at nearby laws without ties. It is finite.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, log_p: Tensor, y: Tensor, log_q: Tensor) -> Tensor:
        w, order = torch.cat((x, y), -1).sort(stable=True)  # [B, n]
        mass = torch.cat((log_p.exp(), log_q.exp().neg_()), -1).gather(-1, order)  # r_k
        below = mass.cumsum(-1).sub_(mass)  # D_k; D_1 is exactly 0, whatever the wrapped-around gap w_1 − w_n
        area = w.sub_(w.roll(1, -1)).mul_(below)  # D_k (w_k − w_{k−1})
        if any(ctx.needs_input_grad):  # here and not in backward: one tensor to keep, and fewer calls
            area_up_to = area.cumsum(-1)
            in_order = torch.stack(  # [2, B, n] in atoms, in log-probabilities; both divided by −2
                (torch.add(below, mass, alpha=0.5), area_up_to - area_up_to[..., -1:])
            ).mul_(mass)
            gradient = torch.empty_like(in_order).scatter_(-1, order.expand_as(in_order), in_order)
            ctx.save_for_backward(gradient)
            ctx.predicted_atoms = x.shape[-1]
        return torch.linalg.vecdot(area, below)  # type: ignore[no-any-return]  # [B]

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # cheaper than the decorator once_differentiable
            raise RuntimeError("the Cramér distance can be differentiated once, not twice")
        (gradient,) = ctx.saved_tensors
        n, scale = ctx.predicted_atoms, (upstream * -2).unsqueeze(-1)
        in_x = in_log_p = in_y = in_log_q = None
        if ctx.needs_input_grad[0] or ctx.needs_input_grad[1]:
            in_x, in_log_p = (gradient[..., :n] * scale).unbind()
        if ctx.needs_input_grad[2] or ctx.needs_input_grad[3]:
            in_y, in_log_q = (gradient[..., n:] * scale).unbind()
        return in_x, in_log_p, in_y, in_log_q
