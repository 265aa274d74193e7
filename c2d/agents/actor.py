"""Acting: ε-greedy by expected real return."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from c2d.nets.network import ValueNetwork
from c2d.returns.bellman import greedy, q_values
from c2d.types import Phi


class Actor:
    """Chooses actions with a network that someone else trains."""

    def __init__(
        self,
        network: ValueNetwork,
        phi: Phi,
        actions: int,
        rng: np.random.Generator,  # of ε-greedy
        noise: torch.Generator | None = None,  # of noisy layers and random fractions; None: means and midpoints
    ) -> None:
        self.network, self.phi, self.actions, self.rng, self.noise = network, phi, actions, rng, noise
        self.device = next(network.parameters()).device

    def act(self, obs: np.ndarray, epsilon: float) -> int:
        """Action for one observation. The network runs only when its answer is used."""
        if self.rng.random() < epsilon:
            return int(self.rng.integers(self.actions))
        return int(self.greedy(obs[None])[0])

    def act_batch(self, obs: np.ndarray, epsilon: float) -> np.ndarray:
        """Actions for several observations by one pass. [B, *obs] -> [B]"""
        random = self.rng.random(len(obs)) < epsilon
        return np.where(random, self.rng.integers(self.actions, size=len(obs)), self.greedy(obs))

    @torch.inference_mode()
    def greedy(self, obs: np.ndarray) -> np.ndarray:
        """[B, *obs] -> [B]"""
        law = self.network(torch.from_numpy(obs).to(self.device), "act", self.noise)
        return greedy(q_values(law, self.phi)).cpu().numpy()

    @torch.inference_mode()
    def laws(self, obs: np.ndarray) -> tuple[Tensor, Tensor]:
        """Atoms as real returns and their probabilities, to act by more than the mean. [B, *obs] -> 2 × [B, A, N]"""
        law = self.network(torch.from_numpy(obs).to(self.device), "act", self.noise)
        return self.phi.back(law.atoms), law.log_probs.exp()
