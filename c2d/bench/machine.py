"""The current speed of the machine itself, without this package: matrix products, frames of the bare emulator."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from c2d.envs.games import game
from c2d.envs.protocols import AtariRules

QUIET = 0.5  # load average up to which the machine counts as idle


def gflops(threads: int, seconds: float, size: int = 1024) -> float:
    """Best rate of float32 products of square matrices, in 10⁹ operations per second."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    left, right, out = torch.rand(size, size), torch.rand(size, size), torch.empty(size, size)
    best, end = 0.0, time.perf_counter() + seconds
    try:
        while not best or time.perf_counter() < end:
            start = time.perf_counter()
            for _ in range(4):
                torch.mm(left, right, out=out)
            best = max(best, 4 * 2 * size**3 / (time.perf_counter() - start) / 1e9)
    finally:
        torch.set_num_threads(before)
    return best


class BareEmulator:
    """The game in the emulator, with the emulator's own sticky actions; the screen is never read."""

    def __init__(self, key: str, rules: AtariRules, seed: int = 1) -> None:
        import ale_py

        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        self._ale = ale_py.ALEInterface()
        self._ale.setInt("random_seed", seed)
        self._ale.setFloat("repeat_action_probability", rules.sticky)
        self._ale.loadROM(str(Path(ale_py.__file__).parent / "roms" / f"{game(key).rom}.bin"))
        self._repeat = range(rules.action_repeat)
        self._actions = self._ale.getLegalActionSet() if rules.full_action_set else self._ale.getMinimalActionSet()

    def play(self, choices: list[int]) -> float:
        """Seconds for these agent steps; games that end are reset."""
        act, over = self._ale.act, self._ale.game_over
        actions = [self._actions[choice % len(self._actions)] for choice in choices]
        start = time.perf_counter()
        for action in actions:
            for _ in self._repeat:
                act(action)
            if over():
                self._ale.reset_game()
        return time.perf_counter() - start

    def steps_per_second(self, seconds: float) -> float:
        rng, steps, spent = np.random.default_rng(1), 0, 0.0
        while not steps or spent < seconds:
            spent += self.play(rng.integers(1 << 16, size=100).tolist())
            steps += 100
        return steps / spent


def calibrate_machine(threads: Iterable[int], bare: BareEmulator | None, seconds: float = 1.5) -> dict[str, Any]:
    """Rates of matrix products for each number of threads, and of the emulator if there is one."""
    result: dict[str, Any] = {"gflops": {str(n): gflops(n, seconds) for n in threads}}
    if bare is not None:
        result["bare_emulator_steps_per_second"] = bare.steps_per_second(seconds)
    return result


def load_average() -> float | None:
    """Average number of running processes over the last minute; None if the system does not report it."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None
