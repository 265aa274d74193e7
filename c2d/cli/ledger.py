"""c2d ledger [--published PATH] [--out FILE]"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from c2d.cli.settings import options
from c2d.errors import UserError

DESCRIPTION = (
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


def main(arguments: Sequence[str]) -> None:
    chosen = options(LedgerOptions, list(arguments), "c2d ledger", DESCRIPTION)
    if chosen.replications < 100:
        raise UserError(f"--replications is {chosen.replications}; accepted: at least 100")
    from c2d.files import write_atomically
    from c2d.reporting import ledger
    from c2d.reporting.analysis import gather
    from c2d.reporting.ledger.entry import counts, to_markdown, to_text

    curves = f"curves from {chosen.published}" if chosen.published else "bundled table of scores"
    print(f"c2d ledger | {curves} | {chosen.replications:,} replications, seed 0", flush=True)
    dataset = gather(published=None if chosen.published is None else Path(chosen.published))
    entries = ledger.entries(dataset, chosen.replications)
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
