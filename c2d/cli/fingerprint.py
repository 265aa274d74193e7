"""c2d fingerprint RUN [RUN ...] [--out FILE]"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from c2d.cli.settings import options
from c2d.errors import UserError
from c2d.files import LINES, read_text, write_atomically
from c2d.reporting.document import update
from c2d.reporting.fingerprint import game_of, section, together
from c2d.reporting.naming import agent_names
from c2d.reporting.runs import RunRecords, read_run
from c2d.words import printable

DESCRIPTION = "Put a run's first iterations beside those of the three published C2D seeds of its game."
INTRO = """# Fingerprint: the first iterations beside the published ones

Each section puts one training run beside the three seeds that the paper's authors published for the same game
(data/supplementary of github.com/bjliaa/c2d, copied to `c2d/reporting/data/early_iterations.csv`).
An iteration is 250,000 agent steps, or 1M frames. Per iteration:

- mean loss: squared Cramér distance, averaged over the gradient steps;
- smallest and largest atom: of the sampled actions' predicted laws in all training batches, in φ-space;
- largest gradient norm: before clipping;
- games ended, and mean score: whole games, raw, played while training.

The verdict tells whether a figure lies in the range of the three seeds, else its gap to the nearest of them,
in percent of that seed. The distance is from the mean of the seeds, in their standard deviations. With three
seeds, a fourth one of the same kind would fall outside their range half of the time. The last column measures
oddness by the seeds themselves: the share of the 24 published seeds (eight games, same iteration) that lie at
least as far from the range of their two fellows as this run lies from that of two seeds.

To write a section again, train with the command it names (three quarters of an hour to one and a half for one
iteration, by machine), then:

    c2d fingerprint RUN [RUN ...] --out {out}

Several runs that differ in their seeds only get a section together. The
command writes everything but the text between the marks for notes."""


@dataclass(frozen=True)
class Fingerprint:
    """What is asked for."""

    runs: tyro.conf.Positional[tuple[str, ...]]
    """Run directories, as `c2d train` makes them."""
    out: str | None = None
    """Markdown file to write the sections into. Sections of other runs in it, and notes, are kept."""


def main(arguments: Sequence[str]) -> None:
    chosen = options(Fingerprint, list(arguments), "c2d fingerprint", DESCRIPTION)
    if not chosen.runs:
        raise UserError("which run? c2d fingerprint RUN [RUN ...]")
    runs: dict[str, RunRecords] = {}
    for path in chosen.runs:
        run = read_run(Path(path))
        if run.name in runs and runs[run.name].path.resolve() != run.path.resolve():
            raise UserError(f"{runs[run.name].path} and {run.path} have one name: write them to different files")
        runs[run.name] = run
    try:
        sections = {name: section(run, chosen.out) for name, run in runs.items()} | _together(list(runs.values()))
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        names = ", ".join(chosen.runs)
        raise UserError(f"records of {names} are damaged: a value is missing or of a wrong kind ({error})") from None
    sections = {name: printable(text) for name, text in sections.items()}
    print("\n".join(sections.values()), end="")
    if chosen.out is not None:
        _write(Path(chosen.out), sections)


def _together(runs: list[RunRecords]) -> dict[str, str]:
    """A section for all runs of one agent on one game, where there are several with seeds of their own."""
    groups: dict[str, dict[int, RunRecords]] = {}
    for run, agent in zip(runs, agent_names(runs, []), strict=True):
        if run.iterations:
            groups.setdefault(f"{game_of(run)}, {agent}", {}).setdefault(run.config["seed"], run)
    return {f"{name}, together": together(list(group.values())) for name, group in groups.items() if len(group) > 1}


def _write(out: Path, sections: dict[str, str]) -> None:
    try:
        before = read_text(out, LINES) if out.exists() else None
        page = update(before, INTRO.format(out=out), sections, str(out))
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(out, page.encode())
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--out {out} cannot be written: {error}") from None
    print(f"\nwritten to {out}")
