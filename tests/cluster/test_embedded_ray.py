"""The embedded Ray: its private directory and token, a start that fails, and a driver that is killed."""

import os
import signal
import stat
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from c2d.cluster import ray_connection
from c2d.cluster.address import LOOPBACK
from c2d.cluster.embedded_ray import private_directory
from c2d.errors import UserError
from c2d.sweep.plan import multiply
from tests.sweep.faulty_envs import Slow
from tests.sweep.tiny_plans import TINY, events, left_by, straight, tiny_plan

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]
KILLED = "tests.sweep.faulty_envs:KilledOnce"


def command(where):
    words = ["sweep", "--recipes", "c51", "--envs", KILLED, "--seeds", "1", "--iterations", "8", "--out", str(where)]
    return [sys.executable, "-m", "c2d.cli.main", *words, "--set", *(f"{name}={value}" for name, value in TINY.items())]


def start(where, **variables):
    out = open(where.with_suffix(".out"), "w")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    for name in ("RAY_ADDRESS", LOOPBACK):  # set by other tests
        environment.pop(name, None)
    return subprocess.Popen(command(where), stdout=out, stderr=subprocess.STDOUT, env=environment)


def descendants(pid):
    """All child processes."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            parents[int(path.name)] = int((path / "stat").read_text().rpartition(")")[2].split()[1])
    result, layer = [], {pid}
    while layer := {child for child, parent in parents.items() if parent in layer}:
        result += sorted(layer)
    return result


def listening(pids):
    """Local addresses, in hexadecimal, of the TCP sockets on which these processes listen."""
    inodes = set()
    for pid in pids:
        for file in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                inodes.add(os.readlink(file))
            except OSError:
                continue
    addresses = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and f"socket:[{words[9]}]" in inodes:
                addresses.add(words[1].partition(":")[0])
    return addresses


def wait_until(condition, timeout=300.0):
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "timed out"
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


def check_private(pids):
    """Ray's directory belongs to its user alone, and access needs the token, which is on no command line."""
    environments = [Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0") for pid in pids if alive(pid)]
    values = [dict(line.partition("=")[::2] for line in lines) for lines in environments]
    tokens = {value["RAY_AUTH_TOKEN"] for value in values if "RAY_AUTH_TOKEN" in value}
    assert len(tokens) == 1 and all(len(token) == 64 for token in tokens)
    assert not any(token in name_of(pid) for token in tokens for pid in pids)
    directory = Path(next(value["C2D_RAY_DIRECTORY"] for value in values if "C2D_RAY_DIRECTORY" in value))
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700 and list(directory.glob("ray/session_*/sockets"))
    port = int(next(directory.glob("ray/session_*/gcs_server_port_*")).read_text())
    assert [stranger(port), stranger(port, "0" * 64)] == ["denied", "denied"]
    return directory


def stranger(port, token=None):
    """Whether another process gets access to the cluster."""
    code = (
        "import ray\n"
        "try:\n"
        f"    ray._raylet.GcsClient(address='127.0.0.1:{port}').internal_kv_keys(b'', b'fun')\n"
        "    print('granted')\n"
        "except ray.exceptions.AuthenticationError:\n"
        "    print('denied')\n"
    )
    variables = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token} if token else {"RAY_AUTH_MODE": "disabled"}
    environment = {**os.environ, LOOPBACK: "0", **variables}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300)
    return done.stdout.strip() or done.stderr


# ------------------------------------------------------------------------------------------ directory, token, guard


def test_the_directory_is_private_and_each_ray_has_its_own_token(monkeypatch):
    monkeypatch.setenv("RAY_AUTH_TOKEN", "the user's")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", "somewhere")
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    tokens = set()
    for _ in range(2):
        with private_directory() as directory:
            parent = Path(directory).parent
            assert stat.S_IMODE(parent.stat().st_mode) == 0o700 and parent.stat().st_uid == os.getuid()
            assert os.environ["RAY_AUTH_MODE"] == "token" and "RAY_AUTH_TOKEN_PATH" not in os.environ
            tokens.add(os.environ["RAY_AUTH_TOKEN"])
        assert not parent.exists()
    assert len(tokens) == 2 and all(len(token) == 64 for token in tokens)
    assert os.environ["RAY_AUTH_TOKEN"] == "the user's" and os.environ["RAY_AUTH_TOKEN_PATH"] == "somewhere"
    assert "RAY_AUTH_MODE" not in os.environ and "C2D_RAY_DIRECTORY" not in os.environ


