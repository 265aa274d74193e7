"""The place of an embedded Ray: its rights, its token, and what is left when its start fails or its user dies."""

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from c2d.errors import UserError
from c2d.sweep import launch
from c2d.sweep.embedded_ray import private_directory
from c2d.sweep.options import SweepOptions
from tests.sweep.test_embedded import alive, wait_until

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


def test_only_its_user_may_enter_and_each_has_a_token_of_its_own(monkeypatch):
    monkeypatch.setenv("RAY_AUTH_TOKEN", "the user's")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", "somewhere")
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    tokens = set()
    for _ in range(2):
        with private_directory() as place:
            parent = Path(place).parent
            assert stat.S_IMODE(parent.stat().st_mode) == 0o700 and parent.stat().st_uid == os.getuid()
            assert os.environ["RAY_AUTH_MODE"] == "token" and "RAY_AUTH_TOKEN_PATH" not in os.environ
            tokens.add(os.environ["RAY_AUTH_TOKEN"])
        assert not parent.exists()
    assert len(tokens) == 2 and all(len(token) == 64 for token in tokens)
    assert os.environ["RAY_AUTH_TOKEN"] == "the user's" and os.environ["RAY_AUTH_TOKEN_PATH"] == "somewhere"
    assert "RAY_AUTH_MODE" not in os.environ and "C2D_RAY_DIRECTORY" not in os.environ


def test_a_start_that_fails_is_told_in_a_line_and_leaves_nothing(monkeypatch):
    """As when a loaded machine takes longer than Ray allows: Ray raises a plain Exception and leaves its processes."""
    made = []

    def init(*_, _temp_dir, **__):
        os.makedirs(_temp_dir)
        os.chmod(_temp_dir, 0o777)
        unmarked = {name: value for name, value in os.environ.items() if not name.startswith("C2D")}
        with open(f"{_temp_dir}/log", "w") as log:
            made.append((Path(_temp_dir), subprocess.Popen(SLEEP, env=unmarked, stdout=log)))
        raise Exception("The current node timed out during startup.\n  This could\n  happen.")

    monkeypatch.setattr(launch.ray, "is_initialized", lambda: False)
    monkeypatch.setattr(launch.ray, "init", init)
    monkeypatch.setattr(launch.ray, "shutdown", lambda: None)
    monkeypatch.setattr(launch, "_reload_token", lambda: None)
    bystander = subprocess.Popen(SLEEP)
    try:
        with pytest.raises(UserError) as told, launch.connected(SweepOptions()):
            pass
        (place, left) = made[0]
        assert str(told.value) == (
            "an embedded Ray could not be used: The current node timed out during startup. This could happen."
        )
        assert left.wait(10) == -signal.SIGKILL and not place.parent.exists()
        assert bystander.poll() is None
    finally:
        for process in (bystander, *(process for _, process in made)):
            process.kill()
            process.wait()


def test_what_a_killed_process_leaves_is_gone_soon(tmp_path):
    code = (
        "import subprocess, sys, time\n"
        "from c2d.sweep.embedded_ray import private_directory\n"
        "with private_directory() as place:\n"
        f"    child = subprocess.Popen({SLEEP!r}, start_new_session=True)\n"
        "    print(place, child.pid, flush=True)\n"
        "    time.sleep(600)\n"
    )
    driver = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    place, child = driver.stdout.readline().split()
    assert Path(place).parent.exists() and alive(int(child))
    began = time.monotonic()
    driver.kill()
    driver.wait()
    wait_until(lambda: not alive(int(child)) and not Path(place).parent.exists(), patience=10.0)
    assert time.monotonic() - began < 10.0
