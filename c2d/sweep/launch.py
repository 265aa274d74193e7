"""A sweep on Ray: each run is an actor, placed where there is room. The only file that imports Ray.

Ray decides where and when a run starts and notices when a process or a node dies; the run then starts again
elsewhere from its last checkpoint. This file keeps as many runs submitted as fit, asks them for news, and writes
down what happened.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from c2d.agents.sizes import available_memory
from c2d.config import to_json
from c2d.errors import UserError
from c2d.recipes.user_code import TRUSTED
from c2d.sweep.board import BUDGET, Board, Entry
from c2d.sweep.deaths import NODE_DIED, last_line, too_often, why
from c2d.sweep.directory import SweepDir
from c2d.sweep.forecast import Need
from c2d.sweep.private import private_place
from c2d.sweep.quiet import without_stderr
from c2d.sweep.terms import LOOPBACK, Terms
from c2d.sweep.transfer import Inbox, listing, read_all
from c2d.sweep.worker import News, Request, Trainer

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_worker_niceness", "0")  # of an embedded Ray: runs are no less urgent than `c2d train`
try:
    import ray
    import ray.exceptions
except ImportError:
    raise UserError("sweeps run on Ray, which is not installed: pip install 'c2d[cluster]'") from None
if not hasattr(ray.exceptions, "AuthenticationError"):
    raise UserError(f"Ray {ray.__version__} knows no tokens; sweeps need 2.52 or later: pip install 'c2d[cluster]'")

_STORE = 256 << 20  # bytes of shared memory of an embedded Ray: runs that share the disk send next to nothing
_NEWS = 1.0  # seconds between news of a run
_MISPLACED = 10  # times that a run may be sent to a dead node before that counts as a death
_GRACE = 120.0  # seconds for runs to save themselves when asked to stop


# ------------------------------------------------------------------------------------------------------- Ray itself


@contextmanager
def connected(terms: Terms) -> Iterator[None]:
    """Ray, embedded or at an address. One that this process has already is used if it is the one asked for."""
    if ray.is_initialized():
        there = ray.get_runtime_context().gcs_address
        if terms.address != there:
            wanted = terms.address or "an embedded one"
            raise UserError(f"this process uses Ray at {there} already, not {wanted}: call ray.shutdown() first")
        yield
        return
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    with ExitStack() as stack:
        try:
            if terms.address is None:
                stack.callback(_see_token)
                place = stack.enter_context(private_place())
                _see_token()
                stack.callback(ray.shutdown)
                _embed(terms, place, quiet)
            else:
                _admitted(terms.address)
                stack.callback(ray.shutdown)
                ray.init(address=terms.address, **quiet)
        except UserError:
            raise
        except Exception as error:  # of many kinds, plain ones among them
            where = f"the cluster at {terms.address}" if terms.address else "an embedded Ray"
            raise UserError(f"{where} could not be used: {' '.join(str(error).split())[:300]}") from None
        yield


def _see_token() -> None:
    """Have Ray look again at the variables that tell its token, which it remembers."""
    ray._raylet.Config.initialize("")
    ray._raylet.AuthenticationTokenLoader.instance().reset_cache()


def _admitted(address: str) -> None:
    """Refuse at once a cluster whose token we do not have; Ray itself would try for long and not say why."""
    if address == "auto":
        return
    try:
        with without_stderr():
            ray._raylet.GcsClient(address=address)
    except ray.exceptions.AuthenticationError:
        raise UserError(
            f"the cluster at {address} wants a token: set RAY_AUTH_MODE=token where its token is in ~/.ray/auth_token "
            "(`ray get-auth-token` on its head prints it)"
        ) from None


def _embed(terms: Terms, place: str, quiet: dict[str, Any]) -> None:
    """Reachable by this user on this machine alone, without a dashboard; it ends with this process in any case."""
    cores = len(os.sched_getaffinity(0))
    ray.init(
        address="local",
        num_cpus=max(cores, (terms.workers or 1) * terms.threads),
        include_dashboard=False,
        object_store_memory=_STORE,
        _memory=max(available_memory() - _STORE, 1 << 20),
        _node_ip_address="127.0.0.1",
        _temp_dir=place,
        **quiet,
    )
    if (address := ray.util.get_node_ip_address()) != "127.0.0.1":
        ray.shutdown()
        raise UserError(f"Ray would listen at {address}, beyond this machine: set {LOOPBACK}=0 before importing ray")


def room(terms: Terms, memory: int) -> int:
    """How many runs with so much memory fit on the living nodes at once."""
    places = 0
    for node in _nodes():
        by = [node.get("CPU", 0.0) / terms.threads, node.get("memory", 0.0) / max(memory, 1)]
        by += [node.get("GPU", 0.0) / terms.gpus] if terms.gpus else []
        places += int(min(by) + 1e-9)
    return places if terms.workers is None else min(places, terms.workers)


def memory_of_largest_node() -> int:
    return int(max((node.get("memory", 0.0) for node in _nodes()), default=0.0))


def _nodes() -> list[dict[str, float]]:
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


class _Actor(Trainer):
    """A run in a process that Ray starts for it."""

    def __init__(self, request: Request) -> None:
        super().__init__(request, own_process=True)

    def place(self) -> tuple[str, bool]:
        """Where it is, and whether the sweep's directory can be seen from there."""
        return str(ray.util.get_node_ip_address()), self.shared

    def start(self, files: list[tuple[str, Any]]) -> None:
        self.begin(files, ray.get)


