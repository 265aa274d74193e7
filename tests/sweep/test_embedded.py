"""`c2d sweep` with its own Ray in a process of its own: the driver killed, and what it leaves behind."""

import os
import signal
import stat
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from c2d.sweep.options import LOOPBACK
from c2d.sweep.plan import multiply
from tests.sweep.faulty_envs import Slow
from tests.sweep.tiny_plans import TINY, events, left_by, straight, tiny_plan

KILLED = "tests.sweep.faulty_envs:KilledOnce"


def command(where):
    words = ["sweep", "--recipes", "c51", "--envs", KILLED, "--seeds", "1", "--iterations", "8", "--out", str(where)]
    return [sys.executable, "-m", "c2d.cli.main", *words, "--set", *(f"{name}={value}" for name, value in TINY.items())]


def start(where, **variables):
    out = open(where.with_suffix(".out"), "w")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    for name in ("RAY_ADDRESS", LOOPBACK):  # of other tests
        environment.pop(name, None)
    return subprocess.Popen(command(where), stdout=out, stderr=subprocess.STDOUT, env=environment)


def descendants(pid):
    """Processes below one."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            parents[int(path.name)] = int((path / "stat").read_text().rpartition(")")[2].split()[1])
    found, layer = [], {pid}
    while layer := {child for child, parent in parents.items() if parent in layer}:
        found += sorted(layer)
    return found


def listening(pids):
    """Local addresses, in hexadecimal, of the TCP sockets on which these processes listen."""
    inodes = set()
    for pid in pids:
        for file in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                inodes.add(os.readlink(file))
            except OSError:
                continue
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and f"socket:[{words[9]}]" in inodes:
                found.add(words[1].partition(":")[0])
    return found


def wait_until(condition, patience=90.0):
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, "nothing came of it"
        time.sleep(0.2)


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def name_of(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def is_private(pids):
    """Ray's directory is its user's alone, and without the token, which is on no command line, nobody is let in."""
    environments = [Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0") for pid in pids if alive(pid)]
    values = [dict(line.partition("=")[::2] for line in lines) for lines in environments]
    tokens = {value["RAY_AUTH_TOKEN"] for value in values if "RAY_AUTH_TOKEN" in value}
    assert len(tokens) == 1 and all(len(token) == 64 for token in tokens)
    assert not any(token in name_of(pid) for token in tokens for pid in pids)
    directory = Path(next(value["C2D_RAY_DIRECTORY"] for value in values if "C2D_RAY_DIRECTORY" in value))
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700 and list(directory.glob("ray/session_*/sockets"))
    port = int(next(directory.glob("ray/session_*/gcs_server_port_*")).read_text())
    assert [stranger(port), stranger(port, "0" * 64)] == ["refused", "refused"]
    return directory


def stranger(port, token=None):
    """What another process hears from the cluster."""
    code = (
        "import ray\n"
        "try:\n"
        f"    ray._raylet.GcsClient(address='127.0.0.1:{port}').internal_kv_keys(b'', b'fun')\n"
        "    print('let in')\n"
        "except ray.exceptions.AuthenticationError:\n"
        "    print('refused')\n"
    )
    variables = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token} if token else {"RAY_AUTH_MODE": "disabled"}
    environment = {**os.environ, LOOPBACK: "0", **variables}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    return done.stdout.strip() or done.stderr


@pytest.fixture
def driver(tmp_path):
    process = start(tmp_path / "sweep")
    yield process
    process.kill()
    process.wait()


def test_driver_killed_and_started_again_and_then_the_run_killed(driver, tmp_path, monkeypatch):
    where = tmp_path / "sweep"
    wait_until(lambda: list(where.glob("*/checkpoints/[0-9]*/manifest.json")) or driver.poll() is not None)
    assert driver.poll() is None, where.with_suffix(".out").read_text()
    below = descendants(driver.pid)
    addresses = listening(below)
    assert addresses and addresses <= {"0100007F", "0000000000000000FFFF00000100007F"}  # 127.0.0.1 and nothing else
    directory = is_private(below)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    wait_until(lambda: not any(alive(pid) for pid in below), patience=10.0)
    wait_until(lambda: not directory.exists(), patience=10.0)
    again = start(where, C2D_TEST_KILL=str(tmp_path / "killed"))  # what may be left of the first does not see it
    assert again.wait(timeout=240) == 0, where.with_suffix(".out").read_text()
    out = where.with_suffix(".out").read_text()
    assert "the run is in" in out and "Traceback" not in out
    monkeypatch.setattr(Slow, "pause", 0.0)
    run = multiply(tiny_plan((KILLED,), seeds=(1,), iterations=8), where).runs[0]
    assert events(where) == ["planned", "started", "planned", "started", "lost", "started", "finished"]
    assert "its process was killed" in out and "died once" in out
    assert left_by(where / run.name) == straight(run.config, tmp_path / "straight")
    assert (where / run.name / "log.txt").read_text().count("resumed from the checkpoint at step") == 2
