"""Agents at play: what is shown is what the agent computes, and what it computes is right."""

import dataclasses
import json
import math
import pickle
import shutil
from itertools import pairwise

import cv2
import numpy as np
import pytest
import torch

from c2d.agents.agent import Agent
from c2d.agents.build import assemble_learner, build_network
from c2d.agents.rollout import FrameStack
from c2d.api import load, train
from c2d.envs.make import make
from c2d.errors import UserError
from c2d.evaluation.risk import criterion
from c2d.recipes.rows import RECIPES, adapt
from c2d.replay.buffer import Seen
from c2d.runs.confined import Root
from c2d.web.lens.load import open_agent
from c2d.web.lens.messages import unpack
from c2d.web.lens.player import Player, bellman_target
from tests.cli.tiny_runs import tiny_run
from tests.training.short_runs import short_config


def player(trained, *runs, drive="first", seed=5, epsilon=0.0):
    loaded = [open_agent(Root(trained), run, "weights") for run in runs]
    return Player(loaded, drive, seed, epsilon, ())


def moments(playing, count):
    return [unpack(playing.advance()) for _ in range(count)]


@pytest.mark.parametrize("run", ["breakout-c2d", "breakout-c51", "cartpole"])
def test_what_is_shown_is_agent_distribution_of_the_same_game(trained, run):
    """The game is played again by other means: the actions shown, a fresh environment, the agent as users load it."""
    agent = load(trained / run)
    config = open_agent(Root(trained), run, "weights").config
    env = make(config.env, config.rules, 5)
    stack = FrameStack(env.spec)
    stack.reset(env.reset())
    score = 0.0
    for header, parts in moments(player(trained, run, epsilon=0.3), 30):
        law = agent.distribution(stack.obs)
        for name in ("returns", "atoms", "probs"):
            assert parts[f"0.{name}"].tobytes() == getattr(law, name).tobytes()
        (game,), (seat,) = header["games"], header["seats"]
        assert seat["mean"] == law.mean.tolist() and game["score"] == score
        picture = cv2.imdecode(np.frombuffer(parts["0.picture"], np.uint8), cv2.IMREAD_COLOR)[..., ::-1]  # BGR
        np.testing.assert_array_equal(picture, env.render())
        assert game["random"] or game["action"] == int(law.mean.argmax())
        step = env.step(game["action"])
        assert (game["reward"], game["terminal"], game["truncated"]) == (step.reward, step.terminal, step.truncated)
        assert game["ended"] == (None if step.game is None else step.game._asdict())
        score = 0.0 if step.game else score + step.reward
        stack.update(step)
    env.close()


def test_the_same_seed_gives_the_same_game(trained):
    first, again = (moments(player(trained, "breakout-c2d", epsilon=0.5), 30) for _ in range(2))
    assert [header for header, _ in first] == [header for header, _ in again]
    playing = player(trained, "breakout-c2d", epsilon=0.5)
    moments(playing, 7)
    playing.begin(5)
    assert [header["games"] for header, _ in moments(playing, 30)] == [header["games"] for header, _ in first]
    assert any(header["games"][0]["random"] for header, _ in first)


def test_criteria_say_what_they_would_take_and_one_of_them_acts(trained):
    playing = player(trained, "breakout-c2d")
    playing.criteria, playing.chosen = [criterion("mean"), criterion("cvar:0.25"), criterion("above:0.1")], 1
    for header, parts in moments(playing, 20):
        seat = header["seats"][0]
        returns, probs = parts["0.returns"].tolist(), parts["0.probs"].tolist()
        assert header["criteria"] == ["mean", "cvar:0.25", "above:0.1"] and header["by"] == 1
        for action, law in enumerate(zip(returns, probs, strict=True)):
            pairs = sorted(zip(*law, strict=True))
            assert seat["values"][0][action] == pytest.approx(sum(z * p for z, p in pairs), abs=1e-5)
            left, worst = 0.25, 0.0
            for z, p in pairs:
                worst, left = worst + z * min(p, left), left - min(p, left)
            assert seat["values"][1][action] == pytest.approx(worst / 0.25, abs=1e-4)
            assert seat["values"][2][action] == pytest.approx(sum(p for z, p in pairs if z > 0.1), abs=1e-5)
        assert header["games"][0]["action"] == seat["would"][1] == int(np.argmax(seat["values"][1]))


def test_two_agents_on_one_game(trained):
    playing = player(trained, "breakout-c51", "breakout-c2d", drive="second")
    alone = moments(player(trained, "breakout-c2d"), 25)
    agents = [load(trained / name) for name in ("breakout-c51", "breakout-c2d")]
    for (header, parts), (lonely, theirs) in zip(moments(playing, 25), alone, strict=True):
        assert len(header["games"]) == 1 and header["games"][0]["driver"] == 1
        assert header["games"][0]["action"] == lonely["games"][0]["action"]  # the second plays as if alone
        assert parts["1.probs"].tobytes() == theirs["0.probs"].tobytes() and parts["0.picture"] == theirs["0.picture"]
        assert parts["0.probs"].shape == (3, agents[0].recipe.head.atoms)


