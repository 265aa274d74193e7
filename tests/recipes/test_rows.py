"""Every baseline row, value by value: typed from the papers and from Dopamine's configuration files."""

import dataclasses

import pytest
import torch

from c2d.agents.build import build_network, parameter_count
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
    Implicit,
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
from c2d.recipes.rows import RECIPES, ROWS, find

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


def test_c2d_with_rainbows_ingredients():
    c2d, per3, rainbow, full = (find(name) for name in ("c2d", "c2d-per3", "rainbow-c2d", "rainbow-c2d-full"))
    assert per3 == dataclasses.replace(c2d, n_step=3, sampler=Prioritized(0.5, 0.5, 1e-10))
    silent = dataclasses.replace(c2d.schedule, epsilon_initial=0.0, epsilon_min=0.0, epsilon_eval=0.0)
    assert rainbow == dataclasses.replace(per3, bootstrap=Double(), noisy=True, schedule=silent)
    assert full == dataclasses.replace(rainbow, dueling=True)
    assert full.loss == Cramer() and isinstance(full.head, Conjugated) and full.encoder.padding == "valid"


def test_conjugated_rows_differ_in_phi_clipping_grid_and_what_its_projection_keeps_only():
    real = CrossEntropy(interpolate="real")
    for name, grid, loss in (("c51", Categorical(51, -50.0, 50.0), real), ("qr-dqn", Quantile(), QuantileHuber())):
        wanted = dataclasses.replace(find(name), phi=PhiSpec("scaled_h"), clip_reward=None, head=grid, loss=loss)
        assert find(f"{name}-conjugated") == wanted


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


@pytest.mark.parametrize("name", RECIPES)
def test_every_row_passes_its_own_check(name):
    check_recipe(find(name))


def test_munchausen_with_longer_steps_must_be_asked_for():
    check_recipe(dataclasses.replace(find("iqn"), bootstrap=Munchausen(multi_step="first")))
    check_recipe(dataclasses.replace(find("iqn"), bootstrap=Munchausen(), n_step=1))


def test_fixed_conjugated_atoms_work_with_cross_entropy():
    head = Conjugated(train_atoms=False, train_alpha=False)
    check_recipe(dataclasses.replace(find("c2d"), head=head, loss=CrossEntropy()))
