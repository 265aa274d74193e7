"""C2D's head: for each action a law with free atoms and probabilities (Figure 1 and appendix, "Architecture")."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from c2d.types import Purpose, ReturnDist


class ConjugatedHead(nn.Module):
    """ψ = ReLU(dense(features)); p = softmax(dense(ψ)); e = ReLU(dense(p)); z = α·tanh(dense([e, ψ]) / c)."""

    def __init__(
        self,
        features: int,
        actions: int,
        atoms: int = 32,
        alpha: float = 50.0,
        c: float = 5.0,
        hidden: int = 512,
        embedding: int = 512,
        train_alpha: bool = True,
    ) -> None:
        super().__init__()
        self.actions, self.atoms, self.c = actions, atoms, c
        self.dense = nn.Linear(features, hidden)
        self.logits = nn.Linear(hidden, actions * atoms)
        self.embedding = nn.Linear(actions * atoms, embedding) if embedding else None
        self.support = nn.Linear(embedding + hidden, actions * atoms)
        self.alpha = nn.Parameter(torch.tensor(float(alpha)), requires_grad=train_alpha)

    def forward(
        self,
        features: Tensor,
        purpose: Purpose,
        rng: torch.Generator | None = None,
        taus: Tensor | None = None,
    ) -> ReturnDist:  # [B, D] -> [B, A, N]
        psi = F.relu(self.dense(features))
        log_probs = self.logits(psi).unflatten(1, (self.actions, self.atoms)).log_softmax(-1)  # [B, A, N]
        coupled = psi
        if self.embedding is not None:  # the probabilities of all actions together
            coupled = torch.cat((F.relu(self.embedding(log_probs.exp().flatten(1))), psi), 1)
        atoms = self.alpha * torch.tanh(self.support(coupled) / self.c)
        return ReturnDist(atoms.view_as(log_probs), log_probs)

    def diagnostics(self) -> dict[str, float]:
        """α, the trained scale of the support."""
        return {"alpha": self.alpha.item()}
