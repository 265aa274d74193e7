"""FQF's head: quantiles at fractions that a network of their own proposes (Yang et al. 2019)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from c2d.nets.heads.implicit import QuantileFunction
from c2d.nets.heads.output import Style
from c2d.nets.layers import PlainLinear
from c2d.types import Purpose, ReturnDist


class FractionHead(nn.Module):
    """Fractions 0 = τ_0 < τ_1 < … < τ_N = 1 by softmax; atom i is F⁻¹(τ̂_i) with probability τ_{i+1} − τ_i."""

    samples = True  # a target takes over the fractions of s; to choose, those proposed for s' (Yang et al., Alg. 1)

    def __init__(
        self,
        features: int,
        actions: int,
        style: Style,
        atoms: int = 32,
        cosines: int = 64,
        hidden: int = 512,
        entropy: float = 0.0,
        **optimizer: Any,  # of the fraction network; see agents/build.py
    ) -> None:
        super().__init__()
        self.entropy = entropy
        self.fractions = PlainLinear(features, atoms)
        self.quantile = QuantileFunction(features, actions, style, cosines, hidden)

    def forward(
        self, features: Tensor, purpose: Purpose, rng: torch.Generator | None = None, like: ReturnDist | None = None
    ) -> ReturnDist:  # [B, D] -> [B, A, N]
        if like is not None:  # the fractions of another law, here of the present state: [B, A, N], alike for all A
            assert like.taus is not None
            taus, log_shares = like.taus[:, 0], like.log_probs[:, 0]
        else:
            with torch.no_grad():  # the quantile loss does not move the fractions
                log_shares = self._log_shares(features)
                taus = _midpoints(log_shares)
        atoms = self.quantile(features, taus, rng)
        return ReturnDist(atoms, log_shares.unsqueeze(1).expand_as(atoms), taus.unsqueeze(1).expand_as(atoms))

    def auxiliary(self, features: Tensor, law: ReturnDist, action: Tensor, rng: torch.Generator | None) -> Tensor:
        """A loss whose gradient in τ_i is ∂W₁/∂τ_i = 2F⁻¹(τ_i) − F⁻¹(τ̂_i) − F⁻¹(τ̂_{i−1}) (Prop. 1). -> [B]

        `law` [B, N] is the prediction at `action`. Only the fraction network moves: features and quantiles are
        held fixed. The entropy bonus keeps the fractions apart.
        """
        log_shares = self._log_shares(features.detach())  # [B, N]
        shares = log_shares.exp()
        inner = shares.cumsum(-1)[:, :-1]  # [B, N-1] τ_1 … τ_{N-1}
        with torch.no_grad():
            values = self.quantile(features.detach(), inner, rng)  # [B, A, N-1]
            index = action.view(-1, 1, 1).expand(-1, 1, inner.shape[1])
            at_tau = values.gather(1, index).squeeze(1)
            slope = 2 * at_tau - law.atoms[:, 1:] - law.atoms[:, :-1]
        loss: Tensor = (inner * slope).sum(-1) + self.entropy * (shares * log_shares).sum(-1)
        return loss

    def own_parameters(self) -> list[nn.Parameter]:
        """Trained by `auxiliary` alone, with an optimizer of their own."""
        return list(self.fractions.parameters())

    def diagnostics(self) -> dict[str, float]:
        return {}

    def _log_shares(self, features: Tensor) -> Tensor:  # [B, D] -> [B, N]
        shares: Tensor = self.fractions(features).log_softmax(-1)
        return shares


def _midpoints(log_shares: Tensor) -> Tensor:
    """τ̂_i = (τ_i + τ_{i+1})/2. [B, N] -> [B, N]"""
    shares = log_shares.exp()
    return shares.cumsum(-1) - 0.5 * shares
