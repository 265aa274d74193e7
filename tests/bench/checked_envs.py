"""Environments with one thing wrong each, for c2d check-env."""

import os
import random
import signal
import time

import gymnasium
import numpy as np
from gymnasium import spaces


class Fine(gymnasium.Env):
    """Walks on a line; the right end pays and terminates, a limit truncates."""

    action_space = spaces.Discrete(2)
    observation_space = spaces.Box(-10.0, 10.0, (2,), np.float32)
    limit, pay = 40, 1.0

    def __init__(self, size=4):
        self.size = size

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.steps = float(self.np_random.integers(-1, 2)), 0
        return self.seen(), {}

    def seen(self):
        return np.array([self.place, self.steps / self.limit], np.float32)

    def step(self, action):
        self.steps += 1
        self.place += 2 * int(action) - 1 + float(self.np_random.normal(0, 0.1))
        self.place = float(np.clip(self.place, -9, 9))
        won = self.place >= self.size
        return self.seen(), self.pay * won, bool(won), self.steps >= self.limit and not won, {}


class GlobalRandomness(Fine):
    def step(self, action):
        observation, _, *rest = super().step(action)
        return observation, random.random(), *rest


class Shared(Fine):
    """Copies share a counter; the reward tells."""

    calls = 0

    def step(self, action):
        Shared.calls += 1
        observation, _, *rest = super().step(action)
        return observation, float(Shared.calls % 7), *rest


class LimitAsEnd(Fine):
    def step(self, action):
        observation, reward, _, _, info = super().step(action)
        return observation, reward, self.steps >= 10, False, info


class NoEnd(Fine):
    def seen(self):
        return np.array([self.place, self.steps % 10], np.float32)

    def step(self, action):
        observation, reward, _, _, info = super().step(action)
        return observation, reward, False, False, info


class Poor(Fine):
    pay = 0.0


class Rich(Fine):
    pay = 100_000.0


class Generous(Fine):
    """Within reach in play, but not at every step."""

    pay = 300.0


class Tiny(Fine):
    pay = 0.001


class Outside(Fine):
    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)


class Constant(Fine):
    def seen(self):
        return np.array([self.place, 3.0], np.float32)


class Frozen(Fine):
    def seen(self):
        return np.zeros(2, np.float32)


class Large(Fine):
    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)

    def seen(self):
        return np.array([self.place, 1e4 * self.place], np.float32)


class NotANumber(Fine):
    def step(self, action):
        observation, reward, *rest = super().step(action)
        return observation, float("nan") if self.steps == 3 else reward, *rest


class Raises(Fine):
    def step(self, action):
        if self.steps == 4:
            raise ZeroDivisionError("a wall\nof the maze")
        return super().step(action)


class Quits(Fine):
    def step(self, action):
        raise SystemExit(3)


class Hangs(Fine):
    def step(self, action):
        while self.steps == 2:
            time.sleep(0.01)
        return super().step(action)


class Dies(Fine):
    def step(self, action):
        if self.steps == 2:
            os.kill(os.getpid(), signal.SIGSEGV)
        return super().step(action)


class Old(Fine):
    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, terminated or truncated, info


class Continuous(Fine):
    action_space = spaces.Box(-1.0, 1.0, (3,))


class OneAction(Fine):
    action_space = spaces.Discrete(1)


class Unwilling(Fine):
    def __init__(self):
        raise RuntimeError("no license")


class Loud(Fine):
    def reset(self, *, seed=None, options=None):
        print("\x1b[31mhello")
        return super().reset(seed=seed)


class BitImage(Fine):
    observation_space = spaces.Box(0, 255, (10, 10, 1), np.uint8)

    def seen(self):
        return np.full((10, 10, 1), self.place > 0, np.uint8)


class UnboundedImage(Fine):
    observation_space = spaces.Box(0, np.inf, (10, 10, 1), np.float32)

    def seen(self):
        return np.full((10, 10, 1), self.place + 10, np.float32)


def doubled(env):
    return gymnasium.wrappers.TransformReward(env, lambda reward: 2 * reward)


class Strict(Fine):
    """Takes legal actions only."""

    action_space = spaces.Discrete(3)

    def action_masks(self):
        return np.array([self.place > -2, True, False])

    def step(self, action):
        assert self.action_masks()[action], "illegal"
        return super().step(min(action, 1))
