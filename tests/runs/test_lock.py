"""The lock of a run, and how others see that its holder is alive."""

import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from c2d.errors import UserError
from c2d.runs import lock as module
from c2d.runs.lock import InUse, holder, is_alive, locked

HERE = socket.gethostname()


def seen(path, now=None):
    return is_alive(path.read_bytes(), path.stat().st_mtime, time.time() if now is None else now)


def test_a_holder_is_alive_while_it_holds_and_not_after(tmp_path):
    path = tmp_path / "lock"
    with locked(path) as heartbeat:
        assert seen(path) and holder(path) == f"process {os.getpid()} on {HERE}"
        heartbeat.beat()
        assert seen(path)
        with pytest.raises(InUse, match=f"in use by process {os.getpid()} on "), locked(path):
            pass
        assert seen(path)  # the attempt changed nothing
    assert not seen(path) and holder(path) is None  # though this process is alive, and the file is fresh


def test_a_killed_process_is_dead_at_once(tmp_path):
    path = tmp_path / "lock"
    code = (
        "import sys, time; from pathlib import Path; from c2d.runs.lock import locked\n"
        "with locked(Path(sys.argv[1])) as heartbeat:\n    print('held', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE)
    try:
        assert process.stdout.readline() == b"held\n" and seen(path)
        process.send_signal(signal.SIGKILL)
        deadline = time.monotonic() + 60
        while seen(path) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not seen(path)  # before anybody has asked for its exit code
    finally:
        process.kill()
        process.wait()
    assert not seen(path)


def test_heartbeats_come_every_few_seconds_and_not_more_often(tmp_path, monkeypatch):
    path = tmp_path / "lock"
    touched = []
    real = os.utime
    monkeypatch.setattr(module.os, "utime", lambda *args: touched.append(args) or real(*args))
    with locked(path) as heartbeat:
        touched.clear()
        for now in (100.0, 101.0, 104.9, 105.1, 106.0, 111.0):
            heartbeat.beat(now)
        assert len(touched) == 3
        os.utime(path, (1e9, 1e9))
        assert not seen(path)
        heartbeat.beat(117.0)
        assert seen(path) and not seen(path, time.time() + 31)


def test_long_work_is_announced(tmp_path):
    path = tmp_path / "lock"
    with locked(path) as heartbeat:
        heartbeat.pause()
        assert seen(path, time.time() + 500) and not seen(path, time.time() + 700)
        heartbeat.beat()  # at once
        assert not seen(path, time.time() + 31)


def test_a_disk_that_fails_does_not_end_the_run(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(30, "Read-only file system")

    with locked(tmp_path / "lock") as heartbeat:
        monkeypatch.setattr(module.os, "utime", fail)
        heartbeat.beat(1e9)
        heartbeat.pause()


def test_on_another_machine_the_heartbeat_alone_counts():
    content = b"process 1 on some-other-machine\n"
    assert is_alive(content, 1_000.0, 1_029.0) and not is_alive(content, 1_000.0, 1_031.0)


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff", b"process", b"process 0 on HERE", b"process -1 on HERE", b"process 99999999999999999999 on HERE",
     b"process 4194399 on HERE", b"process 1 on "],
)  # fmt: skip
def test_what_anybody_may_have_written_is_not_alive(content):
    assert not is_alive(content.replace(b"HERE", HERE.encode()), 1_000.0, 1_001.0)


def test_a_time_far_in_the_future_is_not_alive():
    assert not is_alive(f"process {os.getpid()} on {HERE}".encode(), 10_000.0, 1_000.0)


def test_a_lock_that_is_a_link_is_rejected(tmp_path):
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="cannot be the lock"), locked(tmp_path / "lock"):
        pass
    assert not (tmp_path / "elsewhere").exists()
