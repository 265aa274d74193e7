"""c2d ledger [--published PATH] [--out FILE]"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from c2d.cli.settings import options
from c2d.errors import UserError

DESCRIPTION = (
    "List every number, table, figure and claim of the C2D paper with the command that reproduces it, "
    "the expected value, "
    "ours, the tolerance and the status. Nothing is trained: the published data decide what they can."
)
INTRO = """# Ledger: the paper's numbers and claims beside ours

Written by `{command}`. Expected values are typed from the paper or read from its figures; ours are computed from the
published scores that come with the project and, where the command says `--published PATH`, from published curves
([where they are](reports.md#published-curves)).

* **reproduced**: equal within the tolerance. **differs**: not. **redrawn**: a figure of which no numbers are published.
* **holds**, **does not hold**, **undecided**: a claim that one agent is above another holds if the 95 % interval of the
  difference (stratified bootstrap over runs, {replications:,} replications) lies above 0, does not hold if it lies
  below, and is undecided if it contains 0. "On par" holds if the interval contains 0. **Holds in part**: for one rival
  only.
* **needs curves**: published data decide it, but no directory was named. **needs training**: no published data can.
"""


@dataclass(frozen=True)
class LedgerOptions:
    """What is asked for."""

    published: str | None = None
    """Directory with published curves (docs/reports.md). Without it, entries that need curves say so."""
    out: str | None = None
    """Markdown file to write; without it the ledger is printed."""
    replications: int = 20_000
    """Bootstrap replications of each interval."""


def main(arguments: Sequence[str]) -> None:
    chosen = options(LedgerOptions, list(arguments), "c2d ledger", DESCRIPTION)
    if chosen.replications < 100:
        raise UserError(f"--replications is {chosen.replications}; accepted: at least 100")
    from c2d.files import write_atomically
    from c2d.reporting.field import gather
    from c2d.reporting.ledger import claims, elsewhere, figures, settings
    from c2d.reporting.ledger.entry import counts, to_markdown, to_text

    curves = f"curves from {chosen.published}" if chosen.published else "the project's own table of scores"
    print(f"c2d ledger | {curves} | {chosen.replications:,} replications, seed 0", flush=True)
    field = gather(published=None if chosen.published is None else Path(chosen.published))
    entries = [
        *figures.entries(field, chosen.replications),
        *claims.Claims(field, chosen.replications).entries(),
        *elsewhere.entries(field),
        *settings.entries(),
    ]
    if chosen.out is None:
        print(to_text(entries))
        return
    command = "c2d ledger" + (" --published PATH" if chosen.published else "") + f" --out {chosen.out}"
    text = to_markdown(entries, INTRO.format(command=command, replications=chosen.replications))
    try:
        Path(chosen.out).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(Path(chosen.out), text.encode())
    except OSError as error:
        raise UserError(f"--out {chosen.out} cannot be written: {error.strerror}") from None
    print(f"{counts(entries)}\nwritten to {chosen.out}")
