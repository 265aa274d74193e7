"""A part declared outside the package works everywhere: options, help, JSON, limits, training, evaluation, resume."""

import dataclasses
import importlib
import json
import re
from pathlib import Path

import pytest
import torch

import c2d
from c2d.agents.build import build_learner, build_network
from c2d.cli.main import main
from c2d.cli.train import read
from c2d.config import Config, default_config, flat, from_json, to_json, validate
from c2d.envs.protocols import AtariRules, GymRules, MinAtarRules
from c2d.envs.spec import EnvSpec
from c2d.errors import UserError
from c2d.recipes.part import PARTS, SLOTS, find_part, json_name
from c2d.recipes.parts import Cramer, CrossEntropy, PhiSpec
from c2d.recipes.recipe import Recipe, Schedule, check_recipe
from c2d.recipes.rows import find
from c2d.user_code import TRUSTED, trust
from c2d.validation import limits

NAME = "tests.recipes.own_parts:MyHead"
SHORT = ["--schedule.steps-per-iteration", "60", "--schedule.random-history", "40", "--iterations", "1",
         "--threads", "1", "--tensorboard", "False", "--loss", "cross-entropy"]  # fmt: skip
SPEC = EnvSpec("gym/x", "gym", (4,), "float32", 1, 3, 1)


@pytest.fixture(autouse=True)
def _own(own_modules):
    """Nothing of one test is known to the next."""


def own(name="MyHead"):
    return getattr(importlib.import_module("tests.recipes.own_parts"), name)


def rejected(capsys, *words):
    assert main(list(words)) == 2
    out, err = capsys.readouterr()
    assert err.startswith("c2d: ") and err.count("\n") == 1 and "Traceback" not in out + err
    return err


def test_it_is_listed_with_its_settings_limits_and_help(capsys):
    assert main(["recipes", "--parts"]) == 0
    assert "MyHead" not in capsys.readouterr().out
    assert main(["recipes", "--parts", "--trust", NAME]) == 0
    out = capsys.readouterr().out
    assert f"  {NAME}: Probabilities on a grid, and a trained scale.\n" in out
    assert "    --head.size: Atoms of the grid. Accepted: at least 2, at most 9. (default: 5)\n" in out
    assert "    --head.rate: Learning rate of the scale. (default: 0.01)\n" in out


def test_every_part_of_the_package_is_listed(capsys):
    assert main(["recipes", "--parts"]) == 0
    out = capsys.readouterr().out
    for slot, about in SLOTS.items():
        assert f"--{slot}: {about}\n" in out
        for name, cls in PARTS[slot].items():
            assert f"\n  {name}: " in out
            for field in dataclasses.fields(cls):
                assert f"    --{slot}.{field.name.replace('_', '-')}: " in out
    assert "Accepted: keras, torch. (default: keras)" in out


def test_it_is_chosen_and_set_on_the_command_line(capsys):
    config = read(["gym/CartPole-v1", "--head", NAME, "--head.size", "3", "--loss", "cross-entropy"])
    assert config.recipe.head == own()(size=3) and config.recipe.loss == CrossEntropy()
    with pytest.raises(SystemExit, match="0"):
        read(["gym/CartPole-v1", "--head", NAME, "--help-all"])
    text = " ".join(capsys.readouterr().out.split())
    assert "--head.size N Atoms of the grid (default: 5)" in text and f"(default: {NAME})" in text


def test_it_is_named_in_json_and_read_back():
    config = read(["gym/CartPole-v1", "--head", NAME, "--head.size", "3", "--loss", "cross-entropy"])
    plain = json.loads(json.dumps(to_json(config)))
    assert plain["recipe"]["head"] == {"class": NAME, "size": 3, "rate": 0.01}
    assert flat(plain)["head"] == NAME and flat(plain)["head.size"] == 3
    assert from_json(plain) == config
    plain["recipe"]["head"]["size"] = "x"
    with pytest.raises(UserError, match=f"'x' for size in {NAME}; accepted: int"):
        from_json(plain)


def test_a_file_alone_does_not_import_it(own_modules):
    plain = to_json(read(["gym/CartPole-v1", "--head", NAME]))
    own_modules()
    with pytest.raises(
        UserError, match=f'"{NAME}", code that is imported only if you name it yourself; .*--trust {NAME}'
    ):
        from_json(plain)
    assert flat(plain)["head"] == NAME  # what is only shown needs no code
    trust(NAME)
    assert from_json(plain).recipe.head == own()()


def test_its_limits_are_enforced(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    line = rejected(capsys, "train", "gym/CartPole-v1", *SHORT, "--head", NAME, "--head.size", "10")
    assert line == "c2d: --head.size is 10; accepted: at least 2, at most 9\n"
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UserError, match=r"--head\.size is 1; accepted"):
        check_recipe(dataclasses.replace(find("c51"), head=own()(size=1)))


