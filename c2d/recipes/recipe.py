"""Recipe: the row that defines an algorithm. Plain frozen data: printable, comparable, JSON-able.

The docstring under each field is its help text on the command line. Units are agent steps unless stated otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, Literal

from c2d.recipes.part import (
    SLOTS,
    BootstrapSpec,
    CoreSpec,
    EncoderSpec,
    HeadSpec,
    LossSpec,
    OptimizerSpec,
    Recurrent,
    SamplerSpec,
    check_declaration,
    find_part,
    with_known,
)
from c2d.recipes.parts import (
    Adam,
    Conjugated,
    Cramer,
    Double,
    Greedy,
    Impala,
    Implicit,
    MinAtar,
    Munchausen,
    Nature,
    NoCore,
    PhiSpec,
    Prioritized,
    Quantile,
    Uniform,
)
from c2d.validation import (
    BELOW_ONE,
    COUNT,
    COUNT_OR_0,
    FRACTION,
    NOT_NEGATIVE,
    POSITIVE,
    UNITS,
    Limit,
    between,
    check_values,
    option,
    require,
)

_CAPACITY = Limit(lambda v: 1 <= v <= 10**10, "at least 1, at most 10^10")


@dataclass(frozen=True)
class Schedule:
    """When things happen. Units: agent steps (one agent step of Atari is 4 frames)."""

    gamma: Annotated[float, FRACTION] = 0.99
    """γ: discount per agent step."""
    steps_per_iteration: Annotated[int, COUNT] = 250_000
    """Agent steps in one iteration; results are recorded once per iteration."""
    batch_size: Annotated[int, UNITS] = 32
    """Transitions in one gradient step; with a core that remembers, sequences."""
    update_period: Annotated[int, COUNT] = 4
    """Agent steps of all environments together between gradient steps."""
    updates_per_period: Annotated[int, between(1, 1_000)] = 1
    """Gradient steps at the end of each such period, each on a batch of its own: above 1 for a larger replay ratio."""
    target_period: Annotated[int, COUNT] = 8_000
    """Agent steps between copies to the target network."""
    polyak: Annotated[float | None, FRACTION] = None
    """If given, the target network instead moves by this fraction toward the online one after each update."""
    acting_average: Annotated[float | None, BELOW_ONE] = None
    """If given, a mean of the online network's weights acts, in training and evaluation, and is what a run saves as its
    weights: the mean over all updates, whose weight falls by this factor with each later update."""
    random_history: Annotated[int, COUNT] = 20_000
    """Uniformly random steps that fill the replay before training; they do not count as training steps."""
    replay_capacity: Annotated[int, _CAPACITY] = 1_000_000
    """Transitions kept in the replay."""
    epsilon_initial: Annotated[float, FRACTION] = 1.0
    """ε of the ε-greedy policy at the first training step."""
    epsilon_min: Annotated[float, FRACTION] = 0.01
    """ε after its decay."""
    epsilon_decay_steps: Annotated[int, COUNT_OR_0] = 250_000
    """Steps over which ε falls: to its least value if linearly, nearly two thirds of the way if geometrically."""
    epsilon_decay: Literal["linear", "geometric"] = "linear"
    """How ε falls: linearly; or geometrically, its distance to the least value by 1/steps of itself with each step."""
    epsilon_off_steps: Annotated[int | None, COUNT_OR_0] = None
    """Training steps after which ε is 0, for networks that explore by noise; None: ε stays at its least value."""
    epsilon_ladder: Annotated[float, NOT_NEGATIVE] = 0.0
    """k of ε^(1 + k·i/(N-1)), the ε of environment i of N: 7 in Ape-X; 0: all environments explore alike."""
    epsilon_eval: Annotated[float, FRACTION] = 0.001
    """ε when the trained agent is evaluated."""


@dataclass(frozen=True)
class Recipe:
    """One row = one algorithm."""

    encoder: EncoderSpec = field(default_factory=Nature)
    core: CoreSpec = field(default_factory=NoCore)
    head: HeadSpec = field(default_factory=Conjugated)
    phi: PhiSpec = field(default_factory=PhiSpec)
    loss: LossSpec = field(default_factory=Cramer)
    bootstrap: BootstrapSpec = field(default_factory=Greedy)
    sampler: SamplerSpec = field(default_factory=Uniform)
    dueling: bool = False
    """Output as a value of the state plus centered advantages of the actions."""
    dueling_hidden: Literal["shared", "separate"] = "shared"
    """The hidden dense layer below a dueling output: one for both parts, or one of that size for each."""
    noisy: bool = False
    """Factorized Gaussian noise on the weights of the head's layers, for exploration."""
    noise: Annotated[float, POSITIVE] = 0.5
    """σ₀: initial size of that noise."""
    layer_norm: bool = False
    """Layer normalization before the ReLU of the head's hidden dense layer."""
    initializer: Literal["glorot", "fan-in", "torch", "orthogonal"] = "glorot"
    """Initial weights of convolutions and dense layers: Glorot uniform (C2D, DQN), uniform in ±√(√3/inputs) (Dopamine's
    C51, Rainbow, QR-DQN, IQN) or in ±1/√inputs (torch: BTR), or orthogonal; noisy layers have their own."""
    n_step: Annotated[int, between(1, 10_000)] = 1
    """n of n-step returns."""
    clip_reward: Annotated[float | None, POSITIVE] = None
    """Bound on |reward| as the learner sees it; None (C2D) learns on raw rewards. Scores are always raw."""
    envs: Annotated[int, between(1, 4_096)] = 1
    """Environments that play in lock-step, with one network pass for all. Steps and periods count those of all."""
    overlap: bool = False
    """Environments step while the learner updates, from what was stored before; actions are chosen before that."""
    schedule: Schedule = field(default_factory=Schedule)
    optim: OptimizerSpec = field(default_factory=Adam)


