"""Sweeps on a real Ray cluster of several nodes on this machine, each with an address of its own."""

import os
import signal
import threading
import time

import pytest
from ray.exceptions import OutOfMemoryError, RayError

from c2d.cli.main import main
from c2d.cluster.ray_connection import connected
from c2d.errors import UserError
from c2d.sweep.directory import SweepDir, run_statuses, runs_to_retry, status_lines
from c2d.sweep.display import RunProgress, SweepProgress
from c2d.sweep.forecast import Rates, estimate
from c2d.sweep.launch import Launcher, _ActiveRun
from c2d.sweep.options import SweepOptions
from c2d.sweep.plan import multiply
from c2d.sweep.transfer import RunReceiver
from tests.sweep.faulty_envs import Slow
from tests.sweep.tiny_plans import carry_out, events, left_by, straight, tiny_plan

FAULTY = "tests.sweep.faulty_envs:"


def when(condition, act, timeout=300.0):
    """Act from another thread as soon as a condition holds; returns a function that waits and says whether it did."""
    done = []

    def watch():
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline and not done:
            if condition():
                act()
                done.append(True)
            time.sleep(0.02)

    thread = threading.Thread(target=watch)
    thread.start()
    return lambda: (thread.join(), bool(done))[1]


def kill_the_node_of(cluster, where, name, checkpoints=1):
    """As soon as the run has this many more checkpoints than now."""
    sweep = SweepDir(where)
    before = newest(where / name)

    def half_way():
        history = sweep.history().get(name)
        return history is not None and history.event == "started" and newest(where / name) >= before + 100 * checkpoints

    return when(half_way, lambda: cluster.kill(sweep.history()[name].where))


def newest(run):
    """Steps at the newest whole checkpoint."""
    return max((int(path.parent.name) for path in run.glob("checkpoints/[0-9]*/manifest.json")), default=0)


def run_name(env):
    return f"gym-tests.sweep.faulty_envs-{env}-c51-s1"


def test_error_retry_stop_budget_and_dead_node_with_nothing_shared(cluster, tmp_path, monkeypatch, capsys):
    """Each time the run resumes from what came back through Ray, and ends as if nothing had happened."""
    where, name, here = tmp_path / "sweep", run_name("Raises"), {"address": cluster.address, "ship": True}
    plan = tiny_plan((FAULTY + "Raises",), seeds=(1,), iterations=6)
    with pytest.raises(UserError, match=f"1 of 1 run failed: {name}; 0 are done; reasons: c2d sweep status"):
        carry_out(plan, where, SweepOptions(**here))
    assert events(where) == ["planned", "started", "failed"]  # an error would repeat: no retry
    check_error_is_shown(where, name)
    check_failed_run_is_skipped(plan, where)

    (cluster.marks / "fixed").touch()
    saved = [newest(where / name)]
    struck = when(lambda: newest(where / name) > saved[0], lambda: os.kill(os.getpid(), signal.SIGINT))
    words = ["sweep", "retry", str(where), "--failed", "--address", cluster.address, "--ship", "True"]
    assert main([*words, "--envs", FAULTY + "Raises"]) == 130
    assert struck() and events(where)[3:] == ["planned", "started", "stopped"]
    out = capsys.readouterr().out
    assert (
        "1 run in" in out and "stop requested: 0 of 1 run done, 1 saved or waiting; rerun the command to resume" in out
    )

    saved.append(newest(where / name))
    progress, lines = carry_out(plan, where, SweepOptions(**here, budget=1e-9))
    assert "the budget is used up: 0 of 1 run done" in lines[-1] and progress.entries[0].state == "waiting"

    cluster.add()
    struck = kill_the_node_of(cluster, where, name)
    progress, lines = carry_out(plan, where, SweepOptions(**here))
    assert struck() and progress.entries[0].state == "done" and progress.entries[0].lost == 1
    assert "the run is in" in lines[-1] and "died once" in lines[-1]
    assert events(where)[7:] == ["planned", "started", "lost", "started", "finished"]
    log = (where / name / "log.txt").read_text()
    assert log.count("resumed from the checkpoint at step") == 3
    assert all(f"at step {steps - 40:,}: exact" in log for steps in saved)
    monkeypatch.setattr(Slow, "pause", 0.0)
    assert left_by(where / name) == straight(progress.entries[0].run.config, tmp_path / "straight")


def check_error_is_shown(where, name):
    """The error is in the table, and the traceback in the run's log."""
    row = run_statuses(SweepDir(where))[0]
    assert (row.state, row.error) == ("failed", "RuntimeError: the emulator lost its mind")
    table = "\n".join(status_lines(SweepDir(where)))
    assert "the emulator lost its mind" in table and f"c2d sweep retry {where} --failed" in table
    log = (where / name / "log.txt").read_text()
    assert "Traceback" in log and "the emulator lost its mind" in log


