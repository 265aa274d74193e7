"""Environments such as users write, good and bad."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Scripted(gymnasium.Env):
    """Returns what its class attributes say; the observation buffer is reused on purpose."""

    observation_space: Any = spaces.Box(-10.0, 10.0, (3,), np.float32)
    action_space: Any = spaces.Discrete(2)
    rewards: tuple[float, ...] = (1.0, 2.0, 3.0, 4.0)
    terminated_at = 4
    truncated_at = 0

    def __init__(self) -> None:
        space = self.observation_space
        self.buffer = np.zeros(space.shape, space.dtype)
        self.actions: list[int] = []
        self.seeds: list[int | None] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.steps = 0
        self.buffer[...] = 0
        return self.buffer, {}

    def step(self, action: int) -> Any:
        self.actions.append(action)
        self.buffer += 1
        reward = self.rewards[self.steps % len(self.rewards)]
        self.steps += 1
        return self.buffer, reward, self.steps == self.terminated_at, self.steps == self.truncated_at, {}


class Truncating(Scripted):
    terminated_at = 0
    truncated_at = 3


class BothEnds(Scripted):
    terminated_at = truncated_at = 2


class FromFive(Scripted):
    action_space = spaces.Discrete(3, start=5)


class Nan(Scripted):
    rewards = (0.0, 0.0, float("nan"))


class TooLarge(Scripted):
    rewards = (1e39,)


class RewardInBrackets(Scripted):
    rewards = (np.array([2.5]),)


class NoReward(Scripted):
    rewards = (None,)


class OldReset(Scripted):
    def reset(self):
        return super().reset(seed=0)


class Unwilling(Scripted):
    def __init__(self):
        raise RuntimeError("no license\nfor this machine")


class Demanding(Scripted):
    def __init__(self, level):
        super().__init__()


class Bright(Scripted):
    observation_space = gymnasium.spaces.Box(0, 255, (12, 10), np.float32)

    def reset(self, *, seed=None, options=None):
        return np.full((12, 10), 51.0, np.float32), {}


class Infinite(Scripted):
    rewards = (float("inf"),)


class NanObservation(Scripted):
    def step(self, action: int) -> Any:
        _, *rest = super().step(action)
        return np.array([0.0, np.nan, 0.0], np.float32), *rest


class WrongShape(Scripted):
    def step(self, action: int) -> Any:
        _, *rest = super().step(action)
        return np.zeros(5, np.float32), *rest


class OldApi(Scripted):
    def step(self, action: int) -> Any:
        return super().step(action)[:4]


class Continuous(Scripted):
    action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)


class DictObservation(Scripted):
    observation_space = spaces.Dict({"a": spaces.Discrete(2)})

    def __init__(self) -> None:
        pass


class TwoActions(Scripted):
    action_space = spaces.MultiDiscrete([2, 3])


class Stray(Scripted):
    """Counts to 5 where it declares at most 3; at 3 with a little of rounding."""

    observation_space = spaces.Box(0, 3, (2,), np.float64)
    terminated_at = 5

    def step(self, action: int) -> Any:
        observation, *rest = super().step(action)
        return observation * (1 + 1e-7), *rest


class FourDimensional(Scripted):
    observation_space = spaces.Box(0, 255, (2, 3, 4, 5), np.uint8)


class Gray(Scripted):
    observation_space = spaces.Box(0, 255, (12, 10), np.uint8)


class ChannelsLast(Scripted):
    observation_space = spaces.Box(0, 255, (12, 10, 3), np.uint8)

    def step(self, action: int) -> Any:
        _, *rest = super().step(action)
        self.buffer[:] = np.arange(360).reshape(12, 10, 3) % 256
        return self.buffer, *rest


class ChannelsFirst(Scripted):
    observation_space = spaces.Box(0, 255, (3, 12, 10), np.uint8)


class FloatPicture(Scripted):
    observation_space = spaces.Box(0.0, 1.0, (12, 10, 1), np.float64)


class Coded(Scripted):
    """One number of 4, counted from 2."""

    observation_space = spaces.Discrete(4, start=2)

    def __init__(self) -> None:
        self.number = 2

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return 3, {}

    def step(self, action: int) -> Any:
        return [2, 9][action], 0.0, False, False, {}


class Multi(Coded):
    observation_space = spaces.MultiDiscrete([2, 3])

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.array([1, 2]), {}


class Binary(Coded):
    observation_space = spaces.MultiBinary(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.array([1, 0, 1], np.int8), {}


not_an_environment = 3


class Masked(Scripted):
    """Gives a mask in info, which changes from step to step."""

    action_space = spaces.Discrete(4)
    gives = True
    masks = ([1, 1, 0, 0], [0, 0, 1, 1], [True, False, False, False])

    def info(self):
        return {"action_mask": np.array(self.masks[self.steps % len(self.masks)])} if self.gives else {}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        observation, _ = super().reset(seed=seed)
        return observation, self.info()

    def step(self, action: int) -> Any:
        *rest, _ = super().step(action)
        return *rest, self.info()


class MaskedByMethod(Scripted):
    action_space = spaces.Discrete(3)

    def action_masks(self):
        return [self.steps < 2, True, False]


class MaskedInParts(Scripted):
    action_space = spaces.MultiDiscrete([2, 3])

    def action_masks(self):
        return np.array([True, False]), np.array([False, True, True])


class Forbidding(Masked):
    masks = ([1, 1, 0, 0], [0, 0, 0, 0])


class EndingWithoutMask(Masked):
    def info(self):
        return {} if self.steps == self.terminated_at else super().info()


class TruncatingWithoutMask(Masked):
    terminated_at, truncated_at = 0, 3

    def info(self):
        return {} if self.steps == 3 else super().info()


class LosingItsMask(Masked):
    def info(self):
        return super().info() if self.steps != 2 else {}


class LateMask(Masked):
    def info(self):
        return super().info() if self.steps == 2 else {}


class ShortMask(Masked):
    masks = ([1, 1, 0, 0], [1, 1, 0])


class FloatMask(Masked):
    masks = ([1, 1, 0, 0], [0.5, 1.0, 0.0, 0.0])


class LargeMask(Masked):
    masks = ([1, 1, 0, 0], [2, 1, 0, 0])


class Parts(Coded):
    """A goal of 4, and a place that leaves its range at the first step."""

    observation_space = spaces.Dict(
        {"goal": spaces.Discrete(4), "here": spaces.Dict({"place": spaces.Box(0, 3, (2,), np.float64)})}
    )

    def observe(self, there: float) -> Any:
        return {"goal": 1, "here": {"place": np.array([1.0, there])}}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self.observe(2.0), {}

    def step(self, action: int) -> Any:
        return self.observe(5.0), 0.0, False, False, {}


class MissingPart(Parts):
    def observe(self, there: float) -> Any:
        return {"here": {"place": np.zeros(2)}}


class LongPart(Parts):
    def observe(self, there: float) -> Any:
        return {"goal": 1, "here": {"place": np.zeros(3)}}


class NoParts(Parts):
    def observe(self, there: float) -> Any:
        return np.zeros(6)
