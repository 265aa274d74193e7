"""The parts a recipe is put together from: encoders, heads, φ, losses, bootstraps, samplers, optimizers.

The docstring under each field is its help text on the command line.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias


@dataclass(frozen=True)
class Nature:
    """The convolutional encoder of DQN for 84×84 pictures: 32×8×8/4, 64×4×4/2, 64×3×3/1."""

    norm: Literal["column", "channel", "none"] = "column"
    """Batch normalization before each ReLU: per image column (the authors' runs), per channel (the paper), or none."""
    padding: Literal["valid", "same"] = "valid"
    """Convolution padding: valid (C2D) or same (Dopamine's baselines)."""


@dataclass(frozen=True)
class MinAtar:
    """One 3×3 convolution with 16 channels, the usual encoder for 10×10 MinAtar planes."""

    channels: int = 16
    """Channels of the convolution."""
    norm: Literal["column", "channel", "none"] = "none"
    """Batch normalization between the convolution and its ReLU."""


@dataclass(frozen=True)
class Mlp:
    """Dense layers with ReLU, for vector observations. The head adds one dense layer of its own."""

    widths: tuple[int, ...] = (128,)
    """Units of each dense layer."""


@dataclass(frozen=True)
class Impala:
    """The residual encoder of IMPALA: three blocks of 16, 32 and 32 channels, times `scale`."""

    scale: int = 1
    """Factor on the channels of every block."""


EncoderSpec: TypeAlias = Nature | MinAtar | Mlp | Impala


@dataclass(frozen=True)
class Scalar:
    """One atom per action: the expected return in φ-space, as in DQN."""

    hidden: int = 512
    """Units of the dense layer."""


@dataclass(frozen=True)
class Categorical:
    """C51's head: learned probabilities on a fixed grid of atoms in φ-space."""

    atoms: int = 51
    """N: atoms of the grid."""
    v_min: float = -10.0
    """Smallest atom, in φ-space."""
    v_max: float = 10.0
    """Largest atom, in φ-space."""
    hidden: int = 512
    """Units of the dense layer."""


@dataclass(frozen=True)
class Quantile:
    """QR-DQN's head: learned atoms of equal probability, at the midpoints of N equal fractions."""

    atoms: int = 200
    """N: quantiles of the law of each action."""
    hidden: int = 512
    """Units of the dense layer."""


@dataclass(frozen=True)
class Implicit:
    """IQN's head: quantiles at fractions τ that are drawn anew in each pass."""

    atoms: int = 64
    """N: fractions drawn for the prediction."""
    target_atoms: int = 64
    """N': fractions drawn for the target."""
    policy_atoms: int = 32
    """K: fractions drawn to choose an action."""
    cosines: int = 64
    """Cosines cos(πiτ), i = 1, 2, …, that embed a fraction."""
    hidden: int = 512
    """Units of the dense layer."""


@dataclass(frozen=True)
class Fraction:
    """FQF's head: IQN's quantile network at fractions that a network of their own proposes."""

    atoms: int = 32
    """N: fractions proposed."""
    cosines: int = 64
    """Cosines that embed a fraction."""
    hidden: int = 512
    """Units of the dense layer."""
    entropy: float = 0.0
    """Weight of the entropy of the proposed fractions in their loss."""
    learning_rate: float = 2.5e-9
    """Learning rate of the fraction network (RMSProp)."""
    decay: float = 0.95
    """Decay of its mean of squared gradients."""
    eps: float = 1e-5
    """ε in its denominator."""


@dataclass(frozen=True)
class Conjugated:
    """C2D's head (Figure 1): probabilities, their embedding, and free atoms α·tanh(x/c)."""

    atoms: int = 32
    """N: atoms of the law of each action."""
    alpha: float = 50.0
    """α: initial scale of the support in φ-space; trained with the network."""
    c: float = 5.0
    """c: internal output scaling in α·tanh(x/c)."""
    hidden: int = 512
    """Units of the dense layer ψ(s)."""
    embedding: int = 512
    """Units of the embedding of all probabilities; 0 removes the coupling between probabilities and atoms."""
    train_alpha: bool = True
    """Whether α is trained."""
    train_atoms: bool = True
    """Whether atoms are free; False fixes them to N equal steps from −α to α."""


HeadSpec: TypeAlias = Scalar | Categorical | Quantile | Implicit | Fraction | Conjugated


@dataclass(frozen=True)
class Squared:
    """The squared difference of single atoms."""


@dataclass(frozen=True)
class Huber:
    """Squared near 0, linear beyond κ; for single atoms."""

    kappa: float = 1.0
    """κ: where it turns linear."""


@dataclass(frozen=True)
class CrossEntropy:
    """Cross-entropy to the target projected onto the prediction's fixed grid (C51)."""


@dataclass(frozen=True)
class QuantileHuber:
    """Asymmetric Huber loss of quantile regression (QR-DQN, IQN, FQF)."""

    kappa: float = 1.0
    """κ: where it turns linear; 0 is the plain quantile loss."""


@dataclass(frozen=True)
class Cramer:
    """Squared Cramér distance (Algorithm 1)."""


LossSpec: TypeAlias = Squared | Huber | CrossEntropy | QuantileHuber | Cramer


@dataclass(frozen=True)
class Greedy:
    """The target network chooses its own greedy action (Algorithm 2)."""


@dataclass(frozen=True)
class Double:
    """The online network chooses the action, the target network tells its law."""


@dataclass(frozen=True)
class Munchausen:
    """A soft policy instead of the greedy action, and its log-probability added to the reward."""

    alpha: float = 0.9
    """Weight of the added log-probability."""
    temperature: float = 0.03
    """τ: temperature of the softmax policy over expected real returns."""
    floor: float = -1.0
    """l₀: least value of τ·log π that is added."""
    multi_step: Literal["reject", "first"] = "reject"
    """With n-step returns of n > 1: reject, for the terms of the steps between are missing; or add the first one's."""


BootstrapSpec: TypeAlias = Greedy | Double | Munchausen


@dataclass(frozen=True)
class Uniform:
    """Uniform sampling with replacement."""


@dataclass(frozen=True)
class Prioritized:
    """Sampling in proportion to (loss + eps)^exponent, corrected by importance weights."""

    exponent: float = 0.5
    """Exponent on the per-sample loss. 0.5 of the squared Cramér distance is √|TD error| for sure returns."""
    weight_exponent: float = 0.5
    """Exponent of the importance weights 1/p, which are divided by the largest of the batch."""
    eps: float = 1e-10
    """Added to the loss, so that nothing is lost for ever."""


SamplerSpec: TypeAlias = Uniform | Prioritized


@dataclass(frozen=True)
class PhiSpec:
    """The homeomorphism φ that squeezes returns."""

    kind: str = "scaled_h"
    """Which function: identity, h, scaled_h, symlog, asinh, or your own as my_package.my_module:my_phi."""
    beta: float = 1.99
    """β: scale of scaled_h, φ(x) = β·h(x)."""
    eps: float = 1e-3
    """ϵ of h(x) = sign(x)(√(1+|x|) − 1) + ϵx."""


@dataclass(frozen=True)
class Adam:
    """Adam with a bound on the global gradient norm."""

    learning_rate: float = 0.5e-4
    """Learning rate."""
    learning_rate_final: float | None = None
    """Learning rate after its linear decay; None keeps it constant, as the paper does."""
    decay_updates: int = 0
    """Gradient steps over which the learning rate falls to its final value."""
    eps: float = 0.01 / 32
    """Adam's ε, which keeps steps small where gradients are tiny."""
    eps_form: Literal["keras", "torch"] = "keras"
    """Where ε enters: keras adds it to √v before bias correction (the authors' runs), torch after."""
    beta1: float = 0.9
    """Decay of the mean of gradients."""
    beta2: float = 0.999
    """Decay of the mean of squared gradients."""
    clip_norm: float | None = 10.0
    """Largest global norm of a gradient; None leaves gradients alone."""


@dataclass(frozen=True)
class RmsProp:
    """Centered RMSProp: the gradient over the root of its running variance, as TensorFlow 1 computed it."""

    learning_rate: float = 2.5e-4
    """Learning rate."""
    decay: float = 0.95
    """Decay of the means of gradients and of their squares."""
    eps: float = 1e-5
    """ε, added to the variance under the root."""
    clip_norm: float | None = None
    """Largest global norm of a gradient; None leaves gradients alone."""


OptimSpec: TypeAlias = Adam | RmsProp
