"""Recipe: the row that defines an algorithm. Plain frozen data: printable, comparable, JSON-able.

The docstring under each field is its help text on the command line. Units are agent steps unless said otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias


@dataclass(frozen=True)
class Nature:
    """The convolutional encoder of DQN for 84×84 pictures: 32×8×8/4, 64×4×4/2, 64×3×3/1."""

    norm: Literal["column", "channel", "none"] = "column"
    """Batch normalization between each convolution and its ReLU: per image column (what the authors' runs did),
    per channel (the paper's words), or none."""
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


EncoderSpec: TypeAlias = Nature | MinAtar | Mlp


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


HeadSpec: TypeAlias = Conjugated


@dataclass(frozen=True)
class PhiSpec:
    """The homeomorphism φ that squeezes returns."""

    kind: Literal["identity", "h", "scaled_h", "symlog", "asinh"] = "scaled_h"
    """Which function."""
    beta: float = 1.99
    """β: scale of scaled_h, φ(x) = β·h(x)."""
    eps: float = 1e-3
    """ϵ of h(x) = sign(x)(√(1+|x|) − 1) + ϵx."""


@dataclass(frozen=True)
class Cramer:
    """Squared Cramér distance (Algorithm 1)."""


LossSpec: TypeAlias = Cramer


@dataclass(frozen=True)
class Greedy:
    """The target network chooses its own greedy action (Algorithm 2)."""


BootstrapSpec: TypeAlias = Greedy


@dataclass(frozen=True)
class Uniform:
    """Uniform sampling with replacement."""


SamplerSpec: TypeAlias = Uniform


@dataclass(frozen=True)
class Schedule:
    """When things happen. Units: agent steps (one agent step of Atari is 4 frames)."""

    gamma: float = 0.99
    """γ: discount per agent step."""
    steps_per_iteration: int = 250_000
    """Agent steps in one iteration; results are recorded once per iteration."""
    batch_size: int = 32
    """Transitions in one gradient step."""
    update_period: int = 4
    """Agent steps between gradient steps."""
    target_period: int = 8_000
    """Agent steps between copies to the target network."""
    random_history: int = 20_000
    """Uniformly random steps that fill the replay before training; they count toward nothing."""
    replay_capacity: int = 1_000_000
    """Transitions kept in the replay."""
    epsilon_initial: float = 1.0
    """ε of the ε-greedy policy at the first training step."""
    epsilon_min: float = 0.01
    """ε after its decay."""
    epsilon_decay_steps: int = 250_000
    """Steps over which ε falls linearly."""
    epsilon_eval: float = 0.001
    """ε when the trained agent is evaluated."""


@dataclass(frozen=True)
class Optim:
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
class Recipe:
    """One row = one algorithm."""

    encoder: EncoderSpec = field(default_factory=Nature)
    head: HeadSpec = field(default_factory=Conjugated)
    phi: PhiSpec = field(default_factory=PhiSpec)
    loss: LossSpec = field(default_factory=Cramer)
    bootstrap: BootstrapSpec = field(default_factory=Greedy)
    sampler: SamplerSpec = field(default_factory=Uniform)
    n_step: int = 1
    """n of n-step returns."""
    clip_reward: float | None = None
    """Bound on |reward| as the learner sees it; None (C2D) learns on raw rewards. Scores are always raw."""
    schedule: Schedule = field(default_factory=Schedule)
    optim: Optim = field(default_factory=Optim)
