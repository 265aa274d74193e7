"""Actors and their learner: the same code as on Ray, in one process, with answers that come when a test says."""

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from c2d.config import default_config, validate
from c2d.errors import UserError
from c2d.recipes.parts import Lstm, NoCore
from c2d.recipes.rows import RECIPES
from c2d.replay.buffer import RateLimiter
from c2d.runs.reader import canonical_records
from c2d.training.remote_actor import Order, RemoteActor, packed, unpacked
from c2d.training.session import Session
from c2d.training.streams import epsilons_of, rate_limiter
from tests.training.actors_in_process import InProcess, actors_config, train_with

CARTPOLE = "gym/CartPole-v1"


def left_by(path):
    return canonical_records(path / "records.jsonl"), (path / "episodes.csv").read_bytes()


# ----------------------------------------------------------------------------------------------------------- settings


def test_the_ladder_of_ape_x(tmp_path):
    """ε_i = 0.4^(1 + 7i/(N-1)), the same for all environments of an actor, at every step."""
    config = actors_config(CARTPOLE, tmp_path, actors=8, envs=2)
    expected = [0.4 ** (1 + 7 * i / 7) for i in range(8) for _ in range(2)]
    for step in (0, 10**6):
        np.testing.assert_allclose(epsilons_of(config, step), expected, rtol=1e-12)
    assert epsilons_of(replace(config, actors=1), 0) == [0.4, 0.4]
    scheduled = replace(config, actors=2, actor=replace(config.actor, epsilon=None, epsilon_ladder=1.0))
    np.testing.assert_allclose(epsilons_of(scheduled, 50), [0.505, 0.505, 0.505**2, 0.505**2])
    noisy = actors_config(CARTPOLE, tmp_path, actors=2, recipe="rainbow-c2d")
    assert epsilons_of(noisy, 0) == [0.0, 0.0]  # it explores by noise


@given(
    ratio=st.fractions(min_value=Fraction(1, 100), max_value=100),
    batch=st.integers(1, 512),
    together=st.integers(1, 4),
    steps=st.integers(1, 400),
)
def test_samples_per_insertion_are_held_from_both_sides(ratio, batch, together, steps):
    limiter, sampled = RateLimiter(ratio, batch, together), 0
    for step in range(steps):
        sampled += batch * limiter.due(step)
        assert ratio * (step + 1) <= sampled < ratio * (step + 1) + batch * together


@given(period=st.integers(1, 50), batch=st.integers(1, 64), together=st.integers(1, 3), step=st.integers(0, 10**9))
def test_the_recipes_own_ratio_is_its_update_period(period, batch, together, step):
    config = default_config(CARTPOLE)
    schedule = replace(config.recipe.schedule, update_period=period, batch_size=batch, updates_per_period=together)
    due = rate_limiter(replace(config, recipe=replace(config.recipe, schedule=schedule))).due(step)
    assert due == (together if step % period == 0 else 0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"actors": -1}, "--actors is -1; accepted: 0 or greater, at most 4,096"),
        ({"actors": 99}, "--actors is 99; accepted: at most 30: each of 1 environments of an actor needs"),
        ({"actors": 2, "overlap": True}, "--overlap is True; accepted: False with --actors 2"),
        ({"address": "head:6379"}, "--address is head:6379; accepted: an address with --actors of 1 or more"),
        ({"mode": "asynchronous"}, "--actor.mode is asynchronous; accepted: synchronous without --actors"),
        ({"mode": "eventually", "actors": 2}, "--actor.mode is eventually; accepted: synchronous, asynchronous"),
        ({"samples_per_insert": 0.0, "actors": 2}, "--actor.samples-per-insert is 0.0; accepted: greater than 0"),
    ],
)
def test_settings_that_do_not_fit(tmp_path, changes, message):
    config = actors_config(CARTPOLE, tmp_path, actors=changes.get("actors", 0), weights_period=400)
    own = {name: value for name, value in changes.items() if name in ("mode", "samples_per_insert")}
    recipe = replace(config.recipe, overlap=changes.get("overlap", False))
    actor = replace(config.actor, **own)
    with pytest.raises(UserError) as raised:
        validate(replace(config, recipe=recipe, actor=actor, address=changes.get("address")))
    assert str(raised.value).startswith(message)


# -------------------------------------------------------------------------------------------------------- one actor


