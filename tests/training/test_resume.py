"""A run that was stopped anywhere and resumed is, bit for bit, a run that never stopped."""

import json
import signal
from dataclasses import replace

import numpy as np
import pytest
import torch

from c2d.config import Checkpointing
from c2d.errors import UserError
from c2d.runs.checkpoints import Checkpoints
from c2d.runs.layout import RunDir
from c2d.runs.reader import canonical_records, read_records
from c2d.runs.records import RunHeader
from c2d.training import run as run_module
from c2d.training.observers import Observer
from c2d.training.resume import differences, fork, why_inexact
from c2d.training.session import Session
from c2d.training.verification import digests
from tests.training.short_runs import short_config

FAMILIES = ["breakout", "minatar/breakout", "gym/CartPole-v1", "toy/skewed"]


class Crash(BaseException):
    """As if the process ended here: no checkpoint is taken."""


class Witness(Observer):
    """Stops the run after a step, or breaks it; remembers what it was told, and how the session ended."""

    def __init__(self, stop=None, crash=None):
        self.stop, self.crash, self.notices = stop, crash, []

    def begin(self, run):
        self.session, self.header = run._session, run.header

    def notice(self, run, text, warning):
        self.notices.append(("warning: " if warning else "") + text)

    def step(self, run, games):
        if run.step == self.stop:
            signal.raise_signal(signal.SIGTERM)
        if run.step == self.crash:
            raise Crash

    def end(self, run, summary):
        self.digests = digests(self.session)


def saving(config, **settings):
    return replace(config, checkpoint=Checkpointing(**{"every_steps": 0, "every_minutes": 0.0, **settings}))


def go(config, **how):
    witness = Witness(**how)
    try:
        witness.result = run_module.run(config, [witness])
    except Crash:
        assert how["crash"] is not None
    return witness


def results(path):
    records, points = (canonical_records(path / name) for name in ("records.jsonl", "points.jsonl"))
    return records, points, (path / "episodes.csv").read_bytes()


@pytest.fixture(scope="module", params=FAMILIES)
def straight(request, tmp_path_factory):
    """A run that never stopped and never saved before its end."""
    path = tmp_path_factory.mktemp("straight") / "run"
    return request.param, path, go(saving(short_config(request.param, path))).digests


@pytest.mark.parametrize("stops", [(1,), (119, 121), (40, 160)])
def test_stopped_on_request_and_resumed(straight, stops, tmp_path):
    env, path, wanted = straight
    config = saving(short_config(env, tmp_path / "run"))
    for stop in stops:
        assert go(config, stop=stop).result.state == "interrupted"
    resumed = go(config)
    assert any("resumed from the checkpoint at step" in text and ": exact" in text for text in resumed.notices)
    assert resumed.digests == wanted
    assert results(tmp_path / "run") == results(path)
    assert (tmp_path / "run" / "weights.safetensors").read_bytes() == (path / "weights.safetensors").read_bytes()


def test_crashed_and_resumed(straight, tmp_path):
    """What the crashed process did after its last checkpoint is done again, not twice."""
    env, path, wanted = straight
    config = saving(short_config(env, tmp_path / "run"), every_steps=37)
    go(config, crash=130)
    resumed = go(config)
    assert resumed.digests == wanted and results(tmp_path / "run") == results(path)


@pytest.mark.parametrize(
    "settings", [{"every_steps": 50}, {"every_steps": 7, "keep": 1}, {"every_minutes": 1e-3}, {"keep": 0}]
)
def test_saving_changes_nothing(straight, settings, tmp_path):
    env, path, wanted = straight
    assert go(saving(short_config(env, tmp_path / "run"), **settings)).digests == wanted
    assert results(tmp_path / "run") == results(path)


def test_stopped_while_the_replay_fills(tmp_path, monkeypatch):
    wanted = go(saving(short_config("breakout", tmp_path / "straight"))).digests
    fill, made = Session.fill, []

    def filling(self):
        made.append(fill(self))
        if len(made) == 30:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Session, "fill", filling)
    config = saving(short_config("breakout", tmp_path / "run"))
    first = go(config)
    assert (first.session.history, first.session.step) == (30, 0)
    resumed = go(config)
    assert "(30 random steps)" in resumed.notices[0]
    assert resumed.digests == wanted and len(made) == 60


