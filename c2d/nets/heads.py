"""Heads: features -> the return distribution of every action.

Each is a dense layer and an output, plain or dueling, of plain or noisy weights.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from c2d.native.operations import dense
from c2d.nets.scales import RewardUnit
from c2d.recipes.part import OptimizerSpec
from c2d.recipes.parts import RmsProp
from c2d.types import Phi, Purpose, ReturnDist

# --------------------------------------------------------------------------------------------------------- layers


class PlainLinear(nn.Linear):
    """A dense layer that takes, and ignores, the generator of noisy ones."""

    def forward(self, x: Tensor, rng: torch.Generator | None = None) -> Tensor:  # [..., D] -> [..., D']
        return dense(x, self.weight, self.bias)


class NoisyLinear(nn.Module):
    """A dense layer with factorized Gaussian noise on its weights (Fortunato et al. 2018, Eqs. 10 and 11).

    weight + sigma_weight ⊙ f(ε')f(ε)ᵀ, f(x) = sign(x)√|x|, drawn again in each pass, once for the whole batch.
    Without a generator the weights are their means.
    """

    constants = ("sigma_weight", "sigma_bias")

    def __init__(self, inputs: int, outputs: int, sigma: float) -> None:
        super().__init__()
        self.inputs, self.outputs = inputs, outputs
        self.weight = nn.Parameter(torch.empty(outputs, inputs))
        self.bias = nn.Parameter(torch.empty(outputs))
        self.sigma_weight = nn.Parameter(torch.full((outputs, inputs), sigma / math.sqrt(inputs)))
        self.sigma_bias = nn.Parameter(torch.full((outputs,), sigma / math.sqrt(inputs)))

    def initialize(self, rng: torch.Generator) -> None:
        """Means uniform in ±1/√inputs (Sec. 3.2 there)."""
        bound = 1.0 / math.sqrt(self.inputs)
        for mean in (self.weight, self.bias):
            nn.init.uniform_(mean, -bound, bound, generator=rng)

    def forward(self, x: Tensor, rng: torch.Generator | None = None) -> Tensor:  # [..., D] -> [..., D']
        if rng is None:
            return F.linear(x, self.weight, self.bias)
        noise = torch.randn(self.inputs + self.outputs, generator=rng, device=x.device)
        noise = noise.sign() * noise.abs().sqrt_()
        inward, outward = noise[: self.inputs], noise[self.inputs :]
        return _noisy_linear(x, self.weight, self.sigma_weight, self.bias, self.sigma_bias, inward, outward)


def _noisy_linear(
    x: Tensor, weight: Tensor, sigma: Tensor, bias: Tensor, sigma_bias: Tensor, inward: Tensor, outward: Tensor
) -> Tensor:
    """The noisy part as a product of its own, with no matrix of noise: (σ (x ⊙ f(ε))) ⊙ f(ε')."""
    noisy = F.linear(x * inward, sigma, sigma_bias)
    return torch.addcmul(F.linear(x, weight, bias), noisy, outward)


class NormalizedLinear(nn.Module):
    """A dense layer and layer normalization of its outputs (Ba et al. 2016)."""

    def __init__(self, linear: PlainLinear | NoisyLinear, outputs: int) -> None:
        super().__init__()
        self.linear, self.norm = linear, LayerNorm(outputs)

    def forward(self, x: Tensor, rng: torch.Generator | None = None) -> Tensor:  # [..., D] -> [..., D']
        normalized: Tensor = self.norm(self.linear(x, rng))
        return normalized


Hidden = PlainLinear | NoisyLinear | NormalizedLinear


class LayerNorm(nn.LayerNorm):
    """PyTorch's, whose parameters start at 1 and 0."""

    constants = ("weight", "bias")


class CosineEmbedding(nn.Module):
    """φ_j(τ) = ReLU(Σ_i cos(πiτ) w_ij + b_j), i = 1 … n (Dabney et al. 2018, Eq. 4, with i from 1 as in Dopamine)."""

    def __init__(self, cosines: int, features: int) -> None:
        super().__init__()
        self.dense = PlainLinear(cosines, features)
        self.frequencies: Tensor
        self.register_buffer("frequencies", math.pi * torch.arange(1, cosines + 1), persistent=False)

    def forward(self, taus: Tensor) -> Tensor:  # [B, K] -> [B, K, D]
        return F.relu(self.dense(torch.cos(taus.unsqueeze(-1) * self.frequencies)))


class Streams(nn.Module):
    """Two hidden layers on the same features, their units side by side: those of the value, then of the advantages."""

    def __init__(self, value: Hidden, advantage: Hidden) -> None:
        super().__init__()
        self.value, self.advantage = value, advantage

    def forward(self, x: Tensor, rng: torch.Generator | None = None) -> Tensor:  # [..., D] -> [..., 2·D']
        return torch.cat((self.value(x, rng), self.advantage(x, rng)), -1)


class Style(NamedTuple):
    """What the recipe says about the layers of its head."""

    dueling: bool = False
    noise: float | None = None  # σ₀; None: plain weights
    layer_norm: bool = False
    separate: bool = False  # a hidden layer for each part of a dueling output

    def linear(self, inputs: int, outputs: int) -> PlainLinear | NoisyLinear:
        if self.noise is None:
            return PlainLinear(inputs, outputs)
        return NoisyLinear(inputs, outputs, self.noise)

    def hidden(self, inputs: int, outputs: int) -> Hidden | Streams:
        """A dense layer that a ReLU follows; two of them, whose units an `Output` tells apart, if `separate`."""
        return Streams(*(self._layer(inputs, outputs) for _ in "VA")) if self.separate else self._layer(inputs, outputs)

    def _layer(self, inputs: int, outputs: int) -> Hidden:
        linear = self.linear(inputs, outputs)
        return NormalizedLinear(linear, outputs) if self.layer_norm else linear


class Output(nn.Module):
    """Hidden units -> one row of `size` numbers per action. [..., D] -> [..., A, N]

    Dueling (Wang et al. 2016, Eq. 9): a row of the state plus rows of the actions, whose mean over actions is
    taken away, so that the two parts are determined by their sum. With separate hidden layers each part sees the first
    `shared` inputs and its own of what follows, `Streams`: [..., shared + 2·(D − shared)] -> [..., A, N].
    """

    initial_scale = 1.0  # factor on the initial weights (network.py)

    def __init__(self, inputs: int, actions: int, size: int, style: Style, shared: int = 0) -> None:
        super().__init__()
        self.actions, self.size, self.shared = actions, size, shared
        self.own = inputs - shared if style.separate else 0
        self.advantage = style.linear(inputs, actions * size)
        self.value = style.linear(inputs, size) if style.dueling else None

    def forward(self, x: Tensor, rng: torch.Generator | None) -> Tensor:
        values = x
        if self.own:
            common, values, x = torch.split(x, [self.shared, self.own, self.own], -1)
            if self.shared:
                values, x = torch.cat((common, values), -1), torch.cat((common, x), -1)
        out: Tensor = self.advantage(x, rng).unflatten(-1, (self.actions, self.size))
        if self.value is not None:
            out = self.value(values, rng).unsqueeze(-2) + out - out.mean(-2, keepdim=True)
        return out


EDGE = 0.95  # of the bound: atoms beyond it count as saturated


@torch.no_grad()
def saturation(law: ReturnDist, bound: Tensor) -> Tensor:
    """The share of the mass with atoms beyond 95 % of their bound. [..., N] -> []"""
    return (law.log_probs.exp() * (law.atoms.abs() > EDGE * bound)).sum(-1).mean()


# ---------------------------------------------------------------------------------------------------------- heads


class Head(nn.Module):
    """Features -> the return distribution of every action: all that the learner and the actor know of a head."""

    samples = False  # whether the distribution to choose by is another pass than the one to bootstrap from
    constants: tuple[str, ...] = ()  # parameters that start at a constant instead of being drawn

    def __init__(self) -> None:
        super().__init__()
        self.unit: RewardUnit | None = None  # of a head whose atoms are φ(return / u); None: they are φ(return)

    def forward(
        self,
        features: Tensor,
        purpose: Purpose,
        rng: torch.Generator | None = None,  # of noise and fractions; None: means and midpoints
        like: ReturnDist | None = None,  # the prediction whose fractions a target takes over, in FQF
    ) -> ReturnDist:  # [B, D] -> [B, A, N]
        raise NotImplementedError(f"{type(self).__name__} has no forward(self, features, purpose, rng, like)")

    def auxiliary(
        self, features: Tensor, prediction: ReturnDist, action: Tensor, rng: torch.Generator | None
    ) -> Tensor | None:
        """A second loss [B], summed over the batch; `prediction` [B, N] is the distribution at `action` [B]."""
        return None

    def trained_apart(self) -> list[tuple[OptimizerSpec, list[nn.Parameter]]]:
        """Parameters that the recipe's optimizer leaves alone, each group with an optimizer of its own."""
        return []

    @property
    def bound(self) -> Tensor | None:
        """[] Free atoms cannot leave ±bound; None: there are none, or no bound."""
        return None

    def enlarge_unit(self, factor: float, phi: Phi) -> None:
        """u times `factor`; predicted returns stay about what they were. Only for a head that has a unit."""
        raise NotImplementedError(f"{type(self).__name__} has a unit, but no enlarge_unit(self, factor, phi)")

    def diagnostics(self) -> dict[str, float]:
        """Numbers worth recording once per iteration."""
        return {}


class ScalarHead(Head):
    """features -> dense -> ReLU -> one number per action: a point mass."""

    def __init__(self, features: int, actions: int, style: Style, hidden: int = 512) -> None:
        super().__init__()
        self.dense = style.hidden(features, hidden)
        self.output = Output(hidden, actions, 1, style)

    def forward(
        self, features: Tensor, purpose: Purpose, rng: torch.Generator | None = None, like: ReturnDist | None = None
    ) -> ReturnDist:  # [B, D] -> [B, A, 1]
        atoms = self.output(F.relu(self.dense(features, rng)), rng)
        return ReturnDist(atoms, torch.zeros_like(atoms))


class CategoricalHead(Head):
    """features -> dense -> ReLU -> logits on the atoms v_min … v_max, which lie in φ-space."""

    def __init__(
        self,
        features: int,
        actions: int,
        style: Style,
        atoms: int = 51,
        v_min: float = -10.0,
        v_max: float = 10.0,
        hidden: int = 512,
    ) -> None:
        super().__init__()
        self.dense = style.hidden(features, hidden)
        self.output = Output(hidden, actions, atoms, style)
        self.grid: Tensor
        self.register_buffer("grid", torch.linspace(v_min, v_max, atoms), persistent=False)  # [N]

    def forward(
        self, features: Tensor, purpose: Purpose, rng: torch.Generator | None = None, like: ReturnDist | None = None
    ) -> ReturnDist:  # [B, D] -> [B, A, N]
        log_probs = self.output(F.relu(self.dense(features, rng)), rng).log_softmax(-1)
        return ReturnDist(self.grid.expand_as(log_probs), log_probs)


class QuantileHead(Head):
    """features -> dense -> ReLU -> the quantiles at τ̂_i = (2i − 1)/2N of each action."""

    def __init__(self, features: int, actions: int, style: Style, atoms: int = 200, hidden: int = 512) -> None:
        super().__init__()
        self.dense = style.hidden(features, hidden)
        self.output = Output(hidden, actions, atoms, style)
        self.taus: Tensor
        self.register_buffer("taus", (torch.arange(atoms) + 0.5) / atoms, persistent=False)  # [N]

    def forward(
        self, features: Tensor, purpose: Purpose, rng: torch.Generator | None = None, like: ReturnDist | None = None
    ) -> ReturnDist:  # [B, D] -> [B, A, N]
        atoms = self.output(F.relu(self.dense(features, rng)), rng)
        share = atoms.new_full((), -math.log(atoms.shape[-1])).expand_as(atoms)
        return ReturnDist(atoms, share, self.taus.expand_as(atoms))


class QuantileFunction(nn.Module):
    """(features ⊙ embedding(τ)) -> dense -> ReLU -> F⁻¹(τ) of each action. [B, D], [B, K] -> [B, A, K]"""

    def __init__(self, features: int, actions: int, style: Style, cosines: int, hidden: int) -> None:
        super().__init__()
        self.embedding = CosineEmbedding(cosines, features)
        self.dense = style.hidden(features, hidden)
        self.output = Output(hidden, actions, 1, style)

    def forward(self, features: Tensor, taus: Tensor, rng: torch.Generator | None) -> Tensor:
        x = self.embedding(taus) * features.unsqueeze(1)  # [B, K, D]
        rows = F.relu(self.dense(x.flatten(0, 1), rng))  # [B·K, hidden]
        atoms: Tensor = self.output(rows, rng)  # [B·K, A, 1]
        return atoms.view(*taus.shape, -1).transpose(1, 2)


class ImplicitHead(Head):
    """Atoms of equal probability at random fractions; at midpoints of equal fractions when there is no generator."""

    samples = True

    def __init__(
        self,
        features: int,
        actions: int,
        style: Style,
        atoms: int = 64,
        target_atoms: int = 64,
        policy_atoms: int = 32,
        cosines: int = 64,
        hidden: int = 512,
    ) -> None:
        super().__init__()
        self.counts: dict[Purpose, int] = {
            "act": policy_atoms,
            "choose": policy_atoms,
            "predict": atoms,
            "target": target_atoms,
        }
        self.quantile = QuantileFunction(features, actions, style, cosines, hidden)

    def forward(
        self, features: Tensor, purpose: Purpose, rng: torch.Generator | None = None, like: ReturnDist | None = None
    ) -> ReturnDist:  # [B, D] -> [B, A, K]
        shape = (features.shape[0], self.counts[purpose])
        if rng is None:
            taus = ((torch.arange(shape[1], device=features.device) + 0.5) / shape[1]).expand(shape)
        else:
            taus = torch.rand(shape, generator=rng, device=features.device)
        atoms = self.quantile(features, taus, rng)
        share = atoms.new_full((), -math.log(shape[1])).expand_as(atoms)
        return ReturnDist(atoms, share, taus.unsqueeze(1).expand_as(atoms))


FRACTION_OPTIMIZER = RmsProp(2.5e-9, 0.95, 1e-5)  # that of FQF's authors


class FractionHead(Head):
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
        optimizer: OptimizerSpec = FRACTION_OPTIMIZER,
    ) -> None:
        super().__init__()
        self.entropy, self.optimizer = entropy, optimizer
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

    def auxiliary(
        self, features: Tensor, prediction: ReturnDist, action: Tensor, rng: torch.Generator | None
    ) -> Tensor:
        """A loss whose gradient in τ_i is ∂W₁/∂τ_i = 2F⁻¹(τ_i) − F⁻¹(τ̂_i) − F⁻¹(τ̂_{i−1}) (Prop. 1). -> [B]

        Only the fraction network moves: features and quantiles are held fixed. The entropy bonus keeps the fractions
        apart.
        """
        log_shares = self._log_shares(features.detach())  # [B, N]
        shares = log_shares.exp()
        inner = shares.cumsum(-1)[:, :-1]  # [B, N-1] τ_1 … τ_{N-1}
        with torch.no_grad():
            values = self.quantile(features.detach(), inner, rng)  # [B, A, N-1]
            index = action.view(-1, 1, 1).expand(-1, 1, inner.shape[1])
            at_tau = values.gather(1, index).squeeze(1)
            slope = 2 * at_tau - prediction.atoms[:, 1:] - prediction.atoms[:, :-1]
        loss: Tensor = (inner * slope).sum(-1) + self.entropy * (shares * log_shares).sum(-1)
        return loss

    def trained_apart(self) -> list[tuple[OptimizerSpec, list[nn.Parameter]]]:
        """The fraction network, which `auxiliary` alone trains."""
        return [(self.optimizer, list(self.fractions.parameters()))]

    def _log_shares(self, features: Tensor) -> Tensor:  # [B, D] -> [B, N]
        shares: Tensor = self.fractions(features).log_softmax(-1)
        return shares


def _midpoints(log_shares: Tensor) -> Tensor:
    """τ̂_i = (τ_i + τ_{i+1})/2. [B, N] -> [B, N]"""
    shares = log_shares.exp()
    return shares.cumsum(-1) - 0.5 * shares


class ConjugatedHead(Head):
    """ψ = ReLU(dense(features)); p = softmax(output(ψ)); e = ReLU(dense(p)); z = α·tanh(output([e, ψ]) / c).

    Dueling, if asked for, is inside both outputs; the embedding sees the probabilities after it.
    """

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
        initial_scale: float = 1.0,
        logit_scale: float = 1.0,
        fixed_probabilities: bool = False,
        train_alpha: bool = True,
        train_atoms: bool = True,
        unit: str = "one",
    ) -> None:
        super().__init__()
        self.c, self.logit_scale, self.shape = c, logit_scale, (actions, atoms)
        self.dense = style.hidden(features, hidden)
        self.logits = None if fixed_probabilities else Output(hidden, actions, atoms, style)
        self.alpha = nn.Parameter(torch.tensor(float(alpha)), requires_grad=train_alpha)
        self.embedding: nn.Module | None = None
        self.support: Output | None = None
        if fixed_probabilities:
            embedding = 0  # it would embed a constant
        if train_atoms:
            self.embedding = style.linear(actions * atoms, embedding) if embedding else None
            self.support = Output(embedding + hidden, actions, atoms, style, shared=embedding)
            self.support.initial_scale = initial_scale
        self.grid: Tensor
        self.register_buffer("grid", torch.linspace(-1.0, 1.0, atoms), persistent=False)
        self.unit = RewardUnit() if unit == "auto" else None

    @property
    def bound(self) -> Tensor | None:
        """α. (The atoms of a fixed grid are at ±α from the start.)"""
        return None if self.support is None else self.alpha.detach()

    def forward(
        self, features: Tensor, purpose: Purpose, rng: torch.Generator | None = None, like: ReturnDist | None = None
    ) -> ReturnDist:  # [B, D] -> [B, A, N]
        psi = F.relu(self.dense(features, rng))
        log_probs = self._log_probs(psi, rng)  # [B, A, N]
        if self.support is None:
            return ReturnDist((self.alpha * self.grid).expand_as(log_probs), log_probs)
        coupled = psi
        if self.embedding is not None:  # the probabilities of all actions together
            coupled = torch.cat((F.relu(self.embedding(log_probs.exp().flatten(1), rng)), psi), 1)
        law = ReturnDist(self.alpha * torch.tanh(self.support(coupled, rng) / self.c), log_probs)
        if self.unit is not None and purpose == "predict":
            self.unit.watch(saturation(law, self.alpha))
        return law

    def _log_probs(self, psi: Tensor, rng: torch.Generator | None) -> Tensor:  # [B, hidden] -> [B, A, N]
        if self.logits is None:
            return psi.new_full((), -math.log(self.shape[-1])).expand(len(psi), *self.shape)
        logits: Tensor = self.logits(psi, rng)
        return (logits if self.logit_scale == 1.0 else logits * self.logit_scale).log_softmax(-1)

    @torch.no_grad()
    def enlarge_unit(self, factor: float, phi: Phi) -> None:
        """u times `factor`, and predicted returns stay about what they were.

        Exact would be φ(φ⁻¹(z)/factor) for each atom z. Weights before the tanh cannot do that, so those of the output
        layer get the one factor that is exact for z = α/2. docs/plans/reward-unit.md has the errors of others.
        """
        assert self.unit is not None and self.support is not None
        half = 0.5 * self.alpha
        kept = torch.atanh(phi.to(phi.back(half) / factor) / self.alpha) / torch.atanh(half / self.alpha)
        for parameter in self.support.parameters():  # of noisy layers, means and deviations
            parameter.mul_(kept)
        self.unit.u.mul_(factor)
        self.unit.share.zero_()

    def diagnostics(self) -> dict[str, float]:
        """α, the trained scale of the support, and the unit of rewards if the head has one."""
        unit = {} if self.unit is None else {"unit": self.unit.u.item()}
        return {"alpha": self.alpha.item(), **unit}
