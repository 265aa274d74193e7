"""A sweep from start to end: inspect the directory, check resources, show the plan, run it, summarize."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from pathlib import Path
from typing import NamedTuple

from c2d.agents.build import available_memory
from c2d.cluster.address import is_remote, prepare_ray_import
from c2d.errors import UserError
from c2d.files import open_own
from c2d.formatting import is_or_are, plural, size
from c2d.runs.lock import InUse, locked
from c2d.sweep.directory import SweepDir, is_finished
from c2d.sweep.display import (
    BUDGET_USED,
    Display,
    Estimates,
    RunProgress,
    SweepProgress,
    budget_line,
    forecast_lines,
    plan_lines,
)
from c2d.sweep.forecast import (
    Rates,
    ResourceEstimate,
    check_disk,
    check_gpus,
    check_memory,
    estimate,
    free_disk,
    runs_that_fit,
)
from c2d.sweep.options import SweepOptions
from c2d.sweep.plan import ExpandedPlan, PlannedRun
from c2d.training.process import stop_requests

Print = Callable[[str], None]


class SweepRequest(NamedTuple):
    """What to run, where and how."""

    name: str  # of the plan
    plan: ExpandedPlan
    path: Path
    options: SweepOptions
    rates: Rates
    retry_failed: bool = False
    dry_run: bool = False


def run_sweep(request: SweepRequest, output: Print = print) -> SweepProgress:
    """Run what is not finished. After a stop request, raises KeyboardInterrupt once every run has saved itself."""
    directory, options, runs = SweepDir(request.path), request.options, request.plan.runs
    if (process := directory.active_process()) is not None:
        raise InUse(f"{directory.path} is in use by another sweep, {process}; wait for it or stop it first")
    directory.reject_other_runs(runs)
    request.rates.measure(runs)
    estimates = {run.name: estimate(run, request.rates) for run in runs}
    progress = _initial_progress(request, directory)
    todo = [entry.run for entry in progress.with_state("waiting")]
    with ExitStack() as stack:
        if options.address is not None:
            if is_remote(options.address):
                output(f"warning: anyone who can reach {options.address} can run code on that cluster; keep it private")
            stack.enter_context(_ray(options))
        progress.slots = _show_plan(request, progress, todo, estimates, output)
        if request.dry_run or not todo:
            return progress
        directory.create()
        stack.enter_context(_only_sweep(directory))
        directory.clean_up()
        directory.save_plan(request.name, runs)
        for run in todo:
            directory.append_event("planned", run.name)
        if options.address is None:
            stack.enter_context(_ray(options))
        _launch(progress, estimates, directory, options)
    _summarize(progress, directory, output)
    return progress


def _initial_progress(request: SweepRequest, directory: SweepDir) -> SweepProgress:
    history = directory.history()
    entries = []
    for run in request.plan.runs:
        before = history.get(run.name)
        entry = RunProgress(run)
        if is_finished(run.config):
            entry.state = "done"
        elif before is not None and before.event == "failed" and not request.retry_failed:
            entry.state, entry.error, entry.lost = "failed", before.error, before.lost
        entries.append(entry)
    return SweepProgress(entries, request.rates)


@contextmanager
def _ray(options: SweepOptions) -> Iterator[None]:
    prepare_ray_import(options.address)
    from c2d.cluster.ray_connection import connected

    with connected(options.address, (options.workers or 1) * options.threads):
        yield


@contextmanager
def _only_sweep(directory: SweepDir) -> Iterator[None]:
    try:
        with locked(directory.lock):
            yield
    except InUse as error:
        raise InUse(f"another sweep is active: {error}") from None


# ------------------------------------------------------------------------------------------------------- before


def _show_plan(
    request: SweepRequest, progress: SweepProgress, todo: Sequence[PlannedRun], estimates: Estimates, output: Print
) -> int:
    """Show the plan and what it needs; reject what does not fit. Returns the number of runs at once."""
    options, runs = request.options, request.plan.runs
    done, failed = progress.count("done"), progress.count("failed")
    output(
        f"c2d sweep | plan {request.name}: {plural(len(runs), 'run')} in {request.path}, {done} finished, "
        + f"{len(todo)} to do | "
        + (f"Ray at {options.address}" if options.address else "embedded Ray on 127.0.0.1")
        + f", {plural(options.threads, 'thread')} per run"
        + (f", {options.gpus:g} GPU per run" if options.gpus else "")
    )
    for line in plan_lines(request.plan, estimates):
        output(line)
    if failed:
        skipped = f"{failed} failed before and {is_or_are(failed)} skipped"
        output(f"{skipped}; retry with: c2d sweep retry {request.path} --failed")
    if not todo:
        output("nothing left to do: raise --seeds or --iterations for more")
        return 1
    memory, slots = _memory_and_slots(options, todo, [estimates[run.name] for run in todo])
    disk, without_replays = _disk(request, todo, estimates, slots)
    free = free_disk(request.path)
    for line in forecast_lines(todo, estimates, request.rates, slots, memory, (disk, free)):
        output(line)
    if options.budget is not None:
        output(budget_line(todo, estimates, slots, options.budget))
    check_disk(request.path, disk, without_replays, free)
    if request.dry_run:
        output("nothing was run: omit --dry-run to start")
    return slots


def _memory_and_slots(
    options: SweepOptions, todo: Sequence[PlannedRun], estimates: Sequence[ResourceEstimate]
) -> tuple[int, int]:
    """Available memory in bytes, and how many runs fit at once."""
    largest = max(each.memory for each in estimates)
    if options.address is not None:
        from c2d.sweep.launch import capacity, memory_of_largest_node

        memory = memory_of_largest_node()
        check_memory(todo, estimates, memory, None)
        return memory, max(min(capacity(options, largest), len(todo)), 1)
    check_gpus(options.gpus)
    memory = available_memory()
    check_memory(todo, estimates, memory, options.workers)
    wanted = options.workers or max(len(os.sched_getaffinity(0)) // options.threads, 1)
    return memory, max(min(wanted, runs_that_fit(memory, largest), len(todo)), 1)


def _disk(request: SweepRequest, todo: Sequence[PlannedRun], estimates: Estimates, slots: int) -> tuple[int, int]:
    """Bytes needed in addition to those already used, and the same without replays."""
    used = sum(_used(run.config.directory) for run in todo)
    with_replays = max(sum(estimates[run.name].disk for run in todo) - used, 0)
    at_once = sorted((estimates[run.name].disk for run in todo), reverse=True)[:slots]
    without_replays = max(sum(estimates[run.name].disk_without_replay for run in todo) + sum(at_once) - used, 0)
    return with_replays if request.options.keep_replay else without_replays, without_replays


def _used(path: Path) -> int:
    """Bytes of the files in a directory; links are not followed."""
    return sum(os.lstat(os.path.join(at, name)).st_size for at, _, names in os.walk(path) for name in names)


# ------------------------------------------------------------------------------------------------ during and after


def _launch(progress: SweepProgress, estimates: Estimates, directory: SweepDir, options: SweepOptions) -> None:
    from c2d.sweep.launch import Launcher

    display = Display(progress)  # created before the redirection: it writes to the terminal, Ray to a file
    descriptor = open_own(directory.log, os.O_WRONLY | os.O_APPEND)
    with open(descriptor, "a", encoding="utf-8") as log, redirect_stdout(log), display, stop_requests() as stop:
        launcher = Launcher(progress, estimates, directory, options, display.show)
        launcher.check_capacity()
        launcher.run(stop)


def _summarize(progress: SweepProgress, directory: SweepDir, output: Print) -> None:
    failed, total, done = progress.with_state("failed"), len(progress.entries), progress.count("done")
    lost = sum(entry.lost for entry in progress.entries)
    times = "once" if lost == 1 else f"{lost} times"
    deaths = f"; processes or nodes died {times}, and the runs resumed from their checkpoints" if lost else ""
    if progress.stopping is not None:
        left = total - done - len(failed)
        output(f"{progress.stopping}: {done} of {plural(total, 'run')} done, {left} saved or waiting{deaths}"
               "; rerun the command to resume")  # fmt: skip
        if progress.stopping != BUDGET_USED:
            raise KeyboardInterrupt
        return
    if failed:
        names = ", ".join(entry.run.name for entry in failed[:5]) + (" …" if len(failed) > 5 else "")
        raise UserError(
            f"{len(failed)} of {plural(total, 'run')} failed: {names}; {done} {is_or_are(done)} done{deaths}; "
            f"reasons: c2d sweep status {directory.path}; retry with: c2d sweep retry {directory.path} --failed"
        )
    used = sum(_used(entry.run.config.directory) for entry in progress.entries)
    all_runs = f"all {total} runs are" if total > 1 else "the run is"
    output(f"{all_runs} in {directory.path} ({size(used)}){deaths}")
