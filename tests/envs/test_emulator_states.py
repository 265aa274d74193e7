"""Saved Atari games: restart points, damage, states of older versions, and what is known of the emulator."""

import copy
import itertools
import json
from dataclasses import replace

import numpy as np
import pytest

from c2d.envs import atari, trial
from c2d.envs.atari import AtariEnv
from c2d.envs.games import BENCHMARK, GAMES
from c2d.envs.minatar import MinAtarEnv
from c2d.envs.protocols import PROTOCOLS, GymRules, MinAtarRules
from c2d.envs.spec import ReplayMismatch
from c2d.envs.toy import ToyEnv
from c2d.envs.trial import first_difference, play, unequal, why_not_exact

PAPER = PROTOCOLS["c2d-paper"]


def game(key: str = "breakout", seed: int = 9) -> AtariEnv:
    return AtariEnv(key, PAPER, seed)


def older(env: AtariEnv) -> dict:
    """A state as version 0.1.0 first wrote it: the emulator's own, without length and hash."""
    point = env._point()
    return {name: value for name, value in point.items() if name not in ("bytes", "sha256")}


@pytest.fixture(scope="module")
def saved() -> trial.Trial:
    env = game(seed=3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(atari, "RESTART_EVERY", 20)
        return play(env, 130, [90])


# ------------------------------------------------------------------------------------------- restart points


def test_a_state_holds_the_start_and_a_restart_point_some_way_back(saved: trial.Trial) -> None:
    state = saved.states[90]
    assert state["restart"]["steps"] == 60  # not that of step 80, which may be too near
    assert len(state["actions"]) == 90 and "steps" not in state["start"]


def count_steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    taken: list[int] = []
    step = AtariEnv.step
    monkeypatch.setattr(AtariEnv, "step", lambda self, action: (taken.append(action), step(self, action))[1])
    return taken


def test_only_the_steps_since_the_restart_point_are_made_again(
    saved: trial.Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, env = count_steps(monkeypatch), game()
    env.load_state_dict(saved.states[90])
    assert taken == saved.actions[60:90]


def test_where_the_restart_point_does_not_lead_back_the_start_does(
    saved: trial.Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An emulator whose state in the middle of a game does not continue as saved, here one of another moment."""
    state = copy.deepcopy(saved.states[90])
    other = game(seed=4)
    play(other, 60, [])
    state["restart"] |= atari.seal(atari.state_of(other._ale))
    taken = count_steps(monkeypatch)
    assert first_difference(game(), state, saved.actions[90:], saved.trace[90:]) is None
    assert taken[30:120] == saved.actions[:90]


def test_a_restored_game_is_saved_as_the_one_that_was_never_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atari, "RESTART_EVERY", 20)
    straight = play(game(seed=3), 130, [50, 90, 120])
    for moment in (50, 90):
        env = game()
        env.load_state_dict(straight.states[moment])
        for action in straight.actions[moment:120]:
            env.step(action)
        assert env.state_dict() == straight.states[120]


def test_a_game_that_turns_out_another_is_astray(saved: trial.Trial) -> None:
    state = {**saved.states[90], "restart": None, "actions": bytes(90)}
    with pytest.raises(ReplayMismatch, match="breakout: the game, played again with its 90 actions, is not"):
        game().load_state_dict(state)


def test_the_emulator_forgets_a_cut_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    """Why Q*bert is in the table: its state in the middle of a game does not continue as saved."""
    assert unequal(lambda: game("qbert"), points=3, steps=40, after=10) == []
    monkeypatch.setattr(AtariEnv, "state_dict", older)
    monkeypatch.setattr(
        AtariEnv, "load_state_dict", lambda self, state: self._put_back({**state, **atari.seal(state["ale"])})
    )
    assert unequal(lambda: game("qbert"), points=3, steps=40, after=10) != []


# ----------------------------------------------------------------------------------------------------- damage


@pytest.mark.parametrize("where", ["start", "restart"])
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: b"", "has 0 bytes instead of"),
        (lambda data: data[: len(data) // 2], "bytes instead of"),
        (lambda data: data[:-1], "bytes instead of"),
        (lambda data: np.random.default_rng(0).bytes(len(data)), "SHA-256 differs"),
        (lambda data: data[:5_000] + bytes([data[5_000] ^ 255]) + data[5_001:], "SHA-256 differs"),
        (lambda data: data.hex(), "is str, not bytes"),
    ],
)
def test_damaged_emulator_states_never_reach_the_emulator(
    saved: trial.Trial, where: str, damage, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = copy.deepcopy(saved.states[90])
    state[where]["ale"] = damage(state[where]["ale"])
    if where == "start":
        state["restart"] = None
    monkeypatch.setattr(atari, "put_into", lambda *_: pytest.fail("the emulator was given the state"))
    with pytest.raises(ValueError, match=message):
        game().load_state_dict(state)


@pytest.mark.parametrize("size", [0, 10, 14_000])
def test_bytes_with_a_right_hash_that_are_no_state(saved: trial.Trial, size: int) -> None:
    state = copy.deepcopy(saved.states[90])
    state["restart"] |= atari.seal(np.random.default_rng(1).bytes(size))
    with pytest.raises(ValueError, match="not one of this game and this version of ale-py"):
        game().load_state_dict(state)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"actions": bytes([0, 1, 4])}, "action 2 of the game is 4; accepted: 0 to 3"),
        ({"actions": [0, 1]}, "the actions are list, not bytes"),
        ({"actions": bytes(30)}, "a restart point is of step 60 of a game of 30 steps"),
    ],
)
def test_damaged_actions(saved: trial.Trial, changes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        game().load_state_dict({**saved.states[90], **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"last": 99}, "executed last is 99"), ({"steps": -1}, "counters are"), ({"lives": "5"}, "counters are")],
)
def test_damaged_counters(saved: trial.Trial, changes: dict, message: str) -> None:
    state = copy.deepcopy(saved.states[90])
    state["restart"] |= changes
    with pytest.raises(ValueError, match=message):
        game().load_state_dict(state)


@pytest.mark.parametrize("value", [7, -1, "1", True, None, 2**70])
def test_actions_of_other_families_are_checked(value: object) -> None:
    env = MinAtarEnv("breakout", MinAtarRules(), 0)
    env.reset()
    with pytest.raises(ValueError, match=r"action 1 of the game is .*; accepted: 0 to 2"):
        env.load_state_dict({**env.state_dict(), "actions": [0, value]})
    with pytest.raises(ValueError, match="the actions of the game are str, not a list"):
        env.load_state_dict({**env.state_dict(), "actions": "01"})
    if value != 7:
        with pytest.raises(ValueError, match=r"the number of the game is .*; accepted: 0 or more"):
            env.load_state_dict({**env.state_dict(), "game": value if value != 2**70 else 1.5})
    toy = ToyEnv("sure", GymRules(), 0)
    with pytest.raises(ValueError, match=r"the state is .*; accepted: 0 to 3"):
        toy.load_state_dict({**toy.state_dict(), "state": value if value is not True else 4})


# ------------------------------------------------------------------------------------- states of older versions


def test_older_states_still_load_and_can_be_saved_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atari, "RESTART_EVERY", 20)
    env = game(seed=3)
    play(env, 33, [])
    state = json.loads(json.dumps(older(env), default=bytes.hex))
    state["ale"] = bytes.fromhex(state["ale"])
    straight = play_on(env, 70)
    again = game()
    again.load_state_dict(state)
    assert play_on(again, 70) == straight
    assert again.state_dict()["restart"]["steps"] == 80
    third = game()
    third.load_state_dict(again.state_dict())
    assert play_on(third, 20) == play_on(again, 20) == play_on(env, 20)


def play_on(env: AtariEnv, steps: int) -> list:
    return [trial.digest(env.step(number % 3)) for number in range(steps)]


@pytest.mark.parametrize("damage", [lambda data: b"", lambda data: data[:-1], lambda data: data[:99], lambda data: 3])
def test_damaged_older_states(damage) -> None:
    env = game()
    state = older(env)
    state["ale"] = damage(state["ale"])
    with pytest.raises(ValueError, match="the emulator's state is "):
        game().load_state_dict(state)


def test_an_older_state_of_qbert_begins_a_new_game() -> None:
    env = game("qbert")
    play(env, 30, [])
    with pytest.raises(ReplayMismatch, match="atari/qbert: the game was saved in a way that does not bring it back"):
        game("qbert").load_state_dict(older(env))


# --------------------------------------------------------------------------------------------- what is known


def test_the_table_names_games_and_the_pinned_version() -> None:
    for known in atari.studied().values():
        assert known.from_start | known.inexact <= set(GAMES)
    assert "qbert" in atari.studied()["0.12.1"].from_start
    assert len(BENCHMARK) == 55 and why_not_exact("atari/qbert", PAPER) is None


def test_an_emulator_that_was_not_studied_is_tried_out(monkeypatch: pytest.MonkeyPatch) -> None:
    why_not_exact.cache_clear()
    monkeypatch.setattr("ale_py.__version__", "9.9.9")
    assert why_not_exact("atari/qbert", PAPER) is None
    why_not_exact.cache_clear()
    reset, resets = AtariEnv._reset_game, itertools.count()

    def forgetful(self: AtariEnv) -> None:
        """As if `reset_game` did not clear what the state omits."""
        reset(self)
        for _ in range(next(resets)):
            self._act(0)

    monkeypatch.setattr(AtariEnv, "_reset_game", forgetful)
    told = why_not_exact("atari/breakout", replace(PAPER, sticky=0.0))
    assert told == f"{trial.NOT_EXACT}: ale-py 9.9.9 does not continue atari/breakout as it was saved"
    why_not_exact.cache_clear()


def test_a_game_that_is_known_to_fail_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    why_not_exact.cache_clear()
    known = {"0.12.1": atari.Known(frozenset(), frozenset({"pong"}))}
    monkeypatch.setattr(trial, "studied", lambda: known)
    monkeypatch.setattr("ale_py.__version__", "0.12.1")
    assert "does not continue atari/pong" in why_not_exact("atari/pong", PAPER)
    assert why_not_exact("atari/breakout", PAPER) is None
    assert why_not_exact("minatar/breakout", MinAtarRules()) is None
    why_not_exact.cache_clear()


def test_an_emulator_that_is_too_old_is_named() -> None:
    class Old:
        def cloneState(self, include_rng: bool) -> "Old":
            return self

        def serialize(self) -> str:
            return b"\xf7<".decode()

    with pytest.raises(atari.UserError, match=r"need ale-py 0.12 or newer: pip install --upgrade 'c2d\[atari\]'"):
        atari.state_of(Old())
