"""Environments that fail at a given step of the process."""

import os
import signal
import time
from pathlib import Path

import gymnasium
import numpy as np


class Countdown(gymnasium.Env):
    """Episodes of ten steps; the reward is the action."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self):
        self._steps = self._total = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._steps = 0
        return self._see(), {}

    def step(self, action):
        self._steps += 1
        self._total += 1
        self.trouble()
        return self._see(), float(action), self._steps == 10, False, {}

    def trouble(self):
        pass

    def _see(self):
        return np.array([self._steps / 10, 1.0], dtype=np.float32)


class Slow(Countdown):
    """Sleeps at each step, so that a test can interfere in the middle of a run."""

    pause = 0.004  # seconds

    def trouble(self):
        time.sleep(self.pause)


class Raises(Slow):
    """Raises in the middle of a run, unless it has been fixed."""

    def trouble(self):
        super().trouble()
        if self._total == 300 and (fixed := mark("fixed")) is not None and not fixed.exists():
            raise RuntimeError("the emulator lost its mind")


class KilledOnce(Slow):
    """Kills itself in the middle of a run, as the OOM killer does, once, if C2D_TEST_KILL names a file."""

    def trouble(self):
        super().trouble()
        killed = os.environ.get("C2D_TEST_KILL")
        if self._total == 150 and killed and not Path(killed).exists():
            Path(killed).touch()
            os.kill(os.getpid(), signal.SIGKILL)


def mark(name):
    """A file through which tests control environments; None: outside of tests."""
    return Path(os.environ["C2D_TEST_MARKS"]) / name if "C2D_TEST_MARKS" in os.environ else None
