"""c2d compare RUN [RUN ...]"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from c2d.cli.settings import options
from c2d.errors import UserError
from c2d.words import printable

DESCRIPTION = (
    "Tell where runs stand: their games and frames only, beside the published agents at the same games "
    "and frames, with "
    "intervals, the probability of improvement, and how many more seeds would settle it."
)


@dataclass(frozen=True)
class CompareOptions:
    """What is asked for."""

    runs: tyro.conf.Positional[tuple[str, ...]] = ()
    """Run directories as `c2d train` makes them, finished or not, or directories full of them."""
    published: str | None = None
    """Directory with published curves (docs/reports.md). Without it, published agents are known at 10, 50, 100, 150 and
    200M frames, and C2D on eight games in its first 10M."""
    agents: tuple[str, ...] = ()
    """Published agents to stand beside. Default: DQN C51 QR-DQN IQN Rainbow C2D."""
    at: float | None = None
    """Millions of frames at which to compare. Default: what every run has reached."""
    convention: str = "table"
    """How a score is taken from a curve: table (mean of 5 iterations) or figures (one raw iteration)."""
    references: str | None = None
    """Random and human scores: dqn-zoo, rliable or paper-figures."""
    replications: int = 10_000
    """Bootstrap replications."""
    seed: int = 0
    """Seed of the bootstrap."""


def main(arguments: Sequence[str]) -> None:
    chosen = options(CompareOptions, list(arguments), "c2d compare", DESCRIPTION)
    if not chosen.runs:
        raise UserError("which runs? c2d compare RUN [RUN ...]")
    if chosen.at is not None and not 0 < chosen.at <= 200:
        raise UserError(f"--at is {chosen.at:g}; accepted: above 0, up to 200 (million frames)")
    if chosen.replications < 100 or chosen.seed < 0:
        raise UserError("--replications must be at least 100, --seed 0 or greater")
    from c2d.reporting.assemble import choice, unlike, unlike_agents
    from c2d.reporting.compare import elsewhere, on_atari, unlike_rules
    from c2d.reporting.field import gather
    from c2d.reporting.matching import match_atari
    from c2d.reporting.own import read_own

    how = choice(chosen.convention, chosen.references, chosen.replications, chosen.seed)
    own, notes = read_own([Path(run) for run in chosen.runs])
    field = gather(own, notes, None if chosen.published is None else Path(chosen.published), chosen.agents)
    names = printable(", ".join(field.own))
    print(f"c2d compare | {len(own)} run{'s' * (len(own) != 1)} of {names} | seed {chosen.seed}")
    print()
    told = [*field.notes, *unlike_rules(own)]
    matched = match_atari(field, how, chosen.at, told)
    if matched is not None:
        told += unlike(own, field)
        print(printable("\n".join(on_atari(matched, unlike_agents(own, field)))))
    print(printable("\n".join(elsewhere(field, how, told))))
    for note in dict.fromkeys(told):
        print(f"note: {printable(note)}")
