"""What a plan needs: time, memory and disk; whether this machine has it; and what it would cost on GPUs."""

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
from c2d.formatting import duration, plural, size
from c2d.recipes import parts
from c2d.recipes.recipe import Recipe
from c2d.replay.ring import compressed
from c2d.runs.reader import read_iterations
from c2d.runs.records import MEASURED
from c2d.sweep.plan import PlannedRun
from c2d.training.process import replay_bytes

_PROCESS = 450e6  # bytes: Python, torch, Ray and an emulator
_PER_WEIGHT = 28  # bytes: two networks, gradients, two moments, and a copy when saving
_SAVED_PER_WEIGHT = 16  # bytes: two networks, two moments
_SAMPLED_FRACTIONS = 250e6  # bytes: activations of heads that sample fractions, one row for each
_SMALL_FILES = 3e6  # bytes: records, weights and the rest


# ------------------------------------------------------------------------------------------------------------ time


class Rates:
    """Agent steps per second of a run: as stated, else as measured in this directory, else from the shipped table."""

    def __init__(self, stated: float | None = None) -> None:
        self.stated = stated
        self.measured_used = False
        self._table_threads: set[int] = set()  # thread counts of the table entries in use
        self._measured: dict[tuple[str, str], list[float]] = {}

    def measure(self, runs: Iterable[PlannedRun]) -> None:
        """Read the rates that the runs have recorded so far."""
        for run in runs:
            try:
                records = read_iterations(run.config.directory)
                rates = [float(record[MEASURED]["steps_per_second"]) for record in records]
            except (OSError, ValueError, KeyError, TypeError):
                continue
            if rates:
                for key in (run.config.env, run.spec.family):
                    self._measured.setdefault((run.config.recipe_name, key), []).append(float(np.median(rates)))

    def for_run(self, run: PlannedRun) -> float | None:
        """None if no rate is known."""
        if self.stated is not None:
            return self.stated
        for key in (run.config.env, run.spec.family):
            if measured := self._measured.get((run.config.recipe_name, key)):
                self.measured_used = True
                return float(np.mean(measured))
        if run.config.device != "cpu":
            return None  # the table is for CPUs
        by_threads = rate_table().get((run.spec.family, run.config.recipe_name), {})
        if not by_threads:
            return None
        threads = min(by_threads, key=lambda count: abs(count - (run.config.threads or 1)))
        self._table_threads.add(threads)
        return by_threads[threads]

    @property
    def source(self) -> str:
        """Where the rates come from, in words."""
        if self.stated is not None:
            return f"at {self.stated:g} steps/s per run, as stated"
        names = ["rates measured here"] * self.measured_used
        if self._table_threads:
            threads = " or ".join(map(str, sorted(self._table_threads)))
            names.append(f"reference rates (another machine, {threads} thread{'s' * (threads != '1')} per run)")
        return "using " + " and ".join(names) if names else "no rate is known yet; --rate sets one"


@cache
def rate_table() -> dict[tuple[str, str], dict[int, float]]:
    """(family, recipe) -> threads -> agent steps per second, as measured by `c2d bench` (`make study-rates`)."""
    text = resources.files("c2d.sweep").joinpath("data/rates.csv").read_text(encoding="utf-8")
    table: dict[tuple[str, str], dict[int, float]] = {}
    for row in csv.DictReader(text.splitlines()):
        table.setdefault((row["family"], row["recipe"]), {})[int(row["threads"])] = float(row["steps_per_second"])
    return table


def makespan(seconds: Sequence[float], slots: int) -> float:
    """When the last of these runs ends, if `slots` run at once and each starts as soon as a slot is free."""
    free = [0.0] * max(slots, 1)
    for duration_of_run in seconds:
        heapq.heapreplace(free, free[0] + duration_of_run)
    return max(free)


# -------------------------------------------------------------------------------------------------- memory and disk


class ResourceEstimate(NamedTuple):
    """What one run needs from start to end."""

    memory: int  # bytes, approximate upper bound
    disk: int  # bytes, when it is finished
    disk_without_replay: int
    seconds: float | None  # None if no rate is known


