"""How runs end: on request, by an error, by a second Ctrl-C; and that nothing learned is lost."""

import json
import math
import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from safetensors.numpy import load_file

from c2d.api import load, train
from c2d.cli.main import main
from c2d.errors import UserError
from c2d.runs.reader import read_records
from c2d.training import run as run_module
from c2d.training.session import Diverged, Session
from tests.training.short_runs import short_config, short_run
from tests.training.test_resume import go, results, saving

NAN_ENVIRONMENT = """
import gymnasium, numpy as np
class Env(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    total = 0
    def reset(self, *, seed=None, options=None):
        self.t = 0
        return np.zeros(2, np.float32), {}
    def step(self, action):
        self.t += 1
        Env.total += 1
        reward = float("nan") if Env.total == 250 else 1.0
        return np.full(2, self.t / 10, np.float32), reward, self.t == 5, False, {}
"""


class Stopper(run_module.Observer):
    """An observer that asks for an end, as a person would, at a given step."""

    def __init__(self, at, number=signal.SIGINT, times=1):
        self.at, self.number, self.times = at, number, times

    def step(self, run, games):
        if run.step == self.at:
            for _ in range(self.times):
                signal.raise_signal(self.number)

    def end(self, run, summary):
        self.summary = summary


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_request_ends_the_run_after_the_step(number, tmp_path):
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    stopper = Stopper(150, number)
    result = run_module.run(short_config("gym/CartPole-v1", tmp_path / "run", iterations=5), [stopper])
    assert result.state == "interrupted"
    summary = json.loads(result.run_dir.summary.read_text())
    assert summary == stopper.summary
    assert (summary["state"], summary["steps"], summary["iterations"], summary["error"]) == (
        "interrupted",
        150,
        1,
        None,
    )
    assert summary["unfinished_iteration"]["updates"] == 4  # steps 120, 128, 136, 144
    assert len(read_records(result.run_dir.records)) == 2
    assert load(result.run_dir.path).act(np.zeros(4, np.float32)) in (0, 1)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers


def test_a_request_at_the_last_step_leaves_a_finished_run(tmp_path):
    result = run_module.run(short_config("gym/CartPole-v1", tmp_path / "run"), [Stopper(240)])
    assert result.state == "finished" and len(result.records) == 2


def test_a_request_while_the_replay_fills_is_heard(tmp_path, monkeypatch):
    fill, heads = Session.fill, []

    def interrupted(self):
        heads.append(self.replay.head)
        if self.replay.head == 30:
            signal.raise_signal(signal.SIGINT)
        fill(self)

    monkeypatch.setattr(Session, "fill", interrupted)
    result = short_run("gym/CartPole-v1", tmp_path / "run", random_history=9_000, replay_capacity=10_000)
    summary = json.loads(result.run_dir.summary.read_text())
    assert (result.state, summary["steps"], heads[-1]) == ("interrupted", 0, 30)


