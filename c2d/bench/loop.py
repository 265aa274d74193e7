"""What training costs per step: the real loop in timed windows, and its stages timed from within."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from statistics import median, quantiles
from typing import Any, NamedTuple

import numpy as np

from c2d.bench.machine import BareEmulator
from c2d.config import Config, default_config, validate
from c2d.envs.make import make, spec_of
from c2d.replay.ring import compressed
from c2d.training.session import Session

CAPACITY = 100_000  # transitions
HISTORY = 2_000  # random steps before the first update
_SLICE = 100  # agent steps by which the emulators take turns
_LEAST_UPDATES = 8  # for quartiles, however short the window

# stage -> (an object of a Session, its method)
_STAGES: dict[str, tuple[Callable[[Session], Any], str]] = {
    "emulate": (lambda session: session.env, "step"),
    "act": (lambda session: session.rollout, "decide"),
    "stack": (lambda session: session.rollout.streams[0].stack, "update"),
    "store": (lambda session: session.replay, "add"),
    "sample": (lambda session: session.replay, "sample"),
    "update": (lambda session: session.learner, "update"),
}


class Window(NamedTuple):
    """Training for a while."""

    steps: int  # agent steps
    seconds: float

    @property
    def steps_per_second(self) -> float:
        return self.steps / self.seconds


def loop_config(env: str, recipe: str = "c2d") -> Config:
    """What `c2d train` runs late in training, when the network chooses nearly every action.

    The replay is smaller, but compressed if that of training is.
    """
    config = default_config(env, recipe)
    frame_bytes = spec_of(config.env, config.rules).frame_bytes
    compress = compressed(frame_bytes, config.recipe.schedule.replay_capacity, config.compress_replay)
    schedule = replace(
        config.recipe.schedule,
        random_history=HISTORY,
        replay_capacity=CAPACITY,
        epsilon_initial=config.recipe.schedule.epsilon_min,
    )
    config = replace(config, recipe=replace(config.recipe, schedule=schedule), compress_replay=compress)
    validate(config)
    return config


def window(session: Session, seconds: float, least_updates: int = 1) -> Window:
    """Advance by whole update periods until the time is up."""
    period, first, began = session.schedule.update_period, session.step, time.perf_counter()
    while time.perf_counter() - began < seconds or session.step - first < least_updates * period:
        for _ in range(period):
            session.advance()
    return Window(session.step - first, time.perf_counter() - began)


def stages(session: Session, seconds: float) -> dict[str, dict[str, float]]:
    """Milliseconds per call of each stage within the running loop. Acting includes the frame stack."""
    with _clocks(session) as spent:
        window(session, seconds, _LEAST_UPDATES)
    stack = spent.pop("stack")
    spent["act"] = [act + push for act, push in zip(spent["act"], stack, strict=True)]
    return {f"{name}_ms": summary(times) for name, times in spent.items()}


def emulation(config: Config, bare: BareEmulator | None, seconds: float) -> dict[str, Any]:
    """The environment alone with random actions, taking turns with the bare emulator if there is one."""
    env, rng = make(config.env, config.rules, seed=1), np.random.default_rng(1)
    env.reset()
    ours: list[float] = []
    shares: list[float] = []
    end = time.perf_counter() + seconds
    while len(ours) < 4 or time.perf_counter() < end:
        choices = rng.integers(env.spec.actions, size=_SLICE).tolist()
        if bare is None:
            ours.append(_play(env.step, choices))
            continue
        before = bare.play(choices)
        ours.append(_play(env.step, choices))
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


def _play(step: Callable[[int], Any], choices: list[int]) -> float:
    began = time.perf_counter()
    for choice in choices:
        step(choice)
    return time.perf_counter() - began


@contextmanager
def _clocks(session: Session) -> Iterator[dict[str, list[float]]]:
    """A clock around each stage, removed afterwards."""
    spent: dict[str, list[float]] = {name: [] for name in _STAGES}
    for name, (part, method) in _STAGES.items():
        owner = part(session)
        setattr(owner, method, _clocked(getattr(owner, method), spent[name]))
    try:
        yield spent
    finally:
        for part, method in _STAGES.values():
            delattr(part(session), method)


def _clocked(method: Callable[..., Any], spent: list[float]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        began = time.perf_counter()
        result = method(*arguments)
        spent.append(time.perf_counter() - began)
        return result

    return call
