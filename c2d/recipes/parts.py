"""The parts of recipes: encoders, cores and heads; `learning_parts.py` has what learning is made of.

`part.py` says what a part is. The docstring under each field is its help text on the command line.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from c2d.envs.spec import EnvSpec
from c2d.recipes.learning_parts import EPS
from c2d.recipes.learning_parts import Adam as Adam
from c2d.recipes.learning_parts import ClippedDouble as ClippedDouble
from c2d.recipes.learning_parts import Cramer as Cramer
from c2d.recipes.learning_parts import CrossEntropy as CrossEntropy
from c2d.recipes.learning_parts import Double as Double
from c2d.recipes.learning_parts import Greedy as Greedy
from c2d.recipes.learning_parts import Huber as Huber
from c2d.recipes.learning_parts import Munchausen as Munchausen
from c2d.recipes.learning_parts import Prioritized as Prioritized
from c2d.recipes.learning_parts import QuantileHuber as QuantileHuber
from c2d.recipes.learning_parts import RmsProp as RmsProp
from c2d.recipes.learning_parts import Squared as Squared
from c2d.recipes.learning_parts import Uniform as Uniform
from c2d.recipes.part import CoreSpec, EncoderSpec, HeadSpec, Recurrent
from c2d.recipes.part import PhiSpec as PhiSpec
from c2d.validation import (
    BELOW_ONE,
    FINITE,
    NOT_NEGATIVE,
    POSITIVE,
    UNITS,
    UNITS_OR_0,
    between,
    list_of,
    require,
)

if TYPE_CHECKING:  # a config can be read without PyTorch
    from c2d.nets.cores import RecurrentCell
    from c2d.nets.heads import Head, Style
    from c2d.nets.network import Encoder
    from c2d.recipes.recipe import Recipe

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
    norm: Literal["layer", "spectral", "none"] = "none"
    """Normalization: layer, over each image before each ReLU; spectral, of the weights of the 12 residual convolutions,
    divided by their largest singular value; or none."""
    pool: Annotated[int, UNITS_OR_0] = 0
    """Side of the map that a last max-pooling leaves, whatever the size of the images: 6 in BTR; 0: no such pooling."""

    observations = "image"

    def build(self, env: EnvSpec) -> Encoder:
        from c2d.nets.network import ImpalaEncoder

        return ImpalaEncoder(env.obs_shape, self.scale, env.pixel_scale, self.norm, self.pool)


# -------------------------------------------------------------------------------------------------------------- cores


@dataclass(frozen=True)
class NoCore(CoreSpec, name="none"):
    """No memory: features go straight to the head."""


@dataclass(frozen=True)
class Lstm(Recurrent, CoreSpec, name="lstm"):
    """Long short-term memory, as in R2D2 and DRQN."""

    def build(self, inputs: int) -> RecurrentCell:
        from c2d.nets.cores import LstmCell

        return LstmCell(inputs, self.hidden)


@dataclass(frozen=True)
class Gru(Recurrent, CoreSpec, name="gru"):
    """A gated recurrent unit: three quarters of an LSTM's weights, half of its memory."""

    def build(self, inputs: int) -> RecurrentCell:
        from c2d.nets.cores import GruCell

        return GruCell(inputs, self.hidden)


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
    """Factor on the initial weights of the atoms' output layer, and on their noise. Below 1, a fresh network predicts
    returns near 0."""
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
        soft = isinstance(recipe.bootstrap, Munchausen) and recipe.bootstrap.scale == "one"
        for conflict, why in (
            (not self.train_atoms, "--head.train-atoms False: fixed atoms cannot adapt to another unit"),
            (recipe.clip_reward is not None, f"--clip-reward {recipe.clip_reward}, which sets the scale of rewards"),
            (soft, "--bootstrap munchausen, whose temperature is in rewards: --bootstrap.scale running changes that"),
        ):
            require(self.unit == "one" or not conflict, "head.unit", self.unit, f"one with {why}")

    def build(self, features: int, actions: int, style: Style) -> Head:
        from c2d.nets.heads import ConjugatedHead

        return ConjugatedHead(features, actions, style, **asdict(self))
