import sys
from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces

from c2d.envs.gymnasium import BadEnvironment, GymnasiumEnv
from c2d.envs.make import make
from c2d.envs.protocols import GymRules
from c2d.envs.spaces import declared_limits
from c2d.errors import UserError

HERE = "tests.envs.user_envs"


def own(name: str, rules: GymRules | None = None, seed: int = 0) -> GymnasiumEnv:
    game = make(f"{HERE}:{name}", rules, seed)
    assert isinstance(game, GymnasiumEnv)
    return game


def test_a_registered_environment_plays_whole_episodes() -> None:
    game = make("CartPole-v1", None, 0)
    assert (game.spec.frame_shape, game.spec.frame_dtype, game.spec.actions) == ((4,), "float32", 2)
    game.reset()
    steps = 0
    while (step := game.step(0)).game is None:
        steps += 1
    assert step.terminal and not step.truncated and step.reset is not None
    assert step.game == (steps + 1, steps + 1)
    assert abs(step.frame[2]) > 0.2  # the fallen pole, not the next episode's upright one
    assert abs(step.reset.frame[2]) < 0.06


def test_the_time_limit_is_a_truncation() -> None:
    game = make("gym/MountainCar-v0", None, 0)
    game.reset()
    steps = [game.step(1) for _ in range(200)]
    assert steps[-1].truncated and not steps[-1].terminal and steps[-1].game == (-200.0, 200)
    assert not any(step.truncated or step.terminal for step in steps[:-1])


def test_terminated_and_truncated_are_kept_apart_and_terminal_outweighs() -> None:
    for name, ends in [
        ("Scripted", (4, True, False)),
        ("Truncating", (3, False, True)),
        ("BothEnds", (2, True, False)),
    ]:
        game = own(name)
        game.reset()
        steps = [game.step(0) for _ in range(ends[0])]
        assert (steps[-1].terminal, steps[-1].truncated) == ends[1:]
        assert steps[-1].game == (sum((1.0, 2.0, 3.0, 4.0)[: ends[0]]), ends[0])
        assert steps[-1].frame[0] == ends[0]  # the true last observation
        assert steps[-1].reset is not None and steps[-1].reset.frame[0] == 0


def test_a_cap_of_our_own_truncates() -> None:
    game = own("Scripted", GymRules(cap_steps=2))
    game.reset()
    steps = [game.step(0) for _ in range(4)]
    assert [step.truncated for step in steps] == [False, True, False, True]
    assert not any(step.terminal for step in steps)


def test_observations_are_copied() -> None:
    game = own("Scripted")
    frames = [game.reset().frame] + [game.step(0).frame for _ in range(3)]
    assert [frame[0] for frame in frames] == [0, 1, 2, 3]


def test_every_episode_is_seeded_by_run_and_number() -> None:
    seeds = []
    for seed in (1, 1, 2):
        game = own("Scripted", seed=seed)
        game.reset()
        for _ in range(8):
            game.step(0)
        seeds.append(game._env.seeds)
    assert seeds[0] == seeds[1]
    assert len(set(seeds[0] + seeds[2])) == 6


def test_actions_may_start_elsewhere() -> None:
    game = own("FromFive")
    game.reset()
    for action in range(3):
        game.step(action)
    assert game._env.actions == [5, 6, 7] and game.spec.action_names == ("5", "6", "7")


@pytest.mark.parametrize(
    ("name", "shape", "dtype"),
    [
        ("Gray", (1, 12, 10), "uint8"),
        ("ChannelsLast", (3, 12, 10), "uint8"),
        ("ChannelsFirst", (3, 12, 10), "uint8"),
        ("FloatPicture", (1, 12, 10), "float32"),
        ("Coded", (4,), "float32"),
        ("Multi", (5,), "float32"),
        ("Binary", (3,), "float32"),
    ],
)
def test_spaces_become_frames(name: str, shape: tuple[int, ...], dtype: str) -> None:
    game = own(name)
    frame = game.reset().frame
    assert game.spec.frame_shape == frame.shape == shape
    assert game.spec.frame_dtype == frame.dtype == dtype


