"""Every baseline row, value by value: typed from the papers and from Dopamine's configuration files."""

import dataclasses

import pytest
import torch

from c2d.agents.build import build_network, parameter_count
from c2d.config import default_config
from c2d.envs.spec import EnvSpec
from c2d.errors import UserError
from c2d.recipes.parts import (
    Adam,
    Categorical,
    Conjugated,
    Cramer,
    CrossEntropy,
    Double,
    Fraction,
    Greedy,
    Huber,
    Impala,
    Implicit,
    Lstm,
    Munchausen,
    Nature,
    PhiSpec,
    Prioritized,
    Quantile,
    QuantileHuber,
    RmsProp,
    Scalar,
    Squared,
    Uniform,
)
from c2d.recipes.recipe import check_recipe
from c2d.recipes.rows import RECIPES, ROWS, adapt, find

MINATAR = EnvSpec("minatar/x", "minatar", (4, 10, 10), "uint8", 1, 3, 1)
ATARI = EnvSpec("atari/breakout", "atari", (1, 84, 84), "uint8", 4, 4, 4)
# Dopamine's TensorFlow agents place Adam's ε as Keras does, its JAX agents (optax) as PyTorch does.
TF, JAX = ({"eps_form": form, "clip_norm": None} for form in ("keras", "torch"))
GRID = Categorical(atoms=51, v_min=-10.0, v_max=10.0, hidden=512)
TAUS = Implicit(64, 64, 32, 64, 512)

