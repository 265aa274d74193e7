"""Addresses of Ray clusters, and the environment variables that Ray reads when it is imported. Does not import Ray."""

from __future__ import annotations

import os
import socket

from c2d.errors import UserError

LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"  # 0 keeps all of Ray on 127.0.0.1, on any system
ATTEMPTS = "RAY_NUM_REDIS_GET_RETRIES"  # attempts to connect, up to 41 s each; Ray's default of 20 takes 14 minutes
_CONNECT_TIMEOUT = 5.0  # seconds
_LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1", "auto")


def is_remote(address: str) -> bool:
    """Whether it is outside this machine."""
    return host_and_port(address)[0] not in _LOCAL_HOSTS


def host_and_port(address: str) -> tuple[str, int]:
    """The two parts; port 0 for "auto", the cluster that `ray start` started on this machine."""
    if address == "auto":
        return address, 0
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 1 << 16 or "/" in host:
        raise UserError(f'--address is "{address}"; accepted: HOST:PORT of a Ray cluster, or auto')
    return host.strip("[]"), int(port)


def prepare_ray_import(address: str | None) -> None:
    """Set the variables that Ray reads when it is imported, and reject an address where nothing listens.

    Ray replaces 127.0.0.1 by the machine's address in its network. A cluster that listens on 127.0.0.1 only, as an
    embedded one does, cannot be reached there, so the replacement is switched off for it.
    """
    if address is None:
        os.environ[LOOPBACK] = "0"
        return
    os.environ.setdefault(ATTEMPTS, "1")
    host, port = host_and_port(address)
    if not port:
        return
    try:
        socket.create_connection((host, port), timeout=_CONNECT_TIMEOUT).close()
    except OSError as error:
        raise UserError(
            f"nothing answers at {address} ({error.strerror or error}); `ray start --head` starts a cluster "
            "and prints its address"
        ) from None
    if host in _LOCAL_HOSTS and not _listens(_network_address(), port):
        os.environ[LOOPBACK] = "0"


def _listens(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=1.0).close()
    except OSError:
        return False
    return True


def _network_address() -> str:
    """This machine's address in its network. Connecting a UDP socket chooses a route and sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"
