"""n-step returns, folded when a batch is read."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Folded(NamedTuple):
    """An n-step transition: what it earned, how its bootstrap is discounted, how far it leads."""

    reward: NDArray[np.float64]  # [B] Σ_{k<m} γ^k r_{t+k}
    discount: NDArray[np.float64]  # [B] γ^m, or 0 if a terminal came within the m steps
    steps: NDArray[np.int64]  # [B] m: the bootstrap state is that of slot t + m


def fold(
    reward: NDArray[np.floating],  # [B, n] of slots t, t+1, ..., t+n-1
    terminal: NDArray[np.bool_],  # [B, n] the transition from the slot ended the episode
    taken: NDArray[np.bool_],  # [B, n] an action was taken from the slot
    gamma: float,
) -> Folded:
    """The m-step return, m ≤ n (Sutton and Barto 2018, Eq. 7.1), cut short where an episode ends.

    The window stops after a terminal transition, which leaves nothing to bootstrap from (discount 0),
    or before a slot without an action, the last state known of a truncated episode, whose value is
    bootstrapped with the shorter γ^m. What lies beyond the stop is never read.

    With n = 3 and rewards 1, 10, 100:  terminal at the third:  1 + 10γ + 100γ²,  0,   m = 3
        second slot terminal:   1 + 10γ,  0,   m = 2        third slot without action:  1 + 10γ,  γ²,  m = 2
    """
    still_running = np.ones_like(terminal)  # no terminal before step k
    still_running[:, 1:] = ~np.logical_or.accumulate(terminal[:, :-1], axis=1)
    counted = still_running & np.logical_and.accumulate(taken, axis=1)  # [B, n]
    powers = gamma ** np.arange(reward.shape[1] + 1, dtype=np.float64)  # [n + 1]
    steps = counted.sum(axis=1)  # [B]
    total = np.where(counted, reward, 0.0) @ powers[:-1]  # [B]
    discount = np.where((terminal & counted).any(axis=1), 0.0, powers[steps])
    return Folded(total, discount, steps)
