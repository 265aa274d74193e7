"""Environments that go wrong, at a step of the process's own count."""

import os
import signal
import time
from pathlib import Path

import gymnasium
import numpy as np


class Countdown(gymnasium.Env):
    """Games of ten steps; the reward is the action."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self):
        self._steps = self._made = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._steps = 0
        return self._see(), {}

    def step(self, action):
        self._steps += 1
        self._made += 1
        self.trouble()
        return self._see(), float(action), self._steps == 10, False, {}

    def trouble(self):
        pass

    def _see(self):
        return np.array([self._steps / 10, 1.0], dtype=np.float32)


class Slow(Countdown):
    """Takes its time without taking the processor's, so that there is a middle of a run to strike at."""

    pause = 0.004  # seconds

    def trouble(self):
        time.sleep(self.pause)


class Raises(Slow):
    """Raises in the middle of a run, unless it has been mended."""

    def trouble(self):
        super().trouble()
        if self._made == 300 and (mended := mark("mended")) is not None and not mended.exists():
            raise RuntimeError("the emulator lost its mind")


class KilledOnce(Slow):
    """Dies in the middle of a run as the system's OOM killer would have it, once, where C2D_TEST_KILL names a file."""

    def trouble(self):
        super().trouble()
        killed = os.environ.get("C2D_TEST_KILL")
        if self._made == 150 and killed and not Path(killed).exists():
            Path(killed).touch()
            os.kill(os.getpid(), signal.SIGKILL)


def mark(name):
    """A file by which tests and environments agree on what is to happen; None: nothing will."""
    return Path(os.environ["C2D_TEST_MARKS"]) / name if "C2D_TEST_MARKS" in os.environ else None
