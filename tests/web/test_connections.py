"""Idle connections by the hundred, requests that never end, and a log that stays small: over real sockets."""

import io
import logging
import resource
import socket
import time
from contextlib import ExitStack, contextmanager
from urllib.request import urlopen

import pytest
import uvicorn
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from c2d.web import app
from c2d.web.connections import (
    MAX_CONNECTIONS,
    BoundedConnection,
    RateLimitFilter,
    bounded,
    connection_limits,
    limit_log_rate,
    open_files,
)
from tests.web.conftest import Server
from tests.web.made_runs import make_run


@pytest.fixture
def runs(tmp_path):
    make_run(tmp_path / "runs" / "a")
    return tmp_path / "runs"


@contextmanager
def serving(runs, monkeypatch, most=12, seconds=60.0):
    """A server with other bounds."""
    monkeypatch.setattr("c2d.web.connections.bounded", lambda _: bounded(most, seconds))
    server = Server(runs)
    try:
        yield server
    finally:
        server.close()


def dial(server):
    return socket.create_connection(("127.0.0.1", server.port), timeout=60)


def listening(server):
    return connect(f"ws://127.0.0.1:{server.port}/ws/runs", origin=server.url)


def is_answered(server):
    """Quickly, by the server's own page of data."""
    began = time.monotonic()
    with urlopen(f"{server.url}/api/runs", timeout=60) as answer:
        assert b'"a"' in answer.read()
    return time.monotonic() - began < 30.0


def dropped(connection, patience=60.0):
    """Whether the server ended it, within some seconds."""
    connection.settimeout(patience)
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False


def test_idle_connections_over_the_limit_give_way(runs, monkeypatch, capsys):
    with serving(runs, monkeypatch) as server:
        idle = [dial(server) for _ in range(60)]
        assert is_answered(server) and is_answered(server)
        assert all(dropped(one) for one in idle[:40])  # those that were idle longest
        assert len(server._server.server_state.connections) <= 12
        assert not dropped(idle[-1], patience=0.1)
        for one in idle:
            one.close()
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 1 and "idle connections are dropped: 12 are open" in told[0]


@pytest.mark.parametrize(
    "words",
    [b"", b"GET /api/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ",
     b"GET /api/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n"],
    ids=["nothing", "headers", "body"],
)  # fmt: skip
def test_a_request_that_does_not_end_is_dropped(runs, monkeypatch, words):
    """Also if it goes on byte by byte."""
    with serving(runs, monkeypatch, seconds=0.6) as server, dial(server) as slow:
        slow.sendall(words)
        began = time.monotonic()
        with pytest.raises(OSError):
            while time.monotonic() - began < 60.0:  # some bytes after the end, a connection that is closed breaks
                time.sleep(0.05)
                slow.sendall(b"x" if words else b"")
                if not words:
                    assert dropped(slow)
                    raise OSError
        assert 0.5 < time.monotonic() - began < 60.0
        assert is_answered(server)


def test_whoever_takes_nothing_of_an_answer_is_dropped(runs, monkeypatch):
    (runs / "a" / "report.html").write_bytes(b"x" * (1 << 24))
    with serving(runs, monkeypatch, seconds=0.6) as server, dial(server) as lazy:
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        assert is_answered(server)
        lazy.sendall(b"GET /api/report?run=a HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        connections, deadline = server._server.server_state.connections, time.monotonic() + 60.0
        while not any(one.cycle is not None for one in connections):
            time.sleep(0.01)
        while connections and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not connections


def test_requests_at_work_and_websockets_do_not_give_way(runs, monkeypatch):
    """A page that listens longer than a request may take, with idle connections all around it."""
    with serving(runs, monkeypatch, most=4, seconds=0.3) as server, listening(server) as page:
        page.recv(timeout=60)
        idle = [dial(server) for _ in range(8)]
        time.sleep(0.6)
        assert page.ping().wait(60)
        assert all(dropped(one) for one in idle) and is_answered(server)
        assert page.ping().wait(60)
    with serving(runs, monkeypatch, most=4) as server, ExitStack() as stack:
        pages = [stack.enter_context(listening(server)) for _ in range(4)]
        with dial(server) as refused:
            assert dropped(refused)
        assert all(page.recv(timeout=60) for page in pages)


def test_there_is_a_bound_on_pages(server, monkeypatch):
    monkeypatch.setattr(app, "MAX_PAGES", 0)
    with listening(server) as page, pytest.raises(ConnectionClosed) as closed:
        page.recv(timeout=60)
    assert closed.value.rcvd.code == 4429 and "pages are already open" in closed.value.rcvd.reason


def test_the_server_of_the_command_has_these_bounds(server):
    config: uvicorn.Config = server._server.config
    assert (
        issubclass(config.http_protocol_class, BoundedConnection)
        and config.http_protocol_class.limit == MAX_CONNECTIONS
    )
    assert all(any(isinstance(one, RateLimitFilter) for one in logging.getLogger(name).filters)
               for name in ("uvicorn.error", "asyncio"))  # fmt: skip


def test_limits_leave_files_for_other_things():
    for files in (64, 256, 1_024, 1 << 20):
        connections, waiting = connection_limits(files)
        assert connections + 2 * waiting <= files // 2 + 16 and connections <= MAX_CONNECTIONS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, soft), hard))
        assert open_files() == min(4_096, hard) == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_complaints_of_one_kind_are_counted_and_made_once():
    now, out = [0.0], io.StringIO()
    handler, logger = logging.StreamHandler(out), logging.getLogger("asyncio")
    limit_log_rate(clock=lambda: now[0])
    logger.addHandler(handler)
    try:
        for _ in range(1_000):
            try:
                raise OSError(24, "Too many open files")
            except OSError as error:
                logger.error("socket.accept() out of system resource", exc_info=error)
        logger.error("something else")
        now[0] = 11.0
        logger.error("socket.accept() out of system resource")
    finally:
        logger.removeHandler(handler)
        limit_log_rate()
    assert out.getvalue().splitlines() == [
        "socket.accept() out of system resource",
        "something else",
        "socket.accept() out of system resource (999 more like it before)",
    ]