def test_losses_fit_by_what_the_head_gives():
    check_recipe(dataclasses.replace(find("c51"), head=own()()))
    check_recipe(dataclasses.replace(find("c51"), head=own()(), loss=Cramer()))
    with pytest.raises(UserError, match=f"--loss quantile-huber does not fit --head {NAME}: it needs atoms at known"):
        check_recipe(dataclasses.replace(find("qr-dqn"), head=own()()))
    with pytest.raises(UserError, match="own_parts:NeedsColor does not fit --head categorical: it needs color"):
        check_recipe(dataclasses.replace(find("c51"), loss=own("NeedsColor")()))


def test_it_trains_evaluates_and_resumes(capsys, tmp_path, monkeypatch, own_modules):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "gym/CartPole-v1", *SHORT, "--head", NAME, "--head.size", "3"]) == 0
    (run,) = (tmp_path / "runs").iterdir()
    assert run.name.startswith("gym-CartPole-v1-c2d-head=tests.recipes.own_parts-MyHead,loss=cross-en")
    record = json.loads((run / "records.jsonl").read_text().splitlines()[-1])
    assert record["scale"] != 1.0  # trained apart, and recorded
    capsys.readouterr()
    own_modules()
    for command in (["evaluate", str(run)], ["resume", str(run)], ["train", "--config", str(run / "config.json")]):
        assert f"add --trust {NAME}" in rejected(capsys, *command)
        assert "tests.recipes.own_parts:MyHead" not in PARTS["head"]
    assert main(["evaluate", "--trust", NAME, str(run), "--games", "2"]) == 0
    own_modules()
    assert main(["resume", str(run), "--trust", NAME, "--iterations", "2"]) == 0
    assert "resumed from the checkpoint at step 60: exact" in capsys.readouterr().out
    own_modules()
    assert read(["--config", str(run / "config.json"), "--head", NAME]).recipe.head == own()(size=3)


def test_from_python_passing_it_is_naming_it(tmp_path):
    config = read(["gym/CartPole-v1", "--run-dir", str(tmp_path / "run"), *SHORT])
    config = dataclasses.replace(config, recipe=dataclasses.replace(config.recipe, head=own()(size=4)))
    assert c2d.train(config, progress=False).state == "finished"
    assert NAME in TRUSTED and c2d.load(tmp_path / "run").recipe.head == own()(size=4)


def test_a_plan_of_a_sweep_does_not_import_it(tmp_path, capsys, monkeypatch, own_modules):
    monkeypatch.chdir(tmp_path)
    Path("plan.toml").write_text(
        f'recipes = ["c51"]\nenvs = ["toy/sure"]\nseeds = 1\n[settings]\nhead = "{NAME}"\n"head.size" = 4\n'
    )
    assert f"add --trust {NAME}" in rejected(capsys, "sweep", "plan.toml", "--dry-run")
    assert main(["sweep", "plan.toml", "--dry-run", "--trust", NAME]) == 0
    own_modules()
    words = ["sweep", "--recipes", "c51", "--envs", "toy/sure", "--dry-run", "--set", f"head={NAME}"]
    assert main([*words, "--set", "head.size=4"]) == 0
    assert "--head.size is 20; accepted: at least 2" in rejected(capsys, *words, "--set", "head.size=20")


