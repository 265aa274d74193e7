"""One row per algorithm, with the source of its settings; and what changes with the size of the environment."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from c2d.envs.spec import EnvSpec
from c2d.errors import unknown_name
from c2d.recipes.part import CoreSpec, EncoderSpec, HeadSpec, OptimizerSpec, Recurrent, with_known
from c2d.recipes.parts import (
    Adam,
    Categorical,
    Conjugated,
    Cramer,
    CrossEntropy,
    Double,
    Fraction,
    Huber,
    Impala,
    Implicit,
    Lstm,
    MinAtar,
    Mlp,
    Munchausen,
    Nature,
    PhiSpec,
    Prioritized,
    Quantile,
    QuantileHuber,
    RmsProp,
    Scalar,
    Squared,
)
from c2d.recipes.recipe import Recipe, Schedule

# ---------------------------------------------------------------------------------------------------------- C2D

# C2D as the authors ran it (paper, appendix tables; normalization, initialization and Adam's form from their code).
# Every value is a default of `parts.py` and `recipe.py`, with the paper's symbol in its help text.
C2D = Recipe()

# The paper's wording: batch normalization per channel.
C2D_CHANNEL = replace(C2D, encoder=Nature(norm="channel"))

# C2D that starts faster (docs/c2d-explained.md): three steps, double selection, layer normalization, atoms that start
# near 0, an ε of Adam below the size of its gradients, and a rate that falls to a fiftieth within 200 iterations.
C2D_FAST = replace(
    C2D,
    encoder=Nature(norm="layer"),
    layer_norm=True,
    head=Conjugated(initial_scale=0.05),
    n_step=3,
    bootstrap=Double(),
    optim=Adam(eps=1e-6, learning_rate_final=1e-6, decay_updates=12_500_000),
)

# Two of Rainbow's ingredients alone. Priority: (squared Cramér distance)^½, which for certain returns is |TD error|^½,
# the exponent of Rainbow (Hessel et al. 2018, Table 1).
C2D_PER3 = replace(C2D, n_step=3, sampler=Prioritized())

# With a noisy network nothing else explores (Hessel et al. 2018, Table 1).
_NO_EPSILON = replace(C2D.schedule, epsilon_initial=0.0, epsilon_min=0.0, epsilon_eval=0.0)

# What the paper's last sentence asks for: C2D with Rainbow's other ingredients, on the row that starts faster; -full
# adds dueling.
RAINBOW_C2D = replace(C2D_FAST, sampler=Prioritized(), noisy=True, schedule=_NO_EPSILON)
RAINBOW_C2D_FULL = replace(RAINBOW_C2D, dueling=True)

# ---------------------------------------------------------------------------------------------------- baselines

# Common to Dopamine's agents (Castro et al. 2018): "same" padding, no normalization, rewards clipped to ±1, φ the
# identity, Adam without a bound on gradients. Its TensorFlow agents (C51, IQN, Rainbow: those of its published curves)
# have ε where TensorFlow 1 placed it; its JAX agents (DQN with Adam, QR-DQN, full Rainbow) after bias correction.
_ADAM = Adam(learning_rate=6.25e-5, eps=1.5e-4, clip_norm=None)
_JAX_ADAM = replace(_ADAM, eps_form="torch")
_DOPAMINE = replace(
    C2D,
    encoder=Nature(norm="none", padding="same"),
    phi=PhiSpec("identity"),
    clip_reward=1.0,
    optim=_ADAM,
)
# DQN and full Rainbow start from Glorot's weights there, the other laws from uniform ones in ±√(√3/inputs).
_FAN_IN = replace(_DOPAMINE, initializer="fan-in")

# Mnih et al. 2015 with Dopamine's settings: Huber loss, centered RMSProp of rate 2.5e-4, decay 0.95, ε 1e-5.
DQN = replace(_DOPAMINE, head=Scalar(), loss=Huber(), optim=RmsProp())
# Dopamine's later DQN, in JAX: squared loss, Adam of rate 6.25e-5, ε 1.5e-4.
DQN_ADAM = replace(_DOPAMINE, head=Scalar(), loss=Squared(), optim=_JAX_ADAM)
# Pohlen et al. 2018: DQN on raw rewards with the target h(r + γ h⁻¹(Q)); h with ε 1e-3, as in later work (there 1e-2).
# Loss, Adam and its form are those of the row above, so that the two differ in the target alone.
TH_DQN = replace(DQN_ADAM, phi=PhiSpec("h"), clip_reward=None)

# Bellemare et al. 2017 with Dopamine's settings: 51 atoms on ±10, Adam of rate 2.5e-4, ε 3.125e-4.
C51 = replace(
    _FAN_IN,
    head=Categorical(),
    loss=CrossEntropy(),
    optim=replace(_ADAM, learning_rate=2.5e-4, eps=3.125e-4),
)

# Adam of QR-DQN, IQN and FQF: rate 5e-5, ε 3.125e-4.
_QUANTILE_ADAM = replace(_ADAM, learning_rate=5e-5, eps=3.125e-4)
# Dabney et al. 2018a with the settings of Dopamine's JAX agent: 200 quantiles, κ 1, 3 steps, prioritized replay. That
# agent draws by priority, but its importance weights only enter the loss it logs, not the gradient.
QR_DQN = replace(
    _FAN_IN,
    head=Quantile(),
    loss=QuantileHuber(),
    n_step=3,
    sampler=Prioritized(weight_exponent=0.0),
    optim=replace(_QUANTILE_ADAM, eps_form="torch"),
)
# Dabney et al. 2018b with Dopamine's settings: 64, 64 and 32 fractions, 64 cosines, κ 1, 3 steps, uniform replay.
IQN = replace(_FAN_IN, head=Implicit(), loss=QuantileHuber(), n_step=3, optim=_QUANTILE_ADAM)
# Vieillard et al. 2020, as in its authors' configuration: IQN with the Munchausen term, α 0.9, temperature 0.03, l₀ −1,
# and single steps.
MUNCHAUSEN_IQN = replace(IQN, bootstrap=Munchausen(), n_step=1)
# Yang et al. 2019: 32 proposed fractions, 1 step; the optimizer of the fractions is that of the authors' code, centered
# RMSProp, at the paper's rate of 2.5e-9, which moves them slowly: for long the row is IQN at the fractions of its
# initial weights (docs/results/fqf-fractions.md).
FQF = replace(_FAN_IN, head=Fraction(), loss=QuantileHuber(), optim=_QUANTILE_ADAM)

# Dopamine's Rainbow: C51 with 3 steps and prioritized replay; Adam of rate 6.25e-5, ε 1.5e-4.
RAINBOW = replace(_FAN_IN, head=Categorical(), loss=CrossEntropy(), n_step=3, sampler=Prioritized())
# All six ingredients (Hessel et al. 2018) as Dopamine's JAX agent has them: one shared noisy dense layer, dueling on
# it, σ₀ 0.1 (Hessel et al.: 0.5), no ε in training and 0.001 in evaluation.
RAINBOW_FULL = replace(
    RAINBOW,
    bootstrap=Double(),
    dueling=True,
    noisy=True,
    noise=0.1,
    initializer="glorot",
    schedule=replace(_NO_EPSILON, epsilon_eval=0.001),
    optim=_JAX_ADAM,
)

# ------------------------------------------------------------------------------------------------- conjugated

# C51 and QR-DQN on raw rewards through C2D's φ; all else is that of their rows. The grid covers the same φ-space as
# C2D's atoms at first, ±50. Its projection keeps the mean of real returns, which that in φ-space would raise.
C51_CONJUGATED = replace(
    C51,
    phi=PhiSpec(),
    clip_reward=None,
    head=Categorical(v_min=-50.0, v_max=50.0),
    loss=CrossEntropy(interpolate="real"),
)
QR_DQN_CONJUGATED = replace(QR_DQN, phi=PhiSpec(), clip_reward=None)


# --------------------------------------------------------------------------------------------- Beyond the Rainbow

# Clark et al. 2024 as their released code has it, which is where paper and code differ the code (docs/btr.md has each
# setting's source). The periods are those of 64 environments: an update per 64 agent steps, a copy per 500 updates.
_BTR_SCHEDULE = Schedule(
    gamma=0.997,
    batch_size=256,
    update_period=64,
    target_period=500 * 64,
    random_history=200_000,
    replay_capacity=2**20,
    epsilon_decay_steps=2_000_000,
    epsilon_decay="geometric",
    epsilon_off_steps=25_000_000,  # half of 200M frames
    epsilon_eval=0.01,
)
BTR = Recipe(
    encoder=Impala(scale=2, norm="spectral", pool=6),
    head=Implicit(atoms=8, target_atoms=8, policy_atoms=8),
    phi=PhiSpec("identity"),
    loss=QuantileHuber(),
    bootstrap=Munchausen(multi_step="first", policy="online"),
    sampler=Prioritized(exponent=0.2, weight_exponent=0.2, eps=1e-6, by="td-error"),
    dueling=True,
    dueling_hidden="separate",
    noisy=True,
    initializer="torch",
    n_step=3,
    clip_reward=1.0,
    envs=64,
    schedule=_BTR_SCHEDULE,
    optim=Adam(learning_rate=1e-4, eps=0.005 / 256, eps_form="torch"),
)
# C2D's laws on raw rewards in it. The exponent on √(squared Cramér distance) is BTR's 0.2, and so is what its ε adds.
# With γ 0.997 returns grow to 333 times a step's reward, and φ⁻¹(50) is 648: the unit of rewards is found and grows.
# Atoms start near 0: wide ones are forgotten slowly, by γ³ per copy of the target network (docs/c2d-explained.md).
BTR_C2D = replace(
    BTR,
    head=Conjugated(unit="auto", initial_scale=0.05),
    phi=PhiSpec(),
    loss=Cramer(),
    bootstrap=Double(),
    sampler=Prioritized(exponent=0.1, weight_exponent=0.2, eps=1e-12),
    clip_reward=None,
)
# A temperature of 0.03 is for rewards of size 1: here it is in units of how far actions lie apart.
BTR_C2D_MUNCHAUSEN = replace(BTR_C2D, bootstrap=Munchausen(multi_step="first", policy="online", scale="running"))


# ------------------------------------------------------------------------------------------------------- with memory

# R2D2 (Kapturowski et al. 2019, Table 2 and Sec. 2.3; clip and ladder of ε from Ape-X, Horgan et al. 2018): an LSTM of
# 512 behind the convolutions, fed with action and reward, sequences of 80 after 40, n 5, γ 0.997, a target that is
# copied every 2,500 updates. What many machines had is scaled to one: 64 environments for 256 actors, with the same
# ladder of ε; 4 samples of each transition, as BTR; a replay of 1M frames (deviates: D47, D48).
_R2D2_PERIOD = 64 * 80 // 4  # agent steps between updates: 64 sequences of 80 are 4 samples of each transition
_R2D2_SCHEDULE = replace(
    C2D.schedule,
    gamma=0.997,
    batch_size=64,
    update_period=_R2D2_PERIOD,
    target_period=2_500 * _R2D2_PERIOD,
    random_history=50_000,
    epsilon_initial=0.4,
    epsilon_min=0.4,
    epsilon_decay_steps=0,
    epsilon_ladder=7.0,
)
# On raw rewards through h, with the scalar TD error of the original as priority.
R2D2 = replace(
    C2D,
    encoder=Nature(norm="none"),
    core=Lstm(hidden=512, feed="action-reward", sequence=80, burn_in=40, overlap=40, priority_max=0.9),
    head=Scalar(),
    phi=PhiSpec("h"),
    loss=Squared(),
    bootstrap=Double(),
    sampler=Prioritized(exponent=0.9, weight_exponent=0.6, eps=1e-6, by="td-error"),
    dueling=True,
    dueling_hidden="separate",
    n_step=5,
    envs=64,
    schedule=_R2D2_SCHEDULE,
    optim=Adam(learning_rate=1e-4, eps=1e-3, eps_form="torch", clip_norm=40.0),
)
# The paper's future work: C2D's laws in it, and the operator T_φ instead of T_h. As in btr-c2d, the unit of rewards is
# found and grows, since with γ 0.997 returns grow to 333 times a step's reward, and atoms start near 0.
R2D2_C2D = replace(
    R2D2,
    head=Conjugated(unit="auto", initial_scale=0.05),
    phi=PhiSpec(),
    loss=Cramer(),
    sampler=Prioritized(exponent=0.9, weight_exponent=0.6, eps=1e-6, by="cramer"),
)
# A fixed grid in φ-space, as c51-conjugated.
R2D2_C51 = replace(
    R2D2,
    head=C51_CONJUGATED.head,
    phi=C51_CONJUGATED.phi,
    loss=C51_CONJUGATED.loss,
    sampler=Prioritized(exponent=0.9, weight_exponent=0.6, eps=1e-6),
)
# Hausknecht and Stone 2015: DQN with an LSTM, from an empty memory at the start of sequences of 10 steps, without
# action and reward. It is meant for single frames (--rules.stack 1). The rest is dqn-adam, with as many samples of each
# transition (deviates: D49).
DRQN = replace(
    DQN_ADAM,
    core=Lstm(hidden=512, feed="nothing", sequence=10, burn_in=0, overlap=0, state="zero"),
    schedule=replace(DQN_ADAM.schedule, update_period=40),
    optim=replace(_JAX_ADAM, clip_norm=10.0),
)


class Row(NamedTuple):
    """A recipe with what `c2d recipes` says about it."""

    recipe: Recipe
    paper: str
    settings: str  # where they come from
    about: str
    note: str = ""  # a warning for its users


_CASTRO = "Dopamine (Castro et al. 2018)"
_JAX = "Dopamine's JAX agent"
_FQF_NOTE = (
    "at the paper's rate of 2.5e-9 the fractions move slowly: in the first 1,000 updates on Breakout no share of them "
    "changed by more than 4.3e-05, of about 0.03 (docs/results/fqf-fractions.md); --head.learning-rate is the switch"
)
ROWS: dict[str, Row] = {
    "c2d": Row(C2D, "Lindenberg et al. 2022", "paper and authors' code", "C2D as its authors ran it"),
    "c2d-channel": Row(C2D_CHANNEL, "Lindenberg et al. 2022", "paper", "C2D in the paper's words"),
    "c2d-fast": Row(C2D_FAST, "Lindenberg et al. 2022", "ours", "C2D that starts faster, on every scale"),
    "c2d-per3": Row(C2D_PER3, "Lindenberg et al. 2022", "ours", "C2D with 3 steps and prioritized replay"),
    "rainbow-c2d": Row(RAINBOW_C2D, "Lindenberg et al. 2022, last sentence", "ours", "c2d-fast, prioritized, noisy"),
    "rainbow-c2d-full": Row(RAINBOW_C2D_FULL, "Lindenberg et al. 2022, last sentence", "ours", "also dueling"),
    "dqn": Row(DQN, "Mnih et al. 2015", _CASTRO, "one atom, Huber loss, RMSProp"),
    "dqn-adam": Row(DQN_ADAM, "Mnih et al. 2015", _JAX, "one atom, squared loss, Adam"),
    "th-dqn": Row(TH_DQN, "Pohlen et al. 2018", "as dqn-adam", "DQN on raw rewards through h"),
    "c51": Row(C51, "Bellemare et al. 2017", _CASTRO, "probabilities on a fixed grid"),
    "c51-conjugated": Row(C51_CONJUGATED, "Bellemare et al. 2017", "ours", "C51 on raw rewards through φ"),
    "qr-dqn": Row(QR_DQN, "Dabney et al. 2018a", _JAX, "200 quantiles"),
    "qr-dqn-conjugated": Row(QR_DQN_CONJUGATED, "Dabney et al. 2018a", "ours", "QR-DQN on raw rewards through φ"),
    "iqn": Row(IQN, "Dabney et al. 2018b", _CASTRO, "quantiles at random fractions"),
    "fqf": Row(FQF, "Yang et al. 2019", "their paper and code", "quantiles at learned fractions", _FQF_NOTE),
    "munchausen-iqn": Row(MUNCHAUSEN_IQN, "Vieillard et al. 2020", "their paper and code", "IQN with a soft policy"),
    "rainbow": Row(RAINBOW, "Hessel et al. 2018", _CASTRO, "C51 with 3 steps and prioritized replay"),
    "rainbow-full": Row(RAINBOW_FULL, "Hessel et al. 2018", _JAX, "all six ingredients"),
    "btr": Row(BTR, "Clark et al. 2024", "their paper and code", "Beyond the Rainbow: IQN in a residual network"),
    "btr-c2d": Row(BTR_C2D, "Clark et al. 2024", "ours", "BTR with C2D's laws on raw rewards, double"),
    "btr-c2d-munchausen": Row(BTR_C2D_MUNCHAUSEN, "Clark et al. 2024", "ours", "the same with a soft policy"),
    "r2d2": Row(R2D2, "Kapturowski et al. 2019", "their paper; one machine", "an LSTM, sequences, one atom through h"),
    "r2d2-c2d": Row(R2D2_C2D, "Kapturowski et al. 2019", "ours", "R2D2 with C2D's laws on raw rewards, no h"),
    "r2d2-c51": Row(R2D2_C51, "Kapturowski et al. 2019", "ours", "R2D2 with a fixed grid on raw rewards through φ"),
    "drqn": Row(DRQN, "Hausknecht and Stone 2015", "their paper; ours", "DQN with an LSTM, for single frames"),
}
RECIPES: dict[str, Recipe] = {name: row.recipe for name, row in ROWS.items()}


def find(name: str) -> Recipe:
    """The row of this name, at the scale of Atari."""
    if name not in RECIPES:
        raise unknown_name("recipe", name, RECIPES)
    return RECIPES[name]


# -------------------------------------------------------------------------------------------------------- scales


def adapt(recipe: Recipe, env: EnvSpec) -> Recipe:
    """The row at the scale of an environment: the paper's settings for Atari, smaller ones for small environments.

    Only sizes, grids, rates, schedules and the number of environments change. The kind of head, φ, loss, bootstrap and
    sampler make the algorithm and stay.
    """
    if env.family == "atari":
        return recipe
    if env.family == "minatar":
        return _small_images(recipe)
    if len(env.frame_shape) == 1:
        return _vectors(recipe)
    side = min(env.frame_shape[1:])
    return _large_images(recipe, side) if side >= 36 else _small_images(recipe)


def _small_images(recipe: Recipe) -> Recipe:
    # Replay, target period and encoder after Young and Tian 2019. RMSProp's rate, 2.5e-4, is theirs already. A rate
    # that falls does so within 100 iterations.
    schedule = recipe.schedule
    schedule = replace(
        schedule,
        steps_per_iteration=10_000,
        update_period=2,
        target_period=1_000,
        random_history=2_000,
        replay_capacity=100_000,
        epsilon_decay_steps=20_000 if schedule.epsilon_decay_steps else 0,
        epsilon_off_steps=None if schedule.epsilon_off_steps is None else 500_000,
    )
    if recipe.envs > 1:  # an update per round and, as on Atari, half the samples of the others and 500 updates per copy
        schedule = replace(schedule, batch_size=64, update_period=_FEW, target_period=500 * _FEW)
        history, decay = 4_000, 40_000 if schedule.epsilon_decay_steps else 0  # a fiftieth, as of the steps
        schedule = replace(schedule, random_history=history, epsilon_decay_steps=decay)
    return replace(
        recipe,
        encoder=_small_encoder(recipe.encoder),
        core=_small_core(recipe.core, 128),
        head=_shrink(recipe.head, 128, reach=30.0),
        envs=min(recipe.envs, _FEW),
        schedule=_of_sequences(schedule, recipe.core, 1_000),
        optim=_faster(recipe.optim, 1e-3, 500_000),
    )


_FEW = 8  # environments, of recipes that have many


def _small_core(core: CoreSpec, units: int) -> CoreSpec:
    return core.at_scale(units) if isinstance(core, Recurrent) else core


def _of_sequences(schedule: Schedule, core: CoreSpec, target_period: int) -> Schedule:
    """Fewer and larger updates, whose batches are of sequences."""
    if not isinstance(core, Recurrent):
        return schedule
    return replace(schedule, batch_size=16, update_period=16, target_period=target_period)


def _small_encoder(encoder: EncoderSpec) -> EncoderSpec:
    """Without normalization over the batch; the others stay."""
    if isinstance(encoder, Impala):
        return replace(encoder, scale=1, pool=0)
    return MinAtar(norm="layer" if getattr(encoder, "norm", "") == "layer" else "none")


def _vectors(recipe: Recipe) -> Recipe:
    # Chosen on CartPole with C2D. The decay settles a policy that otherwise keeps falling from its best.
    # Bounded atoms tolerate a target network that follows closely; with unbounded ones, values diverge.
    bounded = isinstance(recipe.head, Conjugated)
    optim = with_known(recipe.optim, learning_rate=1e-3)
    if isinstance(optim, Adam):
        optim = replace(optim, learning_rate=2e-3, learning_rate_final=2e-5, decay_updates=10_000)
    schedule = replace(
        recipe.schedule,
        steps_per_iteration=5_000,
        batch_size=64,
        update_period=4,
        target_period=40 if bounded else 400,
        random_history=1_000,
        replay_capacity=100_000,
        epsilon_decay_steps=5_000 if recipe.schedule.epsilon_decay_steps else 0,
        epsilon_off_steps=None if recipe.schedule.epsilon_off_steps is None else 20_000,
    )
    return replace(
        recipe,
        encoder=Mlp((256,)),
        core=_small_core(recipe.core, 128),
        head=_shrink(recipe.head, 256, reach=100.0),
        envs=min(recipe.envs, _FEW),
        schedule=_of_sequences(schedule, recipe.core, 400),
        optim=optim,
    )


def _large_images(recipe: Recipe, side: int) -> Recipe:
    encoder, schedule = recipe.encoder, recipe.schedule
    if isinstance(encoder, Impala):
        encoder = replace(encoder, pool=min(encoder.pool, -(-side // 8)))
    schedule = replace(
        schedule,
        steps_per_iteration=50_000,
        replay_capacity=100_000,
        random_history=5_000,
        target_period=schedule.target_period // 4,
        epsilon_decay_steps=50_000 if schedule.epsilon_decay_steps else 0,
        epsilon_off_steps=None if schedule.epsilon_off_steps is None else 200_000,
    )
    return replace(recipe, encoder=encoder, schedule=schedule)


def _faster(optim: OptimizerSpec, rate: float, updates: int) -> OptimizerSpec:
    """Adam at this rate; if its rate falls, then by as much as before, within so many updates."""
    if not isinstance(optim, Adam):
        return optim
    if optim.learning_rate_final is not None:
        final = rate * optim.learning_rate_final / optim.learning_rate
        optim = replace(optim, learning_rate_final=final, decay_updates=updates)
    return replace(optim, learning_rate=rate)


def _shrink(head: HeadSpec, units: int, reach: float) -> HeadSpec:
    """Fewer units, and a grid that covers the returns, which are not clipped to ±1 in small environments."""
    head = with_known(head, hidden=units)
    if isinstance(head, Conjugated):
        return replace(head, embedding=units if head.embedding else 0)
    if isinstance(head, Categorical):
        return replace(head, v_min=-reach, v_max=reach)
    if isinstance(head, Implicit):  # more than 8 fractions hardly help (Dabney et al. 2018b, Fig. 2), and each costs
        fewer = {name: min(getattr(head, name), 16) for name in ("atoms", "target_atoms", "policy_atoms")}
        return replace(head, **fewer)
    return head
