"""c2d fingerprint RUN [RUN ...] [--out FILE]"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from c2d.cli.settings import options
from c2d.errors import UserError
from c2d.formatting import printable
from c2d.reporting.fingerprint import all_sections, write_page
from c2d.reporting.run_records import RunRecords, read_run

DESCRIPTION = "Compare a run's first iterations with those of the three published C2D seeds of its game."


@dataclass(frozen=True)
class FingerprintOptions:
    """The options of `c2d fingerprint`."""

    runs: tyro.conf.Positional[tuple[str, ...]]
    """Run directories written by `c2d train`."""
    out: str | None = None
    """Markdown file to write the sections to; None: only print them. Notes and sections of other runs are kept."""


def main(arguments: Sequence[str]) -> None:
    chosen = options(FingerprintOptions, list(arguments), "c2d fingerprint", DESCRIPTION)
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
