"""Addresses of clusters, which are tried before Ray is imported."""

import os
import socket

import pytest

from c2d.cluster import address
from c2d.cluster.address import ATTEMPTS, LOOPBACK, host_and_port, is_remote, prepare_ray_import
from c2d.errors import UserError


@pytest.fixture(autouse=True)
def _variables(monkeypatch):
    monkeypatch.setenv(LOOPBACK, "unchanged")
    monkeypatch.setenv(ATTEMPTS, "")
    monkeypatch.delenv(ATTEMPTS)


@pytest.fixture
def listener():
    """The address of a server on 127.0.0.1 that accepts connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_inside_and_outside_of_this_machine():
    assert not any(map(is_remote, ("127.0.0.1:6379", "localhost:6379", "[::1]:6379", "auto")))
    assert is_remote("10.0.0.7:6379") and is_remote("head:10001")


@pytest.mark.parametrize("text", ["somewhere", "host:", ":6379", "host:99999", "ray://head:10001", "a/b:1"])
def test_invalid_addresses(text):
    with pytest.raises(UserError, match="accepted: HOST:PORT of a Ray cluster, or auto"):
        host_and_port(text)


def test_nothing_listens():
    with pytest.raises(UserError, match=r"nothing answers at 127\.0\.0\.1:9 \(Connection refused\)"):
        prepare_ray_import("127.0.0.1:9")


def test_a_cluster_on_loopback_alone_is_reached_there(listener, monkeypatch):
    monkeypatch.setattr(address, "_network_address", lambda: "127.0.0.77")  # nothing listens there
    prepare_ray_import(listener)
    assert os.environ[LOOPBACK] == "0"
    assert os.environ[ATTEMPTS] == "1"  # else Ray would try for 14 minutes


def test_a_cluster_in_the_network_keeps_its_network_address(listener, monkeypatch):
    monkeypatch.setattr(address, "_network_address", lambda: "127.0.0.1")
    prepare_ray_import(listener)
    assert os.environ[LOOPBACK] == "unchanged"


def test_the_number_of_attempts_can_be_raised(listener, monkeypatch):
    monkeypatch.setenv(ATTEMPTS, "20")
    prepare_ray_import(listener)
    assert os.environ[ATTEMPTS] == "20"


def test_an_embedded_ray_stays_on_loopback():
    prepare_ray_import(None)
    assert os.environ[LOOPBACK] == "0"
