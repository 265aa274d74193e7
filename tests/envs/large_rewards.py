"""Environments with rewards of a million."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.classic_control import CartPoleEnv

SIZE = 1e6


class LargeCartPole(CartPoleEnv):
    """CartPole, cut after 500 steps as the registered one: discounted returns up to 10^8."""

    def reset(self, **how: Any) -> Any:
        self.steps = 0
        return super().reset(**how)

    def step(self, action: Any) -> Any:
        observation, reward, terminated, _, info = super().step(action)
        self.steps += 1
        return observation, SIZE * float(reward), terminated, self.steps >= 500, info


class Signs(gymnasium.Env[Any, Any]):
    """50 steps; a reward for the action that a random sign asks for. The best return is (1 − γ^50)/(1 − γ) rewards:
    3.95e7 at the start with γ = 0.99."""

    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return self._observe(), {}

    def step(self, action: Any) -> Any:
        reward = SIZE * float(action == (self.sign > 0))
        self.steps += 1
        return self._observe(), reward, self.steps == 50, False, {}

    def _observe(self) -> Any:
        self.sign = self.np_random.choice((-1.0, 1.0))
        return np.array([self.sign, 1.0 - self.steps / 25], np.float32)
