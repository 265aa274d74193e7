"""Which law at the next observation is pushed through the backup.

A bootstrap is a pure function (laws, batch, φ) -> (reward [B], law [B, M]). What it needs beyond the target
network's laws it declares, and the learner runs those passes only when asked to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from c2d.returns.values import at_action, greedy, q_values
from c2d.types import Batch, Phi, ReturnDist


class Laws(NamedTuple):
    """Laws of all actions, [B, A, M], all without gradient. None: not asked for."""

    target_next: ReturnDist  # target network at next_obs
    choose_next: ReturnDist  # by which the next action is chosen; target or online network at next_obs
    target_now: ReturnDist | None = None  # target network at obs


class Bootstrap(NamedTuple):
    """A bootstrap function, and which passes it needs."""

    fn: Callable[[Laws, Batch, Phi], tuple[Tensor, ReturnDist]]
    online_chooses: bool = False
    needs_target_now: bool = False


def greedy_bootstrap(laws: Laws, batch: Batch, phi: Phi) -> tuple[Tensor, ReturnDist]:
    """The target network's law at the greedy action a*, by real expected return (C2D, Alg. 2)."""
    best = greedy(q_values(laws.choose_next, phi))  # [B]
    return batch.reward, at_action(laws.target_next, best)


GREEDY = Bootstrap(greedy_bootstrap)
DOUBLE = Bootstrap(greedy_bootstrap, online_chooses=True)  # van Hasselt et al. 2016


def munchausen(alpha: float, temperature: float, floor: float) -> Bootstrap:
    """A softmax policy π of temperature τ over expected real returns (Vieillard et al. 2020, Eq. 2 and Sec. 4).

    reward: r + α·clip(τ log π(a|s), floor, 0). Law: the return under π less τ log π, in real space. Where all
    actions have the same fractions (quantile heads) it is Σ_a π(a)(z_a − τ log π(a)) fraction by fraction, as in
    the paper's M-IQN; else the mixture of the actions' laws with weights π. Of n > 1 steps only the first has its
    bonus and only the last its entropy (deviates: D24).
    """

    def fn(laws: Laws, batch: Batch, phi: Phi) -> tuple[Tensor, ReturnDist]:
        assert laws.target_now is not None
        now = temperature * (q_values(laws.target_now, phi) / temperature).log_softmax(-1)  # [B, A] τ log π
        bonus = now.gather(1, batch.action[:, None]).squeeze(1).clamp(floor, 0.0)
        log_pi = (q_values(laws.choose_next, phi) / temperature).log_softmax(-1)  # [B, A]
        law = laws.target_next
        returns = phi.back(law.atoms) - temperature * log_pi.unsqueeze(-1)  # [B, A, M] real
        if law.taus is not None:
            mean = (log_pi.exp().unsqueeze(-1) * returns).sum(1)
            mixed = ReturnDist(phi.to(mean), law.log_probs[:, 0], law.taus[:, 0])
        else:
            weights = law.log_probs + log_pi.unsqueeze(-1)
            mixed = ReturnDist(phi.to(returns).flatten(1), weights.flatten(1))  # [B, A·M]
        return batch.reward + alpha * bonus, mixed

    return Bootstrap(fn, needs_target_now=True)
