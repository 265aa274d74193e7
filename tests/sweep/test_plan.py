"""Plans: recipes × environments × seeds → configs, deduplicated, named and hashed; all errors reported together."""

from dataclasses import replace

import pytest

from c2d.config import default_config
from c2d.envs.games import BENCHMARK
from c2d.envs.make import make
from c2d.errors import UserError
from c2d.recipes.parts import Categorical, Cramer, Impala, Nature, Quantile, Uniform
from c2d.recipes.rows import find
from c2d.sweep.directory import SweepDir
from c2d.sweep.plan import (
    PLANS,
    Plan,
    Variant,
    ablation_plan,
    ablations,
    builtin_plan,
    check_run_name,
    config_hash,
    multiply,
)


def rows(*names):
    return tuple(Variant(name, name) for name in names)


def test_every_combination_with_seeds_outermost(tmp_path):
    plan = Plan("p", rows("c2d", "c51"), ("minatar/breakout", "toy/sure"), (1, 2), iterations=2)
    runs = multiply(plan, tmp_path).runs
    assert [(r.config.seed, r.config.env, r.variant) for r in runs] == [
        (seed, env, recipe) for seed in (1, 2) for env in plan.envs for recipe in ("c2d", "c51")
    ]
    assert len({run.name for run in runs}) == len({run.hash for run in runs}) == 8
    assert runs[0].name == "minatar-breakout-c2d-s1" and runs[0].config.directory == tmp_path / runs[0].name
    assert all(r.config.iterations == 2 and r.config.threads == 1 and not r.config.tensorboard for r in runs)


def test_a_planned_run_is_the_run_that_train_would_do(tmp_path):
    for env in ("minatar/breakout", "atari/pong", "toy/sure"):
        for run in multiply(Plan("p", rows("iqn", "c2d"), (env,), (7,)), tmp_path).runs:
            assert run.hash == config_hash(default_config(env, run.config.recipe_name, seed=7))
            assert run.config.iterations == default_config(env).iterations


def test_specs_are_those_of_the_environments(tmp_path):
    envs = ("atari/pong", "atari/alien", "minatar/freeway", "toy/sure")
    for run in multiply(Plan("p", rows("c2d"), envs, (1,)), tmp_path).runs:
        assert run.spec == make(run.config.env, run.config.rules, seed=0).spec


def test_patterns(tmp_path):
    def envs(*patterns):
        return {r.config.env for r in multiply(Plan("p", rows("c2d"), patterns, (1,)), tmp_path).runs}

    assert len(envs("minatar/*")) == 5 and envs("toy/su*") == {"toy/sure"}
    assert envs("breakout", "atari/breakout", "ALE/Breakout-v5") == {"atari/breakout"}
    with pytest.raises(UserError, match=r"no environment matches .mintar/\*."):
        envs("mintar/*")


def test_duplicates_are_omitted_and_named(tmp_path):
    plan = Plan("p", rows("c51", "c51"), ("toy/sure", "toy/sure"), (1, 1))
    assert len(multiply(plan, tmp_path).runs) == 1
    atoms = default_config("toy/sure", "c51").recipe.head.atoms
    same = Plan("p", (*rows("c51"), Variant("c51-again", "c51", settings={"head.atoms": atoms})), ("toy/sure",), (1,))
    listing = multiply(same, tmp_path)
    assert [run.variant for run in listing.runs] == ["c51"] and listing.duplicates == {"c51-again": "c51"}


def test_two_different_runs_never_share_a_name(tmp_path):
    clash = (Variant("x", "c51"), Variant("x", "c2d"))
    with pytest.raises(UserError, match='two different runs have the name "toy-sure-x-s1"'):
        multiply(Plan("p", clash, ("toy/sure",), (1,)), tmp_path)


def test_the_hash_covers_what_affects_the_results():
    config = default_config("toy/sure", "c51")
    for same in ({"iterations": 3}, {"threads": 2}, {"run_dir": "x"}, {"device": "cuda"}, {"tensorboard": False}):
        assert config_hash(replace(config, **same)) == config_hash(config)
    head = replace(config.recipe.head, atoms=11)
    for other in ({"seed": 2}, {"env": "toy/gamble"}, {"recipe": replace(config.recipe, head=head)}):
        assert config_hash(replace(config, **other)) != config_hash(config)


def test_settings_and_grid(tmp_path):
    grid = {"optim.learning-rate": (1e-3, 1e-4), "n-step": (1, 3)}
    plan = Plan("p", rows("c51"), ("toy/sure",), (1,), settings={"schedule.batch-size": "16"}, grid=grid)
    recipes = {run.variant: run.config.recipe for run in multiply(plan, tmp_path).runs}
    assert set(recipes) == {
        f"c51-optim.learning-rate-{rate}-n-step-{n}" for rate in (0.001, 0.0001) for n in (1, 3)
    }  # fmt: skip
    assert {(recipe.optim.learning_rate, recipe.n_step) for recipe in recipes.values()} == {
        (rate, n) for rate in (1e-3, 1e-4) for n in (1, 3)
    }
    assert all(recipe.schedule.batch_size == 16 for recipe in recipes.values())