@dataclass(frozen=True)
class ActorSettings:
    """How the actors of a run play and exchange experience for weights (docs/many-machines.md)."""

    mode: Annotated[
        Literal["synchronous", "asynchronous"],
        Limit(lambda v: v in ("synchronous", "asynchronous"), "synchronous, asynchronous"),
    ] = "synchronous"
    """synchronous: in lock-step with the learner, reproducible, resumed exactly; asynchronous: nobody waits for a slow
    actor, and results differ from run to run."""
    weights_period: Annotated[int, between(1, 1_000_000)] = 400
    """Steps that each environment of an actor makes with the same weights; then it sends them and gets new ones."""
    samples_per_insert: Annotated[float | None, POSITIVE] = None
    """Samples that the learner draws per step that the actors insert. None: the recipe's, batch size times updates per
    update period."""
    epsilon: Annotated[float | None, FRACTION] = 0.4
    """ε of the first actor. None: that of the schedule, as for every recipe that explores by noise."""
    epsilon_ladder: Annotated[float, NOT_NEGATIVE] = 7.0
    """k of ε^(1 + k·i/(N-1)), the ε of actor i of N; all environments of an actor explore alike."""


def epsilon_at(
    step: int, initial: float, least: float, decay_steps: int, decay: str = "linear", off_steps: float | None = None
) -> float:
    """ε at a training step, by the settings of a `Schedule`."""
    if off_steps is not None and step >= off_steps:
        return 0.0
    if decay == "geometric":
        return least + (initial - least) * (1.0 - 1.0 / decay_steps) ** step if decay_steps > 1 else least
    return least if step >= decay_steps else initial + (least - initial) * (step / decay_steps)


def epsilon_ladder(epsilon: float, ladder: float, envs: int) -> list[float]:
    """ε of each of several environments: ε^(1 + ladder · i/(N-1)), which is ε for all where the ladder is 0."""
    if not ladder or envs == 1:
        return [epsilon] * envs
    return [float(epsilon ** (1.0 + ladder * number / (envs - 1))) for number in range(envs)]