def test_a_start_that_fails_gives_one_line_and_leaves_nothing(monkeypatch):
    """On an overloaded machine Ray gives up waiting: it raises a plain Exception and leaves its processes."""
    started = []

    def init(*_, _temp_dir, **__):
        os.makedirs(_temp_dir)
        os.chmod(_temp_dir, 0o777)
        unmarked = {name: value for name, value in os.environ.items() if not name.startswith("C2D")}
        with open(f"{_temp_dir}/log", "w") as log:
            started.append((Path(_temp_dir), subprocess.Popen(SLEEP, env=unmarked, stdout=log)))
        raise Exception("The current node timed out during startup.\n  This could\n  happen.")

    monkeypatch.setattr(ray_connection.ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray_connection.ray, "init", init)
    monkeypatch.setattr(ray_connection.ray, "shutdown", lambda: None)
    monkeypatch.setattr(ray_connection, "_reload_token", lambda: None)
    bystander = subprocess.Popen(SLEEP)
    try:
        with pytest.raises(UserError) as raised, ray_connection.connected(None):
            pass
        (directory, left) = started[0]
        assert str(raised.value) == (
            "an embedded Ray could not be used: The current node timed out during startup. This could happen."
        )
        assert left.wait(60) == -signal.SIGKILL and not directory.parent.exists()
        assert bystander.poll() is None
    finally:
        for process in (bystander, *(process for _, process in started)):
            process.kill()
            process.wait()


def test_what_a_killed_driver_leaves_is_removed_soon(tmp_path):
    code = (
        "import subprocess, sys, time\n"
        "from c2d.cluster.embedded_ray import private_directory\n"
        "with private_directory() as directory:\n"
        f"    child = subprocess.Popen({SLEEP!r}, start_new_session=True)\n"
        "    print(directory, child.pid, flush=True)\n"
        "    time.sleep(600)\n"
    )
    driver = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    directory, child = driver.stdout.readline().split()
    assert Path(directory).parent.exists() and alive(int(child))
    driver.kill()
    driver.wait()
    wait_until(lambda: not alive(int(child)) and not Path(directory).parent.exists(), timeout=60.0)


# ------------------------------------------------------------------------------------------------- the whole command


@pytest.fixture
def driver(tmp_path):
    process = start(tmp_path / "sweep")
    yield process
    process.kill()
    process.wait()


def test_driver_killed_and_restarted_and_then_the_run_killed(driver, tmp_path, monkeypatch):
    where = tmp_path / "sweep"
    wait_until(lambda: list(where.glob("*/checkpoints/[0-9]*/manifest.json")) or driver.poll() is not None)
    assert driver.poll() is None, where.with_suffix(".out").read_text()
    below = descendants(driver.pid)
    addresses = listening(below)
    assert addresses and addresses <= {"0100007F", "0000000000000000FFFF00000100007F"}  # 127.0.0.1 and nothing else
    directory = check_private(below)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    wait_until(lambda: not any(alive(pid) for pid in below), timeout=60.0)
    wait_until(lambda: not directory.exists(), timeout=60.0)
    second = start(where, C2D_TEST_KILL=str(tmp_path / "killed"))  # not seen by what may be left of the first
    assert second.wait(timeout=600) == 0, where.with_suffix(".out").read_text()
    out = where.with_suffix(".out").read_text()
    assert "the run is in" in out and "Traceback" not in out
    monkeypatch.setattr(Slow, "pause", 0.0)
    run = multiply(tiny_plan((KILLED,), seeds=(1,), iterations=8), where).runs[0]
    assert events(where) == ["planned", "started", "planned", "started", "lost", "started", "finished"]
    assert "its process was killed" in out and "died once" in out
    assert left_by(where / run.name) == straight(run.config, tmp_path / "straight")
    assert (where / run.name / "log.txt").read_text().count("resumed from the checkpoint at step") == 2
