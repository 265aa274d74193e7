"""c2d verify-resume [ENV] [options]"""

from __future__ import annotations

import dataclasses
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from c2d.cli.settings import options
from c2d.errors import UserError

if TYPE_CHECKING:
    from c2d.config import Config

DESCRIPTION = (
    "Verify on this machine that a run killed with kill -9 and resumed equals an uninterrupted run bit for bit: "
    "records, episodes, weights, optimizer, replay, random generators, the game. Exit code 1 if it does not."
)
POINTS, STEPS, AFTER = 10, 2_500, 100  # Atari games that are saved and restored in addition to the killed run


@dataclass(frozen=True)
class VerifyResumeOptions:
    """The options of `c2d verify-resume`."""

    env: tyro.conf.Positional[str] = "breakout"
    """Environment, as for c2d train."""
    recipe: str = "c2d"
    """Recipe of the run."""
    steps: int = 400
    """Agent steps of the whole run."""
    kills: int = 2
    """Number of times the run is killed, at evenly spaced steps."""
    seed: int = 1
    """Seed of the run."""
    threads: int = 1
    """CPU threads for the networks."""
    keep: bool = False
    """Keep the two run directories and print where they are."""


def main(arguments: Sequence[str]) -> None:
    chosen = options(VerifyResumeOptions, list(arguments), "c2d verify-resume", DESCRIPTION)
    for name, value, least in (("steps", chosen.steps, 40), ("kills", chosen.kills, 1), ("threads", chosen.threads, 1)):
        if value < least:
            raise UserError(f"--{name} is {value}; accepted: at least {least}")
    if chosen.kills > chosen.steps // 20:
        raise UserError(f"--kills is {chosen.kills}; accepted: at most one per 20 steps")
    where = Path(tempfile.mkdtemp(prefix="c2d-verify-"))
    try:
        if not _verify(chosen, where):
            sys.exit(1)
    finally:
        if chosen.keep:
            print(f"the runs are in {where}")
        else:
            shutil.rmtree(where, ignore_errors=True)


def _verify(chosen: VerifyResumeOptions, where: Path) -> bool:
    from c2d.config import Checkpointing, default_config
    from c2d.envs.trial import NOT_EXACT
    from c2d.training.verification import verify

    config = default_config(chosen.env, chosen.recipe, seed=chosen.seed, threads=chosen.threads)
    length = chosen.steps // 2
    schedule = dataclasses.replace(
        config.recipe.schedule,
        steps_per_iteration=length,
        random_history=100,
        replay_capacity=max(chosen.steps // 2, 100),  # so that the ring wraps around
        target_period=max(chosen.steps // 5, 1),
        epsilon_decay_steps=chosen.steps,
    )
    config = dataclasses.replace(
        config,
        iterations=2,
        tensorboard=False,
        checkpoint=Checkpointing(every_steps=max(chosen.steps // 9, 7), every_minutes=0.0),
        recipe=dataclasses.replace(config.recipe, schedule=schedule),
    )
    kills = [round(2 * length * (k + 1) / (chosen.kills + 1)) for k in range(chosen.kills)]
    print(f"verifying exact resume: {config.env}, recipe {chosen.recipe}, seed {chosen.seed}, {2 * length} steps")
    comparisons = verify(config, kills, where, print)
    width = max(len(c.part) for c in comparisons)
    print(f"\n{'part':<{width}}  uninterrupted     killed and resumed")
    for c in comparisons:
        print(f"{c.part:<{width}}  {c.straight:<16}  {c.resumed:<16}  {'equal' if c.equal else 'DIFFERENT'}")
    wrong = [c.part for c in comparisons if not c.equal]
    times = "once" if chosen.kills == 1 else f"{chosen.kills} times"
    print(f"\nkilled {times}, resumed: " + (f"DIFFERENT in {', '.join(wrong)}" if wrong else "equal, bit for bit"))
    continues = _continues(config)
    if not continues or "environment" in wrong:
        print(NOT_EXACT)
    return continues and not wrong


def _continues(config: Config) -> bool:
    """Save an Atari game at more points than a few kills reach, restore it in new emulators, and compare."""
    from c2d.envs.make import make
    from c2d.envs.trial import unequal

    if not config.env.startswith("atari/"):
        return True
    wrong = unequal(lambda: make(config.env, config.rules, config.seed), POINTS, STEPS, AFTER)
    at = f", DIFFERENT after steps {', '.join(map(str, wrong))}" if wrong else ""
    print(
        f"{config.env}, {STEPS:,} random steps, saved {POINTS} times and restored in new emulators, "
        f"{AFTER} steps compared: {POINTS - len(wrong)} of {POINTS} equal{at}"
    )
    return not wrong