def exchange(recipe: Recipe, chosen: Mapping[str, str]) -> Recipe:
    """Other parts, by slot and name, with their default settings; sizes and rates that both kinds have are kept."""
    for slot, name in chosen.items():
        cls, old = find_part(slot, name), getattr(recipe, slot)
        if cls is type(old):
            continue
        kept = {f.name: getattr(old, f.name) for f in fields(old) if f.name in ("hidden", "learning_rate")}
        part: Any = with_known(cls(), **kept)
        if isinstance(part, Recurrent) and not isinstance(old, Recurrent):
            part = part.at_scale(getattr(recipe.head, "hidden", part.hidden))
        recipe = replace(recipe, **{slot: part})
    return recipe


def check_recipe(recipe: Recipe) -> None:
    """Reject values out of range and parts that do not fit together, with the reason."""
    check_values(recipe)
    recipe.phi.build()
    alone = recipe.dueling_hidden == "shared" or recipe.dueling
    require(alone, "dueling-hidden", recipe.dueling_hidden, "shared without --dueling True")
    for slot in SLOTS:
        part = getattr(recipe, slot)
        check_declaration(type(part))
        part.check(recipe)
    history, capacity, least = recipe.schedule.random_history, recipe.schedule.replay_capacity, recipe.n_step + 1
    accepted = f"from n-step + 1 = {least} to the replay capacity {capacity}"
    require(least <= history <= capacity, "schedule.random-history", history, accepted)
    most = history // least
    accepted = (
        f"at most {most}: each needs n-step + 1 = {least} of the {history} random steps (--schedule.random-history)"
    )
    require(recipe.envs <= most, "envs", recipe.envs, accepted)
    if isinstance(core := recipe.core, Recurrent):
        longest, each = core.burn_in + core.sequence + recipe.n_step + 1, capacity // recipe.envs
        accepted = (
            f"at least {longest * recipe.envs}: each environment needs burn-in + sequence + n-step + 1 = {longest}"
        )
        require(each >= longest, "schedule.replay-capacity", capacity, accepted)


def check_actors(recipe: Recipe, actors: int, own: ActorSettings, address: str | None) -> None:
    """Reject settings that do not fit a run with actors, or one without."""
    if not actors:
        require(address is None, "address", address, "an address with --actors of 1 or more")
        for setting in fields(ActorSettings):
            value, usual = getattr(own, setting.name), setting.default
            require(value == usual, f"actor.{option(setting.name)}", value, f"{usual} without --actors")
        return
    require(not recipe.overlap, "overlap", recipe.overlap, f"False with --actors {actors}, who play while it learns")
    least, history = recipe.n_step + 1, recipe.schedule.random_history
    most = history // (least * recipe.envs)
    accepted = f"at most {most}: each of {recipe.envs} environments of an actor needs n-step + 1 = {least} of the "
    accepted += f"{history} random steps (--schedule.random-history)"
    require(actors <= most, "actors", actors, accepted)


# ----------------------------------------------------------------------------------------------------- ingredients


