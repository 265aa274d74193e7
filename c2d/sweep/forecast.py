"""What a plan will take: time, memory and disk; and whether this machine has it."""

from __future__ import annotations

import csv
import heapq
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import numpy as np

from c2d.envs.spec import EnvSpec
from c2d.errors import UserError
from c2d.formatting import size
from c2d.recipes import parts
from c2d.recipes.recipe import Recipe
from c2d.replay.frames import compressed
from c2d.runs.reader import read_iterations
from c2d.runs.records import MEASURED
from c2d.sweep.plan import PlannedRun
from c2d.training.process import replay_bytes

_PROCESS = 450e6  # bytes: Python, torch, Ray and an emulator
_PER_WEIGHT = 28  # bytes: two networks, gradients, two moments, and a copy when saving
_SAVED_PER_WEIGHT = 16  # bytes: two networks, two moments
_MANY_ROWS = 250e6  # bytes: activations of heads that draw fractions, with a row for each
_BESIDE = 3e6  # bytes: records, weights and the rest


class Need(NamedTuple):
    """Of one run."""

    memory: int  # bytes, at most, about
    disk: int  # bytes, when it is finished
    disk_without_replay: int
    seconds: float | None  # from its beginning; None if nobody knows


class Rates:
    """Agent steps per second of a run: stated, else measured in this directory, else of the shipped table."""

    def __init__(self, stated: float | None = None) -> None:
        self.stated = stated
        self.measured_used = False
        self._table_threads: set[int] = set()  # with which the rates used from the table were measured
        self._measured: dict[tuple[str, str], list[float]] = {}

    def measure(self, runs: Iterable[PlannedRun]) -> None:
        """Take notice of what the runs have recorded."""
        for run in runs:
            try:
                records = read_iterations(run.config.directory)
                rates = [float(record[MEASURED]["steps_per_second"]) for record in records]
            except (ValueError, KeyError, TypeError):
                continue
            if rates:
                for key in (run.config.env, run.spec.family):
                    self._measured.setdefault((run.config.recipe_name, key), []).append(float(np.median(rates)))

    def of(self, run: PlannedRun) -> float | None:
        if self.stated is not None:
            return self.stated
        for key in (run.config.env, run.spec.family):
            if found := self._measured.get((run.config.recipe_name, key)):
                self.measured_used = True
                return float(np.mean(found))
        if run.config.device != "cpu":
            return None  # the table is of a CPU
        known = rate_table().get((run.spec.family, run.config.recipe_name), {})
        if not known:
            return None
        threads = min(known, key=lambda count: abs(count - (run.config.threads or 1)))
        self._table_threads.add(threads)
        return known[threads]

    @property
    def source(self) -> str:
        """Where they come from, in words."""
        if self.stated is not None:
            return f"at {self.stated:g} steps/s for each run, as stated"
        names = ["rates measured here"] * self.measured_used
        if self._table_threads:
            threads = " or ".join(map(str, sorted(self._table_threads)))
            names.append(f"a table of rates of another machine, of runs with {threads} thread{'s' * (threads != '1')}")
        return "by " + " and ".join(names) if names else "no rate is known yet; --rate states one"


@cache
def rate_table() -> dict[tuple[str, str], dict[int, float]]:
    """(family, recipe) -> threads -> agent steps per second, as `c2d bench` measured them (bench/rates.py)."""
    text = resources.files("c2d.sweep").joinpath("data/rates.csv").read_text(encoding="utf-8")
    table: dict[tuple[str, str], dict[int, float]] = {}
    for row in csv.DictReader(text.splitlines()):
        table.setdefault((row["family"], row["recipe"]), {})[int(row["threads"])] = float(row["steps_per_second"])
    return table