def test_contents_survive_the_conversion() -> None:
    game = own("ChannelsLast")
    game.reset()
    frame = game.step(0).frame
    np.testing.assert_array_equal(frame[1], (np.arange(120) * 3 + 1).reshape(12, 10) % 256)
    assert frame.flags.c_contiguous
    assert own("Coded").reset().frame.tolist() == [0, 1, 0, 0]
    assert own("Multi").reset().frame.tolist() == [0, 1, 0, 0, 1]
    assert own("Binary").reset().frame.tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Continuous", ["Box(-1.0, 1.0, (2,)", "Discrete"]),
        ("FourDimensional", ["(2, 3, 4, 5)", "accepted", "FlattenObservation"]),
    ],
)
def test_spaces_that_cannot_be_learned_are_named(name: str, words: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        own(name)
    assert all(word in str(caught.value) for word in [*words, name])


@pytest.mark.parametrize(
    ("name", "steps", "words"),
    [
        ("Nan", 3, ["reward is nan", "step 3"]),
        ("Infinite", 1, ["reward is inf", "step 1"]),
        ("TooLarge", 1, ["reward is 1e+39", "finite float32"]),
        ("RewardInBrackets", 1, ["reward is array([2.5])", "accepted: a number"]),
        ("NoReward", 1, ["reward is None", "accepted: a number"]),
        ("NanObservation", 1, ["nan", "observation", "step 1"]),
        ("WrongShape", 1, ["(5,)", "(3,)"]),
        ("OldApi", 1, ["step returned a tuple of 4", "accepted: (observation, reward, terminated, truncated, info)"]),
        ("Coded", 1, ["9", "outside its space"]),
    ],
)
def test_values_that_cannot_be_learned_from_stop_with_a_clear_message(name: str, steps: int, words: list[str]) -> None:
    game = own(name)
    game.reset()
    for _ in range(steps - 1):
        game.step(0)
    with pytest.raises(BadEnvironment) as caught:
        game.step(1)
    assert all(word in str(caught.value) for word in [*words, f"gym/{HERE}:{name}"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no_such_module:MyEnv", 'cannot import "no_such_module"'),
        (f"{HERE}:Scriptd", "Did you mean 'Scripted'"),
        (f"{HERE}:OldReset", r"reset without `seed`"),
        (f"{HERE}:Unwilling", r"RuntimeError: no license for this machine \(.*user_envs.py, line \d+\)$"),
        (f"{HERE}:Demanding", "failed when called without arguments: TypeError.*level"),
        (f"{HERE}:not_an_environment", "not a class"),
        ("collections:OrderedDict", "lacks action_space"),
    ],
)
def test_names_that_lead_nowhere(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        make(text, None, 0)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("unfinished_env", "def f(:", r"SyntaxError: .*unfinished_env.py, line 1"),
        ("raising_env", "1 / 0", r"ZeroDivisionError.*raising_env.py, line 1\)$"),
    ],
)
def test_a_module_that_cannot_be_imported(
    name: str, text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match=f'importing "{name}" failed: {message}'):
        make(f"{name}:Env", None, 0)


def test_images_with_large_values_are_scaled() -> None:
    game = own("Bright")  # Box(0, 255), float32
    np.testing.assert_allclose(game.reset().frame, np.full((1, 12, 10), 0.2), rtol=1e-6)
    assert own("Gray").spec.frame_dtype == "uint8"  # bytes stay bytes: the network scales them
    assert own("FloatPicture").reset().frame.max() <= 1.0


def test_passport_and_render() -> None:
    game = make("CartPole-v1", None, 0)
    passport = game.passport()
    assert passport["own_limit_steps"] == 500 and passport["truncation"] == "bootstrap"
    with pytest.raises(UserError, match="rgb_array"):
        own("Scripted").render()


def test_a_package_that_render_needs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    game = make("gym/CartPole-v1", None, 0)
    game.reset()
    monkeypatch.setitem(sys.modules, "pygame", None)
    with pytest.raises(
        UserError, match=r"CartPole-v1 cannot be shown without another package: pygame .*classic-control"
    ):
        game.render()


def test_the_first_observation_outside_its_box_is_noted() -> None:
    game = own("Stray")
    game.reset()
    for _ in range(3):
        game.step(0)
    assert game.outside is None  # up to the bound, and a little of rounding
    game.step(0)
    assert game.outside is not None and game.outside.startswith(
        f"gym/{HERE}:Stray, episode 1, step 4: the observation leaves its declared Box: 4 at [0], where it is 0 to 3;"
    )
    first = game.outside
    game.step(0)
    assert game.outside == first


@pytest.mark.parametrize(("space", "limited"), [
    (spaces.Box(-np.inf, np.inf, (3,)), False), (spaces.Box(0, np.inf, (3,)), True), (spaces.Discrete(3), False),
    (spaces.Box(0, 255, (8, 8), np.uint8), False), (spaces.Box(0, 7, (8, 8), np.uint8), True),
])  # fmt: skip
def test_which_spaces_have_a_range_to_leave(space: spaces.Space, limited: bool) -> None:
    assert (declared_limits(space) is not None) == limited
