"""What the learner would compare a prediction with: the Bellman target of one step, and the distance to it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from c2d.agents.agent import Agent
from c2d.nets.network import ValueNetwork
from c2d.returns.bellman import Laws, at_action, backup
from c2d.returns.losses import cramer
from c2d.types import Batch


class Transition(NamedTuple):
    """One step as the replay would store it."""

    obs: np.ndarray
    action: int
    reward: float  # clipped, if the recipe clips
    discount: float  # γ, or 0 after a terminal
    next_obs: np.ndarray


class Target(NamedTuple):
    """A law [M], atoms ascending, and how far the prediction is from it."""

    returns: np.ndarray
    atoms: np.ndarray  # φ-space
    probs: np.ndarray
    distance: float  # squared Cramér distance in φ-space


@torch.inference_mode()
def bellman_target(agent: Agent, target: ValueNetwork, transition: Transition) -> Target:
    """The recipe's own target for one step, whatever its n; normalization as in acting, since there is no batch."""
    obs, action, reward, discount, next_obs = transition
    batch = Batch(
        obs=torch.from_numpy(obs[None]),
        action=torch.tensor([action]),
        reward=torch.tensor([reward], dtype=torch.float32),
        discount=torch.tensor([discount], dtype=torch.float32),
        next_obs=torch.from_numpy(next_obs[None]),
        weight=torch.ones(1),
        indices=torch.zeros(1, dtype=torch.int64),
    )
    predicted = agent.network(batch.obs, "act")  # [1, A, N]
    bootstrap = agent.recipe.bootstrap.build()
    law = target(batch.next_obs, "act", None, predicted)
    choose = agent.network(batch.next_obs, "act") if bootstrap.online_chooses else law
    now = target(batch.obs, "act") if bootstrap.needs_target_now else None
    total, chosen = bootstrap.fn(Laws(law, choose, now), batch, agent.phi)
    goal = backup(total, batch.discount, chosen, agent.phi)  # [1, M]
    distance = float(cramer(at_action(predicted, batch.action), goal))
    atoms, order = goal.atoms[0].sort()
    probs = goal.log_probs[0].gather(-1, order).exp()
    return Target(agent.phi.back(atoms).numpy(), atoms.numpy(), probs.numpy(), distance)