def test_killed_before_the_first_checkpoint(tmp_path):
    config = saving(short_config("toy/sure", tmp_path / "run"))
    go(config, crash=20)
    again = go(config)
    assert "no usable checkpoint: it starts from scratch" in again.notices[0]
    assert again.digests == go(saving(short_config("toy/sure", tmp_path / "straight"))).digests
    assert results(tmp_path / "run") == results(tmp_path / "straight")


def test_iterations_may_be_raised(tmp_path):
    config = saving(short_config("toy/skewed", tmp_path / "run"))
    go(config)
    longer = go(replace(config, iterations=4))
    straight = go(replace(saving(short_config("toy/skewed", tmp_path / "straight")), iterations=4))
    assert longer.digests == straight.digests
    assert results(tmp_path / "run") == results(tmp_path / "straight")
    assert json.loads((tmp_path / "run" / "config.json").read_text())["iterations"] == 4


def test_settings_that_break_exactness_are_refused(tmp_path):
    config = saving(short_config("toy/sure", tmp_path / "run"))
    go(config)
    other = replace(config, seed=9, recipe=replace(config.recipe, optim=replace(config.recipe.optim, eps=0.5)))
    with pytest.raises(UserError, match=r"seed: 1 → 9; optim\.eps: 0\.0003125 → 0\.5.*--fork NEW_RUN"):
        go(other)
    assert differences(config, replace(config, threads=2, compress_replay=False, tensorboard=True)) == []
    rules = replace(config, rules=replace(config.rules, stack=2))
    assert differences(config, rules) == ["rules.stack: 1 → 2"]


def test_fork_goes_on_with_other_settings_and_leaves_the_run_alone(tmp_path):
    config = saving(short_config("breakout", tmp_path / "run"))
    go(config, stop=100)
    before = {file: file.read_bytes() for file in (tmp_path / "run").rglob("*") if file.is_file()}
    slower = replace(config.recipe.optim, learning_rate=1e-6)
    schedule = replace(config.recipe.schedule, replay_capacity=90)
    changed = replace(
        config, run_dir=str(tmp_path / "new"), recipe=replace(config.recipe, optim=slower, schedule=schedule)
    )
    new = RunDir.open(tmp_path / "new")
    fork(RunDir(tmp_path / "run"), new, changed, pytest.fail)
    forked = go(changed)
    assert "resumed from the checkpoint at step 100" in forked.notices[0]
    assert forked.result.state == "finished" and len(forked.result.records) == 2
    assert forked.session.learner.optimizers[0].learning_rate == 1e-6
    assert len(forked.session.replay) <= 90
    assert before == {file: file.read_bytes() for file in (tmp_path / "run").rglob("*") if file.is_file()}
    wider = replace(changed, recipe=replace(config.recipe, head=replace(config.recipe.head, atoms=9)))
    with pytest.raises(UserError, match="these settings do not fit the checkpoint"):
        fork(RunDir(tmp_path / "run"), RunDir(tmp_path / "third"), wider, pytest.fail)
    assert not (tmp_path / "third").exists()


