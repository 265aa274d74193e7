"""Runs to do harm to."""

import json
import shutil

import pytest

from c2d.runs.checkpoints import _seal, _sign
from tests.training.short_runs import short_config
from tests.training.test_resume import go, saving

GAME = "minatar/breakout"  # saving is the same for every game, and this one is quick; Atari's: test_resume.py


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A straight run, and one that crashed with two checkpoints behind it."""
    where = tmp_path_factory.mktemp("faults")
    wanted = go(saving(short_config(GAME, where / "straight"))).digests
    go(saving(short_config(GAME, where / "crashed"), every_steps=60), crash=190)
    return where, wanted


@pytest.fixture
def crashed(runs, tmp_path):
    where, wanted = runs
    shutil.copytree(where / "crashed", tmp_path / "run")
    return tmp_path / "run", saving(short_config(GAME, tmp_path / "run"), every_steps=60), wanted, where


def rewrite(path, change):
    """Change a checkpoint's state as an attacker would: all sums are right again afterwards."""
    state = json.loads((path / "state.json").read_bytes())
    change(state)
    data = json.dumps(state).encode()
    (path / "state.json").write_bytes(data)
    manifest = json.loads((path / "manifest.json").read_bytes())
    del manifest["sha256"]
    manifest["files"]["state.json"] = _seal(data)
    (path / "manifest.json").write_bytes(_sign(manifest))
