"""Runs of several environments on the page: their games, and in the lens the games that a checkpoint holds."""

import asyncio
import copy
import json
import pickle
import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest

from c2d.agents.learner import epsilons
from c2d.config import from_json
from c2d.runs.confined import Root
from c2d.web.lens import load as load_module
from c2d.web.lens.connection import LensConnection
from c2d.web.lens.load import open_agent
from c2d.web.lens.player import Player
from c2d.web.run_index import RunIndex
from tests.training.short_runs import short_config
from tests.training.test_many_environments import several
from tests.training.test_resume import go, saving
from tests.web.made_runs import config, make_run
from tests.web.test_lens_process import heard
from tests.web.test_player import moments

FORMAT_1 = Path(__file__).parents[1] / "fixtures" / "run-format-1-minatar"


def newest(run):
    return max((run / "checkpoints").iterdir()).name


def opened(root, run="three"):
    return open_agent(Root(root), run, newest(root / run))


def begun(root, start, seed=5, epsilon=0.3):
    return Player([opened(root)], "first", seed, epsilon, (), start)


def image(parts):
    return cv2.imdecode(np.frombuffer(parts["0.picture"], np.uint8), cv2.IMREAD_COLOR)[..., ::-1]  # BGR


# ------------------------------------------------------------------------------ games of all environments


@pytest.fixture
def index(tmp_path):
    (tmp_path / "runs").mkdir()
    return RunIndex(Root(tmp_path / "runs"))


def made(index, envs, lines, **schedule):
    recipe = config()["recipe"]
    recipe = {**recipe, "envs": envs, "schedule": {**recipe["schedule"], **schedule}}
    run = make_run(index.root.path / "a", 2, recipe=recipe)
    (run / "episodes.csv").write_text("iteration,step,score,length,env\n" + "".join(f"{line}\n" for line in lines))
    index.refresh()
    return run


def test_games_of_all_environments(index):
    lines = [f"0,{3 * k},{k}.0,{k},{k % 2}" for k in range(1, 61)] + ["0,180,7.0,9,1", "0,183,nan,9,1"]
    run = made(index, 3, [*lines, "0,183,1.0,9,-1", "0,183,1.0,9,4096", "0,183,1.0,9,x", "0,183,1.0,9,"])
    games = index.episodes("a")
    assert games["count"] == 62 and games["env"] == [k % 2 for k in range(1, 61)] + [1, 1]
    assert games["step"][-3:] == [180, 180, 183]  # two end in one round
    even, odd = [float(k) for k in range(2, 61, 2)], [float(k) for k in range(1, 60, 2)] + [7.0]
    first, second, third = games["envs"]
    assert (first["games"], first["mean"], first["last"]) == (30, sum(even[-20:]) / 20, 60.0)
    assert (second["games"], second["mean"], second["last"]) == (32, sum(odd[-20:]) / 20, 7.0)  # without the NaN
    assert (third["games"], third["mean"], third["last"]) == (0, None, None)
    assert index.rows["a"]["envs"] == 3
    (run / "episodes.csv").write_text("iteration,step,score,length,env\n0,3,2.5,7,2\n")  # resumed from an earlier step
    assert [one["games"] for one in index.episodes("a")["envs"]] == [0, 0, 1]


@pytest.mark.parametrize(
    ("ladder", "decay", "how", "different"),
    [
        (0.0, 400, {}, 1),
        (7.0, 400, {}, 3),
        (7.0, 0, {}, 3),
        (7.0, 150, {}, 3),
        (7.0, 150, {"epsilon_decay": "geometric"}, 3),
        (7.0, 150, {"epsilon_off_steps": 201}, 3),
        (7.0, 150, {"epsilon_off_steps": 200}, 1),
    ],
)
def test_each_environment_has_the_epsilon_of_the_run(index, ladder, decay, how, different):
    made(index, 3, [], epsilon_ladder=ladder, epsilon_decay_steps=decay, epsilon_initial=0.9, epsilon_min=0.2, **how)
    schedule = from_json(index.runs["a"].config).recipe.schedule
    shown = [one["epsilon"] for one in index.episodes("a")["envs"]]
    assert shown == epsilons(schedule, 200, 3) and len(set(shown)) == different


def test_a_run_of_one_environment_lists_none(index):
    make_run(index.root.path / "a")
    index.refresh()
    games = index.episodes("a")
    assert games["envs"] == [] and games["env"] == [0] * 5 and index.rows["a"]["envs"] == 1


@pytest.mark.parametrize(
    ("envs", "schedule", "listed"),
    [(10**9, {}, 256), (-3, {}, 0), ("many", {}, 0), (2, {"epsilon_initial": -1.0}, 2), (2, {"epsilon_min": None}, 2)],
)
def test_settings_that_no_run_has(index, envs, schedule, listed):
    made(index, envs, [], epsilon_ladder=7.5, **schedule)
    answer = index.episodes("a")
    json.dumps([answer, index.rows["a"]], allow_nan=False)
    assert len(answer["envs"]) == listed and (not schedule or answer["envs"][1]["epsilon"] is None)