# head, loss, bootstrap, sampler, n, optimizer, initial weights
BASELINES = {
    "dqn": (Scalar(512), Huber(1.0), Greedy(), Uniform(), 1, RmsProp(2.5e-4, 0.95, 1e-5, None), "glorot"),
    "dqn-adam": (Scalar(512), Squared(), Greedy(), Uniform(), 1, Adam(6.25e-5, eps=1.5e-4, **JAX), "glorot"),
    "c51": (GRID, CrossEntropy(), Greedy(), Uniform(), 1, Adam(2.5e-4, eps=3.125e-4, **TF), "fan-in"),
    "qr-dqn": (
        Quantile(200, 512), QuantileHuber(1.0), Greedy(), Prioritized(0.5, 0.0, 1e-10), 3,
        Adam(5e-5, eps=3.125e-4, **JAX), "fan-in",
    ),
    "iqn": (TAUS, QuantileHuber(1.0), Greedy(), Uniform(), 3, Adam(5e-5, eps=3.125e-4, **TF), "fan-in"),
    "munchausen-iqn": (
        TAUS, QuantileHuber(1.0), Munchausen(0.9, 0.03, -1.0), Uniform(), 1, Adam(5e-5, eps=3.125e-4, **TF), "fan-in",
    ),
    "fqf": (
        Fraction(32, 64, 512, 0.0, 2.5e-9, 0.95, 1e-5), QuantileHuber(1.0), Greedy(), Uniform(), 1,
        Adam(5e-5, eps=3.125e-4, **TF), "fan-in",
    ),
    "rainbow": (
        GRID, CrossEntropy(), Greedy(), Prioritized(0.5, 0.5, 1e-10), 3, Adam(6.25e-5, eps=1.5e-4, **TF), "fan-in",
    ),
    "rainbow-full": (
        GRID, CrossEntropy(), Double(), Prioritized(0.5, 0.5, 1e-10), 3, Adam(6.25e-5, eps=1.5e-4, **JAX), "glorot",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BASELINES)
def test_baseline(name):
    row = find(name)
    found = (row.head, row.loss, row.bootstrap, row.sampler, row.n_step, row.optim, row.initializer)
    assert found == BASELINES[name]
    assert row.encoder == Nature(norm="none", padding="same")
    assert row.phi == PhiSpec("identity") and row.clip_reward == 1.0
    schedule = row.schedule
    assert (schedule.gamma, schedule.batch_size, schedule.update_period, schedule.target_period) == (0.99, 32, 4, 8000)
    assert (schedule.replay_capacity, schedule.random_history) == (1_000_000, 20_000)
    noisy = name == "rainbow-full"
    assert (row.dueling, row.noisy) == (noisy, noisy)
    assert schedule.epsilon_min == (0.0 if noisy else 0.01) and schedule.epsilon_eval == 0.001
    assert row.noise == 0.1 if noisy else not row.noisy  # Dopamine's σ₀


def test_transformed_dqn_is_dqn_on_raw_rewards_through_h():
    wanted = dataclasses.replace(find("dqn-adam"), phi=PhiSpec("h", eps=1e-3), clip_reward=None)
    assert find("th-dqn") == wanted


def test_what_c2d_fast_changes():
    c2d, fast = find("c2d"), find("c2d-fast")
    assert (fast.encoder, fast.layer_norm, fast.n_step, fast.bootstrap) == (Nature(norm="layer"), True, 3, Double())
    assert fast.head == dataclasses.replace(c2d.head, initial_scale=0.05)
    assert fast.optim == dataclasses.replace(c2d.optim, eps=1e-6, learning_rate_final=1e-6, decay_updates=12_500_000)
    names = ("phi", "loss", "sampler", "schedule", "dueling", "noisy", "clip_reward", "initializer", "envs")
    assert all(getattr(fast, name) == getattr(c2d, name) for name in names)


def test_the_rate_of_c2d_fast_falls_within_a_default_run_on_every_scale():
    for env in ("breakout", "minatar/breakout", "gym/CartPole-v1"):
        config = default_config(env, "c2d-fast")
        optim, plain = config.recipe.optim, default_config(env).recipe.optim
        assert optim.learning_rate == plain.learning_rate
        assert optim.decay_updates == config.steps // config.recipe.schedule.update_period
        assert optim.learning_rate_final < 0.05 * optim.learning_rate


def test_c2d_with_rainbows_ingredients():
    c2d, per3, rainbow, full = (find(name) for name in ("c2d", "c2d-per3", "rainbow-c2d", "rainbow-c2d-full"))
    assert per3 == dataclasses.replace(c2d, n_step=3, sampler=Prioritized(0.5, 0.5, 1e-10))
    silent = dataclasses.replace(c2d.schedule, epsilon_initial=0.0, epsilon_min=0.0, epsilon_eval=0.0)
    assert rainbow == dataclasses.replace(find("c2d-fast"), sampler=per3.sampler, noisy=True, schedule=silent)
    assert full == dataclasses.replace(rainbow, dueling=True)
    assert full.loss == Cramer() and isinstance(full.head, Conjugated) and full.encoder.padding == "valid"


def test_conjugated_rows_differ_in_phi_clipping_grid_and_what_its_projection_keeps_only():
    real = CrossEntropy(interpolate="real")
    for name, grid, loss in (("c51", Categorical(51, -50.0, 50.0), real), ("qr-dqn", Quantile(), QuantileHuber())):
        wanted = dataclasses.replace(find(name), phi=PhiSpec("scaled_h"), clip_reward=None, head=grid, loss=loss)
        assert find(f"{name}-conjugated") == wanted


def test_btr_is_what_its_paper_and_code_say():
    """Typed from tables D4 and D6 of the paper and from the code; periods in agent steps of all environments."""
    row, schedule = find("btr"), find("btr").schedule
    assert row.encoder == Impala(scale=2, norm="spectral", pool=6)
    assert row.head == Implicit(8, 8, 8, 64, 512) and row.loss == QuantileHuber(1.0)
    assert row.bootstrap == Munchausen(0.9, 0.03, -1.0, "first", "online", "one")
    assert row.sampler == Prioritized(0.2, 0.2, 1e-6, "td-error")
    assert row.optim == Adam(1e-4, eps=1.953125e-5, eps_form="torch", clip_norm=10.0)
    assert (row.n_step, row.clip_reward, row.envs, row.phi) == (3, 1.0, 64, PhiSpec("identity"))
    assert (row.dueling, row.dueling_hidden, row.noisy, row.noise) == (True, "separate", True, 0.5)
    assert (schedule.gamma, schedule.batch_size, schedule.update_period) == (0.997, 256, 64)
    assert schedule.target_period == 500 * schedule.update_period
    assert (schedule.replay_capacity, schedule.random_history) == (1_048_576, 200_000)
    assert (schedule.epsilon_initial, schedule.epsilon_min, schedule.epsilon_decay_steps) == (1.0, 0.01, 2_000_000)
    assert (schedule.epsilon_decay, schedule.epsilon_off_steps) == ("geometric", 25_000_000)


def test_btr_with_the_laws_of_c2d():
    btr, c2d, soft = (find(name) for name in ("btr", "btr-c2d", "btr-c2d-munchausen"))
    assert (
        c2d.head == Conjugated(unit="auto", initial_scale=0.05) and c2d.loss == Cramer() and c2d.bootstrap == Double()
    )
    assert c2d.phi == PhiSpec() == find("c2d").phi and c2d.clip_reward is None
    # the square root of the squared distance to the power 0.2, with an ε that adds the same to certain laws
    assert c2d.sampler == Prioritized(0.5 * 0.2, 0.2, 1e-6**2, "loss")
    differing = {f.name for f in dataclasses.fields(btr) if getattr(btr, f.name) != getattr(c2d, f.name)}
    assert differing == {"head", "phi", "loss", "bootstrap", "sampler", "clip_reward"}
    assert soft == dataclasses.replace(c2d, bootstrap=Munchausen(0.9, 0.03, -1.0, "first", "online", "running"))


def test_weights_of_btr_without_those_of_its_noise():
    """With 18 actions: 2.91 M, 2.52 M of them dense. Counted by hand, and the two figures of the paper."""
    env = dataclasses.replace(ATARI, actions=18)
    network = build_network(find("btr"), env, torch.Generator())
    means = {name: weight.numel() for name, weight in network.named_parameters() if "sigma" not in name}
    blocks = [
        (4 * 9 + 1) * 32 + 4 * (32 * 9 + 1) * 32,
        (32 * 9 + 1) * 64 + 4 * (64 * 9 + 1) * 64,
        5 * (64 * 9 + 1) * 64,
    ]
    dense = 65 * 2304 + 2 * 2305 * 512 + 513 * (18 + 1)
    assert sum(count for name, count in means.items() if name.startswith("head")) == dense == 2_519_827
    assert sum(means.values()) == dense + sum(blocks) == 2_908_851


def test_btr_in_small_environments_keeps_its_ingredients():
    planes = EnvSpec("minatar/breakout", "minatar", (4, 10, 10), "uint8", 1, 3, 1)
    for name in ("btr", "btr-c2d", "btr-c2d-munchausen"):
        row, small = find(name), adapt(find(name), planes)
        assert small.encoder == Impala(norm="spectral") and small.envs == 8
        for kept in ("phi", "loss", "bootstrap", "sampler", "n_step", "dueling_hidden", "noisy", "clip_reward"):
            assert getattr(small, kept) == getattr(row, kept)
        assert type(small.head) is type(row.head) and small.head.atoms == row.head.atoms
        schedule = small.schedule
        assert schedule.target_period == 500 * schedule.update_period and schedule.update_period == small.envs
        assert schedule.gamma == 0.997 and schedule.epsilon_off_steps == 500_000
        assert adapt(find(name), EnvSpec("x", "gym", (4,), "float32", 1, 2, 1)).envs == 8
        for side in (36, 40, 41, 96):
            images = EnvSpec("x", "gym", (3, side, side), "uint8", 1, 2, 1)
            assert adapt(row, images).encoder.pool == (5 if side <= 40 else 6)
            build_network(adapt(row, images), images, torch.Generator())


def test_every_row_says_where_it_comes_from():
    assert all(row.paper and row.settings and row.about for row in ROWS.values())


# The paper: "substantially less network weights". Counted by hand, layer by layer.
CONVOLUTIONS = (4 * 64 + 1) * 32 + (32 * 16 + 1) * 64 + (64 * 9 + 1) * 64
SAME = CONVOLUTIONS + (11 * 11 * 64 + 1) * 512
PARAMETERS = {
    "c2d": CONVOLUTIONS + 2 * (20 + 9 + 7) + (7 * 7 * 64 + 1) * 512 + 513 * 128 + 129 * 512 + 1025 * 128 + 1,
    "c51": SAME + 513 * 4 * 51,
    "qr-dqn": SAME + 513 * 4 * 200,
    "iqn": SAME + 65 * 11 * 11 * 64 + 513 * 4,
    "dqn": SAME + 513 * 4,
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameter_counts_on_breakout(name):
    assert parameter_count(build_network(find(name), ATARI, torch.Generator())) == PARAMETERS[name]


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("c2d", {"loss": CrossEntropy()}, "--loss cross-entropy does not fit --head conjugated: it needs prob"),
        (
            "c51",
            {"loss": QuantileHuber()},
            "--loss quantile-huber does not fit --head categorical: it needs atoms at known",
        ),
        ("dqn", {"loss": QuantileHuber()}, "does not fit --head scalar"),
        ("iqn", {"loss": Squared()}, "--loss squared does not fit --head implicit: it needs a single number"),
        ("c2d", {"loss": Huber()}, "--loss huber does not fit"),
        ("c51", {"head": Categorical(v_min=3.0, v_max=1.0)}, r"--head.v-min is 3.0; accepted: below v-max = 1.0"),
        ("c51", {"head": Categorical(atoms=1)}, "--head.atoms is 1; accepted: at least 2, at most"),
        ("dqn", {"loss": Huber(0.0)}, "--loss.kappa is 0.0"),
        ("rainbow", {"sampler": Prioritized(eps=0.0)}, "--sampler.eps is 0.0; accepted: greater than 0: a transition"),
        (
            "iqn",
            {"dueling_hidden": "separate"},
            "--dueling-hidden is separate; accepted: shared without --dueling True",
        ),
        ("fqf", {"head": Fraction(eps=0.0)}, "--head.eps is 0.0; accepted: greater than 0: weights"),
        (
            "iqn",
            {"bootstrap": Munchausen()},
            "--n-step is 3; accepted: 1 with --bootstrap munchausen, whose terms of later",
        ),
    ],
)
def test_parts_that_do_not_fit_are_rejected_with_the_reason(name, changes, message):
    with pytest.raises(UserError) as error:
        check_recipe(dataclasses.replace(find(name), **changes))
    assert message in str(error.value)


