"""The parts of recipes that learning is made of: losses, bootstraps, samplers, optimizers.

`part.py` says what a part is. The docstring under each field is its help text on the command line.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from c2d.recipes.part import BootstrapSpec, LossSpec, OptimizerSpec, SamplerSpec
from c2d.validation import (
    BELOW_ONE,
    COUNT_OR_0,
    NOT_NEGATIVE,
    NOT_POSITIVE,
    POSITIVE,
    positive,
    require,
)

if TYPE_CHECKING:  # a config can be read without PyTorch
    from torch import nn

    from c2d.agents.learner import Optimizer
    from c2d.recipes.recipe import Recipe
    from c2d.replay.buffer import Sampler
    from c2d.returns.bellman import Bootstrap
    from c2d.returns.losses import Loss
    from c2d.types import Phi

EPS = positive(": weights without a gradient need it")

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
    policy: Literal["target", "online"] = "target"
    """Whose policy the added log-probability is of: that of the target network, or of the online one (BTR)."""
    scale: Literal["one", "running"] = "one"
    """What temperature and floor are multiplied by: one, so that they are in rewards; or a running mean of the standard
    deviation of the real means of a state's actions, for rewards of any size."""

    def check(self, recipe: Recipe) -> None:
        accepted = (
            "1 with --bootstrap munchausen, whose terms of later steps are missing; "
            "--bootstrap.multi-step first adds that of the first step only"
        )
        require(recipe.n_step == 1 or self.multi_step == "first", "n-step", recipe.n_step, accepted)

    def build(self) -> Bootstrap:
        from c2d.returns.bellman import munchausen

        return munchausen(self.alpha, self.temperature, self.floor, self.policy == "online", self.scale == "running")


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
    """Exponent on the loss of a sample, or on what `by` names. 0.5 of the squared Cramér distance is √|TD error| for
    certain returns."""
    weight_exponent: Annotated[float, NOT_NEGATIVE] = 0.5
    """Exponent of the importance weights 1/p, which are divided by the largest of the batch."""
    eps: Annotated[float, positive(": a transition without a loss would never be drawn again")] = 1e-10
    """Added to the loss, so that every transition can be drawn again."""
    by: Literal["loss", "td-error", "cramer"] = "loss"
    """What a priority is made of: the loss of the sample; the TD error, the absolute difference of predicted and
    target atoms, summed over the predicted and averaged over the target ones (BTR); or the Cramér distance of their
    distributions, the root of C2D's loss."""

    def build(self, capacity: int, streams: int = 1) -> Sampler:
        from c2d.replay.buffer import PrioritizedSampler

        return PrioritizedSampler(capacity, self.exponent, self.weight_exponent, self.eps, streams)

    def build_priority(self) -> Loss | None:
        from c2d.returns.losses import cramer_distance, td_error

        return {"loss": None, "td-error": td_error, "cramer": cramer_distance}[self.by]


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