# ------------------------------------------------------------------------------ saved games in the lens


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_game_of_the_run_is_played_on_as_it_stood(crowd, number):
    """Next to the run's own environment: what it shows, and what becomes of it by the same actions."""
    root, session = crowd
    stream = session.rollout.streams[number]
    env, stack = copy.deepcopy((stream.env, stream.stack))
    assert env.so_far.steps > 1
    playing = begun(root, number)
    np.testing.assert_array_equal(playing.games[0].obs, stack.obs)
    agent, ended = playing.agents[0].agent, 0
    for header, parts in moments(playing, 60):
        (game,) = header["games"]
        assert (game["env"], game["score"], game["step"], game["game"]) == (number, *env.so_far, ended)
        np.testing.assert_array_equal(image(parts), env.render())
        assert parts["0.probs"].tobytes() == agent.distribution(stack.obs).probs.tobytes()
        step = env.step(game["action"])
        assert game["reward"] == step.reward
        assert game["ended"] == (None if step.game is None else step.game._asdict())
        ended += step.game is not None
        stack.update(step)
    assert ended and playing.notice is None


def test_environments_show_different_games(crowd):
    first, second, third = (begun(crowd[0], number).games[0].obs for number in range(3))
    assert not np.array_equal(first, second) and not np.array_equal(second, third)


def test_how_each_game_stood(crowd):
    root, session = crowd
    games = opened(root).saved.games
    assert [(game.score, game.steps) for game in games] == [stream.env.so_far for stream in session.rollout.streams]
    assert [game.epsilon for game in games] == session.epsilons and len(set(session.epsilons)) == 3


def test_a_start_can_be_chosen_again_and_left(crowd):
    playing = begun(crowd[0], 1)
    first = moments(playing, 20)
    playing.begin(5, 1)
    assert [header["games"] for header, _ in moments(playing, 20)] == [header["games"] for header, _ in first]
    playing.begin(5)
    fresh = moments(playing, 1)[0][0]["games"][0]
    assert (fresh["env"], fresh["step"], fresh["score"], playing.start) == (None, 0, 0.0, None)


def test_two_agents_begin_in_one_saved_game(crowd, trained):
    root, session = crowd
    obs = session.rollout.streams[2].stack.obs
    agents = [opened(root), *(open_agent(Root(trained), run, "weights") for run in ("breakout-c2d", "cartpole"))]
    both = Player(agents[:2], "each", 0, 0.0, (), 2)
    assert all(np.array_equal(game.obs, obs) for game in both.games) and len(both.games) == 2
    second = Player(agents[:2], "second", 0, 0.0, (), 2)
    assert np.array_equal(second.games[0].obs, obs) and moments(second, 1)[0][0]["games"][0]["driver"] == 1
    apart = Player([agents[0], agents[2]], "each", 0, 0.0, (), 2)  # another environment: a new game of its own
    assert [game.env for game in apart.games] == [2, None] and apart.notice is None
    weights = Player([agents[1], agents[0]], "each", 0, 0.0, (), 2)  # the first has no games
    assert weights.start is None and "only checkpoints hold games" in weights.notice


def test_an_emulated_game_is_played_on(tmp_path):
    session = go(saving(several(short_config("breakout", tmp_path / "three"), 2)), stop=60).session
    stream = session.rollout.streams[1]
    playing = begun(tmp_path, 1)
    np.testing.assert_array_equal(playing.games[0].obs, stream.stack.obs)
    ((header, parts),) = moments(playing, 1)
    np.testing.assert_array_equal(image(parts), stream.env.render())
    assert (header["games"][0]["score"], header["games"][0]["step"]) == stream.env.so_far and stream.env.so_far.steps


def test_a_checkpoint_of_the_first_version(tmp_path):
    """It does not say how its game stood; the game itself does."""
    shutil.copytree(FORMAT_1 / "run", tmp_path / "three")
    state = json.loads((tmp_path / "three" / "checkpoints" / newest(tmp_path / "three") / "state.json").read_text())
    (game,) = opened(tmp_path).saved.games
    assert game.score is None and game.steps is None and 0 < game.epsilon <= 1
    playing = begun(tmp_path, 0)
    assert playing.notice is None and playing.games[0].steps == len(state["environment"]["actions"]) > 0


def test_while_the_replay_fills_all_is_random(crowd, tmp_path):
    damage(crowd, tmp_path, lambda state: state["session"].update(history=20, step=0))
    assert [game.epsilon for game in opened(tmp_path).saved.games] == [1.0] * 3


# ------------------------------------------------------------------------------ damaged ones


def damage(crowd, tmp_path, change):
    """A copy of the run, with another state.json in its checkpoint. `change` edits it in place, or returns bytes."""
    shutil.copytree(crowd[0] / "three", tmp_path / "three")
    file = tmp_path / "three" / "checkpoints" / newest(tmp_path / "three") / "state.json"
    state = json.loads(file.read_text())
    data = change(state)
    file.write_bytes(data if isinstance(data, bytes) else json.dumps(state).encode())
    return file


def streams(state):
    return state["session"]["streams"]


