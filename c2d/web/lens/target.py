"""What the learner would compare a prediction with: the Bellman target of one step, and the distance to it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from c2d.agents.learner import Learner
from c2d.replay.buffer import Seen
from c2d.returns.bellman import at_action
from c2d.returns.losses import cramer
from c2d.types import Batch


class Target(NamedTuple):
    """A law [M], atoms ascending, and how far the prediction is from it."""

    returns: np.ndarray
    atoms: np.ndarray  # φ-space
    probs: np.ndarray
    distance: float  # squared Cramér distance in φ-space


@torch.inference_mode()
def bellman_target(
    learner: Learner, obs: np.ndarray, action: int, seen: Seen, gamma: float, next_obs: np.ndarray
) -> Target:
    """The recipe's own target for one step, whatever its n; normalization as in acting, since there is no batch."""
    batch = Batch(
        obs=torch.from_numpy(obs[None]),
        action=torch.tensor([action]),
        reward=torch.tensor([seen.reward], dtype=torch.float32),
        discount=torch.tensor([0.0 if seen.terminal else gamma], dtype=torch.float32),
        next_obs=torch.from_numpy(next_obs[None]),
        weight=torch.ones(1),
        indices=torch.zeros(1, dtype=torch.int64),
    )
    predicted = learner.online(batch.obs, "act")  # [1, A, N]
    target = learner.target(batch, predicted, acting=True)  # [1, M]
    distance = float(cramer(at_action(predicted, batch.action), target))
    atoms, order = target.atoms[0].sort()
    probs = target.log_probs[0].gather(-1, order).exp()
    return Target(learner.phi.back(atoms).numpy(), atoms.numpy(), probs.numpy(), distance)
