"""The public observers: what they are told and when, how one ends a run, and what happens if one fails."""

import csv
import json
import threading
from pathlib import Path

import pytest

import c2d
from c2d.cli.main import main
from c2d.errors import UserError
from c2d.runs.reader import read_iterations
from c2d.training.observers import EVENTS, Observer, ObserverFailed, ObserverList
from c2d.training.run import run
from c2d.training.session import Session
from tests.training.short_runs import short_config
from tests.training.test_resume import go, results, saving


class Recorder(Observer):
    """Keeps everything it is told; `act` is called at each event."""

    def __init__(self, act=lambda event, run, *what: None):
        self.act, self.told = act, []


def _recording(event):
    def method(self, run, *what):
        self.told.append((event, run.step, *what))
        self.act(event, run, *what)

    return method


for _event in EVENTS:
    setattr(Recorder, _event, _recording(_event))


def config(path, **changes):
    return saving(short_config("toy/skewed", path, iterations=2, steps=40, **changes))


def test_every_event_is_told_once_and_in_order(tmp_path):
    recorder = Recorder()
    result = run(config(tmp_path / "run"), [recorder])
    told = {event: [rest for name, *rest in recorder.told if name == event] for event in EVENTS}
    assert recorder.told[0][0] == "begin" and recorder.told[-1][0] == "end"
    assert [step for step, _ in told["step"]] == list(range(1, 81))
    updates = [values for _, values in told["update"]]
    assert len(updates) == 10 and all({"loss", "gradient_norm", "atom_min"} <= set(values) for values in updates)
    means = [sum(values["loss"] for values in half) / 5 for half in (updates[:5], updates[5:])]
    assert means == pytest.approx([record["mean_loss"] for record in result.records])
    with open(result.run_dir.episodes) as file:
        games = [(int(row["step"]), float(row["score"])) for row in csv.DictReader(file)]
    assert games and [(step, game.score) for step, game in told["game"]] == games
    assert sum(len(ended) for _, ended in told["step"]) == len(games)
    assert [record for _, record in told["iteration"]] == read_iterations(result.run_dir.path)
    assert [record["steps"] for _, record in told["point"]] == list(range(1, 81))
    order = [name for name, step, *_ in recorder.told if step == 40]
    assert [name for name in order if name not in ("game", "update")] == ["point", "step", "iteration"]
    assert order.index("point") >= order.count("game") + order.count("update")
    assert told["end"] == [[80, json.loads(result.run_dir.summary.read_text())]]


def test_what_observers_see(tmp_path):
    seen = {}

    def look(event, run, *what):
        if event == "step" and run.step == 64:
            seen.update(
                steps=run.steps_made, frames=run.frames, iteration=run.iteration, updates=run.updates,
                epsilon=run.epsilon, games=len(run.scores), env=run.config.env, actions=run.spec.actions,
                act=int(run.agent.act(run.make_env(0).reset().frame)), loss=run.metrics["mean_loss"] is not None,
            )  # fmt: skip
            for name in ("step", "config", "agent"):
                with pytest.raises(AttributeError):
                    setattr(run, name, 0)

    run(config(tmp_path / "run"), [Recorder(look)])
    assert (seen["steps"], seen["frames"], seen["iteration"], seen["updates"]) == (124, 64, 1, 8)
    assert seen["env"] == "toy/skewed" and seen["act"] in range(seen["actions"]) and 0 < seen["epsilon"] < 1
    assert seen["loss"] and seen["games"] > 10


def test_scores_are_known_after_a_resume(tmp_path):
    wanted = []
    run(config(tmp_path / "run"), [Recorder(lambda event, run, *_: run.step == 50 and run.stop("enough"))])
    run(config(tmp_path / "run"), [Recorder(lambda event, run, *_: event == "begin" and wanted.extend(run.scores))])
    rows = (tmp_path / "run" / "episodes.csv").read_text().splitlines()[1:]
    assert wanted == [float(row.split(",")[2]) for row in rows if int(row.split(",")[1]) <= 50]


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    path = tmp_path_factory.mktemp("straight") / "run"
    return go(config(path)).digests, results(path)


@pytest.mark.parametrize(
    ("event", "at"), [("begin", 0), ("update", 49), ("point", 50), ("step", 50), ("iteration", 40)]
)
def test_an_observer_ends_the_run_with_a_reason(event, at, tmp_path, straight, capsys):
    def stop(name, run, *_):
        if name == event and run.step >= at and run.reason is None:
            run.stop("it is\n good enough")
            run.stop("a second reason")

    result = c2d.train(config(tmp_path / "run"), callbacks=[Recorder(stop)])
    assert (result.state, result.reason) == ("interrupted", "it is good enough")
    summary = json.loads(result.run_dir.summary.read_text())
    assert summary["reason"] == result.reason and summary["steps"] == at
    assert ": it is good enough; weights" in capsys.readouterr().out.replace("\n", " ")
    assert go(config(tmp_path / "run")).digests == straight[0] and results(tmp_path / "run") == straight[1]


