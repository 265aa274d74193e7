"""The server over a real connection: WebSockets of strangers, too many lenses, requests of any size."""

import json
import socket

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from c2d.web import app


def live(server, **options):
    return connect(f"ws://127.0.0.1:{server.port}/ws/runs", origin=options.pop("origin", server.url), **options)


def test_rows_come_to_a_page_of_ours(server):
    with live(server) as page:
        message = json.loads(page.recv(timeout=60))
    assert {"breakout-c2d", "breakout-c51", "cartpole"} <= {row["id"] for row in message["rows"]}


@pytest.mark.parametrize("origin", ["http://evil.example", "null", None])
def test_pages_of_other_sites_are_turned_away(server, origin):
    with pytest.raises(InvalidStatus) as answer, live(server, origin=origin):
        pass
    assert answer.value.response.status_code == 403


def test_whatever_a_listener_says_is_ignored(server):
    with live(server) as page:
        page.send("x" * 10_000)
        page.send(b"\x00\xff")
        assert page.recv(timeout=60)
        page.send("x" * (app.MESSAGE_BYTES + 1))
        with pytest.raises(ConnectionClosed):
            while True:
                page.recv(timeout=60)
    with live(server) as page:
        assert page.recv(timeout=60)  # the others go on


def test_there_is_a_bound_on_lenses(server, monkeypatch):
    monkeypatch.setattr(app, "MAX_LENSES", 0)
    address = f"ws://127.0.0.1:{server.port}/ws/lens"
    with connect(address, origin=server.url) as page, pytest.raises(ConnectionClosed) as closed:
        page.recv(timeout=60)
    assert closed.value.rcvd.code == 4429 and "lenses are already open" in closed.value.rcvd.reason


@pytest.mark.parametrize(
    "data",
    [b"nonsense\r\n\r\n", b"\x16\x03\x01\x00\xff" * 10,
     b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"x" * 100_000 + b"\r\n\r\n",
     b"GET /../../etc/passwd HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nConnection: close\r\n\r\n"],
)  # fmt: skip
def test_malformed_requests_are_answered(server, data):
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
        client.sendall(data.replace(b"%d", str(server.port).encode()))
        answer = client.recv(1_000)
    assert answer.startswith(b"HTTP/1.1 4") and b"root:" not in answer
