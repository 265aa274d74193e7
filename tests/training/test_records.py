"""What a run writes, and when."""

import csv
import json
import math
from dataclasses import asdict, replace

import pytest
from safetensors.numpy import load_file

from c2d.agents.learner import linear
from c2d.api import load
from c2d.config import default_config, read_config
from c2d.envs.make import make
from c2d.runs.layout import RunDir
from c2d.runs.reader import read_records
from c2d.training.passport import passport
from c2d.training.session import Session, Tally
from c2d.types import FetchedUpdate
from tests.training.short_runs import short_config, short_run


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    path = tmp_path_factory.mktemp("records") / "run"
    return short_run("gym/CartPole-v1", path, iterations=3, steps=100, update_period=4), short_config(
        "gym/CartPole-v1", path, iterations=3, steps=100, update_period=4
    )


def test_header_says_what_ran(finished):
    result, _ = finished
    header = read_records(result.run_dir.records)[0]
    assert header["kind"] == "run"
    assert header["config"]["env"] == "gym/CartPole-v1" and header["config"]["seed"] == 1
    assert header["config"]["recipe"]["head"]["atoms"] == 8
    assert {"python", "torch", "numpy", "c2d"} <= header["versions"].keys()
    assert header["passport"]["hash"] == json.loads(result.run_dir.passport.read_text())["hash"]
    assert {"cpu", "cores", "threads", "system", "started"} <= header["measured"].keys()
    assert header["measured"]["threads"] == 1


def test_passport_tells_what_the_learner_does_to_rewards_and_time():
    base = default_config("toy/bimodal")
    agent = base.recipe
    env = make(base.env, base.rules, 0)
    facts = passport(base, env)
    assert facts["phi"] == {"kind": "scaled_h", "beta": 1.99, "eps": 0.001}
    assert (facts["clip_reward"], facts["gamma"], facts["n_step"]) == (None, 0.99, 1)
    assert "whole training games" in facts["recorded_score"] and facts["protocol"] == base.protocol
    others = [
        replace(agent, clip_reward=1.0),
        replace(agent, phi=replace(agent.phi, beta=2.0)),
        replace(agent, phi=replace(agent.phi, kind="identity")),
        replace(agent, schedule=replace(agent.schedule, gamma=0.9)),
        replace(agent, n_step=3),
    ]
    hashes = [passport(replace(base, recipe=other), env)["hash"] for other in others]
    capped = make(base.env, replace(base.rules, cap_steps=9), 0)
    hashes += [facts["hash"], passport(base, capped)["hash"]]
    assert len(set(hashes)) == 7
    unlike = replace(agent, optim=replace(agent.optim, learning_rate=0.5))  # no rule
    assert passport(replace(base, recipe=unlike), env)["hash"] == facts["hash"] == passport(base, env)["hash"]


def test_each_iteration_has_what_the_authors_recorded(finished):
    result, _ = finished
    lines = read_records(result.run_dir.records)[1:]
    assert lines == result.records and len(lines) == 3
    for number, record in enumerate(lines):
        assert record["kind"] == "iteration" and record["iteration"] == number
        assert record["steps"] == record["frames"] == 100 * (number + 1)
        assert record["updates"] == 25
        assert record["mean_loss"] > 0 and math.isfinite(record["mean_loss"])
        assert record["atom_min"] < record["atom_max"]
        assert record["gradient_norm_max"] > 0
        assert record["alpha"] == pytest.approx(50.0, abs=1.0) and record["alpha"] != 50.0
        assert record["epsilon"] == linear(100 * (number + 1), 1.0, 0.01, 100)
        assert {"seconds", "steps_per_second", "peak_memory_mb", "time"} == record["measured"].keys()
        clocks = {"time", "second", "memory", "speed"}
        assert not [key for key in record if key != "measured" and any(word in key for word in clocks)]


def test_scores_are_the_mean_of_the_games_that_ended(finished):
    result, _ = finished
    with open(result.run_dir.episodes) as file:
        games = list(csv.DictReader(file))
    assert [*games[0]] == ["iteration", "step", "score", "length"]
    for record in result.records:
        own = [float(game["score"]) for game in games if int(game["iteration"]) == record["iteration"]]
        assert len(own) == record["episodes"] > 0
        assert record["mean_score"] == pytest.approx(math.fsum(own) / len(own))
    for game in games:
        assert float(game["score"]) == int(game["length"])  # a point per step in CartPole
        low = 100 * int(game["iteration"])
        assert low < int(game["step"]) <= low + 100


def test_frames_count_the_emulated_ones(tmp_path):
    (record,) = short_run("atari/pong", tmp_path / "run", iterations=1, steps=20).records
    assert record["steps"] == 20 and record["frames"] == 80
    assert record["episodes"] == 0 and record["mean_score"] is None


def test_tally_keeps_extremes_and_means():
    tally = Tally()
    assert tally.record()["mean_loss"] is None and tally.record()["atom_min"] is None
    for loss, low, high, norm in ((1.0, -3.0, 5.0, 7.0), (3.0, -9.0, 4.0, 2.0), (2.0, -1.0, 6.0, 1.0)):
        metrics = {"atom_min": low, "atom_max": high, "gradient_norm": norm}
        tally.count(FetchedUpdate(loss, None, None, metrics))
    record = tally.record()
    assert (record["mean_loss"], record["atom_min"], record["atom_max"]) == (2.0, -9.0, 6.0)
    assert (record["gradient_norm_max"], record["updates"]) == (7.0, 3)


def test_summary_config_and_weights(finished):
    result, config = finished
    summary = json.loads(result.run_dir.summary.read_text())
    assert summary == {"state": "finished", "steps": 300, "iterations": 3, "unfinished_iteration": None, "error": None}
    assert read_config(result.run_dir.config) == config
    weights = load_file(result.run_dir.weights)
    assert weights["head.logits.advantage.weight"].shape == (2 * 8, 16)
    assert not [name for name in result.run_dir.path.iterdir() if name.name.endswith(".tmp")]


def test_weights_are_those_of_the_online_network(finished, tmp_path):
    """The saved agent gives the same law as the learner that made it."""
    config = short_config("gym/CartPole-v1", tmp_path / "run", iterations=3, steps=100, update_period=4)
    session = Session(config)
    session.fill_history()
    for _ in range(300):
        session.advance()
    agent = load(finished[0].run_dir.path)
    online, loaded = session.learner.online.state_dict(), agent.network.state_dict()
    assert all((online[name] == loaded[name]).all() for name in online)
    assert any((session.learner.target_network.state_dict()[name] != online[name]).any() for name in online)


def test_environment_shape_survives_the_file(finished):
    spec = RunDir(finished[0].run_dir.path).read_spec()
    assert asdict(spec) == asdict(Session(finished[1]).env.spec)
