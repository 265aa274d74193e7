"""The runs of a sweep read back from its directory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from c2d.config import validate
from c2d.envs.make import spec_of
from c2d.envs.names import require_trusted_env
from c2d.errors import UserError
from c2d.sweep.directory import SweepDir
from c2d.sweep.plan import Listing, PlannedRun
from c2d.sweep.status import failed_names


def listing_of(where: Path, failed: bool, named_envs: tuple[str, ...], threads: int, device: str) -> Listing:
    """All runs, or those that failed. Classes of the user's own must be among `named_envs`."""
    sweep = SweepDir(where)
    known = sweep.known()
    wanted = failed_names(sweep) if failed else set(known)
    if not wanted:
        raise UserError(f"{where}: no run has failed")
    runs = []
    for name, row in known.items():
        if name not in wanted:
            continue
        own = row.config.env.removeprefix("gym/")
        require_trusted_env(row.config.env, own if own in named_envs else None, flag="--envs ")
        config = replace(row.config, threads=threads, device=device)
        validate(config)
        runs.append(PlannedRun(row.variant, config, spec_of(config.env, config.rules)))
    return Listing(runs, {})