def test_two_agents_each_in_its_own_game_from_one_seed(trained):
    both = moments(player(trained, "breakout-c51", "breakout-c2d", drive="each"), 25)
    for seat, run in enumerate(("breakout-c51", "breakout-c2d")):
        alone = moments(player(trained, run), 25)
        for (header, parts), (lonely, theirs) in zip(both, alone, strict=True):
            assert {**header["games"][seat], "driver": 0} == lonely["games"][0]
            assert parts[f"{seat}.atoms"].tobytes() == theirs["0.atoms"].tobytes()


def test_agents_of_different_games_cannot_look_at_one(trained):
    with pytest.raises(UserError, match="let each play its own"):
        player(trained, "breakout-c2d", "cartpole")
    assert len(moments(player(trained, "breakout-c2d", "cartpole", drive="each"), 2)[0][0]["games"]) == 2


def test_newer_weights_are_taken_up_with_a_new_game(trained, tmp_path):
    shutil.copytree(trained / "breakout-c2d", tmp_path / "run")
    playing = player(tmp_path, "run")
    before = moments(playing, 1)[0][1]["0.probs"]
    agent = load(tmp_path / "run")
    for parameter in agent.network.parameters():
        torch.nn.init.normal_(parameter, generator=torch.Generator().manual_seed(1))
    (tmp_path / "run" / "weights.safetensors").write_bytes(agent.to_bytes())
    playing.begin(5)
    after = moments(playing, 1)[0][1]["0.probs"]
    assert not np.array_equal(before, after)


# ------------------------------------------------------------------------------ targets


def fresh_agent(name, seed):
    spec = make("gym/CartPole-v1", None, 0).spec
    recipe = adapt(RECIPES[name], spec)
    network = build_network(recipe, spec, torch.Generator().manual_seed(seed))
    return Agent(network, recipe, spec)


def target_of(agent, network, obs, action, reward, discount, after):
    """The lens' target of one step, with `network` as the target network."""
    learner = assemble_learner(agent.recipe, agent.network, network, torch.Generator())
    return bellman_target(learner, obs, action, Seen(reward, terminal=not discount, kept=True), discount, after)


def slow_cramer(a, b):
    """∫ (F − G)² by the areas between all jumps."""
    jumps = sorted({z for z, _ in a} | {z for z, _ in b})
    area = 0.0
    for low, high in pairwise(jumps):
        gap = sum(p for z, p in a if z <= low) - sum(p for z, p in b if z <= low)
        area += gap * gap * (high - low)
    return area


def pairs(atoms, probs):
    return list(zip(np.asarray(atoms, dtype=float).tolist(), np.asarray(probs, dtype=float).tolist(), strict=True))


