"""MinAtar games (Young & Tian 2019): images of 10 x 10 cells with one channel per kind of object, cheap to play.

Every game has a random generator seeded by the run's seed and the game's number. These two and the actions are enough
to replay a game.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from dataclasses import asdict
from importlib import metadata
from types import ModuleType
from typing import Any

import numpy as np

from c2d.envs.protocols import MinAtarRules
from c2d.envs.spec import ActionLog, EnvSpec
from c2d.errors import UserError
from c2d.types import GameEnd, ResetFrame, Step

ACTIONS = ("NOOP", "LEFT", "UP", "RIGHT", "DOWN", "FIRE")  # in the order of MinAtar's numbers
NOOP = 0
# number of channels, and the numbers of the actions that have an effect
_GAMES: dict[str, tuple[int, tuple[int, ...]]] = {
    "asterix": (4, (0, 1, 2, 3, 4)),
    "breakout": (4, (0, 1, 3)),
    "freeway": (7, (0, 2, 4)),
    "seaquest": (10, (0, 1, 2, 3, 4, 5)),
    "space_invaders": (6, (0, 1, 3, 5)),
}


def minatar_spec(key: str, rules: MinAtarRules) -> EnvSpec:
    """The spec of a game under these rules. MinAtar need not be installed."""
    channels, minimal = _GAMES[key]
    names = tuple(ACTIONS[number] for number in minimal) if rules.minimal_actions else ACTIONS
    return EnvSpec(
        name=f"minatar/{key}",
        family="minatar",
        frame_shape=(channels, 10, 10),
        frame_dtype="uint8",
        stack=rules.stack,
        actions=len(names),
        frames_per_step=1,
        action_names=names,
    )


class MinAtarEnv:
    """An `Environment`. Frames are [C, 10, 10] u8 of zeros and ones."""

    def __init__(self, key: str, rules: MinAtarRules, seed: int) -> None:
        self.rules = rules
        self._seed = seed
        self._game = _import_game(key).Env(ramping=rules.ramping)
        self.spec = minatar_spec(key, rules)
        self._actions = [ACTIONS.index(name) for name in self.spec.action_names]
        self._moves = ActionLog()
        self._next_game = 0
        self._reset_game()
        self._next_game = 0  # the first `reset` plays game 0

    def reset(self) -> ResetFrame:
        self._reset_game()
        return ResetFrame(self._frame(), 1)

    def step(self, action: int) -> Step:
        self._moves.actions.append(action)
        if self._rng.random_sample() >= self.rules.sticky:
            self._last = self._actions[action]
        raw, terminal = self._game.act(self._last)
        reward = float(raw)
        self._steps += 1
        self._score += reward
        frame = self._frame()
        capped = self._steps == self.rules.cap_steps
        if not terminal and not capped:
            return Step(frame, reward, False, False, None, None)
        game = GameEnd(self._score, self._steps)
        self._reset_game()
        return Step(frame, reward, bool(terminal), not terminal, ResetFrame(self._frame(), 1), game)

    def _reset_game(self) -> None:
        # MinAtar draws through the older RandomState interface
        bits = np.random.MT19937(np.random.SeedSequence([self._seed, self._next_game]))
        self._rng = self._game.random = np.random.RandomState(bits)
        self._game.reset()
        self._moves.begin(self._next_game)
        self._next_game += 1
        self._last = NOOP  # deviates: D31
        self._steps = 0
        self._score = 0.0

    def _frame(self) -> np.ndarray:
        image = self._game.state()  # [10, 10, C] bool, a new array at each call
        return np.ascontiguousarray(image.transpose(2, 0, 1)).view(np.uint8)

    @property
    def so_far(self) -> GameEnd:
        return GameEnd(self._score, self._steps)

    def state_dict(self) -> dict[str, Any]:
        return self._moves.state_dict(self._frame())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._next_game = state["game"]
        self._moves.play_again(self, state)

    def passport(self) -> dict[str, Any]:
        return {
            "env": self.spec.name,
            **asdict(self.rules),
            "actions": list(self.spec.action_names),
            "minatar": metadata.version("minatar"),
            "score": "raw, whole games",
        }

    def render(self) -> np.ndarray:
        """Each cell in the color of its last channel, 16 pixels wide."""
        frame = self._frame()
        top = np.where(frame.any(0), frame.shape[0] - frame[::-1].argmax(0), 0)  # [10, 10], 0: empty
        hues = np.linspace(0.0, 1.0, frame.shape[0], endpoint=False)
        wheel = 0.55 + 0.45 * np.cos(2 * np.pi * (hues[:, None] + np.array([0.0, 1 / 3, 2 / 3])))  # [C, 3]
        palette = np.vstack([np.zeros((1, 3)), 255 * wheel]).astype(np.uint8)
        return palette[top].repeat(16, axis=0).repeat(16, axis=1)

    def close(self) -> None:
        """Nothing to free."""


def _import_game(key: str) -> ModuleType:
    """The module of one game. `import minatar` would also load matplotlib and seaborn, which takes seconds."""
    spec = importlib.util.find_spec("minatar")
    if spec is None or spec.submodule_search_locations is None:
        raise UserError("MinAtar games need the minatar package: pip install 'c2d[minatar]'")
    name = f"c2d.envs._minatar_{key}"
    if name not in sys.modules:
        path = f"{spec.submodule_search_locations[0]}/environments/{key}.py"
        game_spec = importlib.util.spec_from_file_location(name, path)
        assert game_spec is not None and game_spec.loader is not None
        module = importlib.util.module_from_spec(game_spec)
        game_spec.loader.exec_module(module)
        sys.modules[name] = module
    return sys.modules[name]
