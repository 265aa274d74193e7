"""Anyone's Gymnasium environment with discrete actions, registered or named as my_package.my_module:MyEnv.

Vectors become [D] f32, pictures [C, H, W]. Whatever the environment returns is checked and copied.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from c2d.envs.gymnasium_import import build
from c2d.envs.gymnasium_spaces import action_range, observation_converter
from c2d.envs.protocols import GymRules
from c2d.envs.spec import ActionLog, EnvSpec, ReplayMismatch
from c2d.errors import UserError
from c2d.types import GameEnd, ResetFrame, Step

_LARGEST = float(np.finfo(np.float32).max)  # of rewards


class BadEnvironment(UserError):
    """The environment returned something no learner can use."""


class GymnasiumGame:
    """An `Environment` around one of Gymnasium's. Episode k is seeded by the run's seed and k."""

    def __init__(self, key: str, rules: GymRules, seed: int) -> None:
        self.rules = rules
        self._name = f"gym/{key}"
        self._seed = seed
        self._env = build(key)
        self._first_action, actions = action_range(self._env.action_space, self._name)
        self._convert, shape, dtype = observation_converter(self._env.observation_space, self._name)
        self.spec = EnvSpec(
            name=self._name,
            family="gym",
            frame_shape=shape,
            frame_dtype="uint8" if dtype == np.uint8 else "float32",
            stack=rules.stack,
            actions=actions,
            frames_per_step=1,
            action_names=tuple(str(self._first_action + action) for action in range(actions)),
        )
        self._moves = ActionLog()
        self._episode = 0
        self._steps = 0
        self._score = 0.0

    def reset(self) -> ResetFrame:
        stream = np.random.SeedSequence([self._seed, self._episode])
        self._moves.begin(self._episode)
        self._episode += 1
        self._steps = 0
        self._score = 0.0
        result = self._env.reset(seed=int(stream.generate_state(1)[0] >> 1))
        if not isinstance(result, tuple) or len(result) != 2:
            raise BadEnvironment(f"{self._name}: reset must return (observation, info).")
        self._newest = self._frame(result[0])
        return ResetFrame(self._newest, 1)

    def step(self, action: int) -> Step:
        result = self._env.step(self._first_action + int(action))
        self._steps += 1
        if not isinstance(result, tuple) or len(result) != 5:
            parts = "(observation, reward, terminated, truncated, info)"
            raise BadEnvironment(f"{self._where()} did not return {parts}.")
        observation, reward, terminated, truncated, _ = result
        try:
            if getattr(reward, "ndim", 0):  # of which older NumPy makes a number if it has one element
                raise TypeError
            reward = float(reward)
        except (TypeError, ValueError):
            raise BadEnvironment(f"{self._where()} gave the reward {reward!r}; rewards must be numbers.") from None
        if not abs(reward) <= _LARGEST:
            raise BadEnvironment(f"{self._where()} gave the reward {reward}; rewards must be finite float32 numbers.")
        frame = self._newest = self._frame(observation)
        self._moves.actions.append(int(action))  # not of a step that failed
        self._score += reward
        truncated = bool(truncated) or self._steps == self.rules.cap_steps
        if not terminated and not truncated:
            return Step(frame, reward, False, False, None, None)
        game = GameEnd(self._score, self._steps)
        terminal = bool(terminated)
        return Step(frame, reward, terminal, not terminal, self.reset(), game)

    def _frame(self, observation: Any) -> np.ndarray:
        try:
            frame = self._convert(observation)
        except (ValueError, TypeError, IndexError) as error:
            raise BadEnvironment(f"{self._where()} gave an observation outside its space: {error}") from None
        wanted = self.spec.frame_shape
        if frame.shape != wanted:
            raise BadEnvironment(f"{self._where()} gave an observation of shape {frame.shape}, not {wanted}.")
        if frame.dtype != np.uint8 and not np.isfinite(frame).all():
            worst = frame[~np.isfinite(frame)][0]
            raise BadEnvironment(f"{self._where()} gave {worst} in an observation; it must be finite.")
        return frame

    def _where(self) -> str:
        return f"{self._name}, episode {self._episode}, step {self._steps},"

    def state_dict(self) -> dict[str, Any]:
        return self._moves.state_dict(self._newest)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._episode = state["game"]
        try:
            self._moves.play_again(self, state)
        except BadEnvironment as error:
            raise ReplayMismatch(str(error)) from None

    def passport(self) -> dict[str, Any]:
        import gymnasium

        return {
            "env": self._name,
            **asdict(self.rules),
            "actions": list(self.spec.action_names),
            "observation_space": str(self._env.observation_space),
            "own_limit_steps": getattr(self._env.spec, "max_episode_steps", None),
            "gymnasium": gymnasium.__version__,
            "score": "raw, whole episodes",
        }

    @property
    def pictures_per_second(self) -> float | None:
        """How fast the environment wants to be shown, if it says."""
        rate = (getattr(self._env, "metadata", None) or {}).get("render_fps")
        return float(rate) if isinstance(rate, int | float) and rate > 0 else None

    def render(self) -> np.ndarray:
        """The environment's own picture. [H, W, 3] u8"""
        if getattr(self._env, "render_mode", None) != "rgb_array":
            raise UserError(f"{self._name} cannot be shown: it has no render mode 'rgb_array'.")
        from gymnasium.error import DependencyNotInstalled

        try:
            return np.array(self._env.render(), dtype=np.uint8)
        except (ImportError, DependencyNotInstalled) as error:
            raise UserError(f"{self._name} needs another package to be shown: {' '.join(str(error).split())}") from None

    def close(self) -> None:
        self._env.close()
