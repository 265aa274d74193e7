"""One run in a process of its own, wherever that is: asked for news, told to stop. Knows nothing of Ray."""

from __future__ import annotations

import os
import queue
import shutil
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from c2d.config import Config, from_json
from c2d.errors import UserError
from c2d.files import open_own, read_file
from c2d.recipes.user_code import TRUSTED
from c2d.runs.checkpoints import Checkpoints
from c2d.runs.layout import RunDir
from c2d.runs.lock import InUse, locked
from c2d.sweep.transfer import Inbox, Look, Outbox, Piece
from c2d.training.observer import Observer
from c2d.training.process import keep_memory
from c2d.training.run import run
from c2d.training.session import Session

_PATIENCE = 60.0  # seconds for a dead process on a dead node to let go of the run directory


class Request(NamedTuple):
    """What a worker is to do."""

    config: dict[str, Any]  # in its JSON form; run_dir is an absolute path
    mark: str  # a file beside the run directories, by which a worker knows that it sees the same disk
    token: str  # what is in it
    ship: bool  # copy results through Ray even if the disk is the same
    trusted: tuple[str, ...] = ()  # code that the user named on the command line
    keep_replay: bool = True


class News(NamedTuple):
    """How a run is doing."""

    pid: int
    steps: int  # made, random ones included
    score: float | None  # of the last whole iteration
    items: list[Piece | Look]  # files on their way
    state: str | None  # how it ended; None while it goes on
    error: str | None


class Trainer:
    """A run in a thread, so that its owner can be answered meanwhile."""

    def __init__(self, request: Request, own_process: bool = False) -> None:
        TRUSTED.update(request.trusted)
        config: Config = from_json(request.config)
        self.shared = not request.ship and _same_disk(request)  # whether it works in the sweep's own directory
        self._path = config.directory if self.shared else _scratch(request, config.directory.name)
        self._config = replace(config, run_dir=str(self._path))
        self._keep_replay, self._own_process = request.keep_replay, own_process
        self._outbox: Outbox | None = None
        self._watch, self._stop = _Watch(), threading.Event()
        self._ended: queue.SimpleQueue[tuple[str, str | None]] = queue.SimpleQueue()
        self._end: tuple[str, str | None] | None = None
        if own_process:
            threading.Thread(target=_follow, args=(os.getppid(),), daemon=True).start()

    def begin(self, files: Sequence[tuple[str, Any]] = (), fetch: Callable[[Any], bytes] = bytes) -> None:
        """Start. `files`: what the run has so far, if the disk is another: names, and what `fetch` makes bytes of."""
        try:
            if not self.shared:
                inbox = Inbox(self._path)
                for name, handle in files:
                    data = fetch(handle)
                    inbox.put([Piece(name, 0, len(data), data)])
                self._path.mkdir(parents=True, exist_ok=True)
                self._outbox = Outbox(self._path)
            threading.Thread(target=self._work, daemon=True).start()
        except Exception as failure:
            self._ended.put(("failed", _words(failure)))

    def stop(self) -> None:
        """Save everything and end."""
        self._stop.set()

    def news(self, wait: float = 1.0) -> News:
        """After `wait` seconds, or at once when there is something to tell."""
        if self._end is None:
            busy = self._outbox is not None and self._outbox.busy
            try:
                self._end = self._ended.get(timeout=0.001 if busy else wait)
            except queue.Empty:
                return self._news(None, None)
        if self._outbox is not None and (items := self._outbox.take()):
            return self._news(None, None, items)
        if not self.shared:
            shutil.rmtree(self._path, ignore_errors=True)
        return self._news(*self._end)

    def _news(self, state: str | None, error: str | None, items: list[Piece | Look] | None = None) -> News:
        if items is None:
            items = self._outbox.take() if self._outbox is not None and state is None else []
        return News(os.getpid(), self._watch.steps, self._watch.score, items, state, error)

    def _work(self) -> None:
        state, error = "failed", None
        if self._own_process:
            keep_memory()
        with _log(self._path, self._own_process) as say:
            self._watch.say = say
            try:
                say(f"process {os.getpid()} begins")
                state = self._train(self._config)
                say(state)
            except BaseException as failure:
                error = _words(failure)
                say(error if isinstance(failure, UserError) else traceback.format_exc())
        self._ended.put((state, error))

    def _train(self, config: Config) -> str:
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                result = run(config, [self._watch], self._stop)
                break
            except InUse:
                if time.monotonic() > deadline or self._stop.is_set():
                    raise
                time.sleep(0.2)
        if result.state == "finished" and not self._keep_replay:
            with suppress(InUse), locked(RunDir(config.directory).lock):
                Checkpoints(config.directory).remove_all()
        return result.state


def _follow(parent: int) -> None:
    """End with the process that started this one: a run on a dead node must not go on, nor keep its directory."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


class _Watch(Observer):
    """Remembers where the run is."""

    def __init__(self) -> None:
        self.say: Callable[[str], None] = lambda _: None
        self.score: float | None = None
        self._session: Session | None = None

    @property
    def steps(self) -> int:
        return 0 if self._session is None else self._session.steps_made

    def begin(self, session: Session, run_dir: RunDir, header: dict[str, Any]) -> None:
        self._session = session

    def notice(self, text: str, warning: bool = False) -> None:
        self.say(f"warning: {text}" if warning else text)

    def iterated(self, record: dict[str, Any]) -> None:
        self.score = record["mean_score"]


@contextmanager
def _log(path: Path, own_process: bool) -> Iterator[Callable[[str], None]]:
    """The run's log; in a process of its own, all that is printed goes there too."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        descriptor = open_own(RunDir(path).log, os.O_WRONLY | os.O_APPEND)
        file = open(descriptor, "a", encoding="utf-8", errors="replace", buffering=1)
    except OSError:  # the run will say so
        yield lambda _: None
        return
    with file:
        if own_process:
            sys.stdout.flush()
            sys.stderr.flush()
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)

        def say(text: str) -> None:
            file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime())} {text.rstrip()}\n")

        yield say


def _words(failure: BaseException) -> str:
    text = str(failure).strip().split("\n")[0]
    if isinstance(failure, UserError):
        return text
    name = type(failure).__name__
    return f"{name}: {text}" if text else name


def _same_disk(request: Request) -> bool:
    try:
        return read_file(request.mark, 100, within=Path(request.mark).parent) == request.token.encode()
    except OSError:
        return False


def _scratch(request: Request, name: str) -> Path:
    """An empty place on this machine."""
    path = Path(tempfile.gettempdir()) / f"c2d-sweep-{os.getuid()}-{request.token}" / name
    shutil.rmtree(path, ignore_errors=True)
    return path