def check_failed_run_is_skipped(plan, where):
    """By the same command, and by a retry that does not name the code to import."""
    before = (where / "sweep-events.jsonl").read_bytes()
    _, lines = carry_out(plan, where)
    assert any("1 failed before and is skipped" in line for line in lines)
    assert any("nothing left to do" in line for line in lines)
    with pytest.raises(UserError, match="code that is imported only if you name it yourself"):
        runs_to_retry(where, True, (), 1, "cpu")
    assert (where / "sweep-events.jsonl").read_bytes() == before


def test_a_run_fails_when_its_retries_are_used_up(tmp_path, monkeypatch):
    """Without processes: the launcher's reaction to deaths that Ray reports."""
    monkeypatch.setattr("c2d.sweep.launch.ray.kill", lambda _: None)  # which would start a Ray
    run = multiply(tiny_plan(seeds=(1,)), tmp_path).runs[0]
    progress, sweep = SweepProgress([RunProgress(run)], Rates()), SweepDir(tmp_path)
    launcher = Launcher(progress, {run.name: estimate(run, Rates())}, sweep, SweepOptions(retries=1), lambda _: None)
    active = _ActiveRun(progress.entries[0], None, RunReceiver(tmp_path / "run"))
    launcher._died(active, RayError("The actor died because its node has died."))
    assert progress.entries[0].state == "waiting" and "resuming from its last checkpoint" in progress.notes[0]
    launcher._died(active, OutOfMemoryError("Task was killed due to the node running low on memory."))
    assert progress.entries[0].state == "failed" and events(tmp_path) == ["lost", "lost", "failed"]
    assert sweep.history()[run.name].error == "killed by Ray because memory ran out, 2 times, and 1 retry was allowed"


def test_a_death_that_ray_notices_late_costs_one_retry(tmp_path, monkeypatch):
    """Ray may send the run to the same dead node again: it dies there before it starts."""
    monkeypatch.setattr("c2d.sweep.launch.ray.kill", lambda _: None)  # which would start a Ray
    run = multiply(tiny_plan(seeds=(1,)), tmp_path).runs[0]
    progress = SweepProgress([RunProgress(run)], Rates())
    launcher = Launcher(
        progress, {run.name: estimate(run, Rates())}, SweepDir(tmp_path), SweepOptions(retries=1), lambda _: None
    )
    entry, death = progress.entries[0], RayError("The actor died because its node has died.")
    active = _ActiveRun(entry, None, RunReceiver(tmp_path / "run"))
    entry.state = "running"
    launcher._died(active, RayError("The actor is dead because its worker process has died."))
    assert (entry.state, entry.lost) == ("waiting", 1)
    entry.starting = True
    launcher._died(active, death)
    assert (entry.state, entry.lost, entry.starting) == ("waiting", 1, False)
    assert launcher._waiting[0] is entry and events(tmp_path) == ["lost"]
    for _ in range(10):  # but not forever
        entry.starting = True
        launcher._died(active, death)
    assert entry.state == "failed" and entry.lost == 2


def test_a_ray_at_another_address_is_not_used(cluster):
    for address in (None, "127.0.0.1:9"):
        with pytest.raises(UserError, match=f"already uses Ray at {cluster.address}"), connected(address):
            pass


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ConnectionError("Failed to connect to Ray cluster at 127.0.0.1:9"), "it is not one, or it requires a token"),
        (Exception("The current node timed out\n  during startup."), "The current node timed out during startup."),
    ],
)
def test_a_cluster_that_cannot_be_used_gives_one_line(error, message, monkeypatch, capfd):
    """Ray writes to standard error for as long as it tries."""

    def init(**_):
        os.write(2, b"gcs_client.cc:210: Failed to get cluster ID\n")
        raise error

    monkeypatch.setattr("c2d.cluster.ray_connection.ray.is_initialized", lambda: False)
    monkeypatch.setattr("c2d.cluster.ray_connection.ray.init", init)
    monkeypatch.setattr("c2d.cluster.ray_connection.ray.shutdown", lambda: None)
    with pytest.raises(UserError) as raised, connected("127.0.0.1:9"):
        pass
    assert message in str(raised.value) and "127.0.0.1:9" in str(raised.value) and "\n" not in str(raised.value)
    assert capfd.readouterr().err == ""
    os.write(2, b"visible again")
    assert capfd.readouterr().err == "visible again"
