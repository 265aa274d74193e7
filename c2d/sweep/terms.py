"""How a plan is to be run, and where."""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass

from c2d.errors import UserError

_ANSWER = 5.0  # seconds for an address to answer
_HOMES = ("localhost", "127.0.0.1", "::1", "auto")
LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"  # 0 keeps all of Ray on 127.0.0.1, on any system
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


def _host_and_port(address: str) -> tuple[str, int | None]:
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not port.isdigit():
        return address, None
    return host.strip("[]"), int(port)


def answers(address: str) -> None:
    """Refuse an address at which nobody listens, before Ray spends a minute on it."""
    host, port = _host_and_port(address)
    if port is None:
        if address == "auto":
            return
        raise UserError(f'address "{address}" cannot be used; accepted: HOST:PORT of a Ray cluster, or auto')
    try:
        socket.create_connection((host, port), timeout=_ANSWER).close()
    except OSError as error:
        raise UserError(
            f"nothing answers at {address} ({error.strerror or error}); `ray start --head` starts a cluster and "
            "prints its address"
        ) from None
