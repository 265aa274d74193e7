"""How and where a plan runs."""

from __future__ import annotations

import re
from dataclasses import dataclass

from c2d.cluster.address import host_and_port
from c2d.errors import UserError

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
            host_and_port(self.address)
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
