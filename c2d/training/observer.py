"""Observers of a run: a display, TensorBoard, tests."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from c2d.runs.layout import RunDir
from c2d.training.session import Session
from c2d.types import GameEnd


class Observer:
    """Watches a run; none of its methods may alter it. Override what you need."""

    def begin(self, session: Session, run_dir: RunDir, header: dict[str, Any]) -> None: ...
    def notice(self, text: str, warning: bool = False) -> None: ...
    def stepped(self, session: Session, game: GameEnd | None) -> None: ...
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

    def stepped(self, session: Session, game: GameEnd | None) -> None:
        for observer in self.observers:
            observer.stepped(session, game)

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
