"""c2d report RUN [RUN ...] --out DIR, and c2d report --published-only --out DIR"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from c2d.cli.settings import options
from c2d.errors import UserError
from c2d.words import printable

DESCRIPTION = (
    "Write a report: a page that opens from disk, figures (SVG, PNG), tables (CSV, LaTeX) and numbers "
    "(JSON). Runs stand "
    "beside the published agents at the same games and frames. No GPU and no emulator are needed."
)


@dataclass(frozen=True)
class ReportOptions:
    """What is asked for."""

    runs: tyro.conf.Positional[tuple[str, ...]] = ()
    """Run directories as `c2d train` makes them, finished or not, or directories full of them."""
    out: str = ""
    """Directory for the report; made if it is not there."""
    published_only: bool = False
    """The paper's figures and table from published data alone."""
    published: str | None = None
    """Directory (or file) with published curves: Dopamine's JSON, the C2D authors' JSON and CSV,
    learning_curves.csv.gz, supports.csv.gz. Without it the project's own table serves: points at 10, 50, 100, 150 and
    200M frames."""
    agents: tuple[str, ...] = ()
    """Published agents to show. Default: DQN C51 QR-DQN IQN Rainbow C2D; --published may hold others."""
    games: tuple[str, ...] = ()
    """Games to show in detail. Default: the paper's four, or the first four of the runs."""
    against: tuple[str, ...] = ()
    """Agents for the bars of difference. Default: IQN Rainbow C51; with runs of your own C2D IQN."""
    at: float | None = None
    """Millions of frames at which agents are compared. Default: 200, or what every run of yours has reached."""
    convention: str = "table"
    """How a score is taken from a curve: table (mean of 5 iterations) or figures (one raw iteration, as the paper's
    figures were drawn)."""
    references: str | None = None
    """Random and human scores: dqn-zoo, rliable or paper-figures. Default: dqn-zoo; paper-figures with --convention
    figures."""
    replications: int = 10_000
    """Bootstrap replications of the aggregates."""
    seed: int = 0
    """Seed of the bootstrap."""


def main(arguments: Sequence[str]) -> None:
    chosen = options(ReportOptions, list(arguments), "c2d report", DESCRIPTION)
    _check(chosen)
    from c2d.reporting.assemble import Request, assemble
    from c2d.reporting.report import write

    print(f"c2d report | {_first_line(chosen)}", flush=True)
    report = assemble(
        Request(
            runs=tuple(map(Path, chosen.runs)),
            published=None if chosen.published is None else Path(chosen.published),
            agents=chosen.agents,
            games=chosen.games,
            against=chosen.against,
            at=chosen.at,
            convention=chosen.convention,
            references=chosen.references,
            replications=chosen.replications,
            seed=chosen.seed,
            command=shlex.join(["c2d", "report", *arguments]),
        )
    )
    for note in report.notes:
        print(f"note: {printable(note)}")
    files = write(report, Path(chosen.out))
    for section in report.sections:
        if section.missing:
            print(printable(f"{section.title}: {section.missing}"))
    print(f"written to {Path(chosen.out) / 'report.html'} ({len(files)} files)")


def _first_line(chosen: ReportOptions) -> str:
    what = (
        "published data"
        if chosen.published_only
        else f"runs in {', '.join(chosen.runs[:3])}{', ...' * (len(chosen.runs) > 3)}"
    )
    curves = f"curves from {chosen.published}" if chosen.published else "the project's own table of scores"
    return (
        f"{what}, {curves} | convention {chosen.convention} | {chosen.replications:,} replications, seed {chosen.seed}"
    )


def _check(chosen: ReportOptions) -> None:
    if not chosen.runs and not chosen.published_only:
        raise UserError("which runs? c2d report RUN [RUN ...] --out DIR, or c2d report --published-only --out DIR")
    if chosen.runs and chosen.published_only:
        raise UserError("--published-only takes no runs: leave out the one or the other")
    if not chosen.out:
        raise UserError("where to? name a directory with --out DIR")
    if Path(chosen.out).is_file():
        raise UserError(f"--out {chosen.out} is a file; accepted: a directory, new or not")
    if chosen.replications < 100:
        raise UserError(f"--replications is {chosen.replications}; accepted: at least 100")
    if chosen.seed < 0:
        raise UserError(f"--seed is {chosen.seed}; accepted: 0 or greater")
    if chosen.at is not None and not 0 < chosen.at <= 200:
        raise UserError(f"--at is {chosen.at:g}; accepted: above 0, up to 200 (million frames)")