@pytest.mark.parametrize("env", [CARTPOLE, "minatar/breakout"])
def test_an_actor_brought_to_a_state_plays_on_as_the_one_it_was_taken_from(tmp_path, env):
    """All frames, rewards, ends, choices and values; and the learner unpacks what was packed."""
    config = actors_config(env, tmp_path, recipe="iqn", envs=2)  # which acts with random fractions
    session = Session(config)
    first, again = (RemoteActor(request_of(config, session)) for _ in range(2))
    weights = session.rollout._weights()[0]
    before = first.play(Order(9, 0.3, fresh=True), weights)
    after = first.play(Order(40, 0.3))
    skipped = again.play(Order(40, 0.3, state=before.state, skip=13), weights)
    straight, repeated = (unpacked(block.packed, session.env.spec) for block in (after, skipped))
    assert listed(straight[13:]) == listed(repeated) and len(repeated) == 27
    assert json.dumps(after.state, default=repr) == json.dumps(skipped.state, default=repr)
    assert any(t.step.reset is not None for played in straight for t in played)
    assert any(t.random for played in straight for t in played) and any(t.value is not None for t in straight[0])
    openings = [t.opening is not None for played in unpacked(before.packed, session.env.spec) for t in played]
    assert openings == [True] * 2 + [False] * 16
    session.close()


def request_of(config, session):
    transport = InProcess()
    session.rollout._transport = transport
    session.rollout._start(session.rollout.seats[0])
    return transport.requests[0]


def listed(rounds):
    """Transitions with frames as bytes, to be compared."""

    def plain(step):
        reset = step.reset and (step.reset.frame.tobytes(), step.reset.repeats)
        return step._replace(frame=step.frame.tobytes(), reset=reset)

    return [[t._replace(step=plain(t.step)) for t in played] for played in rounds]


def test_frames_travel_compressed(tmp_path):
    config = actors_config("minatar/breakout", tmp_path)
    session = Session(config)
    block = RemoteActor(request_of(config, session)).play(Order(50, 1.0, fresh=True))
    raw = sum(t.step.frame.nbytes for played in unpacked(block.packed, session.env.spec) for t in played)
    assert block.packed.frames.nbytes < raw / 10
    assert packed([]).rounds == []
    session.close()


# ------------------------------------------------------------------------------------------------------- synchronous


@pytest.mark.parametrize(
    ("env", "recipe", "envs", "core"),
    [
        (CARTPOLE, "c2d", 2, NoCore()),
        ("minatar/breakout", "rainbow-c2d", 1, NoCore()),
        (CARTPOLE, "c2d", 1, Lstm(hidden=12, sequence=8, burn_in=5, overlap=4)),
    ],
)
def test_whenever_answers_come_and_whoever_dies_the_run_is_the_same(tmp_path, monkeypatch, env, recipe, envs, core):
    """Deaths during the random history, at a change of weights, twice in succession; a rebuilt actor dies again."""
    config = actors_config(env, tmp_path / "prompt", recipe=recipe, envs=envs)
    config = replace(config, recipe=replace(config.recipe, core=core))
    prompt, result = train_with(InProcess(), config, monkeypatch)
    assert result.state == "finished" and prompt.notices == []
    again = replace(config, run_dir=str(tmp_path / "again"))
    transport = InProcess(seed=7, deaths=(2, 9, 10, 14, 21))
    late, _ = train_with(transport, again, monkeypatch)
    assert late.found == prompt.found and left_by(tmp_path / "again") == left_by(tmp_path / "prompt")
    assert len(transport.requests) == 2 + 5 and late.notices[0].endswith("killed; it is brought back to the same state")
    other, _ = train_with(InProcess(), replace(config, run_dir=str(tmp_path / "other"), seed=2), monkeypatch)
    assert other.found["online network"] != prompt.found["online network"]


@pytest.mark.parametrize("stops", [(30, 100), (60, 61, 74), (250,)])
def test_a_run_that_was_stopped_resumes_exactly(tmp_path, monkeypatch, stops):
    """In the random history, at its end, within a block; other actors die after it."""
    straight, _ = train_with(InProcess(), actors_config(CARTPOLE, tmp_path / "straight"), monkeypatch)
    config = actors_config(CARTPOLE, tmp_path / "run")
    for stop in stops:
        _, result = train_with(InProcess(), config, monkeypatch, stop)
        assert result.state == "interrupted"
    resumed, result = train_with(InProcess(seed=3, deaths=(1, 4)), config, monkeypatch)
    assert result.state == "finished" and ": exact" in resumed.notices[0]
    assert resumed.found == straight.found and left_by(tmp_path / "run") == left_by(tmp_path / "straight")