def ingredients(recipe: Recipe) -> dict[str, Callable[[Recipe], Recipe]]:
    """What the recipe has beyond the plainest one, by name, and how to take it away."""
    removals: dict[str, tuple[bool, Callable[[Recipe], Recipe]]] = {
        "n-step": (recipe.n_step > 1, lambda r: replace(r, n_step=1)),
        "priorities": (
            isinstance(recipe.sampler, Prioritized),
            lambda r: replace(r, sampler=Uniform()),
        ),
        "double": (isinstance(recipe.bootstrap, Double), lambda r: replace(r, bootstrap=Greedy())),
        "munchausen": (
            isinstance(recipe.bootstrap, Munchausen),
            lambda r: replace(r, bootstrap=Greedy()),
        ),
        "noise": (recipe.noisy, _without_noise),
        "epsilon": (recipe.noisy and recipe.schedule.epsilon_initial > 0, _without_epsilon),
        "dueling": (recipe.dueling, lambda r: replace(r, dueling=False, dueling_hidden="shared")),
        "separate-streams": (
            recipe.dueling_hidden == "separate",
            lambda r: replace(r, dueling_hidden="shared"),
        ),
        "memory": (isinstance(recipe.core, Recurrent), _without_memory),
        "many-environments": (recipe.envs > 1, lambda r: replace(r, envs=1)),
        "random-fractions": (isinstance(recipe.head, Implicit), _fixed_fractions),
        "phi": (recipe.phi.kind != "identity", lambda r: replace(r, phi=PhiSpec("identity"))),
        "embedding": (
            isinstance(recipe.head, Conjugated) and recipe.head.embedding > 0,
            lambda r: replace(r, head=replace(r.head, embedding=0)),  # type: ignore[call-arg, arg-type]
        ),
        "unit": (getattr(recipe.head, "unit", "one") != "one", with_head(unit="one")),
        "narrow-start": (getattr(recipe.head, "initial_scale", 1.0) < 1.0, with_head(initial_scale=1.0)),
        "layer-norm": (recipe.layer_norm, _without_layer_norm),
        "falling-rate": (
            getattr(recipe.optim, "learning_rate_final", None) is not None,
            lambda r: replace(r, optim=with_known(r.optim, learning_rate_final=None, decay_updates=0)),
        ),
    }
    if isinstance(encoder := recipe.encoder, Impala):
        removals |= {
            "spectral-norm": (encoder.norm == "spectral", _with_encoder(norm="none")),
            "pooling": (encoder.pool > 0, _with_encoder(pool=0)),
            "residual-encoder": (True, _without_residuals),
        }
    return {name: change for name, (has, change) in removals.items() if has}


def with_head(**changes: object) -> Callable[[Recipe], Recipe]:
    """The recipe with other settings of its head."""
    return lambda recipe: replace(recipe, head=replace(recipe.head, **changes))


def _with_encoder(**changes: object) -> Callable[[Recipe], Recipe]:
    return lambda recipe: replace(recipe, encoder=replace(recipe.encoder, **changes))


def _without_layer_norm(recipe: Recipe) -> Recipe:
    """Nowhere: neither in the head nor in the encoder."""
    encoder = recipe.encoder
    if getattr(encoder, "norm", "") == "layer":
        encoder = with_known(encoder, norm="none")
    return replace(recipe, layer_norm=False, encoder=encoder)


def _without_noise(recipe: Recipe) -> Recipe:
    """ε-greedy exploration instead, as in the paper; that of the recipe itself if it has both."""
    if recipe.schedule.epsilon_initial > 0:
        return replace(recipe, noisy=False, schedule=replace(recipe.schedule, epsilon_off_steps=None))
    schedule = replace(recipe.schedule, epsilon_initial=1.0, epsilon_min=0.01, epsilon_eval=0.001)
    return replace(recipe, noisy=False, schedule=schedule)


def _without_epsilon(recipe: Recipe) -> Recipe:
    return replace(recipe, schedule=replace(recipe.schedule, epsilon_initial=0.0, epsilon_min=0.0))


def _fixed_fractions(recipe: Recipe) -> Recipe:
    """Quantiles at the midpoints of as many equal fractions."""
    head = recipe.head
    assert isinstance(head, Implicit)
    return replace(recipe, head=Quantile(head.atoms, head.hidden))


def _without_memory(recipe: Recipe) -> Recipe:
    """Batches of as many single transitions."""
    assert isinstance(recipe.core, Recurrent)
    schedule = replace(recipe.schedule, batch_size=recipe.schedule.batch_size * recipe.core.sequence)
    return replace(recipe, core=NoCore(), schedule=schedule)


def _without_residuals(recipe: Recipe) -> Recipe:
    """The plain encoder of the same scale: at that of MinAtar, `adapt` has left the residual one its least width."""
    encoder = recipe.encoder
    assert isinstance(encoder, Impala)
    return replace(recipe, encoder=MinAtar() if encoder.scale == 1 else Nature(norm="none"))
