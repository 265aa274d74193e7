"""How many connections may be open, how long one may stay idle, and how often the server complains.

Uvicorn closes a connection that stays idle after an answer, but neither one that never sends a request nor one that
sends it byte by byte. Here a whole request must come in time, and where all places are taken the connection that has
been idle longest gives way to a new one. Requests at work and WebSockets (which answer pings) never give way.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST = 256  # connections, WebSockets among them; fewer where the system allows few open files
REQUEST_SECONDS = 10.0  # for a whole request to come, and for a page to take some of an answer
BACKLOG = 128  # connections that wait to be accepted
_FILES = 4_096  # open files asked for, if the system grants them
_SELDOM = 10.0  # seconds between two complaints of one kind


class Bounded(H11Protocol):
    """One HTTP connection among a bounded number. Subclasses made by `bounded` hold the bounds."""

    most, seconds = MOST, REQUEST_SECONDS
    idle: dict[Bounded, None]  # of one server, those idle longest first

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._timer: asyncio.TimerHandle | None = None
        if len(self.connections) >= self.most and not self._make_room():
            self.logger.warning("a connection was refused: %d are open, and all are at work", self.most)
            self.transport = transport
            transport.abort()
            return
        super().connection_made(transport)
        self._wait_for_a_request()

    def _make_room(self) -> bool:
        """Drop the connection that has been idle longest, if any is."""
        if not self.idle:
            return False
        self.logger.warning("idle connections are dropped: %d are open, which is the limit", self.most)
        next(iter(self.idle)).drop()
        return True

    def drop(self) -> None:
        """At once, whatever has not been sent."""
        self._at_work()
        self.connections.discard(self)  # it gives its place back now, and its descriptor as soon as the loop turns
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._at_work()
        if self.flow is not None:  # it was not refused
            super().connection_lost(exc)

    def handle_events(self) -> None:
        super().handle_events()
        if self.transport.get_protocol() is not self or (self.cycle is not None and not self.cycle.response_complete):
            self._at_work()

    def on_response_complete(self) -> None:
        self._wait_for_a_request()
        super().on_response_complete()

    def pause_writing(self) -> None:
        """The client takes nothing of its answer."""
        super().pause_writing()
        self._start_timer()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self not in self.idle:
            self._stop_timer()

    def _wait_for_a_request(self) -> None:
        self.idle[self] = None
        self._start_timer()

    def _at_work(self) -> None:
        self.idle.pop(self, None)
        self._stop_timer()

    def _start_timer(self) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(self.seconds, self.drop)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def bounded(most: int = MOST, seconds: float = REQUEST_SECONDS) -> type[Bounded]:
    """The connections of one server."""
    return type("BoundedConnection", (Bounded,), {"most": most, "seconds": seconds, "idle": {}})


def open_files() -> int:
    """How many files this process may have open; as many as the system grants up to what is useful."""
    try:
        import resource
    except ImportError:  # not on this system
        return 2 * MOST
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
        except (OSError, ValueError):
            pass
    return _FILES if soft == resource.RLIM_INFINITY else soft


def places(files: int) -> tuple[int, int]:
    """Connections that may be open and that may wait, so that files remain for runs and lenses."""
    return max(4, min(MOST, files // 4)), max(4, min(BACKLOG, files // 8))


class Seldom(logging.Filter):
    """Lets a message of one kind pass once in a while; the next one tells how many were left out."""

    def __init__(self, seconds: float = _SELDOM, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self.seconds, self._clock = seconds, clock
        self._told: dict[str, tuple[float, int]] = {}  # when, and how many were left out since

    def filter(self, record: logging.LogRecord) -> bool:
        kind, now = str(record.msg)[:80], self._clock()
        when, left_out = self._told.get(kind, (-self.seconds, 0))
        if now - when < self.seconds:
            self._told[kind] = (when, left_out + 1)
            return False
        if len(self._told) >= 100:
            self._told.clear()
        self._told[kind] = (now, 0)
        if "accept()" in kind:  # the system has no files left: a traceback says no more than that
            record.exc_info = record.exc_text = None
        if left_out:
            record.msg, record.args = f"{record.getMessage()} ({left_out:,} more like it before)", ()
        return True


def complain_seldom(**options: Any) -> None:
    """From now on, in what the server and its loop log."""
    for name in ("uvicorn.error", "asyncio"):
        logger = logging.getLogger(name)
        for known in [one for one in logger.filters if isinstance(one, Seldom)]:
            logger.removeFilter(known)
        logger.addFilter(Seldom(**options))
