"""Which law at the next observation is pushed through the backup.

A bootstrap is a pure function (laws, batch, φ) -> (reward [B], law [B, M]). What it needs beyond the target
network's laws at `next_obs` it declares, and the learner runs those passes only when asked to.
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
    online_next: ReturnDist | None = None  # online network at next_obs
    target_now: ReturnDist | None = None  # target network at obs


class Bootstrap(NamedTuple):
    """A bootstrap function and the passes it needs beside `target_next`."""

    fn: Callable[[Laws, Batch, Phi], tuple[Tensor, ReturnDist]]
    needs_online_next: bool = False
    needs_target_now: bool = False


def greedy_bootstrap(laws: Laws, batch: Batch, phi: Phi) -> tuple[Tensor, ReturnDist]:
    """The target network's law at its own greedy action a*, by real expected return (C2D, Alg. 2)."""
    best = greedy(q_values(laws.target_next, phi))  # [B]
    return batch.reward, at_action(laws.target_next, best)


GREEDY = Bootstrap(greedy_bootstrap)