def test_a_resumed_run_keeps_its_threads(tmp_path, monkeypatch):
    """Those of its start, where the user names none and there are cores for them. Then PyTorch has its own again."""
    monkeypatch.delenv("OMP_NUM_THREADS")  # of a network as small as this, one thread is the default
    monkeypatch.setattr(run_module, "available_cores", lambda: 2)
    seen = []
    monkeypatch.setattr(run_module, "Session", lambda config: seen.append(torch.get_num_threads()) or Session(config))
    config = saving(short_config("toy/sure", tmp_path / "run", iterations=3))
    go(replace(config, threads=2), stop=50)
    unnamed = replace(config, threads=None)
    resumed = go(unnamed, stop=100)
    assert resumed.notices[0] == "resumed from the checkpoint at step 50: exact"
    assert resumed.header["measured"]["threads"] == 2
    named = go(replace(config, threads=1), stop=150)
    assert named.notices[0].endswith("exactness is not promised here: threads 2 → 1")
    fork(
        RunDir(tmp_path / "run"),
        RunDir(tmp_path / "fork"),
        replace(unnamed, run_dir=str(tmp_path / "fork")),
        pytest.fail,
    )
    assert go(replace(unnamed, run_dir=str(tmp_path / "fork")), stop=160).notices[0].endswith(": exact")
    monkeypatch.setattr(run_module, "available_cores", lambda: 1)
    assert "threads 2 → 1" in go(unnamed, stop=200).notices[0]
    go(replace(unnamed, run_dir=str(tmp_path / "other")), stop=10)
    assert seen == [2, 2, 1, 2, 1, 1] and torch.get_num_threads() == 1


def test_another_machine_is_told(tmp_path):
    config = saving(short_config("toy/sure", tmp_path / "run"))
    go(config, stop=50)
    line = read_records(tmp_path / "run" / "records.jsonl")[0]
    header = RunHeader(**{name: value for name, value in line.items() if name != "kind"})
    assert why_inexact(line, header) == []
    other = replace(header, versions={**header.versions, "torch": "9.9"}, measured={**header.measured, "threads": 7})
    assert why_inexact(line, other) == [f"torch {header.versions['torch']} → 9.9", "threads 1 → 7"]
    other = replace(header, measured={**header.measured, "device": "cuda", "compile": "default"})
    assert why_inexact(line, other) == ["device cpu → cuda", "compile off → default"]
    older = {name: value for name, value in line["measured"].items() if name not in ("device", "compile")}
    assert why_inexact({**line, "measured": older}, header) == []
    assert why_inexact({**line, "measured": older}, other) == ["device cpu → cuda", "compile off → default"]


class Forgetful:
    """A Gymnasium environment whose episodes do not follow from their seeds."""

    total = 0

    def __new__(cls):
        import gymnasium

        class Env(gymnasium.Env):
            observation_space = gymnasium.spaces.Box(-1e9, 1e9, (1,), np.float32)
            action_space = gymnasium.spaces.Discrete(2)

            def reset(self, *, seed=None, options=None):
                self.t = 0
                return self.look(), {}

            def step(self, action):
                self.t += 1
                return self.look(), 1.0, self.t == 30, False, {}

            def look(self):
                Forgetful.total += 1
                return np.array([Forgetful.total], np.float32)

        return Env()


def test_an_environment_that_cannot_be_replayed_is_told_and_a_new_game_begins(tmp_path):
    config = saving(short_config(f"{__name__}:Forgetful", tmp_path / "run"))
    go(config, stop=100)
    resumed = go(config)
    assert any(text.startswith("warning: not exact: ") and "another observation" in text for text in resumed.notices)
    assert resumed.result.state == "finished"


def test_records_of_the_first_process_stay_but_for_their_settings(tmp_path):
    config = saving(short_config("toy/sure", tmp_path / "run"))
    first = go(config, stop=50)
    resumed = go(config)
    assert resumed.header["measured"]["started"] == first.header["measured"]["started"]
    events = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    assert [event["step"] for event in events] == [50]


def test_checkpoints_are_kept_as_asked_and_segments_with_them(tmp_path):
    config = saving(short_config("breakout", tmp_path / "run"), every_steps=10, keep=3)
    go(config)
    checkpoints = Checkpoints(tmp_path / "run")
    kept = list(checkpoints.newest_first())
    assert [path.name for path in kept] == ["000000000300", "000000000290", "000000000280"]
    needed = {segment.name for path in kept for segment in checkpoints.read(path).segments}
    assert {path.name for path in (tmp_path / "run" / "replay").iterdir()} == needed
    assert sum(1 for _ in (tmp_path / "run" / "checkpoints").iterdir()) == 3
