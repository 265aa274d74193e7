"""A sweep on Ray: each run is an actor, placed where there is room.

Ray decides where and when a run starts, and notices when a process or a node dies; the run then restarts elsewhere from
its last checkpoint. This file keeps as many runs submitted as fit, collects their reports, and records what happened.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from c2d.cluster.ray_connection import NODE_DIED, failure_reason, last_line, living_nodes, ray
from c2d.config import to_json
from c2d.errors import UserError
from c2d.sweep.directory import SweepDir
from c2d.sweep.display import BUDGET_USED, RunProgress, State, SweepProgress
from c2d.sweep.forecast import ResourceEstimate
from c2d.sweep.options import SweepOptions
from c2d.sweep.transfer import RunReceiver, read_run_file, transfer_order
from c2d.sweep.worker import RunWorker, WorkerReport, WorkerRequest
from c2d.user_code import TRUSTED

_REPORT = 1.0  # seconds between reports of a run
_MAX_MISPLACED = 10  # times a run may be sent to a dead node before that counts as a death
_GRACE = 120.0  # seconds for runs to save themselves when the sweep stops


# -------------------------------------------------------------------------------------------------------- capacity


def capacity(options: SweepOptions, memory: int) -> int:
    """How many runs that need this much memory fit on the living nodes at once."""
    places = 0
    for node in living_nodes():
        limits = [node.get("CPU", 0.0) / options.threads, node.get("memory", 0.0) / max(memory, 1)]
        limits += [node.get("GPU", 0.0) / options.gpus] if options.gpus else []
        places += int(min(limits) + 1e-9)
    return places if options.workers is None else min(places, options.workers)


def memory_of_largest_node() -> int:
    return int(max((node.get("memory", 0.0) for node in living_nodes()), default=0.0))


def _retries_used_up(reason: str, deaths: int, retries: int) -> str:
    allowed = f"{retries} {'retry was' if retries == 1 else 'retries were'} allowed"
    return f"{reason}{f', {deaths} times' * (deaths > 1)}, and {allowed}"


# ------------------------------------------------------------------------------------------------------- launching


class _Actor(RunWorker):
    """A run in a process that Ray starts for it."""

    def __init__(self, request: WorkerRequest) -> None:
        super().__init__(request, own_process=True)

    def place(self) -> tuple[str, bool]:
        """Its node, and whether that shares the sweep's directory."""
        return str(ray.util.get_node_ip_address()), self.shared

    def start_with(self, files: list[tuple[str, Any]]) -> None:
        self.start(files, ray.get)


@dataclass
class _ActiveRun:
    """A run that was handed to Ray."""

    entry: RunProgress
    actor: Any
    receiver: RunReceiver


