"""c2d report RUN [RUN ...] --out DIR, and c2d report --published-only --out DIR"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from c2d.cli.settings import options
from c2d.errors import UserError
from c2d.formatting import printable

DESCRIPTION = (
    "Write a report: an HTML page that opens from disk, figures (SVG, PNG), tables (CSV, LaTeX) and numbers (JSON). "
    "Your runs are compared with the published agents on the same games and at the same frames. Needs neither a GPU "
    "nor an emulator."
)


@dataclass(frozen=True)
class ReportOptions:
    """The options of `c2d report`."""

    runs: tyro.conf.Positional[tuple[str, ...]] = ()
    """Run directories written by `c2d train`, finished or not, or directories of them."""
    out: str = ""
    """Directory for the report; created if it does not exist."""
    published_only: bool = False
    """The paper's figures and table, from published data only."""
    published: str | None = None
    """Directory (or file) with published curves: Dopamine's JSON, the C2D authors' JSON and CSV,
    learning_curves.csv.gz, supports.csv.gz; None: only the bundled table, with points at 10, 50, 100, 150 and 200M
    frames."""
    agents: tuple[str, ...] = ()
    """Published agents to show; none given: DQN C51 QR-DQN IQN Rainbow C2D. --published may add others."""
    games: tuple[str, ...] = ()
    """Games to show in detail; none given: the paper's four, or the first four of your runs."""
    against: tuple[str, ...] = ()
    """Agents for the differences per game; none given: IQN Rainbow C51, or with your own runs C2D IQN."""
    at: float | None = None
    """Millions of frames at which agents are compared; None: 200, or what all of your runs have reached."""
    convention: str = "table"
    """How a score is read from a curve: table (mean of 5 iterations) or figures (one raw iteration, as in the paper's
    figures)."""
    references: str | None = None
    """Table of random and human scores: dqn-zoo, rliable or paper-figures; None: dqn-zoo, or paper-figures with
    --convention figures."""
    replications: int = 10_000
    """Bootstrap replications of the aggregates."""
    seed: int = 0
    """Seed of the bootstrap."""


def main(arguments: Sequence[str]) -> None:
    chosen = options(ReportOptions, list(arguments), "c2d report", DESCRIPTION)
    _check(chosen)
    from c2d.reporting.page import write
    from c2d.reporting.report import ReportRequest, build_report

    print(f"c2d report | {_first_line(chosen)}", flush=True)
    report = build_report(
        ReportRequest(
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
    curves = f"curves from {chosen.published}" if chosen.published else "bundled table of scores"
    return (
        f"{what}, {curves} | convention {chosen.convention} | {chosen.replications:,} replications, seed {chosen.seed}"
    )


def _check(chosen: ReportOptions) -> None:
    if not chosen.runs and not chosen.published_only:
        raise UserError(
            "no runs given; accepted: c2d report RUN [RUN ...] --out DIR, or c2d report --published-only --out DIR"
        )
    if chosen.runs and chosen.published_only:
        raise UserError("--published-only takes no runs; accepted: runs, or --published-only")
    if not chosen.out:
        raise UserError("no output directory given; accepted: --out DIR")
    if Path(chosen.out).is_file():
        raise UserError(f"--out {chosen.out} is a file; accepted: a directory, new or existing")
    if chosen.replications < 100:
        raise UserError(f"--replications is {chosen.replications}; accepted: at least 100")
    if chosen.seed < 0:
        raise UserError(f"--seed is {chosen.seed}; accepted: 0 or greater")
    if chosen.at is not None and not 0 < chosen.at <= 200:
        raise UserError(f"--at is {chosen.at:g}; accepted: above 0, up to 200 (million frames)")
