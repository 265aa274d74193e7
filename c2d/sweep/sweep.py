"""A sweep from beginning to end: look, check, show, run, sum up."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout
from pathlib import Path
from typing import NamedTuple

from c2d.agents.sizes import available_memory
from c2d.errors import UserError
from c2d.files import open_own
from c2d.formatting import is_or_are, plural, size
from c2d.runs.lock import InUse, locked
from c2d.sweep.board import BUDGET, Board, Entry
from c2d.sweep.directory import Past, SweepDir, finished
from c2d.sweep.display import Display
from c2d.sweep.forecast import (
    Need,
    Rates,
    check_disk,
    check_gpus,
    check_memory,
    fitting,
    free_disk,
    need,
)
from c2d.sweep.plan import Listing, PlannedRun
from c2d.sweep.show import budget_line, forecast_lines, plan_lines
from c2d.sweep.terms import Terms, is_remote, prepare
from c2d.training.process import stop_requests

Tell = Callable[[str], None]


class Order(NamedTuple):
    """What is asked for."""

    plan: str  # its name
    listing: Listing
    where: Path
    terms: Terms
    rates: Rates
    again: bool = False  # those that failed before, too
    dry_run: bool = False


def sweep(order: Order, tell: Tell = print) -> Board:
    """Run what is not finished. KeyboardInterrupt if asked to stop, after every run has saved itself."""
    directory, terms = SweepDir(order.where), order.terms
    if (who := directory.active()) is not None:
        raise InUse(f"{directory.path} is in use by another sweep, {who}; wait for it or stop it first")
    directory.refuse_other_runs(order.listing.runs)
    order.rates.measure(order.listing.runs)
    needs = {run.name: need(run, order.rates) for run in order.listing.runs}
    board = _board(order, directory)
    todo = [entry.run for entry in board.of("waiting")]
    with ExitStack() as stack:
        if terms.address is not None:
            if is_remote(terms.address):
                tell(f"warning: anyone who can reach {terms.address} can run code on that cluster; keep it private")
            stack.enter_context(_ray(terms))
        board.slots = _announce(order, board, todo, needs, tell)
        if order.dry_run or not todo:
            return board
        directory.make()
        stack.enter_context(_one_at_a_time(directory))
        directory.tidy()
        directory.remember(order.plan, order.listing.runs)
        for run in todo:
            directory.tell("planned", run.name)
        if terms.address is None:
            stack.enter_context(_ray(terms))
        _launch(board, needs, directory, terms)
    _sum_up(board, directory, tell)
    return board


def _board(order: Order, directory: SweepDir) -> Board:
    past = directory.past()
    entries = []
    for run in order.listing.runs:
        before: Past | None = past.get(run.name)
        entry = Entry(run)
        if finished(run.config):
            entry.state = "done"
        elif before is not None and before.event == "failed" and not order.again:
            entry.state, entry.error, entry.lost = "failed", before.error, before.lost
        entries.append(entry)
    return Board(entries, order.rates)


@contextmanager
def _ray(terms: Terms) -> Iterator[None]:
    prepare(terms)
    from c2d.sweep.launch import connected

    with connected(terms):
        yield


@contextmanager
def _one_at_a_time(directory: SweepDir) -> Iterator[None]:
    try:
        with locked(directory.lock):
            yield
    except InUse as error:
        raise InUse(f"another sweep is at work: {error}") from None


def _announce(order: Order, board: Board, todo: Sequence[PlannedRun], needs: dict[str, Need], tell: Tell) -> int:
    """Show the plan and what it takes; refuse what does not fit. Returns how many runs will go on at once."""
    terms, runs = order.terms, order.listing.runs
    done, failed = board.count("done"), board.count("failed")
    tell(
        f"c2d sweep | plan {order.plan}: {plural(len(runs), 'run')} in {order.where}, {done} finished, "
        + f"{len(todo)} to do | "
        + (f"Ray at {terms.address}" if terms.address else "embedded Ray on 127.0.0.1")
        + f", {plural(terms.threads, 'thread')} a run"
        + (f", {terms.gpus:g} GPU a run" if terms.gpus else "")
    )
    for line in plan_lines(order.listing, needs):
        tell(line)
    if failed:
        tell(
            f"{failed} failed before and {is_or_are(failed)} left alone; again: c2d sweep retry {order.where} --failed"
        )
    if not todo:
        tell("nothing is left to do: raise --seeds or --iterations for more")
        return 1
    memory, slots = _places(terms, todo, [needs[run.name] for run in todo])
    disk, dropping = _disk(order, todo, needs, slots)
    free = free_disk(order.where)
    for line in forecast_lines(todo, needs, order.rates, slots, memory, (disk, free)):
        tell(line)
    if terms.budget is not None:
        tell(budget_line(todo, needs, slots, terms.budget))
    check_disk(order.where, disk, dropping, free)
    if order.dry_run:
        tell("nothing was run: leave out --dry-run to start")
    return slots


def _places(terms: Terms, todo: Sequence[PlannedRun], needs: Sequence[Need]) -> tuple[int, int]:
    """Memory that is there, and how many runs fit at once."""
    largest = max(need.memory for need in needs)
    if terms.address is not None:
        from c2d.sweep.launch import memory_of_largest_node, room

        memory = memory_of_largest_node()
        check_memory(todo, needs, memory, None)
        return memory, max(min(room(terms, largest), len(todo)), 1)
    check_gpus(terms.gpus)
    memory = available_memory()
    check_memory(todo, needs, memory, terms.workers)
    wanted = terms.workers or max(len(os.sched_getaffinity(0)) // terms.threads, 1)
    return memory, max(min(wanted, fitting(memory, largest), len(todo)), 1)


def _disk(order: Order, todo: Sequence[PlannedRun], needs: dict[str, Need], slots: int) -> tuple[int, int]:
    """Bytes needed beyond what is there, and how many without replays."""
    there = sum(_used(run.config.directory) for run in todo)
    keeping = max(sum(needs[run.name].disk for run in todo) - there, 0)
    at_once = sorted((needs[run.name].disk for run in todo), reverse=True)[:slots]
    dropping = max(sum(needs[run.name].disk_without_replay for run in todo) + sum(at_once) - there, 0)
    return keeping if order.terms.keep_replay else dropping, dropping


def _used(path: Path) -> int:
    """Bytes of its files; those that links lead to are not its own."""
    return sum(os.lstat(os.path.join(at, name)).st_size for at, _, names in os.walk(path) for name in names)


def _launch(board: Board, needs: dict[str, Need], directory: SweepDir, terms: Terms) -> None:
    from c2d.sweep.launch import Launcher

    display = Display(board)  # knows the terminal; what Ray prints meanwhile goes to a file
    descriptor = open_own(directory.log, os.O_WRONLY | os.O_APPEND)
    with open(descriptor, "a", encoding="utf-8") as log, redirect_stdout(log), display, stop_requests() as stop:
        launcher = Launcher(board, needs, directory, terms, display.show)
        launcher.check_room()
        launcher.go(stop)


def _sum_up(board: Board, directory: SweepDir, tell: Tell) -> None:
    failed, total, done = board.of("failed"), len(board.entries), board.count("done")
    lost = sum(entry.lost for entry in board.entries)
    times = "once" if lost == 1 else f"{lost} times"
    again = f"; processes or nodes died {times}, after which runs went on from their checkpoints" if lost else ""
    if board.stopping is not None:
        left = total - done - len(failed)
        tell(f"{board.stopping}: {done} of {plural(total, 'run')} done, {left} saved or waiting{again}"
             "; the same command goes on")  # fmt: skip
        if board.stopping != BUDGET:
            raise KeyboardInterrupt
        return
    if failed:
        names = ", ".join(entry.run.name for entry in failed[:5]) + (" …" if len(failed) > 5 else "")
        raise UserError(
            f"{len(failed)} of {plural(total, 'run')} failed: {names}; {done} {is_or_are(done)} done{again}; "
            f"why: c2d sweep status {directory.path}; again: c2d sweep retry {directory.path} --failed"
        )
    used = sum(_used(entry.run.config.directory) for entry in board.entries)
    all_runs = f"all {total} runs are" if total > 1 else "the run is"
    tell(f"{all_runs} in {directory.path} ({size(used)}){again}")
