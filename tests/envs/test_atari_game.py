"""The real emulator: determinism, exact restoring, frames, and what a game says of itself."""

import builtins
import json
import subprocess
import sys
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path

import cv2
import numpy as np
import pytest

from c2d.envs import atari
from c2d.envs.atari import AtariEnv, _load, _rom_path
from c2d.envs.games import GAMES
from c2d.envs.make import make, spec_of
from c2d.envs.protocols import PROTOCOLS
from c2d.envs.trial import digest
from c2d.envs.trial import play as play_trial
from c2d.errors import UserError
from tests.envs.replay_worker import encode

PAPER = PROTOCOLS["c2d-paper"]
ROOT = Path(__file__).parents[2]


def play(game: AtariEnv, steps: int, seed: int) -> list:
    rng = np.random.default_rng(seed)
    return [digest(game.step(int(action))) for action in rng.integers(game.spec.actions, size=steps)]


def test_same_seed_same_game_and_another_seed_another() -> None:
    traces = []
    for seed in (5, 5, 6):
        game = AtariEnv("mspacman", PAPER, seed)
        game.reset()
        traces.append(play(game, 250, seed=1))
    assert traces[0] == traces[1] != traces[2]


@pytest.mark.parametrize("key", ["qbert", "yarsrevenge", "breakout", "assault"])
def test_restoring_in_a_fresh_process_is_exact(key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """20 random points, into new emulators and used ones; 30 further steps each, over lives, ends and caps of games."""
    monkeypatch.setattr(atari, "RESTART_EVERY", 40)  # so that games are restored from their start and from later on
    rules = replace(PAPER, cap_steps=310)
    rng = np.random.default_rng(17)
    game = AtariEnv(key, rules, seed=3)
    saves = np.cumsum(rng.integers(1, 48, size=20)).tolist()
    actions, trace, states = play_trial(game, saves[-1] + 30, saves)
    points = [{"state": state, "actions": actions[at : at + 30]} for at, state in states.items()]
    source, target = tmp_path / "points.json", tmp_path / "answers.json"
    source.write_text(encode({"game": key, "rules": asdict(rules), "points": points, "restart_every": 40}))
    command = [sys.executable, "-m", "tests.envs.replay_worker", str(source), str(target)]
    subprocess.run(command, cwd=ROOT, check=True)
    answers = json.loads(target.read_text())
    assert len(answers) == 20
    wrong = [at for at, answer in zip(states, answers, strict=True) if answer != trace[at : at + 30]]
    assert wrong == []
    assert any(step[5] for step in trace)  # whole games ended on the way
    assert any(state["restart"] for state in states.values()) == (key != "qbert")


@pytest.mark.parametrize("key", ["breakout", "qbert"])
def test_saving_and_restart_points_disturb_nothing(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, saved = (AtariEnv(key, PAPER, 2) for _ in range(2))
    plain.reset()
    saved.reset()
    for number in range(40):
        saved.state_dict()
        monkeypatch.setattr(atari, "RESTART_EVERY", 1_000)
        wanted = digest(plain.step(number % 4))
        monkeypatch.setattr(atari, "RESTART_EVERY", 1)
        assert digest(saved.step(number % 4)) == wanted


def test_a_returned_frame_is_never_overwritten() -> None:
    game = AtariEnv("breakout", PAPER, 0)
    frames = [game.reset().frame]
    for number in range(150):
        step = game.step(number % 4)
        frames.append(step.frame)
        if step.reset is not None:
            frames.append(step.reset.frame)
    kept = [frame.copy() for frame in frames[:75]]
    for number in range(50):
        game.step(number % 4)
    assert all((frame == copy).all() for frame, copy in zip(frames, kept, strict=False))
    assert all(frame.shape == (1, 84, 84) and frame.dtype == np.uint8 for frame in frames)
    assert not any(np.shares_memory(first, second) for first, second in pairwise(frames))


@pytest.mark.parametrize(
    ("key", "changes"),
    [
        ("mspacman", {}),
        ("enduro", {}),
        ("airraid", {}),  # 250 rows
        ("pong", {"resize": "linear"}),
        ("pong", {"resize": "nearest"}),
        ("pong", {"frame_size": 64}),
    ],
)
def test_frames_are_the_pooled_screens_resized_by_opencv(key: str, changes: dict) -> None:
    rules = replace(PROTOCOLS["dopamine"], **changes)
    game = AtariEnv(key, rules, 1)
    game.reset()
    kernel = {"area": cv2.INTER_AREA, "linear": cv2.INTER_LINEAR, "nearest": cv2.INTER_NEAREST}[rules.resize]
    screens: list[np.ndarray] = []
    act = game._act

    def watched(action: int) -> int:
        reward = act(action)
        screens.append(game._ale.getScreenGrayscale())
        return reward

    game._act = watched
    for number in range(60):
        screens.clear()
        step = game.step(number % game.spec.actions)
        assert step.reset is None
        size = (rules.frame_size, rules.frame_size)
        wanted = cv2.resize(np.maximum(screens[-2], screens[-1]), size, interpolation=kernel)
        np.testing.assert_array_equal(step.frame[0], wanted)


def test_the_passport_names_every_rule_and_is_json() -> None:
    game = AtariEnv("breakout", PAPER, 0)
    passport = json.loads(json.dumps(game.passport()))
    assert set(asdict(PAPER)) < set(passport)
    assert passport["protocol"] == "c2d-paper"
    assert passport["rom_md5"] == "f34f08e5eb96e500e851a80be3277a56"
    assert passport["actions"] == ["NOOP", "FIRE", "RIGHT", "LEFT"]
    assert passport["ale_py"] and "OpenCV" in passport["resize_kernel"]
    assert passport["score"] == "raw, whole games"
    assert AtariEnv("breakout", replace(PAPER, sticky=0.1), 0).passport()["protocol"] == "custom"


def test_shapes_action_sets_and_pictures() -> None:
    game = make("ALE/Breakout-v5", None, 0)
    assert game.spec.obs_shape == (4, 84, 84) and game.spec.actions == 4
    full = AtariEnv("breakout", replace(PAPER, full_action_set=True), 0)
    assert full.spec.actions == 18
    full.reset()
    assert full.render().shape == (210, 160, 3)


def test_the_table_has_the_actions_of_every_game_and_their_number_in_the_authors_runs() -> None:
    for key, row in GAMES.items():
        ale = _load(_rom_path(row.rom), seed=0)
        assert tuple(action.name for action in ale.getMinimalActionSet()) == row.minimal, key
        assert tuple(action.name for action in ale.getLegalActionSet()) == row.legal, key
        assert row.actions in (None, len(row.minimal)), key


@pytest.mark.parametrize("full", [False, True])
def test_the_spec_needs_no_emulator_and_is_that_of_the_game(full: bool) -> None:
    rules = replace(PAPER, full_action_set=full, frame_size=50, stack=3, action_repeat=2, opening_count=1)
    for key in ("freeway", "skiing"):
        game = AtariEnv(key, rules, 0)
        frame = game.reset().frame
        assert spec_of(f"atari/{key}", rules) == game.spec
        assert (frame.shape, frame.dtype.name) == (game.spec.frame_shape, game.spec.frame_dtype)
        for action in range(game.spec.actions):
            game.step(action)
        with pytest.raises(IndexError):
            game.step(game.spec.actions)


def test_an_emulator_that_offers_other_actions_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    row = replace(GAMES["freeway"], minimal=("NOOP", "UP"))
    monkeypatch.setitem(GAMES, "freeway", row)
    with pytest.raises(UserError, match=r"ale-py offers NOOP, UP, DOWN in atari/freeway, not NOOP, UP as"):
        AtariEnv("freeway", PAPER, 0)


def test_without_the_emulator_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *rest: object) -> object:
        if name == "ale_py":
            raise ImportError(name)
        return real(name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(UserError, match=r"c2d\[atari\]"):
        AtariEnv("breakout", PAPER, 0)


def test_the_emulator_prints_nothing() -> None:
    code = "from c2d.envs.make import make; make('pong', None, 0).reset()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == done.stderr == ""
