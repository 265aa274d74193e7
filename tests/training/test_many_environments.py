"""Runs of several environments: what they store, when they learn, how they fail, and that they resume exactly."""

import json
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

from c2d.cli.main import main
from c2d.config import validate
from c2d.envs.minatar import MinAtarEnv
from c2d.errors import UserError
from c2d.training import run as run_module
from c2d.training.process import watchdog
from c2d.training.session import Session
from c2d.training.streams import env_threads
from c2d.types import FinishedGame
from tests.training.short_runs import UNLIKE, short_config
from tests.training.test_resume import go, results, saving


def several(config, envs=3, **changes):
    return replace(config, recipe=replace(config.recipe, envs=envs, **changes))


def test_one_environment_of_several_is_the_one_of_a_run_alone():
    """Its seeds do not depend on how many there are: random play begins alike."""
    alone, together = Session(short_config("minatar/breakout", "unused")), None
    together = Session(several(short_config("minatar/breakout", "unused")))
    for session in (alone, together):
        session.fill()
        for _ in range(9):
            session.fill()
    first = [session.replay.slots.action[:9].tolist() for session in (alone, together)]
    assert first[0] == first[1]
    assert (alone.rollout.streams[0].stack.obs == together.rollout.streams[0].stack.obs).all()
    streams = together.rollout.streams
    assert (
        not (streams[0].stack.obs == streams[1].stack.obs).all() or streams[0].rng.random() != streams[1].rng.random()
    )
    alone.close()
    together.close()


