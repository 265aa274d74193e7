"""Limits: how many connections may be open, how long one may stay idle, and how often the server logs.

Uvicorn closes a connection that stays idle after an answer, but neither one that never sends a request nor one that
sends it byte by byte. Here a whole request must arrive in time, and when the limit is reached a new connection replaces
the one that has been idle longest. Active requests and WebSockets (which answer pings) are never replaced.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_CONNECTIONS = 256  # including WebSockets; fewer where the system allows few open files
REQUEST_SECONDS = 10.0  # for a whole request to arrive, and for a client to read part of an answer
BACKLOG = 128  # connections waiting to be accepted
_FILES = 4_096  # open files requested from the system
_LOG_INTERVAL = 10.0  # seconds between log messages of one kind


class BoundedConnection(H11Protocol):
    """One of a bounded number of HTTP connections. Subclasses created by `bounded` hold the limits."""

    limit, seconds = MAX_CONNECTIONS, REQUEST_SECONDS
    idle: dict[BoundedConnection, None]  # of one server, those idle longest first

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._timer: asyncio.TimerHandle | None = None
        if len(self.connections) >= self.limit and not self._make_room():
            self.logger.warning("a connection was rejected: %d are open, and all are active", self.limit)
            self.transport = transport
            transport.abort()
            return
        super().connection_made(transport)
        self._wait_for_request()

    def _make_room(self) -> bool:
        """Drop the connection that has been idle longest, if there is one."""
        if not self.idle:
            return False
        self.logger.warning("idle connections are dropped: %d are open, which is the limit", self.limit)
        next(iter(self.idle)).drop()
        return True

    def drop(self) -> None:
        """Close at once, without sending the rest."""
        self._set_active()
        self.connections.discard(self)  # frees its place now, and its descriptor in the next iteration of the loop
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._set_active()
        if self.flow is not None:  # it was not rejected
            super().connection_lost(exc)

    def handle_events(self) -> None:
        super().handle_events()
        if self.transport.get_protocol() is not self or (self.cycle is not None and not self.cycle.response_complete):
            self._set_active()

    def on_response_complete(self) -> None:
        self._wait_for_request()
        super().on_response_complete()

    def pause_writing(self) -> None:
        """The client does not read its answer."""
        super().pause_writing()
        self._start_timer()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self not in self.idle:
            self._stop_timer()

    def _wait_for_request(self) -> None:
        self.idle[self] = None
        self._start_timer()

    def _set_active(self) -> None:
        self.idle.pop(self, None)
        self._stop_timer()

    def _start_timer(self) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(self.seconds, self.drop)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def bounded(limit: int = MAX_CONNECTIONS, seconds: float = REQUEST_SECONDS) -> type[BoundedConnection]:
    """The connection class of one server."""
    return type("ServerConnection", (BoundedConnection,), {"limit": limit, "seconds": seconds, "idle": {}})


def open_files() -> int:
    """How many files this process may have open, after raising the limit as far as useful and allowed."""
    try:
        import resource
    except ImportError:  # not on this system
        return 2 * MAX_CONNECTIONS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
        except (OSError, ValueError):
            pass
    return _FILES if soft == resource.RLIM_INFINITY else soft


def connection_limits(files: int) -> tuple[int, int]:
    """How many connections may be open and how many may wait, so that files remain for runs and lenses."""
    return max(4, min(MAX_CONNECTIONS, files // 4)), max(4, min(BACKLOG, files // 8))


class RateLimitFilter(logging.Filter):
    """Passes one message of a kind per interval; the next one says how many were omitted."""

    def __init__(self, seconds: float = _LOG_INTERVAL, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self.seconds, self._clock = seconds, clock
        self._logged: dict[str, tuple[float, int]] = {}  # when, and how many were omitted since

    def filter(self, record: logging.LogRecord) -> bool:
        kind, now = str(record.msg)[:80], self._clock()
        when, omitted = self._logged.get(kind, (-self.seconds, 0))
        if now - when < self.seconds:
            self._logged[kind] = (when, omitted + 1)
            return False
        if len(self._logged) >= 100:
            self._logged.clear()
        self._logged[kind] = (now, 0)
        if "accept()" in kind:  # no file descriptors left: a traceback adds nothing
            record.exc_info = record.exc_text = None
        if omitted:
            record.msg, record.args = f"{record.getMessage()} ({omitted:,} more like it before)", ()
        return True


def limit_log_rate(**options: Any) -> None:
    """Rate-limit the logs of the server and its event loop."""
    for name in ("uvicorn.error", "asyncio"):
        logger = logging.getLogger(name)
        for previous in [each for each in logger.filters if isinstance(each, RateLimitFilter)]:
            logger.removeFilter(previous)
        logger.addFilter(RateLimitFilter(**options))
