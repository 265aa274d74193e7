import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest

from c2d.envs.make import make, spec_of
from c2d.envs.minatar import MinAtarEnv
from c2d.envs.names import MINATAR_GAMES
from c2d.envs.protocols import MinAtarRules


def trace(game: MinAtarEnv, steps: int, seed: int) -> list[tuple]:
    actions = np.random.default_rng(seed).integers(game.spec.actions, size=steps)
    return [(s.frame.tobytes(), s.reward, s.terminal, s.game) for s in (game.step(int(a)) for a in actions)]


@pytest.mark.parametrize("key", MINATAR_GAMES)
def test_every_game_plays(key: str) -> None:
    game = make(f"minatar/{key}", None, 0)
    names = {"n": "NOOP", "l": "LEFT", "u": "UP", "r": "RIGHT", "d": "DOWN", "f": "FIRE"}
    package = game._game  # the package's own word on shapes and actions
    height, width, channels = package.state_shape()
    assert game.spec.frame_shape == (channels, height, width) == package.state().transpose(2, 0, 1).shape
    assert game._actions == package.minimal_action_set()
    assert game.spec.action_names == tuple(names[package.action_map[number]] for number in game._actions)
    assert spec_of(f"minatar/{key}") == game.spec and game.spec.actions == len(game._actions)
    full = make(f"minatar/{key}", MinAtarRules(minimal_actions=False), 0)
    assert full.spec.action_names == tuple(names[letter] for letter in package.action_map)
    frames = [game.reset().frame]
    rng = np.random.default_rng(0)
    frames += [game.step(int(rng.integers(game.spec.actions))).frame for _ in range(50)]
    assert all(f.dtype == np.uint8 and f.shape == game.spec.frame_shape and f.max() == 1 for f in frames)
    assert not any(np.shares_memory(a, b) for a, b in pairwise(frames))
    assert game.render().shape == (160, 160, 3)


def test_a_game_can_be_replayed_from_seed_number_and_actions() -> None:
    first = MinAtarEnv("asterix", MinAtarRules(), 4)
    first.reset()
    long = trace(first, 600, seed=0)
    again = MinAtarEnv("asterix", MinAtarRules(), 4)
    again.reset()
    assert trace(again, 600, seed=0) == long
    other = MinAtarEnv("asterix", MinAtarRules(), 5)
    other.reset()
    assert trace(other, 600, seed=0) != long
    ends = [number for number, step in enumerate(long) if step[3] is not None]
    actions = np.random.default_rng(0).integers(first.spec.actions, size=600)
    third = MinAtarEnv("asterix", MinAtarRules(), 4)
    third._next_game = 2
    third.reset()
    for number in range(ends[1] + 1, ends[2] + 1):  # the third game alone
        assert third.step(int(actions[number])).frame.tobytes() == long[number][0]


def test_no_two_games_draw_the_same() -> None:
    game = MinAtarEnv("asterix", MinAtarRules(), 4)
    games = []
    for _ in range(3):
        game.reset()
        games.append([step[0] for step in trace(game, 40, seed=0)])
    assert games[0] != games[1] != games[2] != games[0]


def test_stickiness_repeats_the_executed_action() -> None:
    executed: list[int] = []
    game = MinAtarEnv("breakout", MinAtarRules(sticky=0.1, cap_steps=None), 0)
    game.reset()
    game._game.act = lambda action: (executed.append(action), (0, False))[1]
    chosen = [[0, 1, 3][number % 3] for number in range(6000)]  # never the same twice
    for number in range(6000):
        game.step(number % 3)
    stuck = [done != want for done, want in zip(executed, chosen, strict=True)]
    before = [0, *executed[:-1]]
    assert all(done == last for done, last, stick in zip(executed, before, stuck, strict=True) if stick)
    assert abs(np.mean(stuck) - 0.1 * 2 / 3 / (1 - 0.1 / 3)) < 0.03


def test_the_cap_truncates_and_death_terminates() -> None:
    game = MinAtarEnv("freeway", MinAtarRules(cap_steps=50), 0)
    game.reset()
    steps = [game.step(0) for _ in range(100)]
    assert [n for n, s in enumerate(steps) if s.truncated] == [49, 99]
    assert steps[49].game is not None and steps[49].game.steps == 50 and steps[49].reset is not None
    game = MinAtarEnv("breakout", MinAtarRules(), 0)
    game.reset()
    end = next(step for step in (game.step(0) for _ in range(200)) if step.game is not None)
    assert end.terminal and not end.truncated and isinstance(end.game.score, float)


def test_all_six_actions_on_request() -> None:
    game = MinAtarEnv("breakout", MinAtarRules(minimal_actions=False), 0)
    assert game.spec.action_names == ("NOOP", "LEFT", "UP", "RIGHT", "DOWN", "FIRE")


def test_playing_imports_no_plotting() -> None:
    code = (
        "import sys; from c2d.envs.make import make; make('minatar/freeway', None, 0).passport();"
        "print([m for m in ('matplotlib', 'seaborn', 'pandas', 'torch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]" and done.stderr == ""
