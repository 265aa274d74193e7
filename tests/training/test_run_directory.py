"""Run directories: never overwritten, never half made, read back with care."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from c2d.agents.agent import Agent
from c2d.api import load
from c2d.config import Checkpointing, default_config, from_json, read_config, to_json
from c2d.errors import UserError
from c2d.files import write_atomically
from c2d.runs.layout import RunDir
from c2d.seeding import integer, numpy_generator, torch_generator
from c2d.training.observers import Observer
from c2d.training.run import run
from tests.training.short_runs import short_config, short_run


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return short_run("gym/CartPole-v1", tmp_path_factory.mktemp("dir") / "run", iterations=1).run_dir.path


def copy_of(trained, tmp_path):
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    return tmp_path


def test_existing_directory_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "run"
    path.mkdir()
    (path / "precious.txt").write_text("mine")
    (tmp_path / "run-2").mkdir()
    with pytest.raises(UserError, match=r"exists, does not hold a run, and is not overwritten; .*--run-dir .*/run-3$"):
        short_run("gym/CartPole-v1", path)
    assert [file.name for file in path.iterdir()] == ["precious.txt"]
    assert not (tmp_path / "run-3").exists()


def test_directory_below_a_file_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"run directory .* cannot be created: .*; choose another with --run-dir"):
        short_run("gym/CartPole-v1", tmp_path / "file" / "run")


def test_bad_settings_make_no_directory(tmp_path):
    with pytest.raises(UserError):
        short_run("gym/CartPole-v1", tmp_path / "run", gamma=1.5)
    assert list(tmp_path.iterdir()) == []


def test_default_directory_names_env_recipe_and_seed():
    config = default_config("gym/CartPole-v1", seed=7)
    assert str(config.directory) == "runs/gym-CartPole-v1-c2d-s7"


@pytest.mark.parametrize("env", ["breakout", "minatar/breakout", "gym/CartPole-v1", "toy/sure"])
def test_config_survives_the_file(env, tmp_path):
    config = default_config(env, "c2d-channel", seed=5, threads=2)
    (tmp_path / "config.json").write_text(json.dumps(to_json(config)))
    assert read_config(tmp_path / "config.json") == config


def edited(path, *keys, value):
    config = json.loads(path.read_text())
    place = config
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    path.write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("keys", "value", "message"),
    [
        (("recipe", "head", "atoms"), "x", r"'x' for atoms in Conjugated; accepted: int"),
        (("recipe", "head", "atoms"), 1.5, r"1\.5 for atoms in Conjugated; accepted: int"),
        (("recipe", "head", "atoms"), True, r"True for atoms"),
        (("recipe", "schedule", "gamma"), None, r"None for gamma in Schedule; accepted: float"),
        (("recipe", "encoder", "widths"), ["a"], r"\['a'\] for widths in Mlp"),
        (("recipe", "encoder", "widths"), 3, r"3 for widths in Mlp"),
        (("recipe", "optim", "eps_form"), "jax", r"'jax' for eps_form in Adam; accepted: keras, torch"),
        (("recipe", "head", "atom"), 3, r'unknown setting "atom" in Conjugated\. Did you mean'),
        (("recipe", "head", "class"), "os.system", r'unknown class "os\.system"; accepted: Config'),
        (("recipe", "head", "class"), ["x"], r"cannot be read|unknown class"),
        (
            ("recipe", "head"),
            {"class": "GymRules"},
            r"for head in Recipe; accepted: Scalar, Categorical, Quantile",
        ),
        (("recipe", "head"), None, r"None for head"),
        (("rules", "truncation"), "sometimes", r"'sometimes' for truncation"),
        (("rules", "stack"), 0, r"stack is 0"),
        (("class",), "Recipe", r'unknown setting "env" in Recipe'),
    ],
)
def test_broken_config_is_named(keys, value, message, trained, tmp_path):
    path = copy_of(trained, tmp_path) / "config.json"
    edited(path, *keys, value=value)
    with pytest.raises(UserError, match=message) as error:
        read_config(path)
    assert "\n" not in str(error.value) and str(path) in str(error.value)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "3", '"x"', "null", '{"class": "Recipe"}', '{"class": "Config"}', "\x00"]
)
def test_file_that_is_no_config(text, tmp_path):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(UserError, match=r"config\.json") as error:
        read_config(tmp_path / "config.json")
    assert "\n" not in str(error.value)


def test_config_of_other_bytes_or_none(tmp_path):
    (tmp_path / "config.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="cannot be read"):
        read_config(tmp_path / "config.json")
    with pytest.raises(UserError, match="does not exist"):
        read_config(tmp_path / "absent.json")
    with pytest.raises(UserError, match="cannot be read"):
        read_config(tmp_path)


def test_whole_numbers_stand_for_decimals_and_nothing_is_lost():
    config = short_config("gym/CartPole-v1", "x")
    plain = to_json(config)
    plain["recipe"]["head"]["alpha"] = 50
    assert from_json(plain) == config


@pytest.mark.parametrize("file", ["config.json", "env.json", "weights.safetensors"])
def test_load_without(file, trained, tmp_path):
    (copy_of(trained, tmp_path) / file).unlink()
    with pytest.raises(UserError, match=r"is not a run directory|holds no weights"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("file", "data"),
    [
        ("weights.safetensors", b"junk"),
        ("weights.safetensors", b""),
        ("env.json", b"{"),
        ("env.json", b"[]"),
        ("env.json", b"{}"),
    ],
)
def test_load_with_damaged(file, data, trained, tmp_path):
    (copy_of(trained, tmp_path) / file).write_bytes(data)
    with pytest.raises(UserError, match=file.replace(".", r"\.")) as error:
        load(tmp_path)
    assert "\n" not in str(error.value)


def test_load_with_weights_of_another_size(trained, tmp_path):
    edited(copy_of(trained, tmp_path) / "config.json", "recipe", "head", "atoms", value=9)
    with pytest.raises(UserError, match="does not fit the run's config"):
        load(tmp_path)


def test_writing_is_all_or_nothing(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    monkeypatch.setattr("os.fsync", lambda number: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        write_atomically(path, b"new")
    monkeypatch.undo()
    assert path.read_bytes() == b"old" and [p.name for p in tmp_path.iterdir()] == ["file"]
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new" and [p.name for p in tmp_path.iterdir()] == ["file"]


def test_streams_are_independent_and_repeatable():
    assert integer(1, "weights") == integer(1, "weights")
    assert (
        len({integer(seed, name) for seed in (1, 2) for name in ("weights", "actions", "replay", "environment")}) == 8
    )
    draws = [numpy_generator(1, name).random(1000) for name in ("actions", "replay")]
    assert abs(np.corrcoef(draws)[0, 1]) < 0.1
    assert torch.equal(*(torch.rand(3, generator=torch_generator(4, "weights")) for _ in range(2)))


# ------------------------------------------------------------------------------------------------ the series of weights


def keeping(path, networks, **settings):
    config = short_config("toy/skewed", path, iterations=5, steps=40)
    checkpoint = Checkpointing(every_steps=0, every_minutes=0.0, keep_weights=networks)
    return replace(config, checkpoint=replace(checkpoint, **settings))


class Collector(Observer):
    """Remembers the weights after every iteration, and crashes after a step."""

    def __init__(self, crash=None):
        self.crash, self.weights = crash, {}

    def iteration(self, run, record):
        self.weights[record["steps"]] = run.run_dir.weights.read_bytes()

    def step(self, run, games):
        if run.step == self.crash:
            raise KeyboardInterrupt  # a second Ctrl-C: nothing more is saved


def series(path):
    return {steps: file.read_bytes() for steps, file in RunDir(path).kept_weights().items()}


def test_the_last_networks_are_kept(tmp_path):
    collector = Collector()
    run(keeping(tmp_path / "run", 3), [collector])
    assert list(series(tmp_path / "run")) == [120, 160, 200]
    assert series(tmp_path / "run") == {steps: collector.weights[steps] for steps in (120, 160, 200)}
    assert len(set(collector.weights.values())) == 5
    names = sorted(path.name for path in (tmp_path / "run" / "weights").iterdir())
    assert names == [f"{steps:012d}.safetensors" for steps in (120, 160, 200)]
    run(keeping(tmp_path / "none", 0))
    assert not (tmp_path / "none" / "weights").exists()


def test_only_networks_of_the_series_are_deleted(tmp_path):
    (tmp_path / "run" / "weights").mkdir(parents=True)
    run_dir = RunDir(tmp_path / "run")
    ours = ["000000000007.safetensors", ".000000000009.safetensors.123.tmp"]
    others = ["mine.safetensors", "7.safetensors", "000000000007.safetensors.bak", ".mine.safetensors.1.tmp"]
    for name in (*ours, *others):
        (run_dir.series / name).write_bytes(b"x")
    (run_dir.series / "000000000006.safetensors").symlink_to(tmp_path / "elsewhere")
    run_dir.remove_half_written()
    run_dir.keep_weights(8, b"new", 1)
    assert sorted(path.name for path in run_dir.series.iterdir()) == sorted(
        ["000000000006.safetensors", "000000000008.safetensors", *others]
    )
    run_dir.forget_weights(7)
    assert run_dir.kept_weights() == {} and len(list(run_dir.series.iterdir())) == 5


@pytest.mark.parametrize("crash", [119, 121, 199])
def test_a_resumed_run_keeps_the_same_networks(crash, tmp_path):
    """Checkpoints are of steps 40, 90, 140 and 190: what was kept after the last of them is made again."""
    straight, config = Collector(), keeping(tmp_path / "run", 2, every_steps=50)
    run(keeping(tmp_path / "straight", 2), [straight])
    with pytest.raises(KeyboardInterrupt):
        run(config, [Collector(crash)])
    before = series(tmp_path / "run")
    assert list(before) == ([40, 80] if crash < 120 else [80, 120] if crash < 160 else [120, 160])

    class Watcher(Observer):
        def begin(self, run):
            self.kept, self.started = list(run.run_dir.kept_weights()), run.step

    watcher = Watcher()
    run(config, [watcher])
    assert watcher.kept == [steps for steps in before if steps <= watcher.started] and watcher.started < crash
    assert series(tmp_path / "run") == series(tmp_path / "straight") == {s: straight.weights[s] for s in (160, 200)}


def test_a_series_that_lies_elsewhere_is_rejected(tmp_path):
    run(keeping(tmp_path / "run", 2))
    (tmp_path / "run" / "weights").rename(tmp_path / "moved")
    (tmp_path / "run" / "weights").symlink_to(tmp_path / "moved")
    with pytest.raises(UserError, match="weights is a symbolic link, where a run has a directory"):
        run(keeping(tmp_path / "run", 2))
    assert RunDir(tmp_path / "run").kept_weights() == {}


def test_a_run_that_starts_from_scratch_sets_its_networks_aside(tmp_path):
    run(keeping(tmp_path / "run", 2, keep=0))
    before = series(tmp_path / "run")
    run(keeping(tmp_path / "run", 2, keep=0))
    assert {
        steps: file.read_bytes() for steps, file in RunDir(tmp_path / "run" / "before-2").kept_weights().items()
    } == before
    assert list(series(tmp_path / "run")) == [160, 200]


def test_networks_that_diverged_are_not_kept(tmp_path, monkeypatch):
    finite = Agent.finite
    answers = iter([True, False, True, False, False] + [True] * 10)
    monkeypatch.setattr(Agent, "finite", lambda self: next(answers) and finite(self))
    run(keeping(tmp_path / "run", 5))
    assert list(series(tmp_path / "run")) == [40, 120, 200]  # the last is tried again at the end
