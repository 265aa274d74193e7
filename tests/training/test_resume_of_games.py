"""Resume where the game is the difficulty: Q*bert, damaged emulators, games known not to continue as saved."""

import shutil
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest

from c2d.envs.trial import NOT_EXACT
from c2d.runs.checkpoints import Checkpoints
from c2d.training import run as run_module
from c2d.training.progress import headline
from c2d.training.streams import make_stream
from tests.training import test_resume as resume
from tests.training.crashed_runs import rewrite
from tests.training.short_runs import short_config
from tests.training.test_resume import go, saving


def game(state):
    """The environment's part of a checkpoint."""
    return state["session"]["streams"][0]["environment"]


@pytest.mark.parametrize("env", resume.FAMILIES)
def test_a_game_says_how_it_stands_and_so_does_the_game_brought_back(env):
    config, score, steps, played = short_config(env, "unused"), 0.0, 0, 0
    stream, rng = make_stream(config, 1), np.random.default_rng(0)
    stream.reset()
    assert stream.env.so_far == (0.0, 0)
    while played < 40 or steps < 2:
        stream.action = int(rng.integers(stream.env.spec.actions))
        stream.carry_out()
        step = stream.result
        score, steps = (score + step.reward, steps + 1) if step.game is None else (0.0, 0)
        stream.stack.update(step)
        played += 1
        assert stream.env.so_far == (score, steps)
    stream.action = 1
    saved = deepcopy(stream.state_dict())
    again = make_stream(config, 1)
    again.load_state_dict(saved)
    assert again.env.so_far == (score, steps) == tuple(saved["so_far"]) and again.action == 1
    np.testing.assert_array_equal(again.stack.obs, stream.stack.obs)
    for one in (stream, again):
        one.carry_out()
    np.testing.assert_array_equal(again.result.frame, stream.result.frame)
    for one in (stream, again):
        one.env.close()


def test_qbert_stopped_and_resumed_ends_as_if_it_had_not_been(tmp_path):
    straight = go(saving(short_config("qbert", tmp_path / "straight", steps=60))).digests
    config = saving(short_config("qbert", tmp_path / "run", steps=60))
    go(config, stop=25)
    resumed = go(config)
    assert resumed.notices == ["resumed from the checkpoint at step 25: exact"]
    assert resumed.digests == straight


def test_a_damaged_game_is_met_with_the_checkpoint_before(tmp_path):
    config = saving(short_config("breakout", tmp_path / "run"), every_steps=50)
    go(config, stop=45)
    for part, value, message in (
        ("ale", {"base64": ""}, "the emulator's state has 0 bytes instead of"),
        ("ale", {"base64": "c29tZXRoaW5n"}, "the emulator's state has 9 bytes instead of"),
        ("ale", 5, "the emulator's state is int, not bytes"),
        ("rng", {"state": 1}, "does not fit the run"),
    ):
        copy = tmp_path / "copy"
        shutil.copytree(tmp_path / "run", copy)
        newest = next(Checkpoints(copy).newest_first())
        rewrite(
            newest,
            lambda state, part=part, value=value: state["session"]["streams"][0]["environment"]["start"].update(
                {part: value}
            ),
        )
        resumed = go(replace(config, run_dir=str(copy)), stop=41)
        assert f"checkpoint {newest.name} cannot be used" in resumed.notices[0] and message in resumed.notices[0]
        assert resumed.notices[1].startswith("resumed from the checkpoint at step 40: exact")
        shutil.rmtree(copy)


def test_actions_out_of_range_are_met_with_the_checkpoint_before(tmp_path):
    for env, actions in (("minatar/breakout", [0, 77]), ("gym/CartPole-v1", [-1]), ("gym/CartPole-v1", ["a"])):
        path = tmp_path / f"{len(actions)}{actions[0]}"
        config = saving(short_config(env, path), every_steps=50)
        go(config, stop=45)
        newest = next(Checkpoints(path).newest_first())
        rewrite(
            newest, lambda state, actions=actions: state["session"]["streams"][0]["environment"].update(actions=actions)
        )
        resumed = go(config, stop=60)
        assert f"of the game is {actions[-1]!r}; accepted: 0 to" in resumed.notices[0]
        assert resumed.notices[1].startswith("resumed from the checkpoint at step 40: exact")


def test_a_game_that_does_not_continue_as_saved_is_told_on_the_first_line(tmp_path, monkeypatch):
    config = saving(short_config("toy/sure", tmp_path / "run"))
    first = go(config, stop=50)
    assert first.header["resume"] is None and NOT_EXACT not in headline(first.header)
    doubt = f"{NOT_EXACT}: for a reason"
    monkeypatch.setattr(run_module, "why_not_exact", lambda name, rules: doubt)
    resumed = go(config, stop=90)
    assert headline(resumed.header).endswith(doubt)
    assert resumed.notices == [f"resumed from the checkpoint at step 50: {doubt}"]
    monkeypatch.undo()
    again = go(config)
    assert again.header["resume"] is None and again.notices == ["resumed from the checkpoint at step 90: exact"]


def test_exactness_is_not_claimed_where_a_new_game_begins(tmp_path):
    config = saving(short_config(f"{resume.__name__}:Forgetful", tmp_path / "run"))
    go(config, stop=100)
    resumed = go(config)
    assert resumed.notices[1] == "resumed from the checkpoint at step 100: not exact, a new game begins"