@pytest.mark.parametrize("overlap", [False, True])
def test_every_stored_transition_is_one_that_its_environment_made(overlap):
    """Also at the ends of games and of episodes by truncation, and when the rings have come round."""
    config = short_config("minatar/breakout", "unused", replay_capacity=150)
    session = Session(several(config, n_step=1, overlap=overlap))
    made = [[] for _ in range(3)]  # of each environment: observation, action, reward, end, next observation
    add = session.replay.add

    def adding(action, step, stream, _):
        stack = session.rollout.streams[stream].stack
        seen = stack.obs.copy()
        made[stream].append((seen, action, step.reward, step.terminal, stack.followed_by(step.frame)))
        add(action, step, stream)

    session.replay.add = adding
    session.fill_history()
    for _ in range(100):
        session.advance()
    indices, room = session.replay.sampleable(), session.replay.capacity // 3
    assert sorted(set(indices // room)) == [0, 1, 2]
    batch = session.replay.read(indices)
    ends = 0
    for row, index in enumerate(indices):
        found = [
            (action, reward, terminal)
            for obs, action, reward, terminal, following in made[index // room]
            if np.array_equal(obs, batch.obs[row].numpy())
            and (terminal or np.array_equal(following, batch.next_obs[row].numpy()))
        ]
        ends += batch.discount[row] == 0
        assert (int(batch.action[row]), float(batch.reward[row]), float(batch.discount[row]) == 0.0) in found
    assert ends >= 3
    session.close()


def test_overlap_learns_from_what_was_stored_before_the_round():
    events = {}
    for overlap in (False, True):
        session = Session(several(short_config("minatar/breakout", "unused", update_period=3), overlap=overlap))
        session.fill_history()
        events[overlap] = noted = []
        add, update = session.replay.add, session.learner.update
        session.replay.add = lambda *a, add=add, noted=noted: (noted.append("store"), add(*a))[1]
        session.learner.update = lambda batch, update=update, noted=noted: (noted.append("update"), update(batch))[1]
        session.advance()
        session.close()
    assert events[False] == ["store"] * 3 + ["update"] and events[True] == ["update"] + ["store"] * 3


@pytest.mark.parametrize("overlap", [False, True])
def test_threads_of_the_environments_do_not_change_results(overlap, tmp_path):
    found = []
    for threads in (0, 1, 3):
        config = several(short_config("breakout", tmp_path / str(threads), steps=60), overlap=overlap)
        digests = go(saving(replace(config, env_threads=threads))).digests
        records, *others = results(tmp_path / str(threads))
        found.append((digests, records.partition(b"\n")[2], others))  # the first line holds the setting
    assert found[0] == found[1] == found[2]


def test_who_steps_by_default():
    minatar = short_config("minatar/breakout", "unused")
    assert env_threads(minatar) == env_threads(several(minatar)) == 0
    assert env_threads(several(minatar, overlap=True)) == 1
    assert env_threads(replace(several(minatar, overlap=True), env_threads=0)) == 1
    assert env_threads(replace(several(minatar), env_threads=5)) == 5


def test_records_and_games_of_all_environments(tmp_path):
    config = several(short_config("minatar/breakout", tmp_path / "run", steps=100))  # not a multiple of 3
    run_module.run(config)
    lines = [json.loads(line) for line in (tmp_path / "run" / "records.jsonl").read_text().splitlines()]
    assert [line["steps"] for line in lines[1:]] == [102, 201] and lines[0]["config"]["recipe"]["envs"] == 3
    assert [line["updates"] for line in lines[1:]] == [13, 13]  # steps 0, 8, …, 96, then 104, …, 200
    header, *games = (tmp_path / "run" / "episodes.csv").read_text().splitlines()
    assert header == "iteration,step,score,length,env"
    assert {line.split(",")[4] for line in games} == {"0", "1", "2"}
    assert sum(line["episodes"] for line in lines[1:]) == len(games)
    assert all(int(line.split(",")[1]) % 3 == 0 for line in games)


@pytest.mark.parametrize("recipe", UNLIKE)
def test_every_recipe_resumes_exactly(recipe, tmp_path):
    """Stopped on request, and crashed after a checkpoint that lies rounds back."""
    env, overlap = ("toy/skewed", False) if len(recipe) % 2 else ("gym/CartPole-v1", True)
    how = {"recipe": recipe, "steps": 60}
    straight = saving(several(short_config(env, tmp_path / "straight", **how), 4, overlap=overlap))
    config = saving(several(short_config(env, tmp_path / "run", **how), 4, overlap=overlap), every_steps=36)
    wanted = go(straight).digests
    assert go(config, stop=28).result.state == "interrupted"
    go(config, crash=96)
    resumed = go(config)
    assert any(": exact" in text for text in resumed.notices)
    assert resumed.digests == wanted and results(tmp_path / "run") == results(tmp_path / "straight")


def test_verify_resume_with_several_environments(capsys):
    assert main(["verify-resume", "minatar/breakout", "--steps", "80", "--kills", "1", "--envs", "4"]) == 0
    out = capsys.readouterr().out
    assert "minatar/breakout, 4 environments" in out and "killed once, resumed: equal, bit for bit" in out


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("when", [50, 160])
def test_an_environment_that_fails_is_named_and_nothing_is_lost(when, overlap, tmp_path, monkeypatch):
    """The games that end in the round of the failure, in environments before it and behind it, count once."""
    usual, total = CartPoleEnv.step, [0]

    def failing(self, action):
        total[0] += 1
        if total[0] == when:
            raise RuntimeError("of the environment")
        return usual(self, action)

    straight = several(short_config("gym/CartPole-v1", tmp_path / "straight", steps=200), overlap=overlap)
    wanted = go(saving(straight))
    config = several(short_config("gym/CartPole-v1", tmp_path / "run", steps=200), overlap=overlap)
    monkeypatch.setattr(CartPoleEnv, "step", failing)
    with pytest.raises(RuntimeError) as failure:
        run_module.run(saving(config))
    number = (when - 1) % 3
    assert failure.value.__notes__ == [f"environment {number} of 3: gym/CartPole-v1"]
    error = json.loads((tmp_path / "run" / "summary.json").read_text())["error"]
    assert error == f"RuntimeError: of the environment (environment {number} of 3: gym/CartPole-v1)"
    monkeypatch.setattr(CartPoleEnv, "step", usual)
    resumed = go(saving(config))
    assert any("exact" in text for text in resumed.notices), resumed.notices
    assert resumed.digests == wanted.digests and results(tmp_path / "run") == results(tmp_path / "straight")


def test_games_of_an_interrupted_round_are_kept(tmp_path):
    session = Session(several(short_config("gym/CartPole-v1", "unused"), overlap=True))
    session.fill_history()
    session._games, session._learned = [FinishedGame(3.0, 3, 2)], True
    other = Session(session.config)
    for ours, theirs in zip(other.rings, session.rings, strict=True):
        span = max(theirs.head - theirs.capacity, 0), theirs.head - 1
        ours.unpack(*span, theirs.pack(*span))
    other.load_state_dict(session.state_dict())
    updates = other.learner.updates
    games = other.advance()
    assert games[0] == FinishedGame(3.0, 3, 2) and other.tally.scores[0] == 3.0 and other.learner.updates == updates
    other.advance()
    assert not any(game == FinishedGame(3.0, 3, 2) for game in other._games)


def test_several_updates_in_a_period():
    """Each has a batch of its own, and the target network is copied as often as before."""
    config = short_config("gym/CartPole-v1", "unused", updates_per_period=3)
    session, copies, batches = Session(several(config, 4)), [], []
    session.fill_history()
    copy, update = session.learner.synchronize, session.learner.update
    session.learner.synchronize = lambda: (copies.append(session.step), copy())[1]
    session.learner.update = lambda batch: (batches.append(batch.indices.tolist()), update(batch))[1]
    for _ in range(30):
        session.advance()
    assert len(batches) == session.learner.updates == session.tally.updates == 3 * (120 // 8)
    assert len(copies) == 3 and any(a != b for a, b in zip(batches[::3], batches[1::3], strict=True))


def test_epsilon_ladder():
    config = short_config("gym/CartPole-v1", "unused", epsilon_ladder=7.0, epsilon_initial=0.4, epsilon_min=0.4)
    session = Session(several(config, 4))
    assert np.allclose(session.epsilons, [0.4 ** (1 + 7 * i / 3) for i in range(4)], rtol=1e-12)
    asked = []
    decide = session.rollout.decide
    session.rollout.decide = lambda epsilon: (asked.append(epsilon), decide(epsilon))[1]
    session.fill_history()
    session.advance()
    assert asked[0] == 1.0 and asked[-1] == session.epsilons
    assert Session(several(short_config("gym/CartPole-v1", "unused", epsilon_initial=0.3), 2)).epsilons == [0.3, 0.3]


def test_noisy_networks_explore_with_epsilon_too_until_it_is_off():
    changes = {"epsilon_initial": 0.6, "epsilon_min": 0.6, "epsilon_off_steps": 200, "target_period": 10_000}
    session = Session(several(short_config("gym/CartPole-v1", "unused", recipe="rainbow-c2d", **changes), 4))
    session.fill_history()
    drawn, noise = {False: 0, True: 0}, session.torch_generators["acting"]
    while session.step < 400:
        off, before = session.step >= 200, noise.get_state()
        assert session.epsilon == (0.0 if off else 0.6)
        session.rollout.decide(session.epsilons)
        drawn[off] += sum(stream.random for stream in session.rollout.streams)
        assert all(stream.random for stream in session.rollout.streams) or not torch.equal(before, noise.get_state())
        session.advance()
    assert 90 < drawn[False] < 150 and drawn[True] == 0


def test_an_environment_that_hangs_is_reported_once(tmp_path):
    session, warnings, release = Session(several(short_config("gym/CartPole-v1", "unused"))), [], threading.Event()
    step = session.rollout.streams[1].env.step
    session.rollout.streams[1].env.step = lambda action: (release.wait(30.0), step(action))[1]
    player = threading.Thread(target=session.fill)
    with watchdog(session, warnings.append, patience=0.05):
        player.start()
        deadline = time.monotonic() + 60.0
        while not warnings and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.1)
        release.set()
        player.join()
    assert len(warnings) == 1
    assert "environment 1 of 3 (gym/CartPole-v1) has not answered" in warnings[0] and "it may hang" in warnings[0]


@pytest.mark.parametrize(
    ("changes", "schedule", "message"),
    [
        ({"envs": 0}, {}, "--envs is 0; accepted: at least 1, at most 4,096"),
        ({"envs": 31}, {}, "--envs is 31; accepted: at most 30: each needs n-step + 1 = 2 of the 60 random steps"),
        ({"envs": 16, "n_step": 3}, {}, "--envs is 16; accepted: at most 15"),
        ({}, {"epsilon_ladder": -1.0}, "--schedule.epsilon-ladder is -1.0; accepted"),
    ],
)
def test_rejected(changes, schedule, message):
    config = short_config("gym/CartPole-v1", "unused", **schedule)
    with pytest.raises(UserError) as error:
        validate(replace(config, recipe=replace(config.recipe, **changes)))
    assert message in str(error.value)


def test_more_environments_than_the_replay_can_hold():
    config = short_config("breakout", "unused", random_history=150)
    with pytest.raises(UserError, match=r"capacity is 120; accepted: at least stack \+ n_step = 5 for each of 40"):
        Session(several(config, 40))


def test_unequal_environments_are_rejected(monkeypatch):
    usual, count = MinAtarEnv.__init__, [0]

    def unequal(self, *arguments, **settings):
        usual(self, *arguments, **settings)
        count[0] += 1
        self.spec = replace(self.spec, actions=self.spec.actions + (count[0] == 3))

    monkeypatch.setattr(MinAtarEnv, "__init__", unequal)
    with pytest.raises(
        UserError, match=r"environment 2 of 3 has frames .* and 4 actions; accepted: .* and 3 actions, as envir"
    ):
        Session(several(short_config("minatar/breakout", "unused")))


def test_a_fork_cannot_change_how_many_there_are(tmp_path, capsys):
    config = several(short_config("toy/skewed", tmp_path / "run"))
    run_module.run(saving(config))
    capsys.readouterr()
    assert main(["resume", str(tmp_path / "run"), "--envs", "4", "--fork", str(tmp_path / "fork")]) == 2
    assert "3 environments, the run 4" in capsys.readouterr().err


def test_a_fork_with_another_capacity_keeps_the_priorities_of_each_stream(tmp_path):
    from c2d.replay.buffer import PrioritizedSampler

    before = PrioritizedSampler(20, streams=2)
    for index in (0, 1, 10, 11):
        before.add(index)
    before.feedback(np.array([0, 1, 10, 11]), np.array([1.0, 4.0, 9.0, 16.0], np.float32))
    after = PrioritizedSampler(30, streams=2)
    after.load_state_dict(before.state_dict(), np.array([0, 1, 15, 16]))
    leaves = after.state_dict()["priorities"]
    assert np.allclose(leaves[[0, 1, 15, 16]], [1.0, 2.0, 3.0, 4.0], rtol=1e-6) and np.count_nonzero(leaves) == 4
