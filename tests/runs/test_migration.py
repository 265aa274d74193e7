"""A run that version 0.1.0 wrote loads, is reported and shown, and is resumed as that version would have gone on.

tests/fixtures/run-format-1-*: `run` was killed at step 170 of 200 (its last checkpoint, of format 1, is of step 140);
`expected` holds what the same config gave without a stop. Both with one thread and C2D_KERNELS=off.
"""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.numpy import load_file

import c2d
from c2d.config import from_json, to_json
from c2d.evaluation.loaded_run import open_run
from c2d.reporting.local_runs import read_local_runs
from c2d.runs.checkpoints import Checkpoints
from c2d.runs.confined import Root
from c2d.runs.layout import RunDir
from c2d.runs.reader import read_iterations, read_records
from c2d.runs.records import canonical
from c2d.training.passport import machine, versions
from c2d.web.lens.load import open_agent
from c2d.web.run_index import RunIndex
from tests.fixtures.resume_fixture import RESUMED

FIXTURES = Path(__file__).parent.parent / "fixtures"
KINDS = {"toy": ("toy/skewed", "c2d"), "minatar": ("minatar/breakout", "rainbow")}


@pytest.fixture(params=sorted(KINDS))
def kind(request):
    return request.param


@pytest.fixture
def run(kind, tmp_path):
    shutil.copytree(FIXTURES / f"run-format-1-{kind}" / "run", tmp_path / "runs" / kind)
    return tmp_path / "runs" / kind


def test_agents_load(kind, run):
    agent = c2d.load(run)
    stored = load_file(run / "weights.safetensors")
    assert all((tensor.numpy() == stored[name]).all() for name, tensor in agent.network.state_dict().items())
    subject = open_run(run)
    assert (subject.env, subject.config.recipe_name) == KINDS[kind] and (subject.steps, subject.iterations) == (100, 1)


def test_reports_and_the_page_show_it(kind, run):
    (own,), notes = read_local_runs([run])
    assert own.records.config["recipe_name"] == KINDS[kind][1] and len(own.records.iterations) == 1
    assert len(notes) == 1 and "in progress or was killed" in notes[0]
    index = RunIndex(Root(run.parent))
    index.refresh()
    row = index.rows[kind]
    assert (row["env"], row["recipe"], row["state"], row["resumable"]) == (*KINDS[kind], "stopped", True)
    assert row["records"] == 1 and row["warnings"] == 0 and row["steps"] > 100 and row["total"] == 200
    assert index.detail(kind)["settings"]["recipe"] == KINDS[kind][1]


def test_a_checkpoint_of_format_1_is_read_in_todays_form(kind, run):
    checkpoints = Checkpoints(run)
    (path,) = checkpoints.newest_first()
    assert json.loads((path / "manifest.json").read_text())["format"] == 1
    checkpoint = checkpoints.read(path)
    assert {"history", "step", "iteration", "tally", "streams", "learner", "replay"} <= checkpoint.session.keys()
    assert checkpoint.session["step"] == 140 and checkpoint.session["replay"]["streams"][0]["head"] > 200
    for name in ("online", "target"):
        assert checkpoint.network(name).keys() == load_file(run / "weights.safetensors").keys()
    loaded = open_agent(Root(run.parent), kind, path.name)
    assert loaded.own_target
    online = loaded.agent.network.state_dict()
    assert all((online[name].numpy() == array).all() for name, array in checkpoint.network("online").items())


def test_it_is_resumed_bit_for_bit(kind, run):
    """On the machine and the versions that wrote it; elsewhere it is resumed to its end."""
    config = replace(RunDir(run).read_config(), run_dir=str(run))
    assert from_json(to_json(config)) == config
    resumed = subprocess.run(
        [sys.executable, "-c", RESUMED, json.dumps(to_json(config))],
        env={**os.environ, "C2D_KERNELS": "off", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert resumed.returncode == 0, resumed.stderr
    assert "resumed from the checkpoint at step 140" in resumed.stdout
    expected = FIXTURES / f"run-format-1-{kind}" / "expected"
    wanted, got = (read_iterations(path) for path in (expected, run))
    assert [record["steps"] for record in got] == [100, 200] and RunDir(run).finished(2)
    header = read_records(expected / "records.jsonl")[0]
    same = ("python", "torch", "numpy", "minatar", "gymnasium")
    if header["measured"]["cpu"] != machine(1)["cpu"] or any(
        header["versions"].get(name) != versions().get(name) for name in same
    ):
        pytest.skip("another machine or other versions: exactness is not promised")
    assert [canonical({name: record[name] for name in other}) for record, other in zip(got, wanted, strict=True)] == [
        canonical(record) for record in wanted
    ]
    assert (run / "episodes.csv").read_bytes() == (expected / "episodes.csv").read_bytes()
    assert (run / "weights.safetensors").read_bytes() == (expected / "weights.safetensors").read_bytes()
    newest = next(Checkpoints(run).newest_first())
    assert json.loads((newest / "manifest.json").read_text())["format"] == 2


def test_a_fork_of_it_is_a_run(kind, run, tmp_path):
    from c2d.training.resume import fork
    from c2d.training.run import run as train

    config = replace(RunDir(run).read_config(), run_dir=str(tmp_path / "fork"), iterations=2)
    fork(RunDir(run), RunDir(tmp_path / "fork"), config, lambda text: pytest.fail(text))
    result = train(config)
    assert result.state == "finished" and [record["steps"] for record in result.records] == [100, 200]