# --------------------------------------------------------------------------------------------------------- the sweep


@dataclass
class _Active:
    """A run that was handed to Ray."""

    entry: Entry
    actor: Any
    inbox: Inbox


class Launcher:
    """Carries out what waits on a board."""

    def __init__(
        self, board: Board, needs: dict[str, Need], sweep: SweepDir, terms: Terms, show: Callable[[Board], None]
    ) -> None:
        self.board, self.needs, self.sweep, self.terms, self.show = board, needs, sweep, terms, show
        self._token = sweep.new_token()
        self._waiting = deque(board.of("waiting"))
        self._active: dict[Any, _Active] = {}  # by the news they were asked for
        self._largest = max((needs[entry.run.name].memory for entry in self._waiting), default=1)

    def check_room(self) -> None:
        """Refuse a plan of which some run fits nowhere."""
        nodes, terms = _nodes(), self.terms
        if terms.gpus and not any(node.get("GPU", 0.0) >= min(terms.gpus, 1.0) for node in nodes):
            raise UserError(f"--gpus-per-run {terms.gpus:g}: Ray knows of no GPU here")
        if not room(terms, self._largest):
            most = max(node.get("CPU", 0.0) for node in nodes)
            raise UserError(f"--threads {terms.threads}: no node has so many; the largest has {most:g} CPUs")

    def go(self, stop: threading.Event) -> None:
        """Until all runs have ended, or until asked to stop and all have saved themselves."""
        began, looked, asked = time.monotonic(), 0.0, 0.0
        budget = self.terms.budget
        while self._active or (self._waiting and not asked):
            now = time.monotonic()
            if budget is not None and now - began >= budget and not stop.is_set():
                self.board.stopping = BUDGET
                stop.set()
            if stop.is_set() and not asked:
                asked = now
                self._ask_to_stop()
            if asked and now - asked > _GRACE:
                break
            if now - looked > 2.0:
                looked, self.board.slots = now, max(room(self.terms, self._largest), 1)
            if not asked:
                self._submit()
            self._hear()
            self.show(self.board)
        for active in self._active.values():
            ray.kill(active.actor)
            self._leave(active, "stopped", "stopped")

    def _submit(self) -> None:
        ahead = 1 if self.terms.address else 0  # one more, so that a cluster that can grow knows that it should
        while self._waiting and len(self._active) < self.board.slots + ahead:
            entry = self._waiting.popleft()
            entry.starting, need = True, self.needs[entry.run.name]
            actor = (
                ray.remote(_Actor)
                .options(num_cpus=self.terms.threads, num_gpus=self.terms.gpus, memory=need.memory, max_concurrency=3)
                .remote(self._request(entry))
            )
            active = _Active(entry, actor, Inbox(entry.run.config.directory))
            self._active[actor.place.remote()] = active

    def _request(self, entry: Entry) -> Request:
        path = entry.run.config.directory.absolute()
        return Request(
            config=to_json(replace(entry.run.config, run_dir=str(path))),
            mark=str(self.sweep.mark.absolute()),
            token=self._token,
            ship=self.terms.ship,
            trusted=tuple(TRUSTED),
            keep_replay=self.terms.keep_replay,
        )

    def _start(self, active: _Active, where: str, shared: bool) -> None:
        """A worker has its place; one without our disk gets what the run has so far."""
        entry, path = active.entry, active.entry.run.config.directory
        names = [] if shared or not path.is_dir() else listing(path)
        active.actor.start.remote([(name, ray.put(read_all(path, name))) for name in names])
        entry.state, entry.starting, entry.where, entry.error = "running", False, where, None
        self.sweep.tell("started", entry.run.name, where=where, attempt=entry.lost + 1)

    def _hear(self) -> None:
        """Whatever news there are."""
        ready, _ = ray.wait(list(self._active), num_returns=len(self._active), timeout=0.0)
        if not ready:
            ready, _ = ray.wait(list(self._active), num_returns=1, timeout=0.2)
        for answer in ready:
            active = self._active.pop(answer)
            try:
                news = ray.get(answer)
            except ray.exceptions.RayTaskError as error:  # in our own code
                self._leave(active, "failed", "failed", last_line(error))
            except ray.exceptions.RayError as error:
                self._lost(active, error)
            else:
                self._take(active, news)

    def _take(self, active: _Active, news: News | tuple[str, bool]) -> None:
        if isinstance(news, News):
            active.inbox.put(news.items)
            active.entry.at(news.steps, news.score)
            if news.state is not None:
                self._ended(active, news)
                return
        else:
            self._start(active, *news)
        self._active[active.actor.news.remote(_NEWS)] = active

    def _ended(self, active: _Active, news: News) -> None:
        ray.kill(active.actor)  # it has nothing left to do
        if news.state == "finished":
            self._leave(active, "done", "finished")
        elif news.state == "interrupted":
            self._leave(active, "stopped", "stopped")
        else:
            self._leave(active, "failed", "failed", news.error)

    def _lost(self, active: _Active, error: Exception) -> None:
        """Its process or its node is gone: again from the last checkpoint, if it may."""
        entry, reason = active.entry, why(error)
        begun = not entry.starting
        with suppress(ray.exceptions.RayError, ValueError):
            ray.kill(active.actor)
        if self.board.stopping is not None:
            self._leave(active, "stopped", "stopped")
            return
        if not begun and reason == NODE_DIED and entry.misplaced < _MISPLACED:
            entry.misplaced += 1  # Ray took it to a node whose death it had not noticed: the same death, not another
            entry.leave("waiting", entry.error)
            self._waiting.appendleft(entry)
            return
        entry.lost += 1
        again = entry.lost <= self.terms.retries
        self.sweep.tell("lost", entry.run.name, where=entry.where, error=reason)
        if again:
            self.board.notes.append(f"{entry.run.name}: {reason}; it goes on from its last checkpoint")
            entry.leave("waiting", reason)
            self._waiting.appendleft(entry)
        else:
            self._leave(active, "failed", "failed", too_often(reason, entry.lost, self.terms.retries))

    def _leave(self, active: _Active, state: Any, event: str, error: str | None = None) -> None:
        entry = active.entry
        entry.leave(state, error)
        self.sweep.tell(event, entry.run.name, where=entry.where, error=error, lost=entry.lost)

    def _ask_to_stop(self) -> None:
        self.board.stopping = self.board.stopping or "asked to stop"
        for answer, active in list(self._active.items()):
            if active.entry.state == "running":
                active.actor.stop.remote()
            else:  # not begun yet
                ray.kill(active.actor)
                del self._active[answer]