def test_a_reason_at_the_very_end_changes_nothing(tmp_path):
    result = run(config(tmp_path / "run"), [Recorder(lambda event, run, *_: run.step == 80 and run.stop("late"))])
    assert (result.state, result.reason) == ("finished", None)


@pytest.mark.parametrize("event", ["update", "point", "iteration"])
def test_an_observer_that_fails_is_named_and_the_run_saved(event, tmp_path, straight):
    class Faulty(Recorder): ...

    def fail(name, run, *_):
        if name == event and run.step >= 40:
            raise KeyError("missing")

    others = Recorder()
    with pytest.raises(UserError, match=rf"callback Faulty failed in {event}\(\) at step \d+: KeyError: 'missing' \(.*"
                       r"test_observers.py, line \d+\)") as caught:  # fmt: skip
        run(config(tmp_path / "run"), [Faulty(fail), others])
    assert isinstance(caught.value.__cause__, KeyError) and "\n" not in str(caught.value)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["state"] == "failed" and "callback Faulty" in summary["error"]
    assert others.told[-1][0] == "end"
    resumed = go(config(tmp_path / "run"))
    assert any(f"at step {summary['steps']}" in text for text in resumed.notices)
    assert resumed.digests == straight[0] and results(tmp_path / "run") == straight[1]


@pytest.mark.parametrize("event", ["begin", "end", "notice"])
def test_one_that_fails_at_the_edges_of_a_run(event, tmp_path):
    others = Recorder()

    def fail(name, run, *_):
        if name == event:
            raise ValueError("no")

    first = Recorder(lambda name, run, *_: name == "step" and run.notice("hello"))
    with pytest.raises(ObserverFailed, match=rf"failed in {event}\(\)"):
        run(config(tmp_path / event), [first, Recorder(fail), others])
    assert first.told[-1][0] == "end" and (not others.told or others.told[-1][0] == "end")
    assert go(config(tmp_path / event)).digests
    assert len(read_iterations(tmp_path / event)) == 2


def test_the_command_says_it_in_one_line(tmp_path, monkeypatch, capsys):
    def fail(name, run, *_):
        if name == "step" and run.step == 30:
            raise ValueError("of mine")

    monkeypatch.setattr("c2d.api.callbacks_of", lambda config: [Recorder(fail)])
    words = ["--schedule.steps-per-iteration", "60", "--schedule.random-history", "50", "--tensorboard", "False"]
    assert main(["train", "toy/skewed", "--run-dir", str(tmp_path / "run"), "--threads", "1", *words]) == 2
    out, err = capsys.readouterr()
    assert err.startswith("c2d: callback Recorder failed in step() at step 30: ValueError: of mine")
    assert err.count("\n") == 1 and "resume with: c2d resume" in out
    assert "Traceback" not in out + err and list(Path(tmp_path / "run").glob("checkpoints/*"))


def test_a_failure_in_another_thread_ends_the_run(tmp_path):
    """Notices may come from elsewhere, where nobody would see the error."""

    def act(name, run, *_):
        if name == "step" and run.step == 10:
            thread = threading.Thread(target=run.notice, args=("from a thread",))
            thread.start()
            thread.join()
        if name == "notice":
            raise ValueError("of mine")

    with pytest.raises(ObserverFailed, match=r"failed in notice\(\) at step 10"):
        run(config(tmp_path / "run"), [Recorder(act)])
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["steps"] == 11


@pytest.mark.parametrize(("given", "what"), [(Observer, "a class"), (print, "type builtin_function_or_method")])
def test_what_is_no_observer_is_rejected_before_anything_is_written(given, what, tmp_path):
    with pytest.raises(UserError, match=f"a callback is .*{what}; accepted: instances of c2d.Observer"):
        c2d.train(config(tmp_path / "run"), callbacks=[given])
    assert not (tmp_path / "run").exists()


def test_updates_are_only_kept_for_those_who_listen(tmp_path):
    session = Session(config(tmp_path / "run"))
    assert session.heard is None and not ObserverList([Observer()]).listen("update")

    class Named(Observer):
        def update(self, run, diagnostics): ...

    assert ObserverList([Observer(), Named()]).listen("update")
    session.close()