class Launcher:
    """Executes the waiting runs of a sweep."""

    def __init__(
        self,
        progress: SweepProgress,
        estimates: dict[str, ResourceEstimate],
        sweep: SweepDir,
        options: SweepOptions,
        show: Callable[[SweepProgress], None],
    ) -> None:
        self.progress, self.estimates, self.sweep, self.options = progress, estimates, sweep, options
        self.show = show
        self._token = sweep.new_token()
        self._waiting = deque(progress.with_state("waiting"))
        self._active: dict[Any, _ActiveRun] = {}  # by the pending answer
        self._largest = max((estimates[entry.run.name].memory for entry in self._waiting), default=1)

    def check_capacity(self) -> None:
        """Reject a plan with a run that fits on no node."""
        nodes, options = living_nodes(), self.options
        if options.gpus and not any(node.get("GPU", 0.0) >= min(options.gpus, 1.0) for node in nodes):
            raise UserError(f"--gpus-per-run is {options.gpus:g}, but Ray knows of no GPU here")
        if not capacity(options, self._largest):
            most = max(node.get("CPU", 0.0) for node in nodes)
            raise UserError(f"--threads is {options.threads}; accepted: at most {most:g}, the CPUs of the largest node")

    def run(self, stop: threading.Event) -> None:
        """Returns when all runs have ended, or after a stop when all have saved themselves."""
        started, checked, stopped = time.monotonic(), 0.0, 0.0
        budget = self.options.budget
        while self._active or (self._waiting and not stopped):
            now = time.monotonic()
            if budget is not None and now - started >= budget and not stop.is_set():
                self.progress.stopping = BUDGET_USED
                stop.set()
            if stop.is_set() and not stopped:
                stopped = now
                self._request_stop()
            if stopped and now - stopped > _GRACE:
                break
            if now - checked > 2.0:
                checked, self.progress.slots = now, max(capacity(self.options, self._largest), 1)
            if not stopped:
                self._submit()
            self._collect()
            self.show(self.progress)
        for active in self._active.values():
            ray.kill(active.actor)
            self._leave(active, "stopped", "stopped")

    def _submit(self) -> None:
        extra = 1 if self.options.address else 0  # tells a cluster that can grow that it should
        while self._waiting and len(self._active) < self.progress.slots + extra:
            entry = self._waiting.popleft()
            entry.starting = True
            actor = (
                ray.remote(_Actor)
                .options(
                    num_cpus=self.options.threads,
                    num_gpus=self.options.gpus,
                    memory=self.estimates[entry.run.name].memory,
                    max_concurrency=3,
                )
                .remote(self._request(entry))
            )
            self._active[actor.place.remote()] = _ActiveRun(entry, actor, RunReceiver(entry.run.config.directory))

    def _request(self, entry: RunProgress) -> WorkerRequest:
        path = entry.run.config.directory.absolute()
        return WorkerRequest(
            config=to_json(replace(entry.run.config, run_dir=str(path))),
            marker=str(self.sweep.marker.absolute()),
            token=self._token,
            ship=self.options.ship,
            trusted=tuple(TRUSTED),
            keep_replay=self.options.keep_replay,
        )

    def _start(self, active: _ActiveRun, where: str, shared: bool) -> None:
        """A worker has its place; one that does not share the disk gets the files of the run."""
        entry, path = active.entry, active.entry.run.config.directory
        names = [] if shared or not path.is_dir() else transfer_order(path)
        active.actor.start_with.remote([(name, ray.put(read_run_file(path, name))) for name in names])
        entry.state, entry.starting, entry.where, entry.error = "running", False, where, None
        self.sweep.append_event("started", entry.run.name, where=where, attempt=entry.lost + 1)

    def _collect(self) -> None:
        """Process the answers that have arrived; wait a moment if there are none."""
        ready, _ = ray.wait(list(self._active), num_returns=len(self._active), timeout=0.0)
        if not ready:
            ready, _ = ray.wait(list(self._active), num_returns=1, timeout=0.2)
        for answer in ready:
            active = self._active.pop(answer)
            try:
                value = ray.get(answer)
            except ray.exceptions.RayTaskError as error:  # in our own code
                self._leave(active, "failed", "failed", last_line(error))
            except ray.exceptions.RayError as error:
                self._died(active, error)
            else:
                self._answered(active, value)

    def _answered(self, active: _ActiveRun, value: WorkerReport | tuple[str, bool]) -> None:
        if isinstance(value, WorkerReport):
            active.receiver.put(value.items)
            active.entry.update(value.steps, value.score)
            if value.state is not None:
                self._ended(active, value)
                return
        else:
            self._start(active, *value)
        self._active[active.actor.report.remote(_REPORT)] = active

    def _ended(self, active: _ActiveRun, report: WorkerReport) -> None:
        ray.kill(active.actor)  # it has nothing left to do
        if report.state == "finished":
            self._leave(active, "done", "finished")
        elif report.state == "interrupted":
            self._leave(active, "stopped", "stopped")
        else:
            self._leave(active, "failed", "failed", report.error)

    def _died(self, active: _ActiveRun, error: Exception) -> None:
        """The process or node is gone: retry from the last checkpoint if retries are left."""
        entry, reason = active.entry, failure_reason(error)
        started = not entry.starting
        with suppress(ray.exceptions.RayError, ValueError):
            ray.kill(active.actor)
        if self.progress.stopping is not None:
            self._leave(active, "stopped", "stopped")
            return
        if not started and reason == NODE_DIED and entry.misplaced < _MAX_MISPLACED:
            entry.misplaced += 1  # Ray chose a node whose death it had not noticed: the same death, not another
            entry.leave("waiting", entry.error)
            self._waiting.appendleft(entry)
            return
        entry.lost += 1
        self.sweep.append_event("lost", entry.run.name, where=entry.where, error=reason)
        if entry.lost <= self.options.retries:
            self.progress.notes.append(f"{entry.run.name}: {reason}; resuming from its last checkpoint")
            entry.leave("waiting", reason)
            self._waiting.appendleft(entry)
        else:
            self._leave(active, "failed", "failed", _retries_used_up(reason, entry.lost, self.options.retries))

    def _leave(self, active: _ActiveRun, state: State, event: str, error: str | None = None) -> None:
        entry = active.entry
        entry.leave(state, error)
        self.sweep.append_event(event, entry.run.name, where=entry.where, error=error, lost=entry.lost)

    def _request_stop(self) -> None:
        self.progress.stopping = self.progress.stopping or "stop requested"
        for answer, active in list(self._active.items()):
            if active.entry.state == "running":
                active.actor.stop.remote()
            else:  # not started yet
                ray.kill(active.actor)
                del self._active[answer]
