"""The paper's statements checked on the functions that train agents: φ, the backup, Q-values and the Cramér loss.

The rest of this package computes with float64 arrays and operators of its own. Here the very functions of `c2d.returns`
run on float64 tensors, so a mistake in one of them shows.
"""

from __future__ import annotations

import numpy as np
import torch

from c2d.returns.bellman import at_action, backup, greedy, q_values
from c2d.returns.losses import cramer
from c2d.returns.phi import scaled_h
from c2d.types import ReturnDist


def bellman_error(iterations: int = 6, seed: int = 0) -> float:
    """Proposition 3.2 on a random MDP with 4 states and 3 actions: the largest gap between two Q-functions.

    One is the iterate of Bellman's operator, the other the mean of the return distributions, backed up through φ along
    every transition (s, a, s') with its probability.
    """
    rng = np.random.default_rng(seed)
    states, actions, gamma, phi = 4, 3, 0.9, scaled_h()
    chance = torch.from_numpy(rng.dirichlet(np.ones(states), (states, actions)))  # [S, A, S']
    reward = torch.from_numpy(rng.normal(0, 5, (states, actions, states)))
    q = torch.from_numpy(rng.normal(0, 1, (states, actions)))
    law = ReturnDist(phi.to(q)[..., None], torch.zeros(states, actions, 1, dtype=torch.float64))
    worst = 0.0
    for _ in range(iterations):
        q = (chance * (reward + gamma * q.amax(1))).sum(-1)
        later = at_action(law, greedy(q_values(law, phi)))  # [S', N]
        rows = ReturnDist(*(part.repeat(states * actions, 1) for part in later[:2]))  # [S A S', N]
        target = backup(reward.flatten(), torch.full((reward.numel(),), gamma, dtype=torch.float64), rows, phi)
        log_probs = chance.log().reshape(-1, 1) + target.log_probs
        law = ReturnDist(target.atoms.reshape(states, actions, -1), log_probs.reshape(states, actions, -1))
        worst = max(worst, float((q_values(law, phi) - q).abs().max()))
    return worst


def cramer_errors(atoms: int = 32, seed: int = 0) -> dict[str, float]:
    """How far the loss is from translation invariance, and from ℓ₂ ∝ √γ under scaling by γ = 0.99, on a random pair."""
    rng = np.random.default_rng(seed)
    places = torch.from_numpy(rng.normal(size=(2, 1, atoms)))
    log_probs = torch.from_numpy(rng.dirichlet(np.ones(atoms), (2, 1))).log()

    def distance(scale: float = 1.0, shift: float = 0.0) -> float:
        one, two = (ReturnDist(scale * x + shift, p) for x, p in zip(places, log_probs, strict=True))
        return float(cramer(one, two).sqrt())

    base = distance()
    return {"translation": abs(distance(shift=7.0) - base), "scale": abs(distance(scale=0.99) - np.sqrt(0.99) * base)}
