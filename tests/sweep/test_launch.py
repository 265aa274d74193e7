"""Sweeps on a real Ray cluster of several nodes on this machine, each with an address of its own."""

import os
import signal
import threading
import time

import pytest

from c2d.errors import UserError
from c2d.sweep.again import listing_of
from c2d.sweep.directory import SweepDir
from c2d.sweep.status import lines, rows
from c2d.sweep.terms import Terms
from tests.sweep.faulty_envs import Slow
from tests.sweep.tiny_plans import carry_out, events, left_by, straight, tiny_plan

FAULTY = "tests.sweep.faulty_envs:"


def when(condition, act, patience=90.0):
    """Do something from another thread as soon as a condition holds."""
    done = []

    def watch():
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            if condition():
                act()
                done.append(True)
                return
            time.sleep(0.02)

    thread = threading.Thread(target=watch)
    thread.start()
    return lambda: (thread.join(), bool(done))[1]


@pytest.mark.parametrize(("ship", "address"), [(True, "127.0.0.3"), (False, "127.0.0.4")])
def test_node_killed_in_mid_run_changes_no_result(cluster, tmp_path, monkeypatch, ship, address):
    """With nothing shared, files come back through Ray, and the run goes on elsewhere from what came back.

    On a shared disk it goes on in the same directory, as soon as the process on the dead node has let go of it.
    """
    node = cluster.add(1, address)
    where = tmp_path / "sweep"
    sweep = SweepDir(where)

    def half_way():
        there = [name for name, past in sweep.past().items() if past.where == address]
        return there and list((where / there[0] / "checkpoints").glob("*/manifest.json"))

    struck = when(half_way, lambda: os.kill(node.all_processes["raylet"][0].process.pid, signal.SIGKILL))
    plan = tiny_plan((FAULTY + "Slow",), iterations=5)
    board, told = carry_out(plan, where, Terms(address=cluster.address, ship=ship))
    assert struck()
    assert [entry.state for entry in board.entries] == ["done", "done"]
    lost = [entry for entry in board.entries if entry.lost]
    assert len(lost) == 1 and lost[0].where == "127.0.0.2"
    assert events(where, lost[0].run.name) == ["planned", "started", "lost", "started", "finished"]
    assert "processes or nodes died 1 times" in told[-1]
    log = (where / lost[0].run.name / "log.txt").read_text()
    assert "resumed from the checkpoint at step" in log
    assert "nothing is left to do" not in log  # the process on the dead node did not go on by itself
    monkeypatch.setattr(Slow, "pause", 0.0)
    for entry in board.entries:
        name = entry.run.name
        assert left_by(where / name) == straight(entry.run.config, tmp_path / "straight" / name)


@pytest.fixture(scope="module")
def troubled(cluster, tmp_path_factory):
    """A sweep in which one run raises, one is killed once, one always; and the error it ends with."""
    where = tmp_path_factory.mktemp("troubled") / "sweep"
    plan = tiny_plan([FAULTY + name for name in ("Raises", "KilledAlways", "KilledOnce")], seeds=(1,))
    with pytest.raises(UserError) as error:
        carry_out(plan, where, Terms(address=cluster.address, retries=1))
    return plan, where, str(error.value)


def run_of(where, env):
    return where / f"gym-tests.sweep.faulty_envs-{env}-c51-s1"


def test_failing_runs_stop_no_other(troubled, tmp_path):
    _, where, error = troubled
    assert error.startswith("2 of 3 runs failed: ") and "1 are done" in error
    states = {row.name.split("-")[-3]: row for row in rows(SweepDir(where))}
    assert {name: row.state for name, row in states.items()} == {
        "Raises": "failed", "KilledAlways": "failed", "KilledOnce": "done",
    }  # fmt: skip
    assert states["Raises"].error == "RuntimeError: the emulator lost its mind"
    assert "its process was killed" in states["KilledAlways"].error and "2 times" in states["KilledAlways"].error
    log = (run_of(where, "Raises") / "log.txt").read_text()
    assert "Traceback" in log and "the emulator lost its mind" in log
    assert events(where, run_of(where, "Raises").name) == ["planned", "started", "failed"]  # not tried again
    table = "\n".join(lines(SweepDir(where)))
    assert "the emulator lost its mind" in table and f"c2d sweep retry {where} --failed" in table


def test_run_killed_by_the_system_ends_as_if_it_had_not_been(troubled, tmp_path):
    _, where, _ = troubled
    run = SweepDir(where).known()[run_of(where, "KilledOnce").name]
    assert events(where, run.name) == ["planned", "started", "lost", "started", "finished"]
    assert left_by(where / run.name) == straight(run.config, tmp_path / "straight")


def test_the_same_command_leaves_finished_and_failed_runs_alone(troubled):
    plan, where, _ = troubled
    before = (where / "sweep-events.jsonl").read_bytes()
    _, told = carry_out(plan, where)
    assert any("2 failed before and are left alone" in line for line in told)
    assert any("nothing is left to do" in line for line in told)
    assert (where / "sweep-events.jsonl").read_bytes() == before


def test_retry_takes_the_failed_ones_if_their_code_is_named(troubled):
    _, where, _ = troubled
    with pytest.raises(UserError, match="code that is not imported because a file names it"):
        listing_of(where, True, (), 1, "cpu")
    named = (FAULTY + "Raises", FAULTY + "KilledAlways")
    assert {run.name.split("-")[-3] for run in listing_of(where, True, named, 1, "cpu").runs} == {
        "Raises", "KilledAlways",
    }  # fmt: skip


def test_ctrl_c_and_budget_stop_with_everything_saved_and_the_same_command_goes_on(cluster, tmp_path):
    rarely = {"checkpoint.every-steps": 0}  # so that the only checkpoint is the one taken when asked to stop
    long, where = tiny_plan(seeds=(1,), iterations=400, **rarely), tmp_path / "sweep"
    name = "toy-sure-c51-s1"
    struck = when((where / name / "weights.safetensors").is_file, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        carry_out(long, where, Terms(address=cluster.address))
    assert struck() and events(where) == ["planned", "started", "stopped"]
    steps = int(max(path.name for path in (where / name / "checkpoints").iterdir()))
    assert steps > 240  # an iteration and more
    board, told = carry_out(long, where, Terms(address=cluster.address, budget=1e-9))
    assert "the budget is used up: 0 of 1 runs are done" in told[-1] and board.entries[0].state == "waiting"
    shorter = tiny_plan(seeds=(1,), iterations=steps // 200 + 2, **rarely)
    board, _ = carry_out(shorter, where, Terms(address=cluster.address))
    assert board.entries[0].state == "done"
    assert f"resumed from the checkpoint at step {steps - 40:,}" in (where / name / "log.txt").read_text()
    assert left_by(where / name) == straight(board.entries[0].run.config, tmp_path / "straight")
