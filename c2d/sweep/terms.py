"""How a plan is to be run, and where."""

from __future__ import annotations

import os
import re
import socket
from dataclasses import dataclass

from c2d.errors import UserError

_ANSWER = 5.0  # seconds for an address to answer
_HOMES = ("localhost", "127.0.0.1", "::1", "auto")
LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"  # 0 keeps all of Ray on 127.0.0.1, on any system
_SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])  # length, kind, flags, stream: an empty frame of settings of HTTP/2
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _SETTINGS  # what a client of gRPC says first
_UNITS = {"s": 1.0, "min": 60.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}


@dataclass(frozen=True)
class Terms:
    """How a plan is to be run."""

    address: str | None = None  # of a Ray cluster; None: an embedded one
    workers: int | None = None  # runs at once; None: as many as fit
    threads: int = 1  # CPU threads of each run
    gpus: float = 0.0  # share of a GPU for each run
    retries: int = 3  # times that a run whose process or node died is started again
    ship: bool = False  # copy results through Ray even where the disk is the same
    keep_replay: bool = True
    budget: float | None = None  # seconds

    def check(self) -> None:
        for name, value in (("workers", self.workers), ("threads", self.threads)):
            if value is not None and value < 1:
                raise UserError(f"--{name} is {value}; accepted: at least 1")
        if not 0.0 <= self.gpus < 1e6 or (self.gpus > 1.0 and self.gpus != int(self.gpus)):
            raise UserError(f"--gpus-per-run is {self.gpus:g}; accepted: from 0 to 1, or a whole number")
        if self.address is not None:
            _host_and_port(self.address)
        if self.retries < 0:
            raise UserError(f"--retries is {self.retries}; accepted: 0 or greater")


def seconds(text: str) -> float:
    """ "90s", "30min", "6h", "2d" or "1h30min" in seconds."""
    whole = re.fullmatch(r"(?:[0-9.]+(?:s|min|m|h|d))+", text.replace(" ", ""))
    try:
        parts = re.findall(r"([0-9.]+)(s|min|m|h|d)", text)
        total = sum(float(number) * _UNITS[unit] for number, unit in parts)
    except ValueError:
        total = 0.0
    if whole is None or total <= 0.0:
        raise UserError(f'--budget is "{text}"; accepted: a time such as 90s, 30min, 6h, 2d or 1h30min')
    return total


def is_remote(address: str) -> bool:
    """Whether it is outside this machine."""
    return _host_and_port(address)[0] not in _HOMES


def _host_and_port(address: str) -> tuple[str, int]:
    """The two parts; port 0 for "auto", the cluster that `ray start` made on this machine."""
    if address == "auto":
        return address, 0
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 1 << 16 or "/" in host:
        raise UserError(f'address "{address}" cannot be used; accepted: HOST:PORT of a Ray cluster, or auto')
    return host.strip("[]"), int(port)


def prepare(terms: Terms) -> None:
    """Before Ray is imported: refuse an address at which no cluster answers, on which Ray would spend minutes.

    Ray takes 127.0.0.1 for the machine's address in its network, where a cluster that keeps to itself cannot be
    reached; such a one, and an embedded one, must be called by the name that it has.
    """
    if terms.address is None:
        os.environ[LOOPBACK] = "0"
        return
    host, port = _host_and_port(terms.address)
    if not port:
        return
    _speaks(terms.address, host, port)
    if host in _HOMES and _refused(_outward(), port):
        os.environ[LOOPBACK] = "0"


def _speaks(address: str, host: str, port: int) -> None:
    try:
        with socket.create_connection((host, port), timeout=_ANSWER) as connection:
            if os.environ.get("RAY_USE_TLS", "0") != "0":
                return
            connection.sendall(_HELLO)
            answer = connection.recv(len(_SETTINGS))
    except TimeoutError:
        answer = b""
    except OSError as error:
        raise UserError(
            f"nothing answers at {address} ({error.strerror or error}); `ray start --head` starts a cluster and "
            "prints its address"
        ) from None
    if len(answer) < len(_SETTINGS) or answer[3] != _SETTINGS[3]:
        raise UserError(f"what answers at {address} is no Ray cluster; `ray start --head` prints a cluster's address")


def _refused(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=1.0).close()
    except OSError:
        return True
    return False


def _outward() -> str:
    """This machine's address in its network; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"
