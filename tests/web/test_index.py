"""What is told of runs: their state, progress and curves; and that nothing is read without need."""

import fcntl
import json
import math
import os
import socket
import subprocess
import sys
import time

import pytest

from c2d.runs.confined import Root
from c2d.runs.lock import InUse, locked
from c2d.web.run_index import RunIndex
from tests.web.made_runs import append, config, make_run, point, record


@pytest.fixture
def index(tmp_path):
    (tmp_path / "runs").mkdir()
    return RunIndex(Root(tmp_path / "runs"))


def old(run):
    """Written long ago: no process on another machine can be at work."""
    for file in run.iterdir():
        os.utime(file, (1e9, 1e9))
    return run


def rows(index):
    index._scanned = -1e9
    index.refresh()
    return index.rows


def test_states(index):
    root = index.root.path
    for name, iterations, state in (("a", 4, "finished"), ("b", 2, "interrupted"), ("c", 2, "failed"), ("d", 2, None)):
        old(make_run(root / name, iterations, state))
    (root / "b" / "checkpoints" / "000000000200").mkdir(parents=True)
    found = rows(index)
    assert [found[name]["state"] for name in "abcd"] == ["finished", "stopped", "failed", "stopped"]
    assert [found[name]["resumable"] for name in "abcd"] == [False, True, False, False]
    assert found["c"]["error"] == "it broke" and found["b"]["error"] == ""


def test_a_run_whose_lock_is_held_runs_and_the_lock_is_left_alone(index):
    run = old(make_run(index.root.path / "a", 2, "interrupted"))
    with locked(run / "lock"):
        row = rows(index)["a"]
        assert row["state"] == "running" and row["eta"] == pytest.approx(200 / 20.0)
        with pytest.raises(InUse), locked(run / "lock"):  # as another process would find it
            pass
        assert rows(index)["a"]["state"] == "running"
    with open(run / "lock", "a+") as lock:  # nobody else holds it: looking took no lock
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert rows(index)["a"]["state"] == "stopped" and rows(index)["a"]["eta"] is None


def test_a_killed_run_is_stopped_at_once(index):
    """By its process on this machine, before its heartbeat is old."""
    run = old(make_run(index.root.path / "a", 2, None))
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    (run / "lock").write_text(f"process {process.pid} on {socket.gethostname()}\n")
    assert rows(index)["a"]["state"] == "running"
    process.kill()
    process.wait()
    assert rows(index)["a"]["state"] == "stopped"


def test_a_process_on_another_machine_shows_by_its_heartbeat(index):
    run = old(make_run(index.root.path / "a", 2, None))
    assert rows(index)["a"]["state"] == "stopped"
    os.utime(run / "episodes.csv")  # whatever else is written
    assert rows(index)["a"]["state"] == "stopped"
    os.utime(run / "lock")
    assert rows(index)["a"]["state"] == "running"
    os.utime(run / "lock", (time.time() - 31, time.time() - 31))
    assert rows(index)["a"]["state"] == "stopped"


def test_the_row(index):
    old(make_run(index.root.path / "group" / "a", 3, "interrupted"))
    row = rows(index)["group/a"]
    assert (row["env"], row["recipe"], row["seed"]) == ("gym/CartPole-v1", "c2d", 3)
    assert (row["steps"], row["total"], row["score"], row["best"], row["games"]) == (300, 400, 2.0, 2.0, 5)
    assert row["spark"] == [0.0, 1.0, 2.0] and row["speed"] == 20.0 and row["records"] == 3


def test_curves_add_up_updates_and_hours(index):
    make_run(index.root.path / "a", 3)
    rows(index)
    columns = index.curves(["a"])["a"]["columns"]
    assert columns["updates"] == [25, 50, 75]
    assert columns["hours"] == pytest.approx([0.01, 0.02, 0.03])
    assert columns["mean_score"] == [0.0, 1.0, 2.0] and columns["peak_memory_mb"] == [300.0] * 3


def fine(index, name="a"):
    return index.curves([name], ["steps", "mean_score", "updates", "hours"], fine=True)[name]["columns"]