def test_what_it_trains_apart_has_its_own_optimizer():
    recipe = dataclasses.replace(default_config("gym/CartPole-v1").recipe, head=own()(rate=0.1))
    learner = build_learner(recipe, SPEC, torch.Generator(), torch.Generator())
    scale = learner.online.head.scale
    first, second = learner.optimizers
    assert [p is scale for p in second.parameters] == [True] and second.optim.learning_rate == 0.1
    assert not any(p is scale for p in first.parameters)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--head", "nowhere:MyHead"], 'head "nowhere:MyHead" cannot be imported from'),
        (["--head", "tests.recipes.own_parts:MyHed"], 'has no "MyHed". Did you mean'),
        (["--head", "tests.recipes.own_parts:NeedsColor"], "is not a subclass of c2d.recipes.part.HeadSpec"),
        (["--head", "tests.recipes.own_parts:torch"], "is not a subclass of c2d.recipes.part.HeadSpec"),
        (["--head", "c2d.recipes.part:HeadSpec"], "is not a subclass of c2d.recipes.part.HeadSpec"),
        (["--head", "tests.recipes.broken_parts:NoDataclass"], "is not a dataclass; put @dataclass(frozen=True)"),
        (["--head", "tests.recipes.broken_parts:NoDefault"], 'has a setting without a default, "size"'),
        (["--encoder", "tests.recipes.own_parts:NotAModule"], "build returned a int; accepted: a torch.nn.Module with"),
        (["--encoder", "tests.recipes.own_parts:GlobalWeights"], "LSTM has parameters without a rule"),
        (["--phi.kind", "tests.recipes.own_parts:sine"], "sine\" is not increasing at -10; accepted: an increasing"),
        (["--phi.kind", "tests.recipes.own_parts:wrong_inverse"], "wrong_inverse\": back(to(-10)) is -0.99"),
        (["--phi.kind", "tests.recipes.own_parts:overflow"], "does not map every return from -10 to 10"),
        (["--phi.kind", "tests.recipes.own_parts:in_words"], "a pair of functions `to` and `back` on tensors"),
        (["--phi.kind", "tests.recipes.own_parts:raising"], "raising\": `back` fails on a tensor: AttributeError"),
        (["--phi.kind", "nope"], 'unknown φ "nope"; accepted: identity, h'),
        (["--phi.kind", "tests.recipes.own_parts:MyHead"], "is not a c2d.types.Phi"),
    ],
)  # fmt: skip
def test_mistakes_get_one_line(words, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine.txt").write_text("mine")  # the value is wrong before the directory is
    directory = [] if "encoder" in words[0] else ["--run-dir", "taken"]
    assert message in rejected(capsys, "train", "gym/CartPole-v1", *SHORT[:-2], *directory, *words)
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_code_that_fails_says_where(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("own_broken.py").write_text("x = 1\ny = x / 0\n")
    line = rejected(capsys, "train", "gym/CartPole-v1", "--head", "own_broken:MyHead")
    assert "ZeroDivisionError" in line and "own_broken.py, line 2" in line


def test_a_module_may_draw_its_own_weights():
    recipe = dataclasses.replace(default_config("gym/CartPole-v1").recipe, encoder=own("GlobalWeights")(attention=True))
    weights = [build_network(recipe, SPEC, torch.Generator().manual_seed(3)).state_dict() for _ in range(2)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert weights[0]["encoder.inner.weight"].std() > 0.3


def test_a_part_of_the_package_has_a_name_and_a_users_has_none():
    base = PARTS["loss"]["cramer"].__mro__[1]
    with pytest.raises(TypeError, match="any other one has none"):
        type("Mine", (base,), {"__module__": "mine"}, name="mine")
    with pytest.raises(TypeError, match="of the package c2d has a name"):
        type("Ours", (base,), {"__module__": "c2d.recipes.parts"})
    with pytest.raises(TypeError, match="frozen"):
        dataclasses.dataclass(type("Mine", (base,), {"__module__": "mine", "__annotations__": {"x": int}, "x": 1}))


def test_the_name_of_a_run_shows_what_was_changed():
    def name(*words, env="minatar/breakout"):
        return read([env, *words]).directory.name

    assert name() == "minatar-breakout-c2d-s1"
    assert name("--iterations", "3", "--threads", "1", "--seed", "4") == "minatar-breakout-c2d-s4"
    assert name("--head", "quantile", "--head.atoms", "50") == "minatar-breakout-c2d-head=quantile,head.atoms=50-s1"
    assert name("--head", "conjugated") == "minatar-breakout-c2d-s1"
    assert name("--optim.learning-rate", "1e-4") == "minatar-breakout-c2d-optim.learning-rate=0.0001-s1"
    assert name("--encoder.widths", "8", "4", env="gym/CartPole-v1") == "gym-CartPole-v1-c2d-encoder.widths=8+4-s1"
    assert name("--rules.sticky", "0", "--noisy") == "minatar-breakout-c2d-rules.sticky=0,noisy=True-s1"
    assert name("--protocol", "dopamine", env="pong") == "atari-pong-c2d-protocol=dopamine-s1"
    assert name("--phi.kind", "a/b:../c") == "minatar-breakout-c2d-phi.kind=a-b-..-c-s1"
    long = [name("--head.alpha", "3", "--head.c", "2", "--n-step", "3", "--schedule.gamma", "0.9", "--optim.eps", eps)
            for eps in ("0.1", "0.2")]  # fmt: skip
    assert long[0] != long[1] and all(len(one) < 100 for one in long)


def numeric_fields():
    classes = [Config, Recipe, Schedule, PhiSpec, type(Config("x").checkpoint), AtariRules, MinAtarRules, GymRules]
    classes += [cls for parts in PARTS.values() for cls in parts.values()]
    for cls in classes:
        for field in dataclasses.fields(cls):
            if re.search(r"\b(int|float)\b", str(field.type)):
                yield cls, field.name


def test_every_number_has_a_limit():
    found = list(numeric_fields())
    assert len(found) > 70
    assert [(cls.__name__, name) for cls, name in found if name not in limits(cls)] == []


def test_a_config_of_the_first_release_is_read(capsys):
    """Stored as version 0.1.0 wrote it: `agent` and `recipe` for `recipe` and `recipe_name`, `Optim` for `Adam`."""
    path = Path(__file__).parent / "config-0.1.0.json"
    config = read(["--config", str(path)])
    assert config.recipe_name == "rainbow-c2d" and config.recipe.head.atoms == 32 and config.recipe.noisy
    assert (
        json_name(type(config.recipe.optim)) == "Adam"
        and config.recipe.optim.learning_rate == 1e-3
        and config.env == "minatar/breakout"
    )
    validate(config)
    assert from_json(to_json(config)) == config
    assert find_part("head", "conjugated") is type(config.recipe.head)
