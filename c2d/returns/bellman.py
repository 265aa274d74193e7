"""From return distributions to values, choices and targets: two formulas serve every agent.

`q_values` takes the expected real return of a distribution in φ-space; `backup` pushes one through a transition. A
bootstrap says which distribution at the next observation is pushed: a pure function (laws, batch, φ) -> (reward [B],
law [B, M]). It declares what it needs beyond the target network's laws, and the learner runs only those passes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from c2d.types import Batch, Phi, ReturnDist


def q_values(law: ReturnDist, phi: Phi) -> Tensor:
    """Expected real return Σ_k p_k φ⁻¹(z_k) (C2D, Def. 3.1 and Alg. 2). [..., A, N] -> [..., A]"""
    return (law.log_probs.exp() * phi.back(law.atoms)).sum(-1)


def greedy(q: Tensor, legal: Tensor | None = None) -> Tensor:
    """The legal action of largest value; the first of them when several are largest. [..., A] -> [...] i64

    legal [..., A] bool; None: all are. One that is illegal is never chosen, not even where no value is finite.
    """
    if legal is not None:
        q = q.clamp_min(torch.finfo(q.dtype).min).masked_fill(~legal, -torch.inf)
    return q.argmax(-1)


def at_action(law: ReturnDist, action: Tensor) -> ReturnDist:
    """The law of one action per row; gradients flow to the chosen rows only. [B, A, N], [B] -> [B, N]"""
    assert law.atoms.dim() == 3 and action.dim() == 1, (law.atoms.shape, action.shape)
    batch, _, atoms = law.atoms.shape
    index = action.view(batch, 1, 1).expand(batch, 1, atoms)  # [B, 1, N]

    def pick(x: Tensor) -> Tensor:  # [B, A, N] -> [B, N]
        return x.gather(1, index).squeeze(1)

    return ReturnDist(pick(law.atoms), pick(law.log_probs), None if law.taus is None else pick(law.taus))


def backup(reward: Tensor, discount: Tensor, law: ReturnDist, phi: Phi) -> ReturnDist:
    """Push a law in φ-space through z ↦ φ(r + γ φ⁻¹(z)), atom by atom (C2D, Eq. 7 and Alg. 2).

    reward [B], discount [B], law [B, N] -> [B, N]; probabilities are untouched. Where the discount is 0 every
    atom is φ(r) exactly: a point mass, whatever the probabilities.
    """
    assert reward.dim() == 1 and reward.shape == discount.shape, (reward.shape, discount.shape)
    assert law.atoms.dim() == 2, law.atoms.shape
    returns = torch.addcmul(reward[:, None], discount[:, None], phi.back(law.atoms))  # [B, N] real returns
    return law._replace(atoms=phi.to(returns))


# ---------------------------------------------------------------------------------------------------- bootstraps


class BootstrapLaws(NamedTuple):
    """Laws of all actions, [B, A, M], without gradient. None: not needed by the bootstrap."""

    target_next: ReturnDist  # target network at next_obs
    choose_next: ReturnDist  # by which the next action is chosen; target or online network at next_obs
    target_now: ReturnDist | None = None  # target network at obs
    online_now: ReturnDist | None = None  # online network at obs: the prediction of the update
    scale: Tensor | None = None  # [] running scale of real means (nets/scales.py)


class Bootstrap(NamedTuple):
    """A bootstrap function, and which passes it needs."""

    fn: Callable[[BootstrapLaws, Batch, Phi], tuple[Tensor, ReturnDist]]
    online_chooses: bool = False
    needs_target_now: bool = False
    needs_online_now: bool = False
    needs_scale: bool = False


def greedy_bootstrap(laws: BootstrapLaws, batch: Batch, phi: Phi) -> tuple[Tensor, ReturnDist]:
    """The target network's law at the greedy action a*, by real expected return (C2D, Alg. 2)."""
    best = greedy(q_values(laws.choose_next, phi), batch.next_legal)  # [B]
    return batch.reward, at_action(laws.target_next, best)