def test_points_between_records_are_read_as_they_come(index):
    run = make_run(index.root.path / "a", 1)
    rows(index)
    assert fine(index) == {
        "steps": [100],
        "mean_score": [0.0],
        "updates": [25],
        "hours": [0.01],
    }  # of an old run: its records
    append(run, point(1, 150, 5.0), file="points.jsonl")
    append(run, point(1, 200, 7.0, seconds=36.0), point(2, 250, None), file="points.jsonl")
    found = fine(index)
    assert found["steps"] == [100, 150, 200, 250] and found["mean_score"] == [0.0, 5.0, 7.0, None]
    assert found["updates"] == [25, 30, 35, 40]  # summed over both
    assert found["hours"] == pytest.approx([0.01, 0.015, 0.02, 0.025])  # seconds count from the start of an iteration
    index.refresh()
    assert index.rows["a"]["points"] == (run / "points.jsonl").stat().st_size
    (run / "points.jsonl").unlink()
    append(run, point(1, 150, 6.0), file="points.jsonl")  # resumed: the file was written again
    assert fine(index)["mean_score"] == [0.0, 6.0]
    assert len(index.curves(["a"])["a"]["columns"]["steps"]) == 1  # as before, if nobody asks for points


def test_seeds_of_the_same_settings_are_one_group(index):
    root = index.root.path
    for name, changes in (("a", {}), ("b", {"seed": 4, "run_dir": "x", "device": "cuda"}), ("c", {"env": "toy/sure"})):
        make_run(root / name, 1, **changes)
    found = rows(index)
    assert found["a"]["group"] == found["b"]["group"] != found["c"]["group"]


def test_changes_are_told_once(index):
    run = old(make_run(index.root.path / "a", 2))
    assert [row["id"] for row in index.refresh().rows] == ["a"]
    assert index.refresh() == ([], [])
    append(run, record(2, 7.5))
    change = index.refresh()
    assert [row["score"] for row in change.rows] == [7.5] and change.gone == []


def test_games_move_progress_between_records(index):
    run = old(make_run(index.root.path / "a", 1, None))
    rows(index)
    with open(run / "episodes.csv", "a") as file:
        file.write("1,155,3.0,9\n1,2")  # the last line is being written
    assert index.refresh().rows[0]["steps"] == 155


def test_a_resumed_run_begins_its_curves_anew(index):
    run = make_run(index.root.path / "a", 3)
    rows(index)
    header = (run / "records.jsonl").read_text().splitlines()[0]
    (run / "new").write_text(f"{header}\n{json.dumps(record(0, 9.0))}\n")
    os.replace(run / "new", run / "records.jsonl")
    index.refresh()
    assert index.curves(["a"])["a"]["columns"]["mean_score"] == [9.0] and index.curves(["a"])["a"]["restarts"] == 1


def test_new_runs_appear_and_removed_ones_go(index):
    run = make_run(index.root.path / "a")
    rows(index)
    make_run(index.root.path / "deep" / "er" / "b")
    for file in run.iterdir():
        file.unlink()
    run.rmdir()
    index._scanned = -1e9
    change = index.refresh()
    assert [row["id"] for row in change.rows] == ["deep/er/b"] and change.gone == ["a"]
    assert index.find("a") is None and index.find("../a") is None


def test_a_single_run_can_be_shown(tmp_path):
    make_run(tmp_path / "only")
    index = RunIndex(Root(tmp_path / "only"))
    index.refresh()
    assert list(index.rows) == ["."] and index.rows["."]["name"] == "only"
    assert index.detail(".")["settings"]["schedule.gamma"] == 0.99


def test_nothing_is_opened_while_nothing_changes(index, monkeypatch):
    """200 runs cost some calls of stat per look, and no reading."""
    for k in range(200):
        old(make_run(index.root.path / f"run-{k:03d}", 2))
    rows(index)
    opened = []
    real = Root.open
    monkeypatch.setattr(Root, "open", lambda self, *parts: opened.append(parts) or real(self, *parts))
    began = time.process_time()
    assert index.refresh() == ([], []) and opened == []
    assert time.process_time() - began < 0.3  # about 0.02 here, once a second
    append(index.root.path / "run-007", record(2))
    assert len(index.refresh().rows) == 1 and {parts[0] for parts in opened} == {"run-007"}


def test_hostile_records_are_counted_and_harm_nothing(index):
    run = make_run(index.root.path / "a", 1)
    hostile = [{"kind": "iteration", "steps": "many"}, {"kind": "iteration"}, {"kind": 5},
               record(1, score="high", frames=None, measured="no", updates="x")]  # fmt: skip
    append(run, *hostile)
    with open(run / "records.jsonl", "ab") as file:
        file.write(b'nonsense\n\xff\xfe\n[1]\n{"kind": "iteration", "steps": 1e999}\n')
    row = rows(index)["a"]
    assert row["records"] == 1 and row["warnings"] == 8 and row["score"] == 0.0
    json.dumps(index.curves(["a"]), allow_nan=False)
    assert index.curves(["a"])["a"]["columns"]["mean_score"] == [0.0]
    append(run, record(1, frames=None, measured="no", updates="x", mean_loss="high", alpha=float("nan")))
    assert rows(index)["a"]["records"] == 2  # what reports do not need may be missing
    json.dumps([index.curves(["a"]), index.detail("a")], allow_nan=False)
    assert index.curves(["a"])["a"]["columns"]["mean_loss"] == [0.5, None]
    assert index.detail("a")["damaged"] == 8 and index.detail("a")["damage"][0]["line"] == 3