def need(run: PlannedRun, rates: Rates) -> Need:
    """What a run takes from its beginning to its end."""
    slots, frame = _slots(run, run.config.recipe.schedule.replay_capacity), run.spec.frame_bytes
    weights = _weights(run.config.recipe, run.spec)
    memory = _PROCESS + weights * _PER_WEIGHT + _in_memory(run, run.config.recipe.schedule.replay_capacity)
    if isinstance(run.config.recipe.head, parts.Implicit | parts.Fraction):
        memory += _MANY_ROWS
    without = weights * 4 + _BESIDE
    saved = without + (run.config.checkpoint.keep + 1) * weights * _SAVED_PER_WEIGHT + replay_bytes(slots, frame)
    rate = rates.of(run)
    return Need(int(memory), int(saved), int(without), None if rate is None else run.config.steps / rate)


def _slots(run: PlannedRun, capacity: int) -> int:
    """How many slots of a replay of this capacity will be written."""
    return min(capacity, run.config.recipe.schedule.random_history + run.config.steps)


def _in_memory(run: PlannedRun, capacity: int) -> int:
    """Bytes of a replay of this capacity: a large one is compressed, so it may take less than a smaller one."""
    slots, frame = _slots(run, capacity), run.spec.frame_bytes
    if compressed(frame, capacity, run.config.compress_replay):
        return replay_bytes(slots, frame)
    return slots * (frame + 16)


def _weights(recipe: Recipe, spec: EnvSpec) -> int:
    """Of the network. Each action adds the same number, so two networks tell of all games of a shape."""
    first, second = (_count(recipe, replace(spec, name="", actions=actions, action_names=())) for actions in (1, 2))
    return first + (spec.actions - 1) * (second - first)


@cache
def _count(recipe: Recipe, spec: EnvSpec) -> int:
    import torch

    from c2d.agents.build import build_network, parameter_count

    return parameter_count(build_network(recipe, spec, torch.Generator()))


def makespan(seconds: Sequence[float], slots: int) -> float:
    """When the last of these is done, if `slots` go on at once and each begins as soon as it can."""
    free = [0.0] * max(slots, 1)
    for duration in seconds:
        heapq.heapreplace(free, free[0] + duration)
    return max(free)


# ------------------------------------------------------------------------------------------------ what is there


def fitting(memory: int, largest: int) -> int:
    """How many of the largest runs fit into so much memory."""
    return memory // max(largest, 1)


def check_memory(runs: Sequence[PlannedRun], needs: Sequence[Need], memory: int, wanted: int | None) -> None:
    """Refuse what the machine cannot hold, with what it could."""
    if not runs:
        return
    run, largest = max(zip(runs, needs, strict=True), key=lambda pair: pair[1].memory)
    if largest.memory > memory:
        capacity = run.config.recipe.schedule.replay_capacity
        left = memory - (largest.memory - _in_memory(run, capacity))
        smaller = range(_slots(run, capacity) // 1_000 * 1_000, 0, -1_000)
        fits = next((slots for slots in smaller if _in_memory(run, slots) <= left), None)
        hint = "not even an empty replay would fit"
        if fits is not None:
            hint = f"--set schedule.replay-capacity={fits} would fit"
        raise UserError(f"{run.name} may take {size(largest.memory)} of memory and there are {size(memory)}: {hint}")
    fit = fitting(memory, largest.memory)
    if wanted is not None and min(wanted, len(runs)) > fit:
        raise UserError(
            f"--workers {wanted}: runs may take {size(largest.memory)} of memory each and there are {size(memory)}; "
            f"{fit} at once would fit"
        )


def check_gpus(share: float) -> None:
    """Refuse a share of GPUs where there are none."""
    import torch

    if share and not torch.cuda.is_available():
        raise UserError(
            f"--gpus-per-run {share:g}: PyTorch finds no GPU on this machine; leave it out, or give --address"
        )


def free_disk(path: Path) -> int:
    """Bytes that are left where a directory is or will be."""
    there = next(p for p in (path, *path.absolute().parents) if p.exists())
    return shutil.disk_usage(there).free


def check_disk(path: Path, needed: int, smaller: int, free: int) -> None:
    """Refuse a plan that the disk cannot hold."""
    if needed > free:
        hint = f"; with --keep-replay False about {size(smaller)}" if smaller < needed else ""
        raise UserError(
            f"the plan may take {size(needed)} on disk and {path} has {size(free)} left{hint}: make room, choose "
            "another --out, or lower schedule.replay-capacity"
        )