def test_a_second_request_ends_at_once_but_saves(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run_module.run(short_config("gym/CartPole-v1", tmp_path / "run"), [Stopper(10, times=2)])
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["state"] == "failed" and summary["error"].startswith("KeyboardInterrupt")
    assert load_file(tmp_path / "run" / "weights.safetensors")


def test_training_works_outside_the_main_thread(tmp_path):
    states = []
    thread = threading.Thread(
        target=lambda: states.append(short_run("gym/CartPole-v1", tmp_path / "run", iterations=1).state)
    )
    thread.start()
    thread.join(300)
    assert states == ["finished"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_command_ends_cleanly_on(number, tmp_path):
    """The installed command, as a process of its own: exit code 0, a summary, no traceback."""
    path = tmp_path / "run"
    command = [sys.executable, "-m", "c2d.cli.main", "train", "gym/CartPole-v1", "--run-dir", str(path),
               "--threads", "1", "--tensorboard", "False", "--schedule.steps-per-iteration", "50"]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"})  # fmt: skip
    try:
        for line in process.stdout:
            if line.startswith("iteration 1/"):
                break
        process.send_signal(number)
        out, err = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == 0
    assert err == ""
    assert "stopped on request after" in out and str(path) in out
    assert json.loads((path / "summary.json").read_text())["state"] == "interrupted"
    assert (path / "weights.safetensors").is_file()


def test_nan_reward_stops_with_one_line_and_saves(tmp_path, monkeypatch, capsys):
    (tmp_path / "nan_reward_env.py").write_text(NAN_ENVIRONMENT)
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / "run"
    code = main(["train", "nan_reward_env:Env", "--run-dir", str(path), "--tensorboard", "False", "--threads", "1",
                 "--schedule.steps-per-iteration", "50", "--schedule.random-history", "100"])  # fmt: skip
    out, err = capsys.readouterr()
    assert code == 2
    assert err.startswith("c2d: ") and err.count("\n") == 1 and "nan" in err and "finite" in err
    summary = json.loads((path / "summary.json").read_text())
    assert summary["state"] == "failed" and "nan" in summary["error"] and summary["steps"] == 149
    assert len(read_records(path / "records.jsonl")) == 1 + summary["iterations"] == 3
    assert load(path).act(np.zeros(2, np.float32)) in (0, 1)
    assert "stopped by an error" in out and "Traceback" not in out + err


@pytest.mark.parametrize(("when", "how"), [(70, "nan"), (250, "nan"), (250, "crash"), (250, "closed pipe")])
def test_a_mended_run_goes_on_as_if_nothing_had_happened(when, how, tmp_path, monkeypatch):
    """The environment fails while the replay fills or later, or nobody reads the output any more."""

    class Failing(run_module.Observer):
        def step(self, run, games):
            if how == "closed pipe" and run.steps_made == when:
                raise SystemExit(1)

    def step(self, action):
        self.total = getattr(self, "total", 0) + 1
        if self.total == when and how == "crash":
            raise RuntimeError("of the environment")
        result = usual(self, action)
        return (result[0], math.nan, *result[2:]) if self.total == when and how == "nan" else result

    straight = short_config("gym/CartPole-v1", tmp_path / "straight", steps=200)
    wanted = go(saving(straight))
    config = saving(short_config("gym/CartPole-v1", tmp_path / "run", steps=200))
    usual = CartPoleEnv.step
    if how != "closed pipe":
        monkeypatch.setattr(CartPoleEnv, "step", step)
    with pytest.raises((UserError, RuntimeError, SystemExit)):
        run_module.run(config, [Failing()])
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["state"] == "failed"
    monkeypatch.setattr(CartPoleEnv, "step", usual)
    resumed = go(config)
    made = when - (how != "closed pipe") - 60
    assert any(f"step {max(made, 0)}" in text and "exact" in text for text in resumed.notices), resumed.notices
    assert resumed.digests == wanted.digests and results(tmp_path / "run") == results(tmp_path / "straight")


def test_what_failed_in_the_middle_of_learning_is_not_saved(tmp_path, monkeypatch):
    """Its step would be made twice."""
    from c2d.agents.learner import Learner

    config = saving(short_config("gym/CartPole-v1", tmp_path / "run"))
    monkeypatch.setattr(Learner, "update", lambda self, batch: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run_module.run(config)
    assert not list((tmp_path / "run").glob("checkpoints/*"))


def test_diverged_loss_stops_with_advice(tmp_path, monkeypatch):
    from c2d.agents.learner import Learner

    update = Learner.update
    monkeypatch.setattr(
        Learner, "update", lambda self, batch: update(self, batch)._replace(loss=torch.tensor(float("nan")))
    )
    with pytest.raises(Diverged, match=r"loss became nan at step 0: lower --optim\.learning-rate"):
        short_run("gym/CartPole-v1", tmp_path / "run")
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["state"] == "failed"
    assert issubclass(Diverged, UserError)


def test_weights_of_a_network_that_diverged_do_not_replace_those_before(tmp_path, monkeypatch):
    from c2d.agents.learner import Learner

    update = Learner.update

    def poisoned(self, batch):
        if self.updates == 30:
            for parameter in self.online.parameters():
                parameter.data.fill_(float("nan"))
        return update(self, batch)

    monkeypatch.setattr(Learner, "update", poisoned)
    with pytest.raises(Diverged):
        short_run("gym/CartPole-v1", tmp_path / "run", iterations=3, steps=100, update_period=4)
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["iterations"] == 1
    assert load(tmp_path / "run").finite()
    assert "the network diverged" in (tmp_path / "run" / "events.jsonl").read_text()


def test_a_gradient_that_is_no_number_stops_the_run(tmp_path, monkeypatch):
    from c2d.agents.learner import Learner

    update = Learner.update

    def overflown(self, batch):
        made = update(self, batch)
        return made._replace(metrics={**made.metrics, "gradient_norm": torch.tensor(float("inf"))})

    monkeypatch.setattr(Learner, "update", overflown)
    with pytest.raises(Diverged, match="the gradient became inf at step 0"):
        short_run("gym/CartPole-v1", tmp_path / "run")


def test_error_of_ours_keeps_its_traceback_and_the_weights(tmp_path, monkeypatch):
    def broken(self):
        raise ZeroDivisionError("a bug\nof two lines")

    monkeypatch.setattr(Session, "advance", broken)
    with pytest.raises(ZeroDivisionError):
        train(short_config("gym/CartPole-v1", tmp_path / "run"), progress=False)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["error"] == "ZeroDivisionError: a bug"
    assert (tmp_path / "run" / "weights.safetensors").is_file()


def test_a_run_begun_while_handling_an_error_reports_none(tmp_path):
    try:
        raise ValueError("of the caller")
    except ValueError:
        result = short_run("gym/CartPole-v1", tmp_path / "run", iterations=1)
    assert json.loads(result.run_dir.summary.read_text())["error"] is None
