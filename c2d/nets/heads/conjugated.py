"""C2D's head: for each action a law with free atoms and probabilities (Figure 1 and appendix, "Architecture")."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from c2d.nets.heads.output import Output, Style
from c2d.types import Purpose, ReturnDist


class ConjugatedHead(nn.Module):
    """ψ = ReLU(dense(features)); p = softmax(output(ψ)); e = ReLU(dense(p)); z = α·tanh(output([e, ψ]) / c).

    Dueling, if asked for, is inside both outputs; the embedding sees the probabilities after it.
    """

    samples = False
    constants = ("alpha",)

    def __init__(
        self,
        features: int,
        actions: int,
        style: Style,
        atoms: int = 32,
        alpha: float = 50.0,
        c: float = 5.0,
        hidden: int = 512,
        embedding: int = 512,
        train_alpha: bool = True,
        train_atoms: bool = True,
    ) -> None:
        super().__init__()
        self.c = c
        self.dense = style.linear(features, hidden)
        self.logits = Output(hidden, actions, atoms, style)
        self.alpha = nn.Parameter(torch.tensor(float(alpha)), requires_grad=train_alpha)
        self.embedding: nn.Module | None = None
        self.support: Output | None = None
        if train_atoms:
            self.embedding = style.linear(actions * atoms, embedding) if embedding else None
            self.support = Output(embedding + hidden, actions, atoms, style)
        self.grid: Tensor
        self.register_buffer("grid", torch.linspace(-1.0, 1.0, atoms), persistent=False)

    def forward(
        self, features: Tensor, purpose: Purpose, rng: torch.Generator | None = None, like: ReturnDist | None = None
    ) -> ReturnDist:  # [B, D] -> [B, A, N]
        psi = F.relu(self.dense(features, rng))
        log_probs = self.logits(psi, rng).log_softmax(-1)  # [B, A, N]
        if self.support is None:
            return ReturnDist((self.alpha * self.grid).expand_as(log_probs), log_probs)
        coupled = psi
        if self.embedding is not None:  # the probabilities of all actions together
            coupled = torch.cat((F.relu(self.embedding(log_probs.exp().flatten(1), rng)), psi), 1)
        return ReturnDist(self.alpha * torch.tanh(self.support(coupled, rng) / self.c), log_probs)

    def diagnostics(self) -> dict[str, float]:
        """α, the trained scale of the support."""
        return {"alpha": self.alpha.item()}
