"""c2d sweep PLAN, c2d ablate RECIPE: several runs to compare, planned and carried out on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from c2d.cli.settings import options
from c2d.errors import UserError

if TYPE_CHECKING:
    from c2d.plans.plan import PlannedRun, Variant


@dataclass(frozen=True)
class Sweep:
    """What to run."""

    plan: tyro.conf.Positional[str] = "minatar"
    """A shipped plan: minatar (the field on MinAtar) or paper-claims (the paper's design claims on MinAtar)."""
    env: tuple[str, ...] = ()
    """Environments. Default: minatar/breakout minatar/space_invaders."""
    seeds: int = 2
    """Seeds 1 to this number."""
    steps: int | None = 100_000
    """Agent steps of each run, rounded up to whole iterations; None: the environment's default."""
    workers: int = 2
    """Runs at the same time, one CPU thread each."""
    out: str | None = None
    """Directory for the runs. Default: runs/PLAN."""
    execute: bool = False
    """Carry the plan out. Without it the plan is only printed."""


@dataclass(frozen=True)
class Ablate:
    """What to take apart."""

    recipe: tyro.conf.Positional[str] = "rainbow-c2d"
    """The recipe whose ingredients are removed one by one."""
    env: tuple[str, ...] = ("minatar/breakout",)
    """Environments."""
    seeds: int = 3
    """Seeds 1 to this number."""
    steps: int | None = 100_000
    """Agent steps of each run, rounded up to whole iterations; None: the environment's default."""
    workers: int = 2
    """Runs at the same time, one CPU thread each."""
    out: str | None = None
    """Directory for the runs. Default: runs/ablate-RECIPE."""
    execute: bool = False
    """Carry the plan out. Without it the plan is only printed."""


def main(arguments: Sequence[str]) -> None:
    chosen = options(Sweep, list(arguments), "c2d sweep", "Plan several runs, and carry them out with --execute True.")
    from c2d.plans.plan import GAMES, find_plan

    _go(find_plan(chosen.plan), chosen.env or GAMES, chosen, chosen.out or f"runs/{chosen.plan}")


def ablate(arguments: Sequence[str]) -> None:
    text = "Plan the recipe and the recipe without each of its ingredients; --execute True carries it out."
    chosen = options(Ablate, list(arguments), "c2d ablate", text)
    from c2d.agents.recipes import find
    from c2d.plans.plan import ablations

    variants = ablations(chosen.recipe, find(chosen.recipe))
    _go(variants, chosen.env, chosen, chosen.out or f"runs/ablate-{chosen.recipe}")


def _go(variants: Sequence[Variant], envs: Sequence[str], chosen: Sweep | Ablate, where: str) -> None:
    from c2d.config import validate
    from c2d.plans.plan import plan
    from c2d.plans.pool import execute

    for name, value in (("seeds", chosen.seeds), ("workers", chosen.workers), ("steps", chosen.steps)):
        if value is not None and value < 1:
            raise UserError(f"--{name} is {value}; accepted: at least 1")
    runs = plan(variants, envs, range(1, chosen.seeds + 1), chosen.steps, Path(where))
    for run in runs:
        validate(run.config)
    show(runs, where)
    if not chosen.execute:
        print("\nnothing was run: add --execute True; the same command again goes on where it stopped")
        return
    failed = execute(runs, chosen.workers, lambda line: print(line, flush=True))
    if failed:
        names = ", ".join(Path(str(run.config.run_dir)).name for run in failed)
        raise UserError(f"{len(failed)} of {len(runs)} runs failed: {names}; the same command tries them again")
    print(f"all {len(runs)} runs are in {where}")


def show(runs: Sequence[PlannedRun], where: str) -> None:
    """The plan as a table: one line per variant and environment."""
    from c2d.plans.pool import finished

    rows: dict[tuple[str, str], list[PlannedRun]] = {}
    for run in runs:
        rows.setdefault((run.variant, run.config.env), []).append(run)
    width = max(len(variant) for variant, _ in rows)
    print(f"{len(runs)} runs in {where}:")
    for (variant, env), group in rows.items():
        done = sum(map(finished, group))
        seeds = ", ".join(str(run.config.seed) for run in group)
        print(f"  {variant:<{width}}  {env:<24}  seeds {seeds}  {group[0].config.steps:,} steps  {done} finished")