@pytest.mark.parametrize(
    "name", ["config.json", "env.json", "summary.json", "passport.json", "episodes.csv", "events.jsonl"]
)
@pytest.mark.parametrize(
    "content", [b"", b"[]", b"\xff", b'{"env": {"a": []}, "agent": 3, "iterations": "x", "seed": [], "state": {}}']
)
def test_hostile_files_harm_nothing(index, name, content):
    run = make_run(index.root.path / "a", 1)
    (run / name).write_bytes(content)
    json.dumps([rows(index)["a"], index.detail("a"), index.episodes("a"), index.curves(["a"])], allow_nan=False)


def test_games_are_thinned_and_averaged(index):
    run = make_run(index.root.path / "a", 1)
    lines = [f"0,{k},{k % 10}.0,7" for k in range(1, 5_001)]
    (run / "episodes.csv").write_text("iteration,step,score,length\n" + "\n".join(lines) + "\n0,9")
    rows(index)
    games = index.episodes("a")
    assert games["count"] == 5_000 and 1_000 < len(games["step"]) <= 1_500
    assert games["step"][-1] == 5_000 and games["mean"][-1] == pytest.approx(4.5)
    assert games["score"] == [float(step % 10) for step in games["step"]]


def test_warnings_and_checkpoints_of_a_run(index):
    run = make_run(index.root.path / "a", 1)
    (run / "events.jsonl").write_text(
        '{"event": "warning", "text": "the disk is full", "time": 1}\n{"event": "resumed", "step": 3}\n'
    )
    (run / "weights.safetensors").write_bytes(b"x")
    for name in ("000000000200", "000000000100", "damaged-000000000300", ".000000000400.1.tmp"):
        (run / "checkpoints" / name).mkdir(parents=True)
        (run / "checkpoints" / name / "tensors.safetensors").write_bytes(b"x")
    assert rows(index)["a"]["warnings"] == 1
    detail = index.detail("a")
    assert [event["event"] for event in detail["events"]] == ["warning", "resumed"]
    assert [one["id"] for one in detail["checkpoints"]] == ["weights", "000000000200", "000000000100"]


def test_checkpoints_are_listed_by_training_steps(index):
    """Their names count the random steps too: 3 environments make 1,002 where 1,000 are asked for."""
    made = config()
    recipe = {**made["recipe"], "envs": 3, "schedule": {**made["recipe"]["schedule"], "random_history": 1_000}}
    run = make_run(index.root.path / "a", 1, recipe=recipe)
    for name in ("000000001302", "000000000999"):
        (run / "checkpoints" / name).mkdir(parents=True)
        (run / "checkpoints" / name / "tensors.safetensors").write_bytes(b"x")
    rows(index)
    assert [one["steps"] for one in index.detail("a")["checkpoints"]] == [300, 0]


def test_of_very_many_records_some_are_left_out_evenly(index, monkeypatch):
    monkeypatch.setattr("c2d.web.watched_run._MOST", 8)
    run = make_run(index.root.path / "a", 0)
    for k in range(37):
        append(run, record(k, float(k)))
        if k % 5 == 0:
            index.refresh()
    row, kept = rows(index)["a"], index.curves(["a"])["a"]["columns"]
    assert row["score"] == row["best"] == 36.0 and row["records"] == 37 and row["warnings"] == 0
    assert kept["mean_score"] == [0.0, 8.0, 16.0, 24.0, 32.0, 36.0] and kept["steps"][-1] == 3_700
    assert kept["updates"] == [25.0 * (score + 1) for score in kept["mean_score"]]  # sums over those left out too
    assert index.detail("a")["records"] == {"count": 37, "stride": 8} and index.detail("a")["damaged"] == 0


def test_evaluations_tell_their_criterion(index):
    run = make_run(index.root.path / "a")
    (run / "evaluations").mkdir()
    score = {"by_criterion": 3.0, "difference": -1.0, "interval": [-2.0, 0.5]}
    rows_of = [{"of": of, "statistic": "mean", **score} for of in ("return", "score")]
    rows_of[0]["by_criterion"] = 9.0
    for name, risk in (("1", {"criterion": "cvar:0.1", "rows": rows_of}), ("2", None), ("3", {"rows": 7})):
        value = {"summary": {"mean": 4.0}, **({} if risk is None else {"risk": risk})}
        (run / "evaluations" / f"evaluation-{name}.json").write_text(json.dumps(value))
    index.refresh()
    first, second, third = index.detail("a")["evaluations"]
    assert first["risk"] == {"criterion": "cvar:0.1", "mean": 3.0, "difference": -1.0, "interval": [-2.0, 0.5]}
    assert second["risk"] is None and third["risk"] is None


