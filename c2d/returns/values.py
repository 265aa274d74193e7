"""From laws in φ-space to numbers and choices in real returns."""

from __future__ import annotations

from torch import Tensor

from c2d.types import Phi, ReturnDist


def q_values(law: ReturnDist, phi: Phi) -> Tensor:
    """Expected real return Σ_k p_k φ⁻¹(z_k) (C2D, Def. 3.1 and Alg. 2). [..., A, N] -> [..., A]"""
    return (law.log_probs.exp() * phi.back(law.atoms)).sum(-1)


def greedy(q: Tensor) -> Tensor:
    """The action of largest value; the first of them when several are largest. [..., A] -> [...] i64"""
    return q.argmax(-1)


def at_action(law: ReturnDist, action: Tensor) -> ReturnDist:
    """The law of one action per row; gradients flow to the chosen rows only. [B, A, N], [B] -> [B, N]"""
    assert law.atoms.dim() == 3 and action.dim() == 1, (law.atoms.shape, action.shape)
    batch, _, atoms = law.atoms.shape
    index = action.view(batch, 1, 1).expand(batch, 1, atoms)  # [B, 1, N]

    def pick(x: Tensor) -> Tensor:  # [B, A, N] -> [B, N]
        return x.gather(1, index).squeeze(1)

    return ReturnDist(pick(law.atoms), pick(law.log_probs), None if law.taus is None else pick(law.taus))