DAMAGE = {
    "nothing": lambda state: b"",
    "pickle": lambda state: pickle.dumps(state),
    "a list": lambda state: b"[]",
    "deep": lambda state: b"[" * 100_000,
    "format": lambda state: state.update(format=3),
    "no streams": lambda state: state["session"].pop("streams"),
    "one of three": lambda state: streams(state).pop(),
    "many": lambda state: state["session"].update(streams=[{}] * 10_000),
    "steps": lambda state: state["session"].update(step=-1),
    "no array": lambda state: streams(state)[1].update(observation={"array": "no/such/array"}),
}
ONE = {
    "shape": lambda state: streams(state)[1].update(observation={"array": "replay/streams/0/newest/reward"}),
    "no observation": lambda state: streams(state)[1].pop("observation"),
    "text": lambda state: streams(state)[1].update(observation="text"),
    "action": lambda state: streams(state)[1].update(action=99),
    "actions": lambda state: streams(state)[1]["environment"].update(actions=[99]),
    "no actions": lambda state: streams(state)[1]["environment"].update(actions=None),
    "another game": lambda state: streams(state)[1]["environment"].update(game=7),
    "game": lambda state: streams(state)[1]["environment"].update(game="x"),
    "cut": lambda state: streams(state)[1]["environment"]["actions"].pop(),
    "environment": lambda state: streams(state)[1].update(environment=[]),
}


def began_anew(root, words):
    """If the chosen game is not there, a message says why, and a new game begins as if none had been chosen."""
    playing = begun(root, 1)
    assert playing.start is None and playing.notice.endswith("; a new game begins") and "\n" not in playing.notice
    assert words in playing.notice
    wanted = [header["games"] for header, _ in moments(begun(root, None), 10)]
    assert [header["games"] for header, _ in moments(playing, 10)] == wanted


@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_state_leaves_the_agent_playing(crowd, tmp_path, what):
    damage(crowd, tmp_path, DAMAGE[what])
    began_anew(tmp_path, "the games of checkpoint")
    assert opened(tmp_path).saved.games == []


@pytest.mark.parametrize("what", ONE)
def test_a_damaged_game_leaves_the_others(crowd, tmp_path, what):
    damage(crowd, tmp_path, ONE[what])
    began_anew(tmp_path, "the game of environment 1 cannot be brought back: ")
    assert begun(tmp_path, 0).start == 0 and begun(tmp_path, 2).start == 2


@pytest.mark.parametrize("so_far", [None, [1], ["x", "y"], [True, 1.5], [10**39, 10**39], {"a": 1}])
def test_damaged_facts_are_left_out(crowd, tmp_path, so_far):
    damage(crowd, tmp_path, lambda state: streams(state)[1].update(so_far=so_far))
    game = opened(tmp_path).saved.games[1]
    assert game.score is None and game.steps is None and begun(tmp_path, 1).start == 1


def test_files_that_are_missing_too_large_or_elsewhere(crowd, tmp_path, monkeypatch):
    file = damage(crowd, tmp_path, lambda state: None)
    assert begun(tmp_path, 1).start == 1
    with monkeypatch.context() as patch:
        patch.setattr(load_module, "LARGEST_STATE", 100)
        began_anew(tmp_path, "at most 100 are read")
    file.rename(tmp_path / "state.json")
    began_anew(tmp_path, "No such file")
    file.symlink_to(tmp_path / "state.json")
    began_anew(tmp_path, "the games of checkpoint")


def test_an_environment_that_is_not_there(crowd):
    playing = begun(crowd[0], 3)
    assert playing.notice == "the checkpoint has no environment 3; accepted: 0 to 2; a new game begins"


def test_messages_about_the_start(crowd):
    root, session = crowd
    opening = {"do": "open", "agents": [["three", newest(root / "three")]], "drive": "first", "seed": 4, "epsilon": 0.0}

    async def use():
        lens = LensConnection(Root(root))
        await lens.start()
        listening = asyncio.ensure_future(lens.listen())
        try:
            await lens.command(json.dumps({**opening, "start": 2}))
            (agent,) = (await heard(lens, "opened"))[0]["agents"]
            steps = [stream.env.so_far.steps for stream in session.rollout.streams]
            assert [one["steps"] for one in agent["environments"]] == steps and agent["trouble"] is None
            assert (await heard(lens, "begun"))[0] == {"kind": "begun", "start": 2, "notice": None}
            await lens.command('{"do": "step"}')
            assert (await heard(lens, "moment"))[0]["games"][0]["step"] == steps[2]
            await lens.command('{"do": "new", "seed": 4, "start": 0}')
            assert (await heard(lens, "begun"))[0]["start"] == 0
            assert (await heard(lens, "moment"))[0]["games"][0]["env"] == 0
            await lens.command('{"do": "new", "seed": 4, "start": 9}')
            answer = (await heard(lens, "begun"))[0]
            assert answer["start"] is None and "no environment 9" in answer["notice"]
            assert (await heard(lens, "moment"))[0]["games"][0]["env"] is None
        finally:
            await lens.close()
            await listening

    asyncio.run(use())