def test_parts_are_exchanged_before_their_settings(tmp_path):
    swap = {"head.atoms": 20, "head": "quantile", "loss": "quantile-huber", "rules.cap-steps": 50}
    agent = multiply(Plan("p", rows("c2d"), ("gym/CartPole-v1",), (1,), settings=swap), tmp_path).runs[0].config.recipe
    assert isinstance(agent.head, Quantile) and agent.head.atoms == 20


def test_all_errors_are_reported_together(tmp_path):
    plan = Plan(
        "wrong", rows("c3d", "c51"), ("minatar/brekout", "toy/sure", "gym/Nothing-v0"), (1, -1), iterations=0,
        settings={"optim.learning-rat": 1.0},
    )  # fmt: skip
    with pytest.raises(UserError) as error:
        multiply(plan, tmp_path)
    text = str(error.value)
    assert text.startswith("plan wrong has 6 errors, nothing was started:\n")
    for part in ("c3d", "minatar/brekout", "Nothing-v0", "seeds are 1, -1", "iterations is 0", "'optim.learning-rate'"):
        assert part in text
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"seed": 3}, "use seeds"),
        ({"head.atoms": 0}, "--head.atoms is 0; accepted: at least 2"),
        ({"head.atoms": "many"}, "accepted: int"),
        ({"head": "kwantile"}, 'unknown head "kwantile"'),
        ({"loss": "cross-entropy", "head": "quantile"}, "c51: --loss cross-entropy does not fit --head quantile"),
    ],
)
def test_bad_settings(settings, message, tmp_path):
    with pytest.raises(UserError) as error:
        multiply(Plan("p", rows("c51"), ("toy/sure",), (1,), settings=settings), tmp_path)
    assert message in str(error.value) and "\n" not in str(error.value)


# --------------------------------------------------------------------------------------------------- built-in plans


@pytest.mark.parametrize("name", [name for name in PLANS if name not in ("paper", "btr")])
def test_builtin_plans_have_a_run_for_every_variant_environment_and_seed(name, tmp_path):
    plan = builtin_plan(name)
    runs, same = multiply(plan, tmp_path)
    planned = {(run.variant, run.config.env, run.config.seed) for run in runs}
    envs = {run.config.env for run in runs}
    assert len(planned) == len(runs) and len(envs) >= len(plan.envs)
    for variant in plan.variants:
        if variant.name not in same:
            assert {(variant.name, env, seed) for env in envs for seed in plan.seeds} <= planned


def test_the_papers_plan(tmp_path):
    runs = multiply(builtin_plan("paper"), tmp_path).runs
    assert len(runs) == 55 * 3 * 5
    assert {run.config.env for run in runs} == {f"atari/{game}" for game in BENCHMARK}
    assert {run.config.recipe_name for run in runs} == {"c2d", "c51", "iqn", "rainbow", "dqn"}
    assert {run.config.steps * run.spec.frames_per_step for run in runs} == {200_000_000}
    assert {run.config.seed for run in runs[: 55 * 5]} == {1}  # one seed of everything comes first


def test_the_plan_of_btr(tmp_path):
    runs = multiply(builtin_plan("btr"), tmp_path).runs
    assert len(runs) == 55 * 3 * 2
    assert {run.config.recipe_name for run in runs} == {"btr", "btr-c2d"}
    assert {run.config.env for run in runs} == {f"atari/{game}" for game in BENCHMARK}
    assert {run.config.steps * run.spec.frames_per_step for run in runs} == {200_000_000}
    rules = {(run.config.rules.sticky, run.config.rules.life_loss_ends_episode) for run in runs}
    assert rules == {(0.25, False)} and {run.config.rules.truncation for run in runs} == {"terminal"}


def test_ablation_of_btr_removes_every_ingredient(tmp_path):
    """On Atari all variants differ; on MinAtar the recipe has no last pooling that could be removed."""
    for name, laws in (
        ("btr", {"munchausen", "random-fractions"}),
        ("btr-c2d", {"double", "phi", "embedding", "unit", "narrow-start"}),
        ("btr-c2d-munchausen", {"munchausen", "phi", "embedding", "unit", "narrow-start"}),
    ):
        common = {"n-step", "priorities", "noise", "epsilon", "dueling", "separate-streams", "many-environments"}
        common |= {"spectral-norm", "pooling", "residual-encoder"}
        plan = replace(ablation_plan(name), seeds=(1,))
        assert {variant.name for variant in plan.variants} == {name, *(f"{name}-no-{what}" for what in common | laws)}
        runs, same = multiply(plan, tmp_path)
        assert len(runs) == len(plan.variants) - 1 and same == {f"{name}-no-pooling": name}
        runs, same = multiply(replace(plan, envs=("breakout",)), tmp_path)
        assert len(runs) == len(plan.variants) and not same
        recipes = {run.variant.removeprefix(f"{name}-no-"): run.config.recipe for run in runs}
        assert recipes["noise"].schedule.epsilon_off_steps is None and not recipes["noise"].noisy
        assert recipes["epsilon"].schedule.epsilon_initial == 0 and recipes["epsilon"].noisy
        assert recipes["residual-encoder"].encoder == Nature(norm="none") and recipes["many-environments"].envs == 1
        assert recipes["spectral-norm"].encoder == Impala(scale=2, norm="none", pool=6)


