"""Everything `c2d bench` reports, as plain values: one recipe in detail, or all recipes in turn.

Each of all recipes is measured in a process of its own, `python -m c2d.bench.measure`, so that memory is its own too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from c2d.agents.build import check_device, parameter_count
from c2d.bench.loop import (
    BareEmulator,
    calibrate_machine,
    device_memory_mb,
    emulation,
    gflops,
    load_average,
    loop_config,
    peak_memory_mb,
    stages,
    window,
)
from c2d.config import Config
from c2d.envs.names import resolve
from c2d.envs.protocols import AtariRules
from c2d.errors import UserError
from c2d.recipes.parts import Nature
from c2d.training.passport import machine, versions
from c2d.training.process import keep_memory
from c2d.training.session import Session

WINDOWS = 3
_LONGEST_CALIBRATION = 1.5  # seconds each; longer windows do not make them more accurate
_LONGEST_STAGE = 8.0
_RECIPE_STAGES = 4.0  # seconds for the stages of each of all recipes, before the windows


def default_threads(device: str = "cpu") -> tuple[int, ...]:
    """1 and 2, for comparison with other machines, and all cores. A GPU leaves the CPU too little for more than 1."""
    if device != "cpu":
        return (1,)
    cores = os.cpu_count() or 1
    return tuple(sorted({1, min(2, cores), cores}))


def describe(
    env: str, recipe: str, threads: tuple[int, ...], device: str = "cpu", compile: str = "off", envs: int | None = None
) -> tuple[Config, dict[str, Any]]:
    """The config to measure, and facts about machine and versions. Quick: errors show before anything is measured."""
    config = loop_config(env, recipe, envs, device=device, compile=compile)
    check_device(device)
    gpu = {}
    if torch.device(device).type == "cuda":
        gpu = {"gpu": torch.cuda.get_device_name(device), "cuda": torch.version.cuda}
    facts = {
        "env": config.env,
        "recipe": config.recipe_name,
        "envs": config.recipe.envs,
        "versions": versions(),
        "machine": {**machine(max(threads)), "device": device, **gpu},
        "compile": compile,
        "time": time.time(),
        "load_average": load_average(),
    }
    return config, facts


def estimated_seconds(counts: int, seconds: float) -> float:
    """Duration of `measure`, without filling the replay."""
    calibrations = 2 * (counts + 1) * min(seconds, _LONGEST_CALIBRATION)
    return calibrations + counts * (WINDOWS * seconds + 1.75 * min(seconds, _LONGEST_STAGE))


def measure(config: Config, threads: tuple[int, ...], seconds: float) -> dict[str, Any]:
    """One entry per number of threads, and the speed of the machine before and after."""
    keep_memory()
    bare = BareEmulator(resolve(config.env).key, config.rules) if isinstance(config.rules, AtariRules) else None
    calibrated = tuple(sorted({1, min(2, os.cpu_count() or 1), *threads}))
    brief, before = min(seconds, _LONGEST_CALIBRATION), torch.get_num_threads()
    first = calibrate_machine(calibrated, bare, brief, config.device)
    try:
        measured = [_measure_one(config, bare, count, seconds) for count in threads]
    finally:
        torch.set_num_threads(before)
    return {
        "window_seconds": seconds,
        "calibration_before": first,
        "measurements": measured,
        "calibration_after": calibrate_machine(calibrated, bare, brief, config.device),
    }


def _measure_one(config: Config, bare: BareEmulator | None, threads: int, seconds: float) -> dict[str, Any]:
    torch.set_num_threads(threads)
    brief = min(seconds, _LONGEST_STAGE)
    alone = emulation(config, bare, brief / 2)
    session = Session(replace(config, threads=threads))
    try:
        session.fill_history()
        window(session, brief / 4, least_updates=2)  # during the first updates PyTorch selects kernels
        inside = stages(session, brief)
        windows = [window(session, seconds).steps_per_second for _ in range(WINDOWS)]
        gflop = flops_of_update(session) / 1e9
    finally:
        session.close()
    return {
        "threads": threads,
        "parameters": parameter_count(session.learner.online),
        "gflop_per_update": gflop,
        **alone,
        **inside,
        "loop_steps_per_second": windows,
        "peak_memory_mb": peak_memory_mb(),
        "device_memory_mb": device_memory_mb(config.device),
    }


# ------------------------------------------------------------------------------------------------- all recipes


def measure_recipes(
    names: Sequence[str],
    env: str,
    padding: str | None,
    threads: int,
    seconds: float,
    device: str = "cpu",
    compile: str = "off",
) -> Iterator[dict[str, Any]]:
    """One dictionary of results per recipe."""
    for name in names:
        request = {"recipe": name, "env": env, "padding": padding, "threads": threads, "seconds": seconds}
        request |= {"device": device, "compile": compile}
        process = subprocess.run(
            [sys.executable, "-m", "c2d.bench.measure"], input=json.dumps(request), capture_output=True, text=True
        )
        if process.returncode != 0:
            raise UserError(f"measuring {name} failed: {(process.stderr.strip() or 'no message').splitlines()[-1]}")
        yield json.loads(process.stdout)


def flops_of_update(session: Session) -> int:
    """Operations of matrix products and convolutions in one update, counted as it is without a compiler."""
    from torch.utils.flop_counter import FlopCounterMode

    batch = session.replay.sample(session.schedule.batch_size, session.sampling, session.config.device)
    with FlopCounterMode(display=False) as counter:
        session.learner.losses(batch)[0].backward()  # type: ignore[no-untyped-call]
    flops: int = counter.get_total_flops()
    return flops


def _measure_recipe(request: dict[str, Any]) -> dict[str, Any]:
    keep_memory()
    torch.set_num_threads(request["threads"])
    device = request["device"]
    config = loop_config(request["env"], request["recipe"], device=device, compile=request["compile"])
    encoder = config.recipe.encoder
    if request["padding"] is not None and isinstance(encoder, Nature):
        config = replace(config, recipe=replace(config.recipe, encoder=replace(encoder, padding=request["padding"])))
    session = Session(config)
    session.fill_history()
    window(session, 0.0, least_updates=5)  # during the first updates PyTorch selects kernels
    inside = stages(session, min(_RECIPE_STAGES, request["seconds"]))
    rates = [window(session, request["seconds"]).steps_per_second for _ in range(2)]
    rate = gflops(request["threads"], min(0.7, request["seconds"]), 1024 if device == "cpu" else 4096, device)
    gflop = flops_of_update(session) / 1e9
    return {
        **request,
        "gflop_per_update": gflop,
        "gflops": rate,
        "share_of_update_at_gemm_rate": gflop / rate * 1e3 / inside["update_ms"]["median"],
        "steps_per_second": rates,
        "update_ms": inside["update_ms"]["median"],
        "act_ms": inside["act_ms"]["median"],
        "sample_ms": inside["sample_ms"]["median"],
        "peak_memory_mb": peak_memory_mb(),
        "device_memory_mb": device_memory_mb(device),
        "parameters": parameter_count(session.learner.online),
    }


if __name__ == "__main__":
    print(json.dumps(_measure_recipe(json.loads(sys.stdin.read()))))