def test_evaluations_while_training_are_told_and_why_a_run_stopped(index):
    run = make_run(index.root.path / "a")
    good = {"steps": 50, "games": 3, "epsilon": 0.001, "mean_score": 7.5, "measured": {}}
    lines = [good, {**good, "steps": "x"}, {**good, "mean_score": math.nan}, 7, {**good, "steps": 90, "epsilon": 0}]
    (run / "evaluations.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"steps"')
    (run / "summary.json").write_text(json.dumps({"state": "interrupted", "steps": 90, "reason": "good enough"}))
    (run / "lock").write_text("")
    index.refresh()
    detail = index.detail("a")
    first, second = detail["evaluations"]
    assert first == {"steps": 50, "epsilon": 0.001, "summary": {"games": 3, "mean": 7.5}, "risk": None}
    assert (second["steps"], second["epsilon"]) == (90, 0)
    assert detail["row"]["state"] == "stopped" and detail["row"]["error"] == "good enough"
    json.dumps(detail, allow_nan=False)


def test_a_million_lines_are_read_some_at_a_time_and_other_runs_do_not_wait(index, monkeypatch):
    """Counted in lines: here a hundred a look."""
    from c2d.runs import reader as module

    monkeypatch.setattr("c2d.web.run_index._RECORDS", 100)
    parse, calls = module.parse, []
    monkeypatch.setattr(module, "parse", lambda line: calls.append(line) or parse(line))
    root = index.root.path
    big = old(make_run(root / "a-big", 0, "interrupted"))
    append(big, *(record(k, float(k % 500)) for k in range(950)))
    for k in range(3):
        old(make_run(root / f"small-{k}", 4, "finished"))
    looks = 0
    while looks == 0 or index.reading:
        calls.clear()
        index.refresh()
        looks += 1
        assert 0 < len(calls) <= 100
        if looks == 2:  # the small ones came before the rest of the big one
            assert [index.rows[f"small-{k}"]["records"] for k in range(3)] == [4, 4, 4]
            assert index.rows["a-big"]["reading"] and 0 < index.rows["a-big"]["records"] < 200
            assert index.curves(["a-big"])["a-big"]["reading"]
    row = index.rows["a-big"]
    assert looks == 10 and row["records"] == 950 and not row["reading"]
    assert (row["score"], row["best"], row["steps"]) == (449.0, 499.0, 95_000) and row["state"] == "finished"
    assert index.curves(["a-big"])["a-big"]["columns"]["mean_score"] == [float(k % 500) for k in range(950)]


def test_records_that_change_while_they_are_read(index, monkeypatch):
    monkeypatch.setattr("c2d.web.run_index._RECORDS", 100)
    run = old(make_run(index.root.path / "a", 0, None))
    append(run, *(record(k, 1.0) for k in range(500)))
    rows(index)
    assert index.rows["a"]["reading"] and index.rows["a"]["speed"] == 20.0
    (run / "records.jsonl").write_text("".join(json.dumps(record(k, 2.0)) + "\n" for k in range(150)))
    index.refresh()
    index.refresh()
    row = index.rows["a"]
    assert (row["records"], row["score"], row["best"], row["restarts"], row["reading"]) == (150, 2.0, 2.0, 1, False)


def test_games_are_read_some_for_each_answer(index, monkeypatch):
    monkeypatch.setattr("c2d.web.run_index._EPISODES", 1_000)
    run = make_run(index.root.path / "a", 1)
    lines = [f"0,{k},{k % 10}.0,7" for k in range(1, 3_500)]
    (run / "episodes.csv").write_text("iteration,step,score,length\n" + "\n".join(lines) + "\n1,1,nan,7\n1,2,x,7\n")
    rows(index)
    answers = [index.episodes("a") for _ in range(4)]
    assert [answer["count"] for answer in answers] == [999, 1_999, 2_999, 3_500]
    assert [answer["reading"] for answer in answers] == [True, True, True, False]
    assert answers[-1]["score"][-1] is None and answers[-1]["mean"][-1] == pytest.approx(4.5)
    (run / "episodes.csv").write_text("iteration,step,score,length\n0,1,2.5,7\n")
    assert index.episodes("a") == {
        "count": 1,
        "reading": False,
        "step": [1],
        "score": [2.5],
        "mean": [2.5],
        "length": [7],
        "env": [0],
        "envs": [],
    }