def estimate(run: PlannedRun, rates: Rates) -> ResourceEstimate:
    schedule, frame = run.config.recipe.schedule, run.spec.frame_bytes
    weights = _weights(run.config.recipe, run.spec)
    memory = _PROCESS + weights * _PER_WEIGHT + _replay_memory(run, schedule.replay_capacity)
    if isinstance(run.config.recipe.head, parts.Implicit | parts.Fraction):
        memory += _SAMPLED_FRACTIONS
    if _is_large(run):
        memory += _update_bytes(run)
    without_replay = weights * 4 + _SMALL_FILES
    checkpoints = (run.config.checkpoint.keep + 1) * weights * _SAVED_PER_WEIGHT
    slots = _slots(run, schedule.replay_capacity)
    disk = without_replay + checkpoints + replay_bytes(slots, frame) + slots * run.spec.mask_bytes
    rate = rates.for_run(run)
    seconds = None if rate is None else run.config.steps / rate
    return ResourceEstimate(int(memory), int(disk), int(without_replay), seconds)


def _is_large(run: PlannedRun) -> bool:
    """Whether a run has the residual encoder: it fills a GPU alone, and its feature maps count."""
    return isinstance(run.config.recipe.encoder, parts.Impala)


def _update_bytes(run: PlannedRun) -> int:
    from c2d.agents.build import update_bytes

    return update_bytes(run.config.recipe, run.spec)


def _slots(run: PlannedRun, capacity: int) -> int:
    """How many slots of a replay of this capacity get filled."""
    return min(capacity, run.config.recipe.schedule.random_history + run.config.steps)


def _replay_memory(run: PlannedRun, capacity: int) -> int:
    """Bytes of a replay of this capacity. A large one is compressed, so it may need less than a smaller one."""
    slots, frame = _slots(run, capacity), run.spec.frame_bytes
    if compressed(frame, capacity, run.config.compress_replay):
        return replay_bytes(slots, frame) + slots * run.spec.mask_bytes
    return slots * (frame + 16 + run.spec.mask_bytes)


def _weights(recipe: Recipe, spec: EnvSpec) -> int:
    """Weights of the network: linear in the number of actions, so two networks determine it for all."""
    first, second = (_count(recipe, replace(spec, name="", actions=actions, action_names=())) for actions in (1, 2))
    return first + (spec.actions - 1) * (second - first)


@cache
def _count(recipe: Recipe, spec: EnvSpec) -> int:
    import torch

    from c2d.agents.build import build_network, parameter_count

    return parameter_count(build_network(recipe, spec, torch.Generator()))


# ---------------------------------------------------------------------------------------------------------- checks


def runs_that_fit(memory: int, largest: int) -> int:
    """How many runs of the largest kind fit into this much memory."""
    return memory // max(largest, 1)


