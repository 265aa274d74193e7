"""What watches a run: the interface of observers, the log of its events, and TensorBoard scalars."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from c2d.errors import UserError
from c2d.runs import records
from c2d.runs.layout import RunDir
from c2d.training.session import Session
from c2d.types import FinishedGame


class Observer:
    """Watches a run; none of its methods may alter it. Override what you need."""

    def begin(self, session: Session, run_dir: RunDir, header: dict[str, Any]) -> None: ...
    def notice(self, text: str, warning: bool = False) -> None: ...
    def stepped(self, session: Session, games: Sequence[FinishedGame]) -> None: ...
    def pointed(self, record: dict[str, Any]) -> None: ...
    def iterated(self, record: dict[str, Any]) -> None: ...
    def end(self, summary: dict[str, Any]) -> None: ...


class ObserverList(Observer):
    """Several observers as one. Notices from before `begin` are passed on after it."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self.observers = observers
        self._early: list[tuple[str, bool]] | None = []

    def begin(self, session: Session, run_dir: RunDir, header: dict[str, Any]) -> None:
        for observer in self.observers:
            observer.begin(session, run_dir, header)
        early, self._early = self._early or [], None
        for text, warning in early:
            self.notice(text, warning)

    def notice(self, text: str, warning: bool = False) -> None:
        if self._early is not None:
            self._early.append((text, warning))
            return
        for observer in self.observers:
            observer.notice(text, warning)

    def warn(self, text: str) -> None:
        self.notice(text, warning=True)

    def stepped(self, session: Session, games: Sequence[FinishedGame]) -> None:
        for observer in self.observers:
            observer.stepped(session, games)

    def pointed(self, record: dict[str, Any]) -> None:
        for observer in self.observers:
            observer.pointed(record)

    def iterated(self, record: dict[str, Any]) -> None:
        for observer in self.observers:
            observer.iterated(record)

    def end(self, summary: dict[str, Any]) -> None:
        for observer in self.observers:
            observer.end(summary)


class EventLog(Observer):
    """Keeps warnings in the run's events.jsonl, so that they can be read when the terminal is gone."""

    def begin(self, session: Session, run_dir: RunDir, header: dict[str, Any]) -> None:
        self._run_dir = run_dir

    def notice(self, text: str, warning: bool = False) -> None:
        if warning:
            self._run_dir.log_event({"event": "warning", "text": text, "time": time.time()})


class TensorBoard(Observer):
    """An observer. The horizontal axis is agent steps."""

    def __init__(self) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise UserError(
                "TensorBoard is not installed: pip install 'c2d[tensorboard]', or --tensorboard False"
            ) from None
        self._make_writer = SummaryWriter
        self._writer: Any = None
        self._hook = threading.excepthook

    def begin(self, session: Session, run_dir: RunDir, header: dict[str, Any]) -> None:
        self._hook, threading.excepthook = threading.excepthook, self._failed
        self._writer = self._make_writer(
            str(run_dir.tensorboard), purge_step=session.step + 1 if session.step else None
        )

    def stepped(self, session: Session, games: Sequence[FinishedGame]) -> None:
        for game in games:
            self._add("game/score", game.score, session.step)
            self._add("game/steps", game.steps, session.step)

    def pointed(self, record: dict[str, Any]) -> None:
        self._add_all("now", record)

    def iterated(self, record: dict[str, Any]) -> None:
        self._add_all("iteration", record)
        self._try(lambda writer: writer.flush())

    def _add_all(self, group: str, record: dict[str, Any]) -> None:
        hidden = {metric.name for metric in records.metrics() if not metric.tensorboard}
        for name, value in {**record, **record[records.MEASURED]}.items():
            if isinstance(value, int | float) and name not in hidden:
                self._add(f"{group}/{name}", value, record["steps"])

    def end(self, summary: dict[str, Any]) -> None:
        self._try(lambda writer: writer.close())
        threading.excepthook = self._hook

    def _failed(self, what: Any) -> None:
        """An error of the disk ends the writer's own thread; the next scalar reports it (see `_try`)."""
        if not (isinstance(what.exc_value, OSError) and type(what.thread).__module__.startswith("tensorboard")):
            self._hook(what)

    def _add(self, name: str, value: float | None, step: int) -> None:
        self._try(lambda writer: writer.add_scalar(name, value, step))

    def _try(self, write: Callable[[Any], None]) -> None:
        """An error of the disk ends these curves, not the training; records and checkpoints report their own."""
        if self._writer is None:
            return
        try:
            write(self._writer)
        except OSError as error:
            self._writer = None
            print(f"warning: TensorBoard scalars are no longer written: {error.strerror or error}", file=sys.stderr)
