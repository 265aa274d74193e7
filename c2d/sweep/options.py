"""How and where a plan runs: the options that `c2d sweep`, `c2d sweep retry` and `c2d ablate` share, and their checks.

No Ray is needed to read them.
"""

from __future__ import annotations

from dataclasses import dataclass

from c2d.cluster.address import host_and_port
from c2d.errors import UserError
from c2d.formatting import seconds_of


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
    return seconds_of(text, "--budget")
