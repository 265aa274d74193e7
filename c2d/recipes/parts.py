"""The parts of recipes: encoders, heads, losses, bootstraps, samplers, optimizers. See `part.py` for what a part is.

The docstring under each field is its help text on the command line.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from c2d.envs.spec import EnvSpec
from c2d.recipes.part import BootstrapSpec, EncoderSpec, HeadSpec, LossSpec, OptimizerSpec, SamplerSpec
from c2d.recipes.part import PhiSpec as PhiSpec
from c2d.validation import (
    BELOW_ONE,
    COUNT_OR_0,
    FINITE,
    NOT_NEGATIVE,
    NOT_POSITIVE,
    POSITIVE,
    UNITS,
    UNITS_OR_0,
    between,
    list_of,
    positive,
    require,
)

if TYPE_CHECKING:  # a config can be read without PyTorch
    from torch import nn

    from c2d.agents.learner import Optimizer
    from c2d.nets.heads import Head, Style
    from c2d.nets.network import Encoder
    from c2d.recipes.recipe import Recipe
    from c2d.replay.buffer import Sampler
    from c2d.returns.bellman import Bootstrap
    from c2d.returns.losses import Loss
    from c2d.types import Phi

EPS = positive(": weights without a gradient need it")

# ----------------------------------------------------------------------------------------------------------- encoders


@dataclass(frozen=True)
class Nature(EncoderSpec, name="nature"):
    """The convolutional encoder of DQN for 84×84 images: 32×8×8/4, 64×4×4/2, 64×3×3/1."""

    norm: Literal["column", "channel", "layer", "none"] = "column"
    """Normalization before each ReLU: over the batch, per image column (the authors' runs) or per channel (the paper);
    layer, over each image; or none."""
    padding: Literal["valid", "same"] = "valid"
    """Convolution padding: valid (C2D) or same (Dopamine's baselines)."""

    observations = "image"

    def build(self, env: EnvSpec) -> Encoder:
        from c2d.nets.network import nature_encoder

        return nature_encoder(env.obs_shape, self.norm, self.padding, env.pixel_scale)


@dataclass(frozen=True)
class MinAtar(EncoderSpec, name="minatar"):
    """One 3×3 convolution with 16 channels, the usual encoder for MinAtar's 10×10 images."""

    channels: Annotated[int, UNITS] = 16
    """Channels of the convolution."""
    norm: Literal["column", "channel", "layer", "none"] = "none"
    """Normalization before the ReLU: over the batch, per image column or channel; layer, over each image; or none."""

    observations = "image"

    def build(self, env: EnvSpec) -> Encoder:
        from c2d.nets.network import minatar_encoder

        return minatar_encoder(env.obs_shape, self.channels, self.norm, env.pixel_scale)


@dataclass(frozen=True)
class Mlp(EncoderSpec, name="mlp"):
    """Dense layers with ReLU, for vector observations. The head adds one dense layer of its own."""

    widths: Annotated[tuple[int, ...], list_of(UNITS, 100)] = (128,)
    """Units of each dense layer."""

    observations = "vector"

    def build(self, env: EnvSpec) -> Encoder:
        from c2d.nets.network import MlpEncoder

        return MlpEncoder(env.obs_shape, self.widths)


@dataclass(frozen=True)
class Impala(EncoderSpec, name="impala"):
    """The residual encoder of IMPALA: three blocks of 16, 32 and 32 channels, times `scale`."""

    scale: Annotated[int, UNITS] = 1
    """Factor on the channels of every block."""
    norm: Literal["layer", "none"] = "none"
    """Normalization before each ReLU: layer, over each image; or none."""

    observations = "image"

    def build(self, env: EnvSpec) -> Encoder:
        from c2d.nets.network import ImpalaEncoder

        return ImpalaEncoder(env.obs_shape, self.scale, env.pixel_scale, self.norm)


# -------------------------------------------------------------------------------------------------------------- heads


@dataclass(frozen=True)
class Scalar(HeadSpec, name="scalar"):
    """One atom per action: the expected return in φ-space, as in DQN."""

    hidden: Annotated[int, UNITS] = 512
    """Units of the dense layer."""

    gives = ("point",)

    def build(self, features: int, actions: int, style: Style) -> Head:
        from c2d.nets.heads import ScalarHead

        return ScalarHead(features, actions, style, **asdict(self))


@dataclass(frozen=True)
class Categorical(HeadSpec, name="categorical"):
    """C51's head: learned probabilities on a fixed grid of atoms in φ-space."""

    atoms: Annotated[int, between(2, 10**6)] = 51
    """N: atoms of the grid."""
    v_min: Annotated[float, FINITE] = -10.0
    """Smallest atom, in φ-space."""
    v_max: Annotated[float, FINITE] = 10.0
    """Largest atom, in φ-space."""
    hidden: Annotated[int, UNITS] = 512
    """Units of the dense layer."""

    gives = ("grid",)

    def check(self, recipe: Recipe) -> None:
        require(self.v_min < self.v_max, "head.v-min", self.v_min, f"below v-max = {self.v_max}")

    def build(self, features: int, actions: int, style: Style) -> Head:
        from c2d.nets.heads import CategoricalHead

        return CategoricalHead(features, actions, style, **asdict(self))


@dataclass(frozen=True)
class Quantile(HeadSpec, name="quantile"):
    """QR-DQN's head: learned atoms of equal probability, at the midpoints of N equal fractions."""

    atoms: Annotated[int, UNITS] = 200
    """N: quantiles of each action's return distribution."""
    hidden: Annotated[int, UNITS] = 512
    """Units of the dense layer."""

    gives = ("fractions",)

    def build(self, features: int, actions: int, style: Style) -> Head:
        from c2d.nets.heads import QuantileHead

        return QuantileHead(features, actions, style, **asdict(self))


@dataclass(frozen=True)
class Implicit(HeadSpec, name="implicit"):
    """IQN's head: quantiles at fractions τ that are drawn in each pass."""

    atoms: Annotated[int, UNITS] = 64
    """N: fractions drawn for the prediction."""
    target_atoms: Annotated[int, UNITS] = 64
    """N': fractions drawn for the target."""
    policy_atoms: Annotated[int, UNITS] = 32
    """K: fractions drawn to choose an action."""
    cosines: Annotated[int, UNITS] = 64
    """Cosines cos(πiτ), i = 1, 2, …, that embed a fraction."""
    hidden: Annotated[int, UNITS] = 512
    """Units of the dense layer."""

    gives = ("fractions",)

    @property
    def rows(self) -> int:
        return max(self.atoms, self.target_atoms, self.policy_atoms)

    def build(self, features: int, actions: int, style: Style) -> Head:
        from c2d.nets.heads import ImplicitHead

        return ImplicitHead(features, actions, style, **asdict(self))


@dataclass(frozen=True)
class Fraction(HeadSpec, name="fraction"):
    """FQF's head: IQN's quantile network at fractions that a second network proposes."""

    atoms: Annotated[int, UNITS] = 32
    """N: fractions proposed."""
    cosines: Annotated[int, UNITS] = 64
    """Cosines that embed a fraction."""
    hidden: Annotated[int, UNITS] = 512
    """Units of the dense layer."""
    entropy: Annotated[float, NOT_NEGATIVE] = 0.0
    """Weight of the entropy of the proposed fractions in their loss."""
    learning_rate: Annotated[float, POSITIVE] = 2.5e-9
    """Learning rate of the fraction network (RMSProp)."""
    decay: Annotated[float, BELOW_ONE] = 0.95
    """Decay of RMSProp's running means of gradients and of their squares."""
    eps: Annotated[float, EPS] = 1e-5
    """RMSProp's ε, added to the variance under the root."""

    gives = ("fractions",)

    @property
    def rows(self) -> int:
        return self.atoms

    def build(self, features: int, actions: int, style: Style) -> Head:
        from c2d.nets.heads import FractionHead

        optimizer = RmsProp(self.learning_rate, self.decay, self.eps)
        return FractionHead(
            features, actions, style, self.atoms, self.cosines, self.hidden, self.entropy, optimizer=optimizer
        )


@dataclass(frozen=True)
class Conjugated(HeadSpec, name="conjugated"):
    """C2D's head (Figure 1): probabilities, their embedding, and free atoms α·tanh(x/c)."""

    atoms: Annotated[int, UNITS] = 32
    """N: atoms of each action's return distribution."""
    alpha: Annotated[float, POSITIVE] = 50.0
    """α: initial scale of the support in φ-space; trained with the network."""
    c: Annotated[float, POSITIVE] = 5.0
    """c: internal output scaling in α·tanh(x/c)."""
    hidden: Annotated[int, UNITS] = 512
    """Units of the dense layer ψ(s)."""
    embedding: Annotated[int, UNITS_OR_0] = 512
    """Units of the embedding of all probabilities; 0 removes the coupling between probabilities and atoms."""
    initial_scale: Annotated[float, POSITIVE] = 1.0
    """Factor on the initial weights of the atoms' output layer. Below 1, a fresh network predicts returns near 0."""
    logit_scale: Annotated[float, POSITIVE] = 1.0
    """Factor on the logits before the softmax: probabilities learn faster, relative to atoms, the larger it is."""
    fixed_probabilities: bool = False
    """Whether each atom has probability 1/N: there are no logits, and no embedding of probabilities."""
    train_alpha: bool = True
    """Whether α is trained."""
    train_atoms: bool = True
    """Whether atoms are free; False fixes them to N equal steps from −α to α."""
    unit: Literal["one", "auto"] = "one"
    """u in φ(return/u): one, as in the paper; auto finds it from the random history, and it grows if atoms reach α."""

    @property
    def gives(self) -> tuple[str, ...]:
        return () if self.train_atoms or self.train_alpha else ("grid",)

    def check(self, recipe: Recipe) -> None:
        accepted = "True with --head.fixed-probabilities True: otherwise nothing is left to learn"
        require(self.train_atoms or not self.fixed_probabilities, "head.train-atoms", self.train_atoms, accepted)
        for conflict, why in (
            (not self.train_atoms, "--head.train-atoms False: fixed atoms cannot adapt to another unit"),
            (recipe.clip_reward is not None, f"--clip-reward {recipe.clip_reward}, which sets the scale of rewards"),
            (isinstance(recipe.bootstrap, Munchausen), "--bootstrap munchausen, whose temperature is in rewards"),
        ):
            require(self.unit == "one" or not conflict, "head.unit", self.unit, f"one with {why}")

    def build(self, features: int, actions: int, style: Style) -> Head:
        from c2d.nets.heads import ConjugatedHead

        return ConjugatedHead(features, actions, style, **asdict(self))


# ------------------------------------------------------------------------------------------------------------- losses


@dataclass(frozen=True)
class Squared(LossSpec, name="squared"):
    """The squared difference of single atoms."""

    needs = ("point",)

    def build(self, phi: Phi) -> Loss:
        from c2d.returns.losses import squared

        return squared


@dataclass(frozen=True)
class Huber(LossSpec, name="huber"):
    """Squared near 0, linear beyond κ; for single atoms."""

    kappa: Annotated[float, positive("; --loss squared has no bound")] = 1.0
    """κ: where it turns linear."""

    needs = ("point",)

    def build(self, phi: Phi) -> Loss:
        from c2d.returns.losses import huber

        return huber(self.kappa)


@dataclass(frozen=True)
class CrossEntropy(LossSpec, name="cross-entropy"):
    """Cross-entropy to the target projected onto the prediction's fixed grid (C51)."""

    interpolate: Literal["phi", "real"] = "phi"
    """Between two atoms of the grid a target is split in proportion to nearness in φ-space, or in real returns, which
    keeps their mean: between the same atoms, φ-space raises it. They are the same if φ is the identity."""

    needs = ("grid",)

    def build(self, phi: Phi) -> Loss:
        from c2d.returns.losses import cross_entropy

        return cross_entropy(phi if self.interpolate == "real" else None)


@dataclass(frozen=True)
class QuantileHuber(LossSpec, name="quantile-huber"):
    """Asymmetric Huber loss of quantile regression (QR-DQN, IQN, FQF)."""

    kappa: Annotated[float, NOT_NEGATIVE] = 1.0
    """κ: where it turns linear; 0 is the plain quantile loss."""

    needs = ("fractions",)

    def build(self, phi: Phi) -> Loss:
        from c2d.returns.losses import quantile_huber

        return quantile_huber(self.kappa)


@dataclass(frozen=True)
class Cramer(LossSpec, name="cramer"):
    """Squared Cramér distance (Algorithm 1)."""

    def build(self, phi: Phi) -> Loss:
        from c2d.returns.losses import cramer

        return cramer


# --------------------------------------------------------------------------------------------------------- bootstraps


@dataclass(frozen=True)
class Greedy(BootstrapSpec, name="greedy"):
    """The target network chooses its own greedy action (Algorithm 2)."""

    def build(self) -> Bootstrap:
        from c2d.returns.bellman import GREEDY

        return GREEDY


@dataclass(frozen=True)
class Double(BootstrapSpec, name="double"):
    """The online network chooses the action, the target network gives its return distribution."""

    def build(self) -> Bootstrap:
        from c2d.returns.bellman import DOUBLE

        return DOUBLE


@dataclass(frozen=True)
class ClippedDouble(BootstrapSpec, name="clipped-double"):
    """The online network chooses the action; of both networks, the return distribution of smaller real mean there."""

    def check(self, recipe: Recipe) -> None:
        policy, target = (getattr(recipe.head, name, None) for name in ("policy_atoms", "target_atoms"))
        accepted = f"target-atoms = {target} with --bootstrap clipped-double, which takes either network's law"
        require(policy == target, "head.policy-atoms", policy, accepted)

    def build(self) -> Bootstrap:
        from c2d.returns.bellman import CLIPPED_DOUBLE

        return CLIPPED_DOUBLE


@dataclass(frozen=True)
class Munchausen(BootstrapSpec, name="munchausen"):
    """A soft policy instead of the greedy action, and its log-probability added to the reward."""

    alpha: Annotated[float, POSITIVE] = 0.9
    """Weight of the added log-probability."""
    temperature: Annotated[float, POSITIVE] = 0.03
    """τ: temperature of the softmax policy over expected real returns."""
    floor: Annotated[float, NOT_POSITIVE] = -1.0
    """l₀: least value of τ·log π that is added."""
    multi_step: Literal["reject", "first"] = "reject"
    """With n-step returns of n > 1: reject, since the terms of the later steps are missing; or add the first term."""

    def check(self, recipe: Recipe) -> None:
        accepted = (
            "1 with --bootstrap munchausen, whose terms of later steps are missing; "
            "--bootstrap.multi-step first adds that of the first step only"
        )
        require(recipe.n_step == 1 or self.multi_step == "first", "n-step", recipe.n_step, accepted)

    def build(self) -> Bootstrap:
        from c2d.returns.bellman import munchausen

        return munchausen(self.alpha, self.temperature, self.floor)


# ----------------------------------------------------------------------------------------------------------- samplers


@dataclass(frozen=True)
class Uniform(SamplerSpec, name="uniform"):
    """Uniform sampling with replacement."""

    def build(self, capacity: int, streams: int = 1) -> Sampler:
        from c2d.replay.buffer import UniformSampler

        return UniformSampler(capacity, streams)


@dataclass(frozen=True)
class Prioritized(SamplerSpec, name="prioritized"):
    """Sampling in proportion to (loss + eps)^exponent, corrected by importance weights."""

    exponent: Annotated[float, NOT_NEGATIVE] = 0.5
    """Exponent on the per-sample loss. 0.5 of the squared Cramér distance is √|TD error| for certain returns."""
    weight_exponent: Annotated[float, NOT_NEGATIVE] = 0.5
    """Exponent of the importance weights 1/p, which are divided by the largest of the batch."""
    eps: Annotated[float, positive(": a transition without a loss would never be drawn again")] = 1e-10
    """Added to the loss, so that every transition can be drawn again."""

    def build(self, capacity: int, streams: int = 1) -> Sampler:
        from c2d.replay.buffer import PrioritizedSampler

        return PrioritizedSampler(capacity, self.exponent, self.weight_exponent, self.eps, streams)


# --------------------------------------------------------------------------------------------------------- optimizers


@dataclass(frozen=True)
class Adam(OptimizerSpec, name="adam"):
    """Adam with a bound on the global gradient norm."""

    learning_rate: Annotated[float, POSITIVE] = 0.5e-4
    """Learning rate."""
    learning_rate_final: Annotated[float | None, NOT_NEGATIVE] = None
    """Learning rate after its linear decay; None keeps it constant, as the paper does."""
    decay_updates: Annotated[int, COUNT_OR_0] = 0
    """Gradient steps over which the learning rate falls to its final value."""
    head_rate: Annotated[float, POSITIVE] = 1.0
    """Factor on the learning rate of the head, decay included; the encoder's is the learning rate itself."""
    eps: Annotated[float, EPS] = 0.01 / 32
    """Adam's ε, which keeps steps small where gradients are tiny."""
    eps_form: Literal["keras", "torch"] = "keras"
    """Where ε enters: keras adds it to √v before bias correction (the authors' runs), torch after."""
    beta1: Annotated[float, BELOW_ONE] = 0.9
    """Decay of the running mean of gradients."""
    beta2: Annotated[float, BELOW_ONE] = 0.999
    """Decay of the running mean of squared gradients."""
    clip_norm: Annotated[float | None, POSITIVE] = 10.0
    """Largest global norm of a gradient; None does not clip."""

    def build(self, parameters: Iterable[nn.Parameter]) -> Optimizer:
        from c2d.agents.learner import FusedAdam

        return FusedAdam(parameters, self)

    def build_for(self, encoder: list[nn.Parameter], head: list[nn.Parameter]) -> Optimizer:
        from c2d.agents.learner import FusedAdam

        return FusedAdam(encoder, self, head)


@dataclass(frozen=True)
class RmsProp(OptimizerSpec, name="rmsprop"):
    """Centered RMSProp: the gradient over the root of its running variance, as TensorFlow 1 computed it."""

    learning_rate: Annotated[float, POSITIVE] = 2.5e-4
    """Learning rate."""
    decay: Annotated[float, BELOW_ONE] = 0.95
    """Decay of the running means of gradients and of their squares."""
    eps: Annotated[float, EPS] = 1e-5
    """ε, added to the variance under the root."""
    clip_norm: Annotated[float | None, POSITIVE] = None
    """Largest global norm of a gradient; None does not clip."""

    def build(self, parameters: Iterable[nn.Parameter]) -> Optimizer:
        from c2d.agents.learner import CenteredRmsProp

        return CenteredRmsProp(parameters, self)
