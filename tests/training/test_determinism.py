"""One seed, one machine: the same bytes, in one process and in a fresh one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from c2d.runs.reader import canonical_records, read_records
from c2d.runs.records import canonical
from tests.training.short_runs import short_run

ENVIRONMENTS = ["gym/CartPole-v1", "minatar/breakout", "atari/pong"]


def results(path):
    """Everything a run leaves that must not depend on the clock."""
    return {
        "records": canonical_records(path / "records.jsonl"),
        "episodes": (path / "episodes.csv").read_bytes(),
        "weights": (path / "weights.safetensors").read_bytes(),
        "passport": (path / "passport.json").read_bytes(),
        "summary": (path / "summary.json").read_bytes(),
        "env": (path / "env.json").read_bytes(),
    }


@pytest.fixture(scope="module", params=ENVIRONMENTS)
def first(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("first") / "run"
    short_run(request.param, path)
    return request.param, path


def test_twice_in_one_process(first, tmp_path):
    env, path = first
    torch.manual_seed(torch.seed())  # nothing may hang on the global generator
    short_run(env, tmp_path / "again")
    assert results(tmp_path / "again") == results(path)
    for one, two in zip(
        read_records(path / "records.jsonl"), read_records(tmp_path / "again" / "records.jsonl"), strict=True
    ):
        assert {key for key in one.keys() | two.keys() if one.get(key) != two.get(key)} == {"measured"}


def test_another_seed_differs(first, tmp_path):
    env, path = first
    short_run(env, tmp_path / "other", seed=2)
    ours, other = results(path), results(tmp_path / "other")
    assert ours["records"] != other["records"] and ours["weights"] != other["weights"]
    assert ours["passport"] == other["passport"]  # the rules are the same


def test_once_more_in_a_fresh_process(tmp_path):
    environments = ["minatar/breakout", "atari/pong"]
    for env in environments:
        short_run(env, tmp_path / "here" / env, seed=3)
    program = str(Path(__file__).with_name("short_runs.py"))
    environment = {**os.environ, "PYTHONHASHSEED": "7", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, program, "3", str(tmp_path / "there"), *environments]
    subprocess.run(command, check=True, env=environment, timeout=120)
    for env in environments:
        assert results(tmp_path / "there" / env) == results(tmp_path / "here" / env)


def test_canonical_form():
    """Sorted keys, no blanks, without `measured`; sensitive to the last bit of a number."""
    record = {"b": 0.1, "a": None, "measured": {"time": 1.0}}
    assert canonical(record) == b'{"a":null,"b":0.1}'
    assert canonical({**record, "measured": {}}) == canonical(record)
    assert canonical({**record, "b": 0.1 + 2**-56}) != canonical(record)
    assert json.loads(canonical({"name": "α"})) == {"name": "α"}