def test_rows_with_memory_are_what_r2d2_is():
    """Typed from Table 2 of the paper; clip and ladder from Ape-X."""
    r2d2, c2d, c51 = (find(name) for name in ("r2d2", "r2d2-c2d", "r2d2-c51"))
    schedule = r2d2.schedule
    for row in (r2d2, c2d, c51):
        assert row.core == Lstm(512, "action-reward", 80, 40, 40, "stored", 0.9)
        assert (row.dueling, row.dueling_hidden, row.head.hidden) == (True, "separate", 512)
        assert (row.n_step, row.clip_reward, row.bootstrap, row.envs) == (5, None, Double(), 64)
        assert row.optim == Adam(1e-4, eps=1e-3, eps_form="torch", clip_norm=40.0)
        assert (row.sampler.exponent, row.sampler.weight_exponent) == (0.9, 0.6) and row.schedule == schedule
    assert (schedule.gamma, schedule.batch_size, schedule.target_period) == (0.997, 64, 2_500 * schedule.update_period)
    assert (schedule.epsilon_initial, schedule.epsilon_min, schedule.epsilon_ladder) == (0.4, 0.4, 7.0)
    assert 64 * 80 / schedule.update_period == 4  # samples of each transition
    assert (r2d2.head, r2d2.phi, r2d2.loss, r2d2.sampler.by) == (Scalar(), PhiSpec("h"), Squared(), "td-error")
    assert c2d.phi == PhiSpec() and c2d.loss == Cramer() and c2d.sampler.by == "cramer"
    assert c2d.head == Conjugated(unit="auto", initial_scale=0.05)
    conjugated = find("c51-conjugated")
    assert (c51.head, c51.phi, c51.loss) == (conjugated.head, conjugated.phi, conjugated.loss)
    drqn = find("drqn")
    assert drqn.core == Lstm(512, "nothing", 10, 0, 0, "zero") and drqn.clip_reward == 1.0
    small = adapt(c2d, MINATAR)
    assert (small.core.hidden, small.core.sequence, small.core.burn_in, small.core.overlap) == (128, 40, 20, 20)
    assert small.schedule.epsilon_decay_steps == 0 and small.envs == 8 and adapt(drqn, MINATAR).core.sequence == 10


@pytest.mark.parametrize("name", RECIPES)
def test_every_row_passes_its_own_check(name):
    check_recipe(find(name))


def test_munchausen_with_longer_steps_must_be_asked_for():
    check_recipe(dataclasses.replace(find("iqn"), bootstrap=Munchausen(multi_step="first")))
    check_recipe(dataclasses.replace(find("iqn"), bootstrap=Munchausen(), n_step=1))


def test_fixed_conjugated_atoms_work_with_cross_entropy():
    head = Conjugated(train_atoms=False, train_alpha=False)
    check_recipe(dataclasses.replace(find("c2d"), head=head, loss=CrossEntropy()))
