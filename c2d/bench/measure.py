"""Everything `c2d bench` reports, as plain values."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import Any

import torch

from c2d.bench.calibration import BareEmulator, calibrate, load_average
from c2d.bench.loop import emulation, loop_config, peak_memory_mb, stages, window
from c2d.config import Config
from c2d.envs.names import resolve
from c2d.envs.protocols import AtariRules
from c2d.training.passport import machine, versions
from c2d.training.process import keep_memory
from c2d.training.session import Session

WINDOWS = 3
_LONGEST_CALIBRATION = 1.5  # seconds each; longer windows do not make them truer
_LONGEST_STAGE = 8.0


def default_threads() -> tuple[int, ...]:
    """1 and 2 for comparison with other machines, and all cores."""
    cores = os.cpu_count() or 1
    return tuple(sorted({1, min(2, cores), cores}))


def describe(env: str, recipe: str, threads: tuple[int, ...]) -> tuple[Config, dict[str, Any]]:
    """The config to be measured, and what runs where. Quick: mistakes show before anything is measured."""
    config = loop_config(env, recipe)
    facts = {
        "env": config.env,
        "recipe": config.recipe_name,
        "versions": versions(),
        "machine": machine(max(threads)),
        "time": time.time(),
        "load_average": load_average(),
    }
    return config, facts


def estimated_seconds(counts: int, seconds: float) -> float:
    """How long `measure` takes, the filling of the replay aside."""
    calibrations = 2 * (counts + 1) * min(seconds, _LONGEST_CALIBRATION)
    return calibrations + counts * (WINDOWS * seconds + 1.75 * min(seconds, _LONGEST_STAGE))


def measure(config: Config, threads: tuple[int, ...], seconds: float) -> dict[str, Any]:
    """Calibration before and after, and one entry per number of threads between."""
    keep_memory()
    bare = BareEmulator(resolve(config.env).key, config.rules) if isinstance(config.rules, AtariRules) else None
    calibrated = tuple(sorted({1, min(2, os.cpu_count() or 1), *threads}))
    brief, before = min(seconds, _LONGEST_CALIBRATION), torch.get_num_threads()
    first = calibrate(calibrated, bare, brief)
    try:
        measured = [_measure_one(config, bare, count, seconds) for count in threads]
    finally:
        torch.set_num_threads(before)
    return {
        "window_seconds": seconds,
        "calibration_before": first,
        "measurements": measured,
        "calibration_after": calibrate(calibrated, bare, brief),
    }


def _measure_one(config: Config, bare: BareEmulator | None, threads: int, seconds: float) -> dict[str, Any]:
    torch.set_num_threads(threads)
    brief = min(seconds, _LONGEST_STAGE)
    alone = emulation(config, bare, brief / 2)
    session = Session(replace(config, threads=threads))
    try:
        session.fill_history()
        window(session, brief / 4, least_updates=2)  # the first updates choose their kernels
        inside = stages(session, brief)
        windows = [window(session, seconds).steps_per_second for _ in range(WINDOWS)]
    finally:
        session.close()
    return {
        "threads": threads,
        **alone,
        **inside,
        "loop_steps_per_second": windows,
        "peak_memory_mb": peak_memory_mb(),
    }
