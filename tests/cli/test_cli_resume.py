"""c2d resume and c2d verify-resume as a user types them."""

import json
import re

import pytest

from c2d.cli.main import main
from c2d.training import verification
from c2d.training.run import run
from c2d.training.verification import Comparison
from tests.training.short_runs import short_config
from tests.training.test_resume import go, results, saving


def error_line(capsys, *words):
    assert main(list(words)) == 2
    out, err = capsys.readouterr()
    assert err.startswith("c2d: ") and err.count("\n") == 1 and "Traceback" not in out + err
    return err


@pytest.fixture
def stopped(tmp_path):
    go(saving(short_config("gym/CartPole-v1", tmp_path / "run")), stop=100)
    return tmp_path / "run"


def test_resume_continues_and_says_so(stopped, tmp_path, capsys):
    go(saving(short_config("gym/CartPole-v1", tmp_path / "straight")))
    assert main(["resume", str(stopped)]) == 0
    out = capsys.readouterr().out
    assert "resumed from the checkpoint at step 100: exact" in out
    assert "finished after 240 steps" in out and f"next: c2d evaluate {stopped}" in out
    assert results(stopped) == results(tmp_path / "straight")


def test_a_moved_run_resumes_where_it_is(stopped, tmp_path, capsys):
    stopped.rename(tmp_path / "elsewhere")
    assert main(["resume", str(tmp_path / "elsewhere")]) == 0
    assert not stopped.exists()


def test_iterations_can_be_raised(stopped, capsys):
    assert main(["resume", str(stopped), "--iterations", "3"]) == 0
    assert "iteration 3/3" in capsys.readouterr().out


def test_other_threads_are_allowed_with_a_note(tmp_path, capsys):
    go(saving(short_config("gym/CartPole-v1", tmp_path / "run")), stop=238)  # two threads wait for each other
    assert main(["resume", str(tmp_path / "run"), "--threads", "2"]) == 0
    assert "exactness is not promised here: threads 1 → 2" in capsys.readouterr().out


def test_other_settings_are_rejected_with_a_list(stopped, capsys):
    line = error_line(capsys, "resume", str(stopped), "--optim.learning-rate", "0.5", "--schedule.gamma", "0.9")
    assert "schedule.gamma: 0.99 → 0.9; optim.learning-rate: 0.002 → 0.5" in line and "--fork NEW_RUN" in line


def test_fork(stopped, tmp_path, capsys):
    before = (stopped / "records.jsonl").read_bytes()
    words = ["resume", str(stopped), "--fork", str(tmp_path / "new"), "--optim.learning-rate", "0.001"]
    assert main(words) == 0
    assert "resumed from the checkpoint at step 100" in capsys.readouterr().out
    assert json.loads((tmp_path / "new" / "config.json").read_text())["recipe"]["optim"]["learning_rate"] == 0.001
    assert (stopped / "records.jsonl").read_bytes() == before
    assert "exists; accepted: a new directory" in error_line(capsys, *words)


def test_fork_that_does_not_fit_leaves_nothing(stopped, tmp_path, capsys):
    words = ["resume", str(stopped), "--fork", str(tmp_path / "new"), "--head.atoms", "5"]
    assert "these settings do not fit the checkpoint" in error_line(capsys, *words)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "no run given"),
        (["nowhere"], "nowhere is not a directory; accepted: a run directory"),
        (["--iterations", "3"], "accepted: the run first"),
        (["."], "is not a run directory: it has no config.json"),
    ],
)
def test_mistakes_get_one_line(words, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert message in error_line(capsys, "resume", *words)


def test_help(capsys):
    assert main(["resume", "--help"]) == 0
    assert "--fork NEW_RUN" in capsys.readouterr().out


def in_this_process(monkeypatch, resuming):
    """What no signal ends trains in this process, which has PyTorch already; `resuming`: also when it resumes."""
    in_its_own = verification._process

    def process(config, kill_after):
        if kill_after is not None or not (resuming or config.run_dir.endswith("straight")):
            return in_its_own(config, kill_after)
        witness = verification._Witness(None)
        run(config, [witness])
        return witness.found

    monkeypatch.setattr(verification, "_process", process)


def test_verify_resume(capsys, monkeypatch):
    """Two runs, one of them killed and resumed in processes of its own.

    On all families of environments: tests/training/test_fault_harness.py (killed) and test_resume.py (stopped).
    """
    in_this_process(monkeypatch, resuming=False)
    assert main(["verify-resume", "minatar/breakout", "--steps", "80", "--kills", "1"]) == 0
    out = capsys.readouterr().out
    assert "killed once, resumed: equal, bit for bit" in out
    assert len(re.findall(r" equal$", out, flags=re.MULTILINE)) == 12


def test_verify_resume_reports_a_difference(capsys, monkeypatch):
    found = [Comparison("weights", "1", "1"), Comparison("replay", "1", "2")]
    monkeypatch.setattr("c2d.training.verification.verify", lambda *_: found)
    with pytest.raises(SystemExit, match="1"):
        main(["verify-resume", "toy/sure"])
    assert "DIFFERENT in replay" in capsys.readouterr().out


@pytest.mark.parametrize(("wrong", "code"), [([], 0), ([7, 1_200], 1)])
def test_verify_resume_reports_a_game_that_does_not_continue_as_saved(wrong, code, capsys, monkeypatch):
    monkeypatch.setattr("c2d.training.verification.verify", lambda *_: [Comparison("environment", "1", "1")])
    monkeypatch.setattr("c2d.envs.trial.unequal", lambda *_: wrong)
    try:
        assert main(["verify-resume", "pong"]) == code == 0
    except SystemExit as end:
        assert end.code == code == 1
    out = capsys.readouterr().out
    assert "atari/pong, 2,500 random steps, saved 10 times" in out
    assert ("resume is not exact for this game" in out) == bool(wrong)
    assert ("8 of 10 equal, DIFFERENT after steps 7, 1200" if wrong else "10 of 10 equal\n") in out


def test_verify_resume_of_an_inexact_environment(capsys, tmp_path, monkeypatch):
    """An environment that the seed does not determine is detected."""
    (tmp_path / "unseeded_env.py").write_text(
        "import gymnasium, numpy as np, time\n"
        "class Env(gymnasium.Env):\n"
        "    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)\n"
        "    action_space = gymnasium.spaces.Discrete(2)\n"
        "    def look(self): return np.full(2, time.perf_counter() % 1, np.float32)\n"
        "    def reset(self, *, seed=None, options=None): self.t = 0; return self.look(), {}\n"
        "    def step(self, action): self.t += 1; return self.look(), 1.0, self.t == 30, False, {}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    in_this_process(monkeypatch, resuming=True)
    with pytest.raises(SystemExit, match="1"):
        main(["verify-resume", "unseeded_env:Env", "--steps", "80", "--kills", "1"])
    out = capsys.readouterr().out
    assert "DIFFERENT in" in out and "resume is not exact for this game" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--steps", "3"], "--steps is 3; accepted: at least 40"),
        (["--kills", "0"], "--kills is 0; accepted: at least 1"),
        (["--steps", "100", "--kills", "9"], "--kills is 9; accepted: at most one per 20 steps"),
        (["brekout"], "Did you mean 'breakout'"),
        (["--recipe", "c3d"], "unknown recipe"),
    ],
)
def test_verify_resume_mistakes(words, message, capsys):
    assert message in error_line(capsys, "verify-resume", *words)
