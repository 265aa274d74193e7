"""Every row value by value: the figures below are typed from the tables of the paper's appendix."""

import dataclasses

import pytest

from c2d.agents.learner import epsilons
from c2d.config import default_config
from c2d.envs.protocols import PROTOCOLS
from c2d.envs.spec import EnvSpec
from c2d.errors import UserError
from c2d.recipes.parts import Conjugated, Cramer, Greedy, MinAtar, Mlp, Nature, PhiSpec, Uniform
from c2d.recipes.recipe import Recipe, Schedule, epsilon_at
from c2d.recipes.rows import RECIPES, adapt, find
from c2d.returns.bellman import greedy_bootstrap
from c2d.returns.losses import cramer
from c2d.returns.phi import KINDS


def env(family, shape, dtype="uint8"):
    return EnvSpec("x", family, shape, dtype, 1, 3, 1)


ATARI = env("atari", (1, 84, 84))


def test_table_of_c2d_settings():
    recipe = find("c2d")
    head, schedule, optim = recipe.head, recipe.schedule, recipe.optim
    assert type(head) is Conjugated
    assert head.atoms == 32
    assert head.alpha == 50.0 and head.train_alpha is True
    assert head.c == 5.0
    assert head.hidden == 512 and head.embedding == 512  # "512-feature sized", "512-sized vector"
    assert optim.learning_rate == 0.5e-4 and optim.learning_rate_final is None
    assert optim.eps == pytest.approx(3.125e-4, rel=1e-12)
    assert optim.clip_norm == 10.0
    assert (optim.beta1, optim.beta2, optim.eps_form) == (0.9, 0.999, "keras")
    assert schedule.replay_capacity == 1_000_000
    assert schedule.random_history == 20_000
    assert schedule.epsilon_initial == 1.0
    assert schedule.epsilon_min == 0.01
    assert schedule.epsilon_decay_steps == 250_000
    assert schedule.target_period == 8_000
    assert schedule.update_period == 4
    assert schedule.batch_size == 32
    assert schedule.gamma == 0.99
    assert schedule.epsilon_eval == 0.001
    assert recipe.loss == Cramer() and recipe.sampler == Uniform() and recipe.bootstrap == Greedy()
    assert recipe.phi.kind == "scaled_h" and recipe.phi.eps == 0.001 and recipe.phi.beta == 1.99
    assert recipe.n_step == 1 and recipe.clip_reward is None
    assert recipe.encoder == Nature(norm="column", padding="valid")


def test_training_volume_is_50_million_steps():
    config = default_config("breakout")
    assert config.steps == 50_000_000
    assert config.recipe.schedule.steps_per_iteration == 250_000 and config.iterations == 200
    assert config.recipe == find("c2d")


def test_table_of_atari_settings():
    rules = PROTOCOLS["c2d-paper"]
    assert rules.frame_size == 84
    assert rules.cap_steps == 27_000
    assert rules.action_repeat == 4
    assert rules.stack == 4
    assert rules.life_loss_ends_episode is True
    assert rules.sticky == 0.25
    assert rules.truncation == "drop"
    assert default_config("breakout").rules == rules


def test_channel_row_differs_in_its_normalization_only():
    assert find("c2d-channel") == dataclasses.replace(find("c2d"), encoder=Nature(norm="channel", padding="valid"))


def test_parts_of_c2d_are_the_functions_of_the_paper():
    assert Cramer().build(PhiSpec().build()) is cramer
    assert Greedy().build().fn is greedy_bootstrap and not Greedy().build().online_chooses
    assert set(KINDS) == {"identity", "h", "scaled_h", "symlog", "asinh"}


@pytest.mark.parametrize(
    ("kind", "value"),
    [("identity", 8.0), ("h", 2.08), ("scaled_h", 4.16), ("symlog", 2.1972245), ("asinh", 2.7764723)],
)
def test_phi_of_a_row(kind, value):
    """φ(8) with β = 2 and ϵ = 0.01: √9 − 1 + 0.08 = 2.08, twice that, log 9, log(8 + √65)."""
    import torch

    recipe = dataclasses.replace(find("c2d"), phi=dataclasses.replace(find("c2d").phi, kind=kind, beta=2.0, eps=0.01))
    assert recipe.phi.build().to(torch.tensor(8.0)).item() == pytest.approx(value, rel=1e-5)


def test_unknown_recipe_names_a_near_one():
    with pytest.raises(
        UserError, match=r'unknown recipe "c2d-chanel"; accepted: c2d, c2d-channel.* Did you mean .*c2d-channel'
    ):
        find("c2d-chanel")


