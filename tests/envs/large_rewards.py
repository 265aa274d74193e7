"""CartPole with rewards of a million instead of 1: discounted returns up to 10^8."""

from typing import Any

from gymnasium.envs.classic_control import CartPoleEnv


class LargeCartPole(CartPoleEnv):
    """Also cut after 500 steps, as the registered one."""

    size = 1e6

    def reset(self, **how: Any) -> Any:
        self.steps = 0
        return super().reset(**how)

    def step(self, action: Any) -> Any:
        observation, reward, terminated, _, info = super().step(action)
        self.steps += 1
        return observation, self.size * float(reward), terminated, self.steps >= 500, info