GREEDY = Bootstrap(greedy_bootstrap)
DOUBLE = Bootstrap(greedy_bootstrap, online_chooses=True)  # van Hasselt et al. 2016


def clipped_bootstrap(laws: BootstrapLaws, batch: Batch, phi: Phi) -> tuple[Tensor, ReturnDist]:
    """At the online network's greedy action, the law of smaller real mean of the two networks: after clipped double
    Q-learning (Fujimoto et al. 2018, Eq. 8), with the target network as the second estimate."""
    best = greedy(q_values(laws.choose_next, phi), batch.next_legal)  # [B]
    online, target = at_action(laws.choose_next, best), at_action(laws.target_next, best)  # [B, M] each
    lower = (q_values(online, phi) < q_values(target, phi)).unsqueeze(-1)  # [B, 1]
    law = ReturnDist(
        torch.where(lower, online.atoms, target.atoms),
        torch.where(lower, online.log_probs, target.log_probs),
        None if online.taus is None or target.taus is None else torch.where(lower, online.taus, target.taus),
    )
    return batch.reward, law


CLIPPED_DOUBLE = Bootstrap(clipped_bootstrap, online_chooses=True)


def munchausen(alpha: float, temperature: float, floor: float, online: bool = False, scaled: bool = False) -> Bootstrap:
    """A softmax policy π of temperature τ over expected real returns (Vieillard et al. 2020, Eq. 2 and Sec. 4).

    reward: r + α·clip(τ log π(a|s), floor, 0). Law: the return under π less τ log π, in real space. Where all
    actions have the same fractions (quantile heads) it is Σ_a π(a)(z_a − τ log π(a)) fraction by fraction, as in
    the paper's M-IQN; else the mixture of the actions' laws with weights π. Of n > 1 steps only the first has its
    bonus and only the last its entropy (deviates: D24). Illegal actions have probability 0, and no entropy.

    π(a|s) is that of the target network, or with `online` of the prediction (deviates: D38). With `scaled`, τ and the
    floor are multiplied by the running scale of real means.
    """

    def log_policy(law: ReturnDist, phi: Phi, scale: Tensor | None, legal: Tensor | None) -> Tensor:
        """[B, A, N] -> [B, A]; −∞ for illegal actions."""
        q = q_values(law, phi)
        q = (q if scale is None else q / scale) / temperature
        return (q if legal is None else q.masked_fill(~legal, -torch.inf)).log_softmax(-1)

    def fn(laws: BootstrapLaws, batch: Batch, phi: Phi) -> tuple[Tensor, ReturnDist]:
        now, scale = laws.online_now if online else laws.target_now, laws.scale if scaled else None
        assert now is not None and scaled == (scale is not None)
        taken = log_policy(now, phi, scale, batch.legal).gather(1, batch.action[:, None]).squeeze(1)  # [B]
        bonus = (temperature * taken).clamp(floor, 0.0)
        tau: Tensor | float = temperature
        if scale is not None:
            bonus, tau = bonus * scale, temperature * scale
        log_pi = log_policy(laws.choose_next, phi, scale, batch.next_legal)  # [B, A]
        law, entropy = laws.target_next, tau * log_pi
        if batch.next_legal is not None:  # 0·∞ is not 0
            entropy = entropy.masked_fill(~batch.next_legal, 0.0)
        returns = phi.back(law.atoms) - entropy.unsqueeze(-1)  # [B, A, M] real
        if law.taus is not None:
            mean = (log_pi.exp().unsqueeze(-1) * returns).sum(1)
            mixed = ReturnDist(phi.to(mean), law.log_probs[:, 0], law.taus[:, 0])
        else:
            weights = law.log_probs + log_pi.unsqueeze(-1)
            mixed = ReturnDist(phi.to(returns).flatten(1), weights.flatten(1))  # [B, A·M]
        return batch.reward + alpha * bonus, mixed

    return Bootstrap(fn, needs_target_now=not online, needs_online_now=online, needs_scale=scaled)