def test_atari_row_is_left_alone():
    for recipe in RECIPES.values():
        assert adapt(recipe, ATARI) == recipe


@pytest.mark.parametrize(
    ("spec", "encoder"),
    [
        (env("minatar", (4, 10, 10)), MinAtar),
        (env("gym", (4,), "float32"), Mlp),
        (env("gym", (3, 96, 96)), Nature),
        (env("gym", (3, 10, 10)), MinAtar),
    ],
)
def test_small_environments_change_sizes_and_schedules_only(spec, encoder):
    recipe = find("c2d")
    small = adapt(recipe, spec)
    assert type(small.encoder) is encoder
    assert small.schedule.random_history < recipe.schedule.random_history
    for part in ("phi", "loss", "bootstrap", "sampler", "n_step", "clip_reward"):
        assert getattr(small, part) == getattr(recipe, part), part
    assert type(small.head) is type(recipe.head)
    assert (small.head.atoms, small.head.alpha, small.head.c) == (32, 50.0, 5.0)
    assert small.schedule.gamma == recipe.schedule.gamma


def test_layer_normalization_needs_no_batch_and_stays_in_small_environments():
    small = env("minatar", (4, 10, 10))
    assert adapt(find("c2d"), small).encoder == MinAtar()
    fast = adapt(find("c2d-fast"), small)
    assert (fast.encoder, fast.layer_norm) == (MinAtar(norm="layer"), True)


def test_head_without_embedding_stays_without_when_shrunk():
    recipe = dataclasses.replace(find("c2d"), head=Conjugated(embedding=0))
    assert adapt(recipe, env("minatar", (4, 10, 10))).head.embedding == 0


def test_a_row_is_plain_frozen_data():
    recipe = find("c2d")
    assert recipe == Recipe() and hash(recipe) == hash(Recipe())
    with pytest.raises(dataclasses.FrozenInstanceError):
        recipe.n_step = 3


def test_small_environments_shrink_heads_and_widen_grids():
    small = env("minatar", (4, 10, 10))
    assert adapt(find("c51"), small).head == dataclasses.replace(find("c51").head, hidden=128, v_min=-30.0, v_max=30.0)
    head = adapt(find("iqn"), small).head
    assert (head.atoms, head.target_atoms, head.policy_atoms, head.hidden) == (16, 16, 16, 128)
    assert adapt(find("iqn"), ATARI) == find("iqn")
    vector = env("gym", (4,), "float32")
    periods = {name: adapt(find(name), vector).schedule.target_period for name in ("c2d", "dqn-adam")}
    assert periods == {"c2d": 40, "dqn-adam": 400}


def test_epsilon_falls_geometrically_as_step_by_step():
    """Its distance to the least value, by 1/steps of itself."""
    epsilon, steps = 1.0, 50
    for step in range(200):
        assert epsilon_at(step, 1.0, 0.01, steps, "geometric") == pytest.approx(epsilon, rel=1e-12)
        epsilon -= (epsilon - 0.01) / steps
    assert epsilon_at(50, 1.0, 0.01, steps, "geometric") == pytest.approx(0.01 + 0.99 * 0.364, abs=1e-3)
    assert epsilon_at(3, 1.0, 0.1, 0, "geometric") == epsilon_at(3, 1.0, 0.1, 1, "geometric") == 0.1


@pytest.mark.parametrize("decay", ["linear", "geometric"])
def test_epsilon_is_off_from_a_step_on(decay):
    values = [epsilon_at(step, 1.0, 0.5, 10, decay, 20) for step in range(30)]
    assert values[:20] == [epsilon_at(step, 1.0, 0.5, 10, decay) for step in range(20)] and min(values[:20]) >= 0.5
    assert values[20:] == [0.0] * 10


@pytest.mark.parametrize("decay", ["linear", "geometric"])
@pytest.mark.parametrize("steps", [0, 1, 7, 100])
@pytest.mark.parametrize("off", [None, 0, 40])
def test_a_run_has_the_epsilon_that_the_page_shows(decay, steps, off):
    schedule = Schedule(
        epsilon_initial=0.9, epsilon_min=0.2, epsilon_decay_steps=steps, epsilon_decay=decay, epsilon_off_steps=off
    )
    for step in (0, 1, 6, 7, 39, 40, 1_000):
        assert epsilons(schedule, step, 1) == [epsilon_at(step, 0.9, 0.2, steps, decay, off)]


def test_epsilon_falls_linearly_to_its_least_value():
    assert [epsilon_at(step, 1.0, 0.5, 10) for step in (0, 5, 10, 11)] == [1.0, 0.75, 0.5, 0.5]
    assert epsilon_at(0, 1.0, 0.5, 0) == 0.5
