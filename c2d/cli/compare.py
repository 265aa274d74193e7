"""c2d compare RUN [RUN ...]"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from c2d.cli.settings import options
from c2d.errors import UserError
from c2d.formatting import plural, printable

DESCRIPTION = (
    "Compare your runs with the published agents on the same games and at the same frames: scores with intervals, the "
    "probability of improvement, and how many more seeds would settle it."
)


@dataclass(frozen=True)
class CompareOptions:
    """The options of `c2d compare`."""

    runs: tyro.conf.Positional[tuple[str, ...]] = ()
    """Run directories written by `c2d train`, finished or not, or directories of them."""
    published: str | None = None
    """Directory with published curves (docs/reports.md); None: published agents are known only at 10, 50, 100, 150 and
    200M frames, and C2D on eight games in its first 10M."""
    agents: tuple[str, ...] = ()
    """Published agents to compare with; none given: DQN C51 QR-DQN IQN Rainbow C2D."""
    at: float | None = None
    """Millions of frames at which to compare; None: what all runs have reached."""
    convention: str = "table"
    """How a score is read from a curve: table (mean of 5 iterations) or figures (one raw iteration)."""
    references: str | None = None
    """Table of random and human scores: dqn-zoo, rliable or paper-figures; None: that of the convention."""
    replications: int = 10_000
    """Bootstrap replications."""
    seed: int = 0
    """Seed of the bootstrap."""


def main(arguments: Sequence[str]) -> None:
    chosen = options(CompareOptions, list(arguments), "c2d compare", DESCRIPTION)
    if not chosen.runs:
        raise UserError("no runs given; accepted: c2d compare RUN [RUN ...]")
    if chosen.at is not None and not 0 < chosen.at <= 200:
        raise UserError(f"--at is {chosen.at:g}; accepted: above 0, up to 200 (million frames)")
    if chosen.replications < 100:
        raise UserError(f"--replications is {chosen.replications}; accepted: at least 100")
    if chosen.seed < 0:
        raise UserError(f"--seed is {chosen.seed}; accepted: 0 or greater")
    from c2d.reporting.analysis import align_atari, gather
    from c2d.reporting.compare import mixed_rules_notes, on_atari, on_other_environments
    from c2d.reporting.local_runs import read_local_runs
    from c2d.reporting.report import agents_with_other_rules, rule_notes, scoring_options

    scoring = scoring_options(chosen.convention, chosen.references, chosen.replications, chosen.seed)
    own, run_notes = read_local_runs([Path(run) for run in chosen.runs])
    dataset = gather(own, run_notes, None if chosen.published is None else Path(chosen.published), chosen.agents)
    names = printable(", ".join(dataset.own), one_line=True)
    print(f"c2d compare | {plural(len(own), 'run')} of {names} | seed {chosen.seed}")
    print()
    notes = [*dataset.notes, *mixed_rules_notes(own)]
    aligned = align_atari(dataset, scoring, chosen.at, notes)
    if aligned is not None:
        notes += rule_notes(own, dataset)
        print(printable("\n".join(on_atari(aligned, agents_with_other_rules(own, dataset)))))
    print(printable("\n".join(on_other_environments(dataset, scoring, notes))))
    for note in dict.fromkeys(notes):
        print(f"note: {printable(note)}")
