"""c2d evaluate, as a user types it."""

import json
import os
import shutil
import sys
import time
from statistics import fmean, median

import pytest

from c2d.cli import evaluate as evaluate_command
from c2d.cli.main import main
from tests.cli.tiny_runs import tiny_run


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return tiny_run("gym/CartPole-v1", tmp_path_factory.mktemp("runs") / "cartpole")


@pytest.fixture
def run(trained, tmp_path):
    """A copy to damage."""
    return shutil.copytree(trained, tmp_path / "run")


def evaluations(run):
    return [json.loads(file.read_text()) for file in sorted((run / "evaluations").iterdir())]


def test_report_and_file(run, capsys):
    assert main(["evaluate", str(run), "--games", "5", "--seed", "3"]) == 0
    printed = capsys.readouterr().out.splitlines()
    (saved,) = evaluations(run)
    for fact in (str(run), "recipe c2d", "gym/CartPole-v1", "trained for 40 steps", "complete iterations: 1",
                 f"[{saved['passport']['hash']}]", "ε 0.001", "5 games", "seed 3"):  # fmt: skip
        assert fact in printed[0]
    assert len(saved["scores"]) == 5 and saved["scores"] == [float(steps) for steps in saved["lengths"]]
    low, high = saved["summary"]["interval"]
    assert printed[1] == (
        f"mean      {fmean(saved['scores']):.2f}   (95 % bootstrap interval of the mean: {low:.2f} to {high:.2f})"
    )
    assert printed[2] == f"median    {median(saved['scores']):.2f}"
    assert printed[3] == f"min, max  {min(saved['scores']):.2f}, {max(saved['scores']):.2f}"
    assert printed[-1] == f"written to {run}/evaluations/evaluation-001.json"
    assert "human" not in "".join(printed)


def test_same_seed_same_scores_for_any_number_at_once_and_no_file_is_overwritten(run, capsys):
    for words in (["--parallel", "1"], ["--parallel", "4"], ["--parallel", "4", "--seed", "9"]):
        assert main(["evaluate", str(run), "--games", "6", "--epsilon", "0.5", *words]) == 0
    one, four, other = evaluations(run)
    assert one["scores"] == four["scores"] != other["scores"]
    assert one["epsilon"] == 0.5


def test_games_without_an_end_can_be_capped(run, capsys):
    assert main(["evaluate", str(run), "--games", "4", "--cap-steps", "7"]) == 0
    (saved,) = evaluations(run)
    assert saved["lengths"] == [7] * 4 and saved["passport"]["cap_steps"] == 7
    assert "note: rules" in capsys.readouterr().out
    assert main(["evaluate", str(run), "--cap-steps", "0"]) == 2
    assert "cap-steps is 0" in capsys.readouterr().err


def test_atari_scores_are_compared_with_random_and_human_play():
    from c2d.cli.evaluate import summary_lines
    from c2d.evaluation.statistics import summarize

    assert summary_lines(summarize([16.1, 16.1]), "atari/breakout")[-1] == (
        "human-normalized score of the mean: 0.500 (0: random play at 1.7, 1: a human tester at 30.5)"
    )
    assert "human" not in summary_lines(summarize([3.0]), "atari/pooyan")[-1]
    assert "none with one game" in summary_lines(summarize([3.0]), "atari/pooyan")[0]


def test_changed_rules_are_noticed(run, capsys):
    (run / "passport.json").write_text('{"hash": "another"}')
    assert main(["evaluate", str(run), "--games", "1"]) == 0
    assert "note: rules or versions of the games differ" in capsys.readouterr().out


def test_run_that_has_not_ended(run, capsys):
    (run / "summary.json").unlink()
    assert main(["evaluate", str(run), "--games", "1"]) == 0
    assert "trained for 40 steps (complete iterations: 1)" in capsys.readouterr().out


