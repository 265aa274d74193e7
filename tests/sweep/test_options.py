"""Addresses of clusters, tried before Ray is asked."""

import os
import socket
import threading

import pytest

from c2d.errors import UserError
from c2d.sweep.options import LOOPBACK, SweepOptions, is_remote


@pytest.fixture(autouse=True)
def _loopback_unsaid(monkeypatch):
    monkeypatch.setenv(LOOPBACK, "as it was")


@pytest.fixture
def listener():
    """Starts a server on 127.0.0.1 that answers every caller with the same bytes; returns its address."""
    sockets = []

    def start(answer):
        server = socket.create_server(("127.0.0.1", 0))
        sockets.append(server)

        def serve():
            while True:
                try:
                    caller, _ = server.accept()
                except OSError:
                    return
                sockets.append(caller)
                caller.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        return f"127.0.0.1:{server.getsockname()[1]}"

    yield start
    for each in sockets:
        each.close()


def test_inside_and_outside_of_this_machine():
    assert not any(map(is_remote, ("127.0.0.1:6379", "localhost:6379", "[::1]:6379", "auto")))
    assert is_remote("10.0.0.7:6379") and is_remote("head:10001")


@pytest.mark.parametrize("address", ["somewhere", "host:", ":6379", "host:99999", "ray://head:10001", "a/b:1"])
def test_no_addresses(address):
    with pytest.raises(UserError, match="accepted: HOST:PORT of a Ray cluster, or auto"):
        SweepOptions(address).check()


def test_nobody_listens():
    with pytest.raises(UserError, match=r"nothing answers at 127\.0\.0\.1:9 \(Connection refused\)"):
        prepare(SweepOptions("127.0.0.1:9"))


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.0 400 Bad Request\r\n\r\n", b"\0\0"])
def test_someone_else_listens(answer, listener, monkeypatch):
    monkeypatch.setattr(terms, "_ANSWER", 0.3)
    address = listener(answer)
    with pytest.raises(UserError, match=f"what answers at {address} is no Ray cluster"):
        prepare(SweepOptions(address))


def test_a_cluster_that_keeps_to_itself_is_called_by_its_name(listener, monkeypatch):
    monkeypatch.setattr(terms, "_outward", lambda: "127.0.0.77")  # nobody listens there
    prepare(SweepOptions(listener(bytes([0, 0, 6, 4, 0, 0, 0, 0, 0]))))
    assert os.environ[LOOPBACK] == "0"


def test_a_cluster_in_the_network_is_left_to_ray(listener, monkeypatch):
    monkeypatch.setattr(terms, "_outward", lambda: "127.0.0.1")
    prepare(SweepOptions(listener(bytes([0, 0, 6, 4, 0, 0, 0, 0, 0]))))
    assert os.environ[LOOPBACK] == "as it was"


def test_an_embedded_ray_keeps_to_itself():
    prepare(SweepOptions())
    assert os.environ[LOOPBACK] == "0"
