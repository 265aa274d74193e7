"""A run whose network remembers: what is stored, played, saved and shown is one memory."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from c2d.agents.agent import Agent
from c2d.config import default_config, validate
from c2d.envs.make import make
from c2d.errors import UserError
from c2d.evaluation.play import evaluate
from c2d.recipes.parts import Adam, Gru, Lstm, Mlp, NoCore, Prioritized
from c2d.replay.sequences import SequenceReplay
from c2d.training.session import Session
from c2d.training.verification import digests
from tests.training.short_runs import short_config
from tests.training.test_resume import go, results, saving

CORE = Lstm(hidden=12, sequence=8, burn_in=5, overlap=4)


def config_of(path="unused", env="gym/CartPole-v1", core=CORE, envs=1, recipe="c2d", changes=None, **schedule):
    config = short_config(env, path, recipe=recipe, steps=90, **schedule)
    row = dataclasses.replace(config.recipe, core=core, envs=envs, **(changes or {}))
    return dataclasses.replace(config, recipe=row)


def frozen(config):
    """A session whose weights never change."""
    session = Session(config)
    session._learn = lambda: None
    return session


def test_stored_memories_are_those_of_play_bit_for_bit():
    """An independent agent watches the same observations, actions and rewards and remembers the same."""
    session = frozen(config_of(envs=2, epsilon_initial=0.5, random_history=30, replay_capacity=2_000))
    session.fill_history()
    for _ in range(60):
        session.advance()
    network, checked = session.learner.online, 0
    assert isinstance(session.replay, SequenceReplay)
    for ring in session.replay.rings:
        memory = torch.zeros(1, network.memory)
        for number in range(ring.head - 1):
            index, at = ring._index(number), int(ring.position[number])
            if at == 0:
                memory = torch.zeros(1, network.memory)
            if number in ring.memories:
                checked += 1
                assert ring.memories[number].tolist() == memory[0].tolist()
            obs = torch.from_numpy(session.replay.slots.observations(np.array([index])))
            before = session.replay.slots.action[index - 1] if at else -1
            earned = session.replay.slots.reward[index - 1] if at else 0.0
            with torch.inference_mode():
                pair = [torch.cat((part, part)) for part in (obs, memory)]  # two rows, as two environments play
                twice = torch.tensor([int(before)] * 2), torch.tensor([float(earned)] * 2)
                memory = network.step(pair[0], *twice, pair[1])[1][:1]
    assert checked > 20


def test_sequences_unroll_to_the_memories_that_follow():
    """With the weights that played, the burn-in leads to what was played: acting and learning see the same inputs."""
    session = frozen(config_of(random_history=40, replay_capacity=2_000))
    session.fill_history()
    for _ in range(60):
        session.advance()
    network, replay, checked = session.learner.online, session.replay, 0
    for start in replay.sampleable().tolist():
        given = replay.read(np.array([start])).obs
        if start + 3 in replay.rings[0].memories and len(given.burn_in) == 5:  # (8 - 5) steps on a burn-in begins
            later = given._replace(
                burn_in=torch.cat((given.burn_in, given.obs[:3])), obs=given.obs[3:], burn_ins=((1, 8),),
            )  # fmt: skip
            found = network.core._after_burn_in(network.encoder, later, "target")[0]
            torch.testing.assert_close(found, torch.from_numpy(replay.rings[0].memories[start + 3]))
            checked += 1
    assert checked > 5


def test_every_episode_of_the_learner_begins_with_an_empty_memory():
    session = frozen(config_of(random_history=30, replay_capacity=2_000))
    session.fill_history()
    stream, ends = session.rollout.streams[0], 0
    assert stream.memory.any() is np.False_  # a new game began
    for _ in range(120):
        before = stream.memory.copy()
        games = session.advance()
        ends += bool(games)
        assert (not stream.memory.any()) == bool(games) and (stream.before == -1) == bool(games)
        assert not np.array_equal(before, stream.memory)
    assert ends >= 2


def test_a_run_killed_and_resumed_is_the_run_that_never_stopped(tmp_path):
    changes = {"sampler": Prioritized(), "overlap": True, "n_step": 3, "clip_reward": 1.0}
    made = config_of(tmp_path / "straight", envs=3, changes=changes)
    straight = go(saving(made))
    config = saving(dataclasses.replace(made, run_dir=str(tmp_path / "crashed")), every_steps=40)
    go(config, crash=66)
    assert go(config, stop=129).result.state == "interrupted"
    resumed = go(config)
    assert any("resumed from the checkpoint at step" in text and ": exact" in text for text in resumed.notices)
    assert resumed.digests == straight.digests
    assert results(tmp_path / "crashed") == results(tmp_path / "straight")


def test_taking_a_checkpoint_apart_and_together_changes_nothing():
    core = Gru(hidden=7, sequence=6, burn_in=3, overlap=0)
    one, other = (Session(config_of(envs=2, core=core)) for _ in range(2))
    one.fill_history()
    for _ in range(10):
        one.advance()
    one.finish_iteration()  # with states to probe
    for ring, own in zip(one.rings, other.rings, strict=True):
        first = max(ring.head - ring.capacity, 0)
        own.unpack(first, ring.head - 1, ring.pack(first, ring.head - 1))
    other.load_state_dict(one.state_dict())
    for _ in range(10):
        one.advance()
        other.advance()
    assert one.finish_iteration().churn == other.finish_iteration().churn is not None
    assert digests(one) == digests(other)


def untrained():
    """An agent as it is loaded from a run, and games that it can play."""
    config = config_of()
    session = Session(config)
    agent = Agent.from_bytes(
        Agent(session.learner.online, config.recipe, session.env.spec).to_bytes(), config.recipe, session.env.spec
    )
    return agent, lambda seed: make(config.env, config.rules, seed)


def test_a_loaded_agent_plays_as_the_rollout_does():
    agent, make_env = untrained()
    with pytest.raises(
        UserError, match=r"remembers 2 games and got 3 observations; accepted: as many, or agent\.reset"
    ):
        agent.act(np.zeros((2, 4), np.float32))
        agent.act(np.zeros((3, 4), np.float32))
    game = make_env(4)
    actions: list[int] = []
    ends = evaluate(
        agent, lambda _: make_env(4), 1, 0.0, 1, follow=lambda _, transition: actions.append(transition.action)
    )
    agent.reset()
    obs, reward, played, means = game.reset().frame, 0.0, [], []
    for _ in range(ends[0].steps):
        means.append(agent.distribution(obs, reward).mean)
        assert (agent.distribution(obs, reward).mean == means[-1]).all()  # asking changes nothing
        played.append(agent.act(obs, reward=reward))
        assert played[-1] == means[-1].argmax()
        step = game.step(played[-1])
        obs, reward = step.frame, step.reward
    assert played == actions and len(played) > 5
    batch = np.stack([obs, obs])
    agent.reset()
    first = agent.distribution(batch).mean
    agent.act(batch)
    agent.reset([1])
    second = agent.distribution(batch, reward=1.0).mean
    np.testing.assert_allclose(second[1], first[1], rtol=1e-5)
    assert abs(second[0] - first[0]).max() > 1e-6


def test_games_played_in_parallel_do_not_share_memories():
    agent, make_env = untrained()

    def scores(parallel):
        ends = evaluate(agent, make_env, 6, 0.1, parallel, seed=3)
        return [end.score for end in ends]

    assert scores(1) == scores(4)


def recall(core, updates):
    """The score of 20 greedy games of `toy/recall` after updates from random play; 1 is perfect, chance is 0."""
    config = default_config("toy/recall", "r2d2-c2d")
    row = config.recipe
    schedule = dataclasses.replace(row.schedule, random_history=3_000, batch_size=16)
    head = dataclasses.replace(row.head, hidden=64, embedding=32, atoms=8)
    optim = Adam(1e-2, eps=1e-6, eps_form="torch", clip_norm=40.0)
    row = dataclasses.replace(row, core=core, encoder=Mlp((16,)), head=head, schedule=schedule, optim=optim)
    session = Session(dataclasses.replace(config, recipe=row))
    session.fill_history()
    agent = Agent(session.learner.acting, row, session.env.spec)
    for update in range(updates):
        if update % 25 == 0:
            session.learner.synchronize()
        session.learner.update(session.replay.sample(16, session.sampling))
        if update % 50 == 49:
            ends = evaluate(agent, lambda seed: make("toy/recall", config.rules, seed), 20, 0.0, 20)
            if (score := float(np.mean([end.score for end in ends]))) == 1.0:
                break
    session.close()
    return score


def test_who_remembers_a_bit_for_20_steps_solves_what_others_guess():
    assert recall(Gru(hidden=32, sequence=24, burn_in=0, overlap=0), 500) == 1.0
    assert abs(recall(NoCore(), 100)) < 0.7


def test_what_does_not_fit_memory_is_rejected():
    config = config_of()
    with pytest.raises(UserError, match="--compile is default; accepted: off with --core lstm"):
        validate(dataclasses.replace(config, compile="default"))
    with pytest.raises(UserError, match=r"--schedule.replay-capacity is 150; accepted: at least 300: each environment"):
        validate(config_of(envs=20, random_history=120))