def test_own_environment_is_imported_only_when_the_user_names_it(tmp_path, capsys, monkeypatch):
    (tmp_path / "mark_my_import.py").write_text(
        "import gymnasium as gym, numpy as np\n"
        "class Walk(gym.Env):\n"
        "    observation_space = gym.spaces.Box(-9, 9, (1,), np.float32)\n"
        "    action_space = gym.spaces.Discrete(2)\n"
        "    def reset(self, *, seed=None, options=None):\n"
        "        self.time = 0\n"
        "        return np.zeros(1, np.float32), {}\n"
        "    def step(self, action):\n"
        "        self.time += 1\n"
        "        return np.full(1, self.time, np.float32), 2.0, self.time == 4, False, {}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    own = "mark_my_import:Walk"
    run = tiny_run(own, tmp_path / "run")
    del sys.modules["mark_my_import"]
    assert main(["evaluate", str(run)]) == 2
    assert f"add --env {own}" in capsys.readouterr().err
    assert "mark_my_import" not in sys.modules
    assert main(["evaluate", str(run), "--env", own, "--games", "3"]) == 0
    assert evaluations(run)[0]["scores"] == [8.0, 8.0, 8.0]


def damage_weights(run):
    file = run / "weights.safetensors"
    file.write_bytes(file.read_bytes()[:-10])


def other_weights(run):
    text = (run / "config.json").read_text()
    (run / "config.json").write_text(text.replace('"atoms": 4', '"atoms": 5'))


def no_weights(run):
    (run / "weights.safetensors").unlink()


def config_cut_short(run):
    text = (run / "config.json").read_text()
    (run / "config.json").write_text(text[: len(text) // 2])


def config_with_words_for_numbers(run):
    text = (run / "config.json").read_text()
    (run / "config.json").write_text(text.replace('"atoms": 4', '"atoms": "four"'))


def no_config(run):
    (run / "config.json").unlink()


def damaged_spec(run):
    (run / "env.json").write_text("{}")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (damage_weights, "weights.safetensors does not fit the run's config or is damaged"),
        (other_weights, "weights.safetensors does not fit the run's config or is damaged"),
        (no_weights, "holds no weights yet"),
        (config_cut_short, "config.json cannot be read"),
        (config_with_words_for_numbers, "config has 'four' for atoms in Conjugated; accepted: int"),
        (no_config, "is not a run directory: it has no config.json"),
        (damaged_spec, "env.json cannot be read"),
    ],
)
def test_damaged_runs(run, capsys, damage, message):
    damage(run)
    assert main(["evaluate", str(run), "--games", "1"]) == 2
    errors = capsys.readouterr().err
    assert message in errors and errors.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["{run}/missing"], "is not a run directory"),
        ([], "no run given"),
        (["{run}", "--games", "0"], "--games is 0; accepted: at least 1"),
        (["{run}", "--games", "many"], "--games"),
        (["{run}", "--epsilon", "1.5"], "--epsilon is 1.5; accepted: from 0 to 1"),
        (["{run}", "--parallel", "0"], "--parallel is 0; accepted: at least 1"),
        (["{run}", "--threads", "0"], "--threads is 0; accepted: at least 1"),
        (["{run}", "--seed", "-1"], "--seed is -1; accepted: 0 or greater"),
        (["{run}", "--device", "nowhere"], '--device is "nowhere"; accepted: cpu, cuda, cuda:1'),
        (["{run}", "--env", "gym/MountainCar-v0"], "has observations (2,) and 3 actions"),
        (["{run}", "--env", "minatar/breakout"], "accepted: the rules of MinAtar"),
        (["{run}", "--env", "gym/CartPol-v1"], "CartPole-v1"),
    ],
)
def test_bad_input(trained, capsys, words, message):
    assert main(["evaluate", *(word.format(run=trained) for word in words)]) == 2
    errors = capsys.readouterr().err
    assert message in errors and errors.count("\n") == 1
    assert not (trained / "evaluations").exists()


def test_leftovers_of_killed_evaluations_are_removed_and_nothing_else(tmp_path):
    from c2d.evaluation.record import _remove_leftovers

    old, dead = time.time() - 7_200, 99_999_999
    gone = f".evaluation-001.json.{dead}.tmp"
    kept = [f".evaluation-002.json.{os.getpid()}.tmp", f".evaluation-003.json.{dead}.tmp", f".notes.json.{dead}.tmp"]
    for name in (gone, *kept):
        (tmp_path / name).write_text("x")
        if name != kept[1]:  # which is of this very hour, perhaps of a process on another machine
            os.utime(tmp_path / name, (old, old))
    _remove_leftovers(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(kept)


def test_progress_in_a_log(capsys, monkeypatch):
    """A line now and then, none for the last game; nothing on standard output."""
    clock = iter([0.0, 10.0, 31.0, 31.0, 40.0, 70.0, 70.0])
    monkeypatch.setattr(evaluate_command.time, "monotonic", lambda: next(clock))
    with evaluate_command.progress(5) as watch:
        for ended in (0, 1, 2, 4):
            watch(ended, 100 * ended)
        watch(5, 500)
    out, err = capsys.readouterr()
    assert out == "" and err.splitlines() == ["1/5 games ended, 100 steps", "4/5 games ended, 400 steps"]
