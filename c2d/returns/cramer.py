"""Squared Cramér distance ℓ₂² between discrete laws on the line, with its gradient in closed form."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from c2d.types import ReturnDist


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
