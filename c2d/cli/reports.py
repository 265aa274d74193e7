"""Runs and the paper compared: c2d report, c2d compare, c2d fingerprint, c2d ledger"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from c2d.cli.settings import options
from c2d.errors import UserError
from c2d.formatting import plural, printable


def _check_bootstrap(replications: int, seed: int = 0, at: float | None = None) -> None:
    """Reject bad options that several of the commands share."""
    if at is not None and not 0 < at <= 200:
        raise UserError(f"--at is {at:g}; accepted: above 0, up to 200 (million frames)")
    if replications < 100:
        raise UserError(f"--replications is {replications}; accepted: at least 100")
    if seed < 0:
        raise UserError(f"--seed is {seed}; accepted: 0 or greater")


# ------------------------------------------------------------------------------------------------------------- report


_REPORT = (
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


def report(arguments: Sequence[str]) -> None:
    chosen = options(ReportOptions, list(arguments), "c2d report", _REPORT)
    _check_report(chosen)
    from c2d.reporting.local_runs import run_directories
    from c2d.reporting.page import write
    from c2d.reporting.report import ReportRequest, build_report

    run_directories(list(map(Path, chosen.runs)))  # rejects what is none before anything is printed
    print(f"c2d report | {_first_line(chosen)}", flush=True)
    document = build_report(
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
    for note in document.notes:
        print(f"note: {printable(note)}")
    files = write(document, Path(chosen.out))
    for section in document.sections:
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


def _check_report(chosen: ReportOptions) -> None:
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
    _check_bootstrap(chosen.replications, chosen.seed, chosen.at)


# ------------------------------------------------------------------------------------------------------------ compare


_COMPARE = (
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


def compare(arguments: Sequence[str]) -> None:
    chosen = options(CompareOptions, list(arguments), "c2d compare", _COMPARE)
    if not chosen.runs:
        raise UserError("no runs given; accepted: c2d compare RUN [RUN ...]")
    _check_bootstrap(chosen.replications, chosen.seed, chosen.at)
    from c2d.reporting.report import ReportRequest, compare_runs

    found = compare_runs(
        ReportRequest(
            runs=tuple(map(Path, chosen.runs)),
            published=None if chosen.published is None else Path(chosen.published),
            agents=chosen.agents,
            at=chosen.at,
            convention=chosen.convention,
            references=chosen.references,
            replications=chosen.replications,
            seed=chosen.seed,
        )
    )
    names = printable(", ".join(found.agents), one_line=True)
    print(f"c2d compare | {plural(found.runs, 'run')} of {names} | seed {chosen.seed}\n")
    print(printable(found))


# -------------------------------------------------------------------------------------------------------- fingerprint


_FINGERPRINT = "Compare a run's first iterations with those of the three published C2D seeds of its game."


@dataclass(frozen=True)
class FingerprintOptions:
    """The options of `c2d fingerprint`."""

    runs: tyro.conf.Positional[tuple[str, ...]]
    """Run directories written by `c2d train`."""
    out: str | None = None
    """Markdown file to write the sections to; None: only print them. Notes and sections of other runs are kept."""


def fingerprint(arguments: Sequence[str]) -> None:
    chosen = options(FingerprintOptions, list(arguments), "c2d fingerprint", _FINGERPRINT)
    from c2d.reporting.fingerprint import all_sections, write_page
    from c2d.runs.reader import RunRecords, read_run

    if not chosen.runs:
        raise UserError("no run given; accepted: c2d fingerprint RUN [RUN ...]")
    runs: dict[str, RunRecords] = {}
    for path in chosen.runs:
        run = read_run(Path(path))
        if run.name in runs and runs[run.name].path.resolve() != run.path.resolve():
            raise UserError(
                f"{runs[run.name].path} and {run.path} have the same name; accepted: runs with different names. "
                "Write them to different files"
            )
        runs[run.name] = run
    try:
        sections = all_sections(runs, chosen.out)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        names = ", ".join(chosen.runs)
        raise UserError(f"records of {names} are damaged: a value is missing or of a wrong kind ({error})") from None
    sections = {name: printable(text) for name, text in sections.items()}
    print("\n".join(sections.values()), end="")
    if chosen.out is not None:
        write_page(Path(chosen.out), sections)
        print(f"\nwritten to {chosen.out}")


# ------------------------------------------------------------------------------------------------------------- ledger


_LEDGER = (
    "List every number, table, figure and claim of the C2D paper with the command that reproduces it, the expected "
    "value, ours, the tolerance and the status. Trains nothing: published data decide what they can."
)


@dataclass(frozen=True)
class LedgerOptions:
    """The options of `c2d ledger`."""

    published: str | None = None
    """Directory with published curves (docs/reports.md); None: entries that need curves say so."""
    out: str | None = None
    """Markdown file to write; None: print the ledger."""
    replications: int = 20_000
    """Bootstrap replications of each interval."""


def ledger(arguments: Sequence[str]) -> None:
    chosen = options(LedgerOptions, list(arguments), "c2d ledger", _LEDGER)
    _check_bootstrap(chosen.replications)
    from c2d.files import write_atomically
    from c2d.reporting.analysis import gather
    from c2d.reporting.ledger import counts, to_markdown, to_text
    from c2d.reporting.paper_claims import ledger_entries

    curves = f"curves from {chosen.published}" if chosen.published else "bundled table of scores"
    print(f"c2d ledger | {curves} | {chosen.replications:,} replications, seed 0", flush=True)
    dataset = gather(published=None if chosen.published is None else Path(chosen.published))
    entries = ledger_entries(dataset, chosen.replications)
    if chosen.out is None:
        print(to_text(entries))
        return
    command = "c2d ledger" + (" --published PATH" if chosen.published else "") + f" --out {chosen.out}"
    text = to_markdown(entries, command, chosen.replications)
    try:
        Path(chosen.out).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(Path(chosen.out), text.encode())
    except OSError as error:
        raise UserError(f"--out {chosen.out} cannot be written: {error.strerror}") from None
    print(f"{counts(entries)}\nwritten to {chosen.out}")
