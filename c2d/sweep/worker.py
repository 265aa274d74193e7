"""One run in a process of its own, on any machine: it reports its progress and stops on request. Does not use Ray."""

from __future__ import annotations

import os
import queue
import shutil
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from c2d.config import Config, from_json
from c2d.errors import UserError
from c2d.evaluation.callbacks import callbacks_of
from c2d.files import open_own, read_file
from c2d.runs.checkpoints import Checkpoints
from c2d.runs.layout import RunDir
from c2d.runs.lock import InUse, locked
from c2d.sweep.transfer import FileChunk, RunReceiver, RunSender, SentFiles
from c2d.training.loggers import loggers_of
from c2d.training.observers import Observer, RunView
from c2d.training.process import exit_with_parent, keep_memory
from c2d.training.run import run
from c2d.user_code import TRUSTED

_LOCK_TIMEOUT = 60.0  # seconds for the process of a dead node to release the run directory


class WorkerRequest(NamedTuple):
    """What a worker has to do."""

    config: dict[str, Any]  # in its JSON form; run_dir is an absolute path
    marker: str  # a file next to the run directories, by which a worker recognizes that it shares the disk
    token: str  # the content of that file
    ship: bool  # copy results through Ray even if the disk is shared
    trusted: tuple[str, ...] = ()  # code that the user named on the command line
    keep_replay: bool = True


class WorkerReport(NamedTuple):
    """The progress of a run."""

    pid: int
    steps: int  # including random ones
    score: float | None  # of the last whole iteration
    items: list[FileChunk | SentFiles]  # for the receiver
    state: str | None  # how it ended; None while it runs
    error: str | None


class RunWorker:
    """Trains in a thread, so that it can report meanwhile."""

    def __init__(self, request: WorkerRequest, own_process: bool = False) -> None:
        TRUSTED.update(request.trusted)
        config: Config = from_json(request.config)
        self.shared = not request.ship and _shares_disk(request)  # if so, it works in the sweep's own directory
        self._path = config.directory if self.shared else _scratch(request, config.directory.name)
        self._config = replace(config, run_dir=str(self._path))
        self._keep_replay, self._own_process = request.keep_replay, own_process
        self._sender: RunSender | None = None
        self._progress, self._stop = _Progress(), threading.Event()
        self._ended: queue.SimpleQueue[tuple[str, str | None]] = queue.SimpleQueue()
        self._end: tuple[str, str | None] | None = None
        if own_process:
            exit_with_parent()  # a run on a dead node must stop and release its directory

    def start(self, files: Sequence[tuple[str, Any]] = (), fetch: Callable[[Any], bytes] = bytes) -> None:
        """Begin or resume the run. `files`: names and handles of its files if the disk is not shared.

        `fetch` returns the bytes of a handle.
        """
        try:
            if not self.shared:
                receiver = RunReceiver(self._path)
                for name, handle in files:
                    data = fetch(handle)
                    receiver.put([FileChunk(name, 0, len(data), data)])
                self._path.mkdir(parents=True, exist_ok=True)
                self._sender = RunSender(self._path)
            threading.Thread(target=self._work, daemon=True).start()
        except Exception as failure:
            self._ended.put(("failed", _one_line(failure)))

    def stop(self) -> None:
        """Ask the run to save everything and end."""
        self._stop.set()

    def report(self, wait: float = 1.0) -> WorkerReport:
        """Returns after `wait` seconds, or at once if the run has ended."""
        if self._end is None:
            busy = self._sender is not None and self._sender.busy
            try:
                self._end = self._ended.get(timeout=0.001 if busy else wait)
            except queue.Empty:
                return self._report(None, None)
        if self._sender is not None and (items := self._sender.take()):
            return self._report(None, None, items)
        if not self.shared:
            shutil.rmtree(self._path, ignore_errors=True)
        return self._report(*self._end)

    def _report(
        self, state: str | None, error: str | None, items: list[FileChunk | SentFiles] | None = None
    ) -> WorkerReport:
        if items is None:
            items = self._sender.take() if self._sender is not None and state is None else []
        return WorkerReport(os.getpid(), self._progress.steps, self._progress.score, items, state, error)

    def _work(self) -> None:
        state, error = "failed", None
        if self._own_process:
            keep_memory()
        with _open_log(self._path, self._own_process) as log:
            self._progress.log = log
            try:
                log(f"process {os.getpid()} starts")
                state = self._train(self._config)
                log(state)
            except BaseException as failure:
                error = _one_line(failure)
                log(error if isinstance(failure, UserError) else traceback.format_exc())
        self._ended.put((state, error))

    def _train(self, config: Config) -> str:
        deadline = time.monotonic() + _LOCK_TIMEOUT
        asked = [*callbacks_of(config), *loggers_of(config, usual=False)]
        while True:
            try:
                result = run(config, [self._progress, *asked], self._stop)
                break
            except InUse:
                if time.monotonic() > deadline or self._stop.is_set():
                    raise
                time.sleep(0.2)
        if result.state == "finished" and not self._keep_replay:
            with suppress(InUse), locked(RunDir(config.directory).lock):
                Checkpoints(config.directory).remove_all()
        return result.state


class _Progress(Observer):
    """Remembers the steps and the score of the run."""

    def __init__(self) -> None:
        self.log: Callable[[str], None] = lambda _: None
        self.score: float | None = None
        self._run: RunView | None = None

    @property
    def steps(self) -> int:
        return 0 if self._run is None else self._run.steps_made

    def begin(self, run: RunView) -> None:
        self._run = run

    def notice(self, run: RunView, text: str, warning: bool) -> None:
        self.log(f"warning: {text}" if warning else text)

    def iteration(self, run: RunView, record: Mapping[str, Any]) -> None:
        self.score = record["mean_score"]


@contextmanager
def _open_log(path: Path, own_process: bool) -> Iterator[Callable[[str], None]]:
    """A function that writes to the run's log. In a process of its own, all output goes there too."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        descriptor = open_own(RunDir(path).log, os.O_WRONLY | os.O_APPEND)
        file = open(descriptor, "a", encoding="utf-8", errors="replace", buffering=1)
    except OSError:  # the run itself reports it
        yield lambda _: None
        return
    with file:
        if own_process:
            sys.stdout.flush()
            sys.stderr.flush()
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)

        def write(text: str) -> None:
            file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime())} {text.rstrip()}\n")

        yield write


def _one_line(failure: BaseException) -> str:
    text = str(failure).strip().split("\n")[0]
    if isinstance(failure, UserError):
        return text
    name = type(failure).__name__
    return f"{name}: {text}" if text else name


def _shares_disk(request: WorkerRequest) -> bool:
    try:
        return read_file(request.marker, 100, within=Path(request.marker).parent) == request.token.encode()
    except OSError:
        return False


def _scratch(request: WorkerRequest, name: str) -> Path:
    """An empty directory on this machine."""
    path = Path(tempfile.gettempdir()) / f"c2d-sweep-{os.getuid()}-{request.token}" / name
    shutil.rmtree(path, ignore_errors=True)
    return path
