"""How and where a plan runs, and the environment variables that Ray reads when it is imported."""

from __future__ import annotations

import os
import re
import socket
from dataclasses import dataclass

from c2d.errors import UserError

LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"  # 0 keeps all of Ray on 127.0.0.1, on any system
ATTEMPTS = "RAY_NUM_REDIS_GET_RETRIES"  # attempts to connect, up to 41 s each; Ray's default of 20 takes 14 minutes
_CONNECT_TIMEOUT = 5.0  # seconds
_LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1", "auto")
_UNITS = {"s": 1.0, "min": 60.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}


@dataclass(frozen=True)
class SweepOptions:
    """How and where a plan runs."""

    address: str | None = None  # of a Ray cluster; None: an embedded one
    workers: int | None = None  # runs at once; None: as many as fit
    threads: int = 1  # CPU threads per run
    gpus: float = 0.0  # share of a GPU per run
    retries: int = 3  # restarts of a run whose process or node died
    ship: bool = False  # copy results through Ray even where the disk is shared
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


def parse_budget(text: str) -> float:
    """ "90s", "30min", "6h", "2d" or "1h30min" in seconds."""
    valid = re.fullmatch(r"(?:[0-9.]+(?:s|min|m|h|d))+", text.replace(" ", ""))
    try:
        amounts = re.findall(r"([0-9.]+)(s|min|m|h|d)", text)
        total = sum(float(number) * _UNITS[unit] for number, unit in amounts)
    except ValueError:
        total = 0.0
    if valid is None or total <= 0.0:
        raise UserError(f'--budget is "{text}"; accepted: a time such as 90s, 30min, 6h, 2d or 1h30min')
    return total


# ------------------------------------------------------------------------------------------------------- addresses


def is_remote(address: str) -> bool:
    """Whether it is outside this machine."""
    return _host_and_port(address)[0] not in _LOCAL_HOSTS


def _host_and_port(address: str) -> tuple[str, int]:
    """The two parts; port 0 for "auto", the cluster that `ray start` started on this machine."""
    if address == "auto":
        return address, 0
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 1 << 16 or "/" in host:
        raise UserError(f'--address is "{address}"; accepted: HOST:PORT of a Ray cluster, or auto')
    return host.strip("[]"), int(port)


def prepare_ray_import(options: SweepOptions) -> None:
    """Set the variables that Ray reads when it is imported, and reject an address where nothing listens.

    Ray replaces 127.0.0.1 by the machine's address in its network. A cluster that listens on 127.0.0.1 only, as an
    embedded one does, cannot be reached there, so the replacement is switched off for it.
    """
    if options.address is None:
        os.environ[LOOPBACK] = "0"
        return
    os.environ.setdefault(ATTEMPTS, "1")
    host, port = _host_and_port(options.address)
    if not port:
        return
    try:
        socket.create_connection((host, port), timeout=_CONNECT_TIMEOUT).close()
    except OSError as error:
        raise UserError(
            f"nothing answers at {options.address} ({error.strerror or error}); `ray start --head` starts a cluster "
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
