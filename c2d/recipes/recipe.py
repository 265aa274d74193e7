"""Recipe: the row that defines an algorithm. Plain frozen data: printable, comparable, JSON-able.

The docstring under each field is its help text on the command line. Units are agent steps unless said otherwise.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from c2d.errors import UserError, did_you_mean
from c2d.recipes.parts import (
    Adam,
    BootstrapSpec,
    Categorical,
    Conjugated,
    Cramer,
    CrossEntropy,
    Double,
    EncoderSpec,
    Fraction,
    Greedy,
    HeadSpec,
    Huber,
    Impala,
    Implicit,
    LossSpec,
    MinAtar,
    Mlp,
    Munchausen,
    Nature,
    OptimSpec,
    PhiSpec,
    Prioritized,
    Quantile,
    QuantileHuber,
    RmsProp,
    SamplerSpec,
    Scalar,
    Squared,
    Uniform,
)


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
    polyak: float | None = None
    """If given, the target network instead moves by this fraction toward the online one after each update."""
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
class Recipe:
    """One row = one algorithm."""

    encoder: EncoderSpec = field(default_factory=Nature)
    head: HeadSpec = field(default_factory=Conjugated)
    phi: PhiSpec = field(default_factory=PhiSpec)
    loss: LossSpec = field(default_factory=Cramer)
    bootstrap: BootstrapSpec = field(default_factory=Greedy)
    sampler: SamplerSpec = field(default_factory=Uniform)
    dueling: bool = False
    """Output as a value of the state plus centered advantages of the actions."""
    noisy: bool = False
    """Factorized Gaussian noise on the weights of the head's layers, for exploration."""
    noise: float = 0.5
    """σ₀: initial size of that noise."""
    initializer: Literal["glorot", "fan-in", "orthogonal"] = "glorot"
    """Initial weights of convolutions and dense layers: Glorot uniform (C2D, DQN), uniform in ±√(√3/inputs) (Dopamine's
    C51, Rainbow, QR-DQN, IQN), or orthogonal; noisy layers have their own."""
    n_step: int = 1
    """n of n-step returns."""
    clip_reward: float | None = None
    """Bound on |reward| as the learner sees it; None (C2D) learns on raw rewards. Scores are always raw."""
    schedule: Schedule = field(default_factory=Schedule)
    optim: OptimSpec = field(default_factory=Adam)


# What each part can be, by the names on the command line.
PARTS: dict[str, dict[str, type]] = {
    "encoder": {"nature": Nature, "minatar": MinAtar, "mlp": Mlp, "impala": Impala},
    "head": {
        "scalar": Scalar,
        "categorical": Categorical,
        "quantile": Quantile,
        "implicit": Implicit,
        "fraction": Fraction,
        "conjugated": Conjugated,
    },
    "loss": {
        "squared": Squared,
        "huber": Huber,
        "cross-entropy": CrossEntropy,
        "quantile-huber": QuantileHuber,
        "cramer": Cramer,
    },
    "bootstrap": {"greedy": Greedy, "double": Double, "munchausen": Munchausen},
    "sampler": {"uniform": Uniform, "prioritized": Prioritized},
    "optim": {"adam": Adam, "rmsprop": RmsProp},
}


def exchange(recipe: Recipe, chosen: Mapping[str, str]) -> Recipe:
    """Other parts with their default settings; layers keep their size where both kinds have one."""
    for part, name in chosen.items():
        if name not in PARTS[part]:
            hint = did_you_mean(str(name), PARTS[part])
            raise UserError(f'unknown {part} "{name}".{hint} Accepted: {", ".join(PARTS[part])}')
        new, old = PARTS[part][name](), getattr(recipe, part)
        if type(new) is type(old):
            continue
        kept = {f.name for f in dataclasses.fields(new)} & {"hidden", "learning_rate"}
        same = {field: getattr(old, field) for field in kept if hasattr(old, field)}
        recipe = dataclasses.replace(recipe, **{part: dataclasses.replace(new, **same)})
    return recipe