@pytest.mark.parametrize("name", ["c2d", "c51", "qr-dqn", "dqn-adam"])
@pytest.mark.parametrize("discount", [0.99, 0.0])
def test_the_target_is_the_conjugated_backup_of_the_greedy_law(name, discount):
    agent, other = fresh_agent(name, 1), fresh_agent(name, 2)
    rng = np.random.default_rng(3)
    obs, after = rng.normal(size=(2, 4)).astype(np.float32)
    target = target_of(agent, other.network, obs, 1, 0.7, discount, after)
    law = other.distribution(after)
    best = int(law.mean.argmax())
    returns = sorted((0.7 + discount * z, p) for z, p in pairs(law.returns[best], law.probs[best]))
    np.testing.assert_allclose(target.returns, [z for z, _ in returns], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(target.probs.sum(), 1.0, atol=1e-5)
    if discount:
        np.testing.assert_allclose(target.probs, [p for _, p in returns], rtol=1e-4)
    now = agent.distribution(obs)
    slow = slow_cramer(pairs(now.atoms[1], now.probs[1]), pairs(target.atoms, target.probs))
    assert target.distance == pytest.approx(slow, rel=1e-3, abs=1e-6) and math.isfinite(target.distance)


def test_a_double_recipe_lets_its_own_network_choose():
    agent, other = fresh_agent("rainbow-full", 1), fresh_agent("rainbow-full", 2)
    rng = np.random.default_rng(0)
    differing = 0
    for _ in range(20):
        obs, after = rng.normal(size=(2, 4)).astype(np.float32)
        target = target_of(agent, other.network, obs, 0, 0.0, 1.0, after)
        chosen = int(agent.distribution(after).mean.argmax())
        law = other.distribution(after)
        np.testing.assert_allclose(target.probs, law.probs[chosen], rtol=1e-4, atol=1e-6)
        differing += chosen != int(law.mean.argmax())
    assert differing  # else the test would not tell the two apart


@pytest.mark.parametrize("name", ["fqf", "iqn", "munchausen-iqn", "rainbow"])
def test_every_kind_of_recipe_has_a_target(name):
    agent = fresh_agent(name, 1)
    obs, after = np.random.default_rng(3).normal(size=(2, 4)).astype(np.float32)
    target = target_of(agent, agent.network, obs, 0, 1.0, 0.99, after)
    assert np.isfinite(target.returns).all() and target.probs.sum() == pytest.approx(1.0, abs=1e-5)
    assert (np.diff(target.atoms) >= 0).all()


def test_rewards_in_targets_are_clipped_where_the_recipe_clips(trained):
    playing = player(trained, "cartpole", epsilon=1.0)
    loaded = playing.agents[0]
    clipped = dataclasses.replace(loaded.config.recipe, clip_reward=0.25)
    loaded.config = dataclasses.replace(loaded.config, recipe=clipped)
    for header, parts in moments(playing, 60):
        if header["games"][0]["terminal"]:
            np.testing.assert_allclose(parts["0.target_returns"], 0.25, atol=1e-5)  # a point mass at the reward
            return
    raise AssertionError("no game ended")


# ------------------------------------------------------------------------------ opening


def test_a_checkpoint_brings_its_own_target_network(trained):
    run = next((trained / "breakout-c2d" / "checkpoints").iterdir()).name
    loaded = open_agent(Root(trained), "breakout-c2d", run)
    assert loaded.own_target and not open_agent(Root(trained), "breakout-c2d", "weights").own_target
    ours, final = loaded.agent.network.state_dict(), load(trained / "breakout-c2d").network.state_dict()
    assert all(torch.equal(ours[name], final[name]) for name in final)  # the last checkpoint is the end of the run


@pytest.mark.parametrize("checkpoint", ["", "..", "../../weights", "000000000001", "weights.safetensors", "0" * 13])
def test_checkpoints_that_are_none(trained, checkpoint):
    with pytest.raises(UserError):
        open_agent(Root(trained), "breakout-c2d", checkpoint)


@pytest.mark.parametrize("run", ["..", "missing", "breakout-c2d/../..", ""])
def test_runs_that_are_none(trained, run):
    with pytest.raises(UserError):
        open_agent(Root(trained), run, "weights")


def test_code_that_a_file_names_is_not_imported(trained, tmp_path):
    shutil.copytree(trained / "cartpole", tmp_path / "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    config["env"] = "gym/tests.web.no_such_module:Env"
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match="imported only if you name it yourself"):
        open_agent(Root(tmp_path), "run", "weights")
    with pytest.raises(UserError, match="imported only if you name it yourself"):
        open_agent(Root(tmp_path), "run", "weights", ("another.module:Env",))


def test_weights_that_are_no_safetensors_are_refused(trained, tmp_path):
    shutil.copytree(trained / "cartpole", tmp_path / "run")
    (tmp_path / "run" / "weights.safetensors").write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(UserError, match="damaged"):
        open_agent(Root(tmp_path), "run", "weights")


def test_a_class_of_the_users_own_plays_when_the_user_names_it_even_without_a_picture(tmp_path):
    name = "tests.envs.user_envs:Scripted"
    tiny_run(name, tmp_path / "own")
    with pytest.raises(UserError, match="add --trust tests"):
        open_agent(Root(tmp_path), "own", "weights")
    playing = Player([open_agent(Root(tmp_path), "own", "weights", (name,))], "first", 0, 0.0, (name,))
    header, parts = moments(playing, 1)[0]
    assert parts["0.picture"] == b"" and "cannot be shown" in header["games"][0]["notice"]
    assert parts["0.probs"].sum(-1) == pytest.approx(1.0, abs=1e-5)


def test_an_agent_that_remembers_is_shown_as_it_remembers(tmp_path):
    """Its laws are those of the loaded agent that follows the game; its target takes both states in one memory."""
    config = short_config("gym/CartPole-v1", tmp_path / "run", recipe="r2d2-c2d", iterations=1)
    train(config, progress=False)
    agent, playing = load(tmp_path / "run"), player(tmp_path, "run")
    env = make(config.env, config.rules, 5)
    obs, reward, ended, seen = env.reset().frame, 0.0, 0, []
    for header, parts in moments(playing, 60):
        law = agent.distribution(obs, reward)
        np.testing.assert_allclose(parts["0.returns"], law.returns, rtol=1e-5)
        action = agent.act(obs, reward=reward)
        assert header["games"][0]["action"] == action
        step = env.step(action)
        obs, reward = (step.frame, step.reward) if step.reset is None else (step.reset.frame, 0.0)
        following = agent.distribution(obs, reward)
        seen.append(header["seats"][0]["distance"])
        if step.reset is None:  # the agent is its own target network here
            target = step.reward + config.recipe.schedule.gamma * following.returns[following.mean.argmax()]
            np.testing.assert_allclose(np.sort(parts["0.target_returns"]), np.sort(target), rtol=1e-3, atol=1e-3)
        else:
            agent.reset()
            ended += 1
    assert ended and all(distance is not None for distance in seen)
    env.close()
    playing.close()