def check_memory(
    runs: Sequence[PlannedRun], estimates: Sequence[ResourceEstimate], memory: int, workers: int | None
) -> None:
    """Reject what does not fit into memory, and say what would."""
    if not runs:
        return
    run, largest = max(zip(runs, estimates, strict=True), key=lambda pair: pair[1].memory)
    if largest.memory > memory:
        capacity = run.config.recipe.schedule.replay_capacity
        left = memory - (largest.memory - _replay_memory(run, capacity))
        smaller = range(_slots(run, capacity) // 1_000 * 1_000, 0, -1_000)
        fits = next((slots for slots in smaller if _replay_memory(run, slots) <= left), None)
        hint = "not even an empty replay would fit"
        if fits is not None:
            hint = f"--set schedule.replay-capacity={fits} would fit"
        raise UserError(f"{run.name} may need {size(largest.memory)} of memory, {size(memory)} are available: {hint}")
    fit = runs_that_fit(memory, largest.memory)
    if workers is not None and min(workers, len(runs)) > fit:
        raise UserError(
            f"--workers is {workers}; accepted: at most {fit}, since a run may need {size(largest.memory)} of memory "
            f"and {size(memory)} are available"
        )


def check_gpus(share: float) -> None:
    """Reject a share of GPUs on a machine without any."""
    import torch

    if share and not torch.cuda.is_available():
        raise UserError(
            f"--gpus-per-run is {share:g}, but PyTorch finds no GPU on this machine; omit it or use --address"
        )


def free_disk(path: Path) -> int:
    """Free bytes where a directory is or will be."""
    existing = next(p for p in (path, *path.absolute().parents) if p.exists())
    return shutil.disk_usage(existing).free


def check_disk(path: Path, needed: int, without_replays: int, free: int) -> None:
    """Reject a plan that does not fit on the disk."""
    if needed > free:
        hint = f"; with --keep-replay False about {size(without_replays)}" if without_replays < needed else ""
        raise UserError(
            f"the plan may need {size(needed)} on disk, {path} has {size(free)} free{hint}: free some space, choose "
            "another --out, or lower schedule.replay-capacity"
        )


# -------------------------------------------------------------------------------------------------------------- cost

_GPUS = (1, 8, 64)
_PACKED = 4  # runs that share a GPU, with --gpus-per-run 0.25
_ASSUMED = (120.0, 300.0)  # agent steps per second of one run
_ASSUMPTIONS = (
    "Rates of one run are assumed: 120 steps/s as a user of Dopamine reports of a cloud GPU (30 to 40 minutes for "
    "250,000 steps: google/dopamine#179), 300 steps/s as a user reports of an RTX 2080 SUPER (Kaixhin/Rainbow#71). "
    "--rate states another."
)
_ASSUMED_LARGE = (1_208.0, 434.0)  # of runs with the residual encoder
_ASSUMPTIONS_LARGE = (
    "Rates of one run are assumed: those at which BTR's authors report 200M frames in 11.5 hours on an RTX 4090 and in "
    "32 hours on an RTX 2080 Ti (Clark et al. 2024), with 64 environments in processes of their own. --rate states "
    "another."
)


def cost_lines(runs: Sequence[PlannedRun], estimates: Sequence[ResourceEstimate], rate: float | None) -> list[str]:
    """A Markdown table of time, memory and disk on 1, 8 and 64 GPUs, at assumed rates or the given one."""
    steps = sum(run.config.steps for run in runs)
    memory = max(each.memory for each in estimates)
    disk = max(each.disk for each in estimates)
    large = any(map(_is_large, runs))
    assumed, assumptions = (_ASSUMED_LARGE, _ASSUMPTIONS_LARGE) if large else (_ASSUMED, _ASSUMPTIONS)
    most = 1 if large else _PACKED  # runs on a GPU
    lines = [
        f"{plural(len(runs), 'run')}, {steps:,} agent steps. A run takes up to {size(memory)} of memory; a "
        f"finished one up to {size(disk)} on disk with its replay, "
        f"{size(max(each.disk_without_replay for each in estimates))} without.",
        "",
        assumptions if rate is None else f"Rate of one run: {rate:g} steps/s, as stated.",
        "A run is assumed to fill a GPU." if large else f"Each of {most} runs on one GPU is assumed to keep that rate.",
        "",
        f"| | {' | '.join(plural(gpus, 'GPU') for gpus in _GPUS)} |",
        "|---" * (len(_GPUS) + 1) + "|",
    ]
    for each_rate in assumed if rate is None else (rate,):
        for packed in sorted({1, most}):
            times = [run.config.steps / each_rate for run in runs]
            cells = [duration(makespan(times, gpus * packed)) for gpus in _GPUS]
            lines.append(_markdown_row(f"time at {each_rate:g} steps/s, {plural(packed, 'run')} on a GPU", cells))
    at_once = [min(gpus * most, len(runs)) for gpus in _GPUS]
    without = sum(each.disk_without_replay for each in estimates)
    lines += [
        _markdown_row(
            f"memory of all nodes, {plural(most, 'run')} on a GPU", [size(memory * count) for count in at_once]
        ),
        _markdown_row("disk with `--keep-replay False`", [size(without + disk * count) for count in at_once]),
        _markdown_row("disk with all replays", [size(sum(each.disk for each in estimates))] * len(_GPUS)),
    ]
    return lines


def _markdown_row(name: str, cells: Sequence[str]) -> str:
    return f"| {name} | {' | '.join(cells)} |"
