"""Sweeps on a real Ray cluster of several nodes on this machine, each with an address of its own."""

import os
import signal
import threading
import time

import pytest

from c2d.cli.main import main
from c2d.errors import UserError
from c2d.sweep.again import listing_of
from c2d.sweep.directory import SweepDir
from c2d.sweep.launch import connected
from c2d.sweep.status import lines, rows
from c2d.sweep.terms import Terms
from tests.sweep.faulty_envs import Slow
from tests.sweep.tiny_plans import carry_out, events, left_by, straight, tiny_plan

FAULTY = "tests.sweep.faulty_envs:"


def when(condition, act, patience=90.0):
    """Do something from another thread as soon as a condition holds; returns how to hear whether it did."""
    done = []

    def watch():
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline and not done:
            if condition():
                act()
                done.append(True)
            time.sleep(0.02)

    thread = threading.Thread(target=watch)
    thread.start()
    return lambda: (thread.join(), bool(done))[1]


def kill_the_node_of(cluster, where, name, checkpoints=1):
    """As soon as the run has so many checkpoints more than it has now."""
    sweep = SweepDir(where)
    before = newest(where / name)

    def half_way():
        past = sweep.past().get(name)
        return past is not None and past.event == "started" and newest(where / name) >= before + 100 * checkpoints

    return when(half_way, lambda: cluster.kill(sweep.past()[name].where))


def newest(run):
    """Steps at the newest whole checkpoint."""
    return max((int(path.parent.name) for path in run.glob("checkpoints/[0-9]*/manifest.json")), default=0)


def run_name(env):
    return f"gym-tests.sweep.faulty_envs-{env}-c51-s1"


def is_as_without_faults(where, name, tmp_path):
    config = SweepDir(where).known()[name].config
    return left_by(where / name) == straight(config, tmp_path / "straight" / name)


def test_deaths_and_errors_stop_no_other_run_and_change_no_result(cluster, tmp_path, monkeypatch, capsys):
    """A node dies, a run raises, one is killed again and again; on one disk, the dead let go of it and others go on."""
    cluster.add()
    where = tmp_path / "sweep"
    slow, raises, killed = (run_name(env) for env in ("Slow", "Raises", "Killed"))
    plan = tiny_plan([FAULTY + env for env in ("Slow", "Raises", "Killed")], seeds=(1,), iterations=3)
    struck = kill_the_node_of(cluster, where, slow)
    with pytest.raises(UserError) as error:
        carry_out(plan, where, Terms(address=cluster.address, retries=1))
    assert struck()
    assert str(error.value).startswith("2 of 3 runs failed: ") and "1 is done" in str(error.value)
    assert "died 3 times" in str(error.value)
    assert events(where, slow) == ["planned", "started", "lost", "started", "finished"]
    assert events(where, raises) == ["planned", "started", "failed"]  # an error comes again: not tried again
    assert events(where, killed) == ["planned", "started", "lost", "started", "lost", "failed"]
    states = {row.name: row for row in rows(SweepDir(where))}
    assert [states[name].state for name in (slow, raises, killed)] == ["done", "failed", "failed"]
    assert states[raises].error == "RuntimeError: the emulator lost its mind"
    assert "its process was killed" in states[killed].error and "2 times" in states[killed].error
    table = "\n".join(lines(SweepDir(where)))
    assert "the emulator lost its mind" in table and f"c2d sweep retry {where} --failed" in table
    log = (where / raises / "log.txt").read_text()
    assert "Traceback" in log and "the emulator lost its mind" in log
    log = (where / slow / "log.txt").read_text()
    assert "resumed from the checkpoint at step" in log
    assert "nothing is left to do" not in log  # the process on the dead node did not go on by itself
    leaves_alone(plan, where)
    retried(where, cluster, {raises, killed}, capsys)
    monkeypatch.setattr(Slow, "pause", 0.0)
    for name in (slow, raises, killed):
        assert is_as_without_faults(where, name, tmp_path)


def leaves_alone(plan, where):
    """The same command touches neither finished nor failed runs."""
    before = (where / "sweep-events.jsonl").read_bytes()
    _, told = carry_out(plan, where)
    assert any("2 failed before and are left alone" in line for line in told)
    assert any("nothing is left to do" in line for line in told)
    assert (where / "sweep-events.jsonl").read_bytes() == before


def retried(where, cluster, names, capsys):
    """`c2d sweep retry --failed` takes the failed ones, if their code is named, and they end well."""
    with pytest.raises(UserError, match="code that is not imported because a file names it"):
        listing_of(where, True, (), 1, "cpu")
    cluster.mended.touch()
    words = ["sweep", "retry", str(where), "--failed", "--address", cluster.address]
    assert main([*words, "--envs", f"{FAULTY}Raises,{FAULTY}Killed"]) == 0
    out = capsys.readouterr().out
    assert "2 runs in" in out and "2 to do" in out and f"all 2 runs are in {where}" in out
    for name in names:
        assert events(where, name)[-3:] == ["planned", "started", "finished"]
        assert "resumed from the checkpoint at step" in (where / name / "log.txt").read_text()
    assert [row.state for row in rows(SweepDir(where))] == ["done"] * 3


def test_stopped_out_of_budget_and_its_node_killed_with_nothing_shared(cluster, tmp_path, monkeypatch):
    """Each time it goes on from what came back through Ray."""
    where, name, terms = tmp_path / "sweep", run_name("Slow"), Terms(address=cluster.address, ship=True)
    rarely = tiny_plan((FAULTY + "Slow",), seeds=(1,), iterations=6, **{"checkpoint.every-steps": 0})
    struck = when((where / name / "weights.safetensors").is_file, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        carry_out(rarely, where, terms)
    assert struck() and events(where) == ["planned", "started", "stopped"]
    saved = newest(where / name)
    assert saved > 240  # the only checkpoint is the one taken when asked to stop
    board, told = carry_out(rarely, where, Terms(address=cluster.address, budget=1e-9))
    assert "the budget is used up: 0 of 1 run done" in told[-1] and board.entries[0].state == "waiting"
    cluster.add()
    plan = tiny_plan((FAULTY + "Slow",), seeds=(1,), iterations=6)
    struck = kill_the_node_of(cluster, where, name)
    board, told = carry_out(plan, where, terms)
    assert struck() and board.entries[0].state == "done" and board.entries[0].lost == 1
    assert "processes or nodes died once" in told[-1]
    log = (where / name / "log.txt").read_text()
    assert f"resumed from the checkpoint at step {saved - 40:,}" in log and log.count("resumed from the") == 2
    monkeypatch.setattr(Slow, "pause", 0.0)
    assert is_as_without_faults(where, name, tmp_path)


def test_a_ray_of_another_address_is_not_used(cluster):
    for address in (None, "127.0.0.1:9"):
        with pytest.raises(UserError, match=f"uses Ray at {cluster.address} already"), connected(Terms(address)):
            pass