def test_minatar_keeps_its_names(tmp_path):
    names = [run.name for run in multiply(builtin_plan("minatar"), tmp_path).runs]
    assert len(names) == 28 and names[0] == "minatar-breakout-dqn-adam-s1"
    assert "minatar-space_invaders-rainbow-c2d-s2" in names
    assert {r.config.steps for r in multiply(builtin_plan("minatar"), tmp_path).runs} == {100_000}


def test_ablation_removes_one_ingredient_at_a_time():
    full = find("rainbow-c2d-full")
    variants = {variant.name: variant.change(full) for variant in ablations("rainbow-c2d-full", full)}
    assert list(variants) == [
        "rainbow-c2d-full", *(f"rainbow-c2d-full-no-{what}" for what in (
            "n-step", "priorities", "double", "noise", "dueling", "phi", "embedding", "narrow-start", "layer-norm",
            "falling-rate"))
    ]  # fmt: skip
    plain = variants["rainbow-c2d-full-no-layer-norm"]
    assert (plain.encoder, plain.layer_norm) == (Nature(norm="none"), False)
    assert variants["rainbow-c2d-full-no-narrow-start"].head == replace(full.head, initial_scale=1.0)
    constant = variants["rainbow-c2d-full-no-falling-rate"].optim
    assert (constant.learning_rate_final, constant.decay_updates) == (None, 0)
    assert variants["rainbow-c2d-full"] == full
    assert variants["rainbow-c2d-full-no-priorities"].sampler == Uniform()
    quiet = variants["rainbow-c2d-full-no-noise"]
    assert not quiet.noisy and quiet.schedule.epsilon_initial == 1.0  # something must explore
    for variant in list(variants.values())[1:]:
        assert variant != full
    assert ablation_plan("rainbow-c2d").name == "ablate-rainbow-c2d"


def test_all_claims_of_the_paper_are_planned(tmp_path):
    planned = multiply(replace(builtin_plan("paper-claims"), envs=("minatar/breakout",)), tmp_path).runs
    runs = {run.variant: run.config.recipe for run in planned}
    assert runs["c51-cramer"].loss == Cramer() and isinstance(runs["c51-cramer"].head, Categorical)
    assert runs["c2d-no-embedding"].head.embedding == 0 and not runs["c2d-alpha-fixed"].head.train_alpha
    assert not runs["c2d-support-fixed"].head.train_atoms
    assert runs["c2d-identity-clipped"].clip_reward == 1.0 and runs["c2d-identity-raw"].clip_reward is None
    assert {runs[name].phi.kind for name in ("c2d", "c2d-h", "c2d-identity-raw")} == {"scaled_h", "h", "identity"}
    assert runs["c2d-orthogonal"].initializer == "orthogonal" and runs["c2d-norm-column"].encoder.norm == "column"
    assert {runs[f"c2d-beta-{b}"].phi.beta for b in (1, 1.5, 3)} == {1.0, 1.5, 3.0}
    assert runs["c2d-c-10"].head.c == 10.0 and runs["c2d-alpha-25"].head.alpha == 25.0


@pytest.mark.parametrize("name", ["../x", "a/b", "..", ".", ".hidden", "", "x" * 201, "red\x1b[31m", None, 5])
def test_names_of_runs_stay_inside_the_sweep(name):
    with pytest.raises(UserError, match=r"run name .* is not usable"):
        check_run_name(name)


def test_a_variant_cannot_lead_out_of_the_sweep(tmp_path):
    plan = Plan("p", (Variant("../../x", "c2d"),), ("toy/sure",), seeds=(1,))
    with pytest.raises(UserError, match=r"run name 'toy-sure-\.\./\.\./x-s1' is not usable"):
        multiply(plan, tmp_path)


@pytest.mark.parametrize("name", ["../outside", "linked"])
def test_a_sweep_whose_runs_lie_elsewhere_is_rejected(name, tmp_path):
    plan = Plan("p", rows("c2d"), ("toy/sure",), seeds=(1,))
    sweep, (run,) = SweepDir(tmp_path / "sweep"), multiply(plan, tmp_path / "sweep").runs
    sweep.create()
    sweep.save_plan("p", [run])
    (tmp_path / "outside").mkdir()
    (sweep.path / "linked").symlink_to(tmp_path / "outside")
    text = sweep.file.read_text()
    assert list(sweep.planned()) == [run.name]
    sweep.file.write_text(text.replace(f'"{run.name}"', f'"{name}"'))
    with pytest.raises(UserError, match=r"cannot be read: (run name .* is not usable|.* is a link or a file)"):
        sweep.planned()
