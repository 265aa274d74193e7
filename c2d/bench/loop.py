"""The speed of the machine, and of training on it: the real loop in timed windows, its stages timed from inside."""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median, quantiles
from typing import Any, NamedTuple

import numpy as np
import torch

from c2d.config import Config, default_config, validate
from c2d.envs.games import game
from c2d.envs.make import make, spec_of
from c2d.envs.protocols import AtariRules
from c2d.envs.spec import LegalPlay
from c2d.replay.ring import compressed
from c2d.training.session import Session

QUIET = 0.5  # load average up to which the machine counts as idle


def finish(device: str) -> None:
    """Wait until a GPU has done what it was asked to: else a clock would show how long asking took."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)


def gflops(threads: int, seconds: float, size: int = 1024, device: str = "cpu") -> float:
    """Best rate of float32 products of square matrices, in 10⁹ operations per second."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    left, right, out = (torch.rand(size, size, device=device) for _ in range(3))
    best, end = 0.0, time.perf_counter() + seconds
    try:
        while not best or time.perf_counter() < end:
            finish(device)
            start = time.perf_counter()
            for _ in range(4):
                torch.mm(left, right, out=out)
            finish(device)
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


def calibrate_machine(
    threads: Iterable[int], bare: BareEmulator | None, seconds: float = 1.5, device: str = "cpu"
) -> dict[str, Any]:
    """Rates of matrix products for each number of threads, of a GPU, and of the emulator if there is one."""
    result: dict[str, Any] = {"gflops": {str(n): gflops(n, seconds) for n in threads}}
    if device != "cpu":
        result["device_gflops"] = gflops(1, seconds, 4096, device)
    if bare is not None:
        result["bare_emulator_steps_per_second"] = bare.steps_per_second(seconds)
    return result


def load_average() -> float | None:
    """Average number of running processes over the last minute; None if the system does not report it."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None


CAPACITY = 100_000  # transitions
HISTORY = 2_000  # random steps before the first update
_SLICE = 100  # agent steps by which the emulators take turns
_LEAST_UPDATES = 8  # for quartiles, however short the window

# stage -> (objects of a Session, their method)
_STAGES: dict[str, tuple[Callable[[Session], list[Any]], str]] = {
    "emulate": (lambda session: [stream.env for stream in session.rollout.streams], "step"),
    "act": (lambda session: [session.rollout], "decide"),
    "stack": (lambda session: [stream.stack for stream in session.rollout.streams], "update"),
    "store": (lambda session: [session.replay], "add"),
    "sample": (lambda session: [session.replay], "sample"),
    "update": (lambda session: [session.learner], "update"),
}


class Window(NamedTuple):
    """Training for a while."""

    steps: int  # agent steps
    seconds: float

    @property
    def steps_per_second(self) -> float:
        return self.steps / self.seconds


def loop_config(env: str, recipe: str = "c2d", envs: int | None = None, **overrides: Any) -> Config:
    """What `c2d train` runs late in training, when the network chooses nearly every action.

    The replay is smaller, but compressed if that of training is.
    """
    config = default_config(env, recipe, **overrides)
    frame_bytes = spec_of(config.env, config.rules).frame_bytes
    compress = compressed(frame_bytes, config.recipe.schedule.replay_capacity, config.compress_replay)
    schedule = replace(
        config.recipe.schedule,
        random_history=HISTORY,
        replay_capacity=CAPACITY,
        epsilon_initial=config.recipe.schedule.epsilon_min,
    )
    envs = config.recipe.envs if envs is None else envs
    config = replace(config, recipe=replace(config.recipe, schedule=schedule, envs=envs), compress_replay=compress)
    validate(config)
    return config


def window(session: Session, seconds: float, least_updates: int = 1) -> Window:
    """Advance by whole update periods until the time is up, and the device has finished."""
    period, first = session.schedule.update_period, session.step
    finish(session.config.device)
    began = time.perf_counter()
    while time.perf_counter() - began < seconds or session.step - first < least_updates * period:
        start = session.step
        while session.step - start < period:  # a round is a step of each environment
            session.advance()
    finish(session.config.device)
    return Window(session.step - first, time.perf_counter() - began)


def stages(session: Session, seconds: float) -> dict[str, dict[str, float]]:
    """Milliseconds of each stage within the running loop: per agent step, or per update. Acting includes the stack.

    With a GPU, each stage is waited for: the stages do not overlap, as they do in `window`.
    """
    with _clocks(session) as spent:
        window(session, seconds, _LEAST_UPDATES)
    stack = spent.pop("stack")
    envs = len(session.rollout.streams)  # which act together: a step's share of the time
    rounds = [sum(stack[first : first + envs]) for first in range(0, len(stack), envs)]
    spent["act"] = [(act + push) / envs for act, push in zip(spent["act"], rounds, strict=True)]
    return {f"{name}_ms": summary(times) for name, times in spent.items()}


def emulation(config: Config, bare: BareEmulator | None, seconds: float) -> dict[str, Any]:
    """The environment alone with random actions, taking turns with the bare emulator if there is one."""
    env, rng = make(config.env, config.rules, seed=1), np.random.default_rng(1)
    game = LegalPlay(env)
    ours: list[float] = []
    shares: list[float] = []
    end = time.perf_counter() + seconds
    while len(ours) < 4 or time.perf_counter() < end:
        choices = rng.integers(env.spec.actions, size=_SLICE).tolist()
        if bare is None:
            ours.append(_play(game.step if env.spec.masked else env.step, choices))
            continue
        before = bare.play(choices)
        ours.append(_play(game.step if env.spec.masked else env.step, choices))
        shares.append((before + bare.play(choices)) / 2 / ours[-1])
    env.close()
    result: dict[str, Any] = {"environment_ms": summary([took / _SLICE for took in ours])}
    if shares:
        result["share_of_bare_emulator"] = median(shares)
    return result


def summary(seconds: list[float]) -> dict[str, float]:
    """Median, quartiles and mean, in milliseconds."""
    milliseconds = [1e3 * value for value in seconds]
    low, middle, high = quantiles(milliseconds, n=4, method="inclusive")
    return {"median": middle, "q1": low, "q3": high, "mean": sum(milliseconds) / len(milliseconds)}


def peak_memory_mb() -> float:
    """Most memory this process has held so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)


def device_memory_mb(device: str) -> float | None:
    """Most memory that tensors on the GPU have held so far; None if there is none in use."""
    return torch.cuda.max_memory_allocated(device) / (1 << 20) if torch.device(device).type == "cuda" else None


def _play(step: Callable[[int], Any], choices: list[int]) -> float:
    began = time.perf_counter()
    for choice in choices:
        step(choice)
    return time.perf_counter() - began


@contextmanager
def _clocks(session: Session) -> Iterator[dict[str, list[float]]]:
    """A clock around each stage, removed afterwards."""
    spent: dict[str, list[float]] = {name: [] for name in _STAGES}
    for name, (parts, method) in _STAGES.items():
        for owner in parts(session):
            setattr(owner, method, _clocked(getattr(owner, method), spent[name], session.config.device))
    try:
        yield spent
    finally:
        for parts, method in _STAGES.values():
            for owner in parts(session):
                delattr(owner, method)


def _clocked(method: Callable[..., Any], spent: list[float], device: str) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        finish(device)
        began = time.perf_counter()
        result = method(*arguments)
        finish(device)
        spent.append(time.perf_counter() - began)
        return result

    return call