def test_actors_play_with_weights_from_before_the_block_that_is_taken_in(tmp_path, monkeypatch):
    """By counting: block b of training is played with the weights from before block b - 1; ages in the record."""
    config = actors_config(CARTPOLE, tmp_path / "run", iterations=1, samples_per_insert=2.0)
    transport = InProcess()
    _, result = train_with(transport, config, monkeypatch)
    ages, updates_at, updates = [], {}, 0  # updates before each block
    for step in range(0, 120, 2):
        block = step // 2 // 7
        updates_at.setdefault(block, updates)
        ages += [updates - updates_at.get(block - 1, 0)] * 2
        updates += 1  # of 4 samples, per round of two steps
    (record,) = result.records
    assert record["staleness"] == pytest.approx(np.mean(ages)) and record["samples_per_insert"] == 2.0
    assert record["updates"] == updates == 60 and record["epsilon"] == pytest.approx((0.4 + 0.4**8) / 2)
    assert record["measured"]["actors_alive"] == 2 and 0.0 <= record["measured"]["learner_share"] <= 1.0
    assert {order.epsilon for actor, order in transport.orders if actor == 1} == {1.0, 0.4**8.0}


def test_an_actor_that_dies_again_and_again_ends_the_run_which_is_saved(tmp_path, monkeypatch):
    config = actors_config(CARTPOLE, tmp_path / "run")
    with pytest.raises(UserError, match=r"^actor [01] died 4 times in succession: its process was killed$"):
        train_with(InProcess(deaths=range(31, 60)), config, monkeypatch)
    straight, _ = train_with(InProcess(), actors_config(CARTPOLE, tmp_path / "straight"), monkeypatch)
    resumed, _ = train_with(InProcess(), config, monkeypatch)
    assert "resumed" in resumed.notices[0] and resumed.found == straight.found


def test_an_environment_that_fails_is_named(tmp_path, monkeypatch):
    config = actors_config("tests.sweep.faulty_envs:Raises", tmp_path / "run", envs=2)

    def trouble(env):
        if env._total == 20:
            raise RuntimeError("the emulator lost its mind")

    monkeypatch.setattr("tests.sweep.faulty_envs.Raises.trouble", trouble)
    message = r"^actor 0, environment 0 of 2: \S+Raises: RuntimeError: the emulator lost its mind \(.*test_actors.py, "
    with pytest.raises(UserError, match=message):
        train_with(InProcess(), config, monkeypatch)


# ------------------------------------------------------------------------------------------------------ asynchronous


def test_asynchronous_a_dead_actor_begins_new_games_and_what_was_received_is_kept(tmp_path, monkeypatch):
    config = actors_config(CARTPOLE, tmp_path / "run", mode="asynchronous")
    transport = InProcess(seed=1, deaths=(3, 20))
    witness, result = train_with(transport, config, monkeypatch)
    session = witness.session
    assert result.state == "finished" and sorted(seat.life for seat in session.rollout.seats) in ([0, 2], [1, 1])
    lives = [request.life for request in transport.requests]
    assert len(lives) == 4 and "its successor begins new games" in witness.notices[0]
    games = np.loadtxt(tmp_path / "run" / "episodes.csv", delimiter=",", skiprows=1)
    assert set(games[:, -1]) == {0, 1} and session.step in (240, 241)
    assert "asynchronous" in witness.header["resume"] and "not_reproducible" in witness.header["passport"]
    again, result = train_with(InProcess(), replace(config, iterations=3), monkeypatch)
    assert result.state == "finished" and again.session.step in (360, 361)
    assert [seat.life for seat in again.session.rollout.seats] == [seat.life + 1 for seat in session.rollout.seats]


def test_asynchronous_nobody_waits_for_a_slow_actor(tmp_path, monkeypatch):
    """One never answers: the other plays it all, and the ratio holds."""
    config = actors_config(CARTPOLE, tmp_path / "run", mode="asynchronous")
    witness, result = train_with(InProcess(silent=(1,)), config, monkeypatch)
    assert result.state == "finished" and witness.session.step == 240
    assert [len(ring) > 0 for ring in witness.session.replay.rings] == [True, False]
    assert [record["updates"] for record in result.records] == [15, 15]


def test_every_row_plays_with_actors():
    """Its settings fit, whatever its environments are."""
    for name in RECIPES:
        validate(default_config("minatar/breakout", name, actors=2))
