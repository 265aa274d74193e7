"""Actors on a real Ray, one for all tests: processes that are killed, room that is missing."""

import os
from dataclasses import replace

import pytest

from c2d.cluster.address import LOOPBACK
from c2d.errors import UserError
from c2d.training.run import run
from c2d.user_code import TRUSTED
from tests.training.actors_in_process import InProcess, Witness, actors_config, train_with
from tests.training.test_actors import left_by

KILLED = "tests.sweep.faulty_envs:KilledOnce"


@pytest.fixture(scope="module")
def marked(tmp_path_factory):
    """A file without which an environment kills its process once; processes of Ray know it."""
    mark = tmp_path_factory.mktemp("marks") / "killed"
    before = {name: os.environ.get(name) for name in ("C2D_TEST_KILL", LOOPBACK)}
    os.environ |= {"C2D_TEST_KILL": str(mark), LOOPBACK: "0"}
    yield mark
    for name, value in before.items():
        os.environ.pop(name) if value is None else os.environ.update({name: value})


@pytest.fixture(scope="module")
def address(marked):
    from c2d.cluster.ray_connection import connected, ray

    with connected(None, 2):
        yield ray.get_runtime_context().gcs_address


def test_synchronous_the_same_as_in_one_process_although_an_actor_is_killed(address, marked, tmp_path, monkeypatch):
    marked.touch()
    config = actors_config(KILLED, tmp_path / "here", iterations=3)
    here, _ = train_with(InProcess(), config, monkeypatch)
    monkeypatch.undo()
    marked.unlink()
    TRUSTED.add(KILLED)
    witness = Witness()
    there = actors_config(KILLED, tmp_path / "there", iterations=3)
    run(replace(there, address=address), [witness])
    assert marked.exists() and "its process was killed" in witness.notices[0]
    assert witness.notices[0].endswith("it is brought back to the same state")
    assert witness.found == here.found and left_by(tmp_path / "there")[1] == left_by(tmp_path / "here")[1]


def test_asynchronous_training_goes_on_when_an_actor_is_killed(address, marked, tmp_path):
    marked.unlink(missing_ok=True)
    TRUSTED.add(KILLED)
    witness = Witness()
    config = actors_config(KILLED, tmp_path / "run", actors=1, iterations=2, mode="asynchronous")
    result = run(replace(config, address=address), [witness])
    assert marked.exists() and result.state == "finished"
    assert any("its successor begins new games" in text for text in witness.notices)
    assert sum(seat.life for seat in witness.session.rollout.seats) == 1


def test_more_actors_than_the_cluster_has_room_for(address, tmp_path):
    config = replace(actors_config("gym/CartPole-v1", tmp_path / "run", actors=30), address=address)
    with pytest.raises(UserError, match=f"--actors is 30; accepted: at most 2, the CPUs of the cluster at {address}"):
        run(config)
    assert not (tmp_path / "run").exists()
