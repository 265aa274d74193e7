"""c2d fingerprint RUN [RUN ...] [--out FILE]"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from c2d.cli.settings import options
from c2d.errors import UserError
from c2d.files import LINES, read_text, write_atomically
from c2d.formatting import printable
from c2d.reporting.fingerprint import INTRO, game_of, joint_section, section, update_page
from c2d.reporting.local_runs import agent_names
from c2d.runs.reader import RunRecords, read_run

DESCRIPTION = "Compare a run's first iterations with those of the three published C2D seeds of its game."


@dataclass(frozen=True)
class FingerprintOptions:
    """The options of `c2d fingerprint`."""

    runs: tyro.conf.Positional[tuple[str, ...]]
    """Run directories written by `c2d train`."""
    out: str | None = None
    """Markdown file to write the sections to. Its notes, and sections of other runs, are kept."""


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
        sections = {name: section(run, chosen.out) for name, run in runs.items()} | _joint_sections(list(runs.values()))
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        names = ", ".join(chosen.runs)
        raise UserError(f"records of {names} are damaged: a value is missing or of a wrong kind ({error})") from None
    sections = {name: printable(text) for name, text in sections.items()}
    print("\n".join(sections.values()), end="")
    if chosen.out is not None:
        _write(Path(chosen.out), sections)


def _joint_sections(runs: list[RunRecords]) -> dict[str, str]:
    """One section per agent and game with several runs of different seeds."""
    groups: dict[str, dict[int, RunRecords]] = {}
    for run, agent in zip(runs, agent_names(runs, []), strict=True):
        if run.iterations:
            groups.setdefault(f"{game_of(run)}, {agent}", {}).setdefault(run.config["seed"], run)
    return {
        f"{name}, together": joint_section(list(group.values())) for name, group in groups.items() if len(group) > 1
    }


def _write(out: Path, sections: dict[str, str]) -> None:
    try:
        before = read_text(out, LINES) if out.exists() else None
        page = update_page(before, INTRO.format(out=out), sections, str(out))
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(out, page.encode())
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--out {out} cannot be written: {error}") from None
    print(f"\nwritten to {out}")
