"""Plans from files."""

from pathlib import Path

import pytest

from c2d.errors import UserError
from c2d.sweep.plan import Plan, Variant, multiply
from c2d.sweep.planfile import read_plan

TOML = """
name = "rates"
recipes = ["c2d", "c51"]
envs = ["toy/*"]
seeds = 2
steps = 900
settings = { "schedule.batch-size" = 64, "schedule.steps-per-iteration" = 500 }
grid = { "optim.learning-rate" = [1e-3, 1e-4] }

[[variants]]
name = "c2d-quantiles"
recipe = "c2d"
settings = { "head" = "quantile", "loss" = "quantile-huber" }
"""
YAML = """
name: rates
recipes: [c2d, c51]
envs: "toy/*"
seeds: [1, 2]
steps: 900
settings: {schedule.batch-size: 64, schedule.steps-per-iteration: 500}
grid: {optim.learning-rate: [1e-3, 1e-4]}
variants:
  - {name: c2d-quantiles, recipe: c2d, settings: {head: quantile, loss: quantile-huber}}
"""


def write(path, text):
    path.write_text(text)
    return path


def test_toml_and_yaml_mean_the_same(tmp_path):
    plans = [read_plan(write(tmp_path / name, text)) for name, text in (("a.toml", TOML), ("a.yaml", YAML))]
    first, second = (multiply(plan, tmp_path).runs for plan in plans)
    assert [run.hash for run in first] == [run.hash for run in second]
    assert len(first) == 2 * 3 * 2 * len({run.config.env for run in first})
    assert {run.config.steps for run in first} == {1_000} and plans[0].name == "rates"
    assert {run.config.recipe.optim.learning_rate for run in first} == {1e-3, 1e-4}


def test_the_example_in_the_docstring(tmp_path):
    """The example in the module's docstring is a plan."""
    import textwrap

    from c2d.sweep import planfile

    text = textwrap.dedent(planfile.__doc__.partition("\n\n")[2])
    plan = read_plan(write(tmp_path / "example.toml", text))
    assert len(multiply(plan, tmp_path).runs) == 3 * 6 * 3 * 2


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("p.toml", "recipes = [", "is not TOML"),
        ("p.yaml", "a: [", "is not plain YAML"),
        ("p.yaml", "!!python/object/apply:os.system ['touch HACKED']", "is not plain YAML"),
        ("p.yaml", "- c2d", "a plan is a list; accepted: a table of name, recipes"),
        ("p.toml", 'recipe = "c2d"', 'unknown key of a plan "recipe"; accepted: name, recipes'),
        ("p.toml", 'iterations = "two"', "iterations of a plan is 'two'; accepted: a whole number"),
        ("p.toml", "seeds = true", "seeds of a plan is True"),
        ("p.toml", "recipes = [1]", "recipes is [1]; accepted: a list of names"),
        ("p.toml", 'name = "../up"', 'name is "../up"'),
        ("p.toml", '[[variants]]\nname = "a/b"\nrecipe = "c2d"', "variant 1 needs a recipe, and a name"),
        ("p.toml", 'envs = ["evil.module:Env"]', "code that is imported only if you name it yourself"),
        ("p.toml", 'settings = { "phi.kind" = "evil:phi" }', "code that is imported only if you name it yourself"),
    ],
)
def test_bad_files_get_one_line(name, text, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as error:
        read_plan(write(tmp_path / name, text))
    assert message in str(error.value) and "\n" not in str(error.value)
    assert not (tmp_path / "HACKED").exists()


def test_missing_and_huge_files(tmp_path):
    with pytest.raises(UserError, match="cannot be read: No such file"):
        read_plan(tmp_path / "none.toml")
    with pytest.raises(UserError, match="at most 1,048,576 are read"):
        read_plan(write(tmp_path / "huge.toml", "#" * (1 << 20) + "\n"))
    (tmp_path / "latin.toml").write_bytes(b"name = '\xff'")
    with pytest.raises(UserError, match="not UTF-8 text"):
        read_plan(tmp_path / "latin.toml")


def test_user_code_that_the_command_line_names(tmp_path):
    file = write(tmp_path / "p.toml", 'recipes = ["c51"]\nenvs = ["tests.sweep.faulty_envs:Countdown"]')
    plan = read_plan(file, ("tests.sweep.faulty_envs:Countdown",))
    assert multiply(plan, tmp_path).runs[0].config.env == "gym/tests.sweep.faulty_envs:Countdown"


def test_arguments_and_wrappers_of_environments(tmp_path):
    plan = Plan("p", (Variant("c51", "c51"),), ("gym/FrozenLake-v1",), seeds=(1,), settings={"head.atoms": 7},
                grid={"env-kwargs.map-name": ("4x4", "8x8")})  # fmt: skip
    runs = multiply(plan, tmp_path).runs
    assert [run.config.rules.arguments for run in runs] == [{"map_name": "4x4"}, {"map_name": "8x8"}]
    assert [run.spec.frame_shape for run in runs] == [(16,), (64,)]
    assert all(run.config.recipe.head.atoms == 7 for run in runs)


@pytest.mark.parametrize("setting", ['wrapper = "gymnasium.wrappers:NormalizeReward"', '"env-kwargs.desc" = "/etc"'])
def test_a_plan_file_does_not_bring_wrappers_or_paths(setting, tmp_path):
    file = write(tmp_path / "p.toml", f'recipes = ["c51"]\nenvs = ["gym/CartPole-v1"]\n[settings]\n{setting}')
    with pytest.raises(UserError, match=r"used only if you name it yourself; .* add --set "):
        read_plan(file)


def test_the_plan_of_the_contest_gives_every_row_the_same_grid():
    plan = read_plan(Path(__file__).parents[2] / "docs" / "plans" / "minatar-contest.toml")
    runs = multiply(plan, Path("unused")).runs
    tried = {}
    for run in runs:
        recipe = run.config.recipe
        tried.setdefault(run.config.recipe_name, []).append((run.config.env, recipe.optim.learning_rate, recipe.n_step))
        assert run.config.steps == 50_000
    assert len(tried) == 8 and len({tuple(sorted(grid)) for grid in tried.values()}) == 1
    assert len(set(tried["iqn"])) == 8
    falling = [run.config.recipe.optim for run in runs if run.config.recipe.optim.learning_rate_final is not None]
    assert len(falling) == 16 and all(optim.decay_updates == 25_000 for optim in falling)  # an update per 2 steps
