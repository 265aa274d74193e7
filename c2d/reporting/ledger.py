"""The ledger of the paper: one entry per number, table, figure or claim; as text and as a Markdown page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

REPRODUCED = "reproduced"
DIFFERS = "differs"
REDRAWN = "redrawn"  # a figure whose values are not published as numbers
HOLDS, PARTLY, FAILS, UNDECIDED = "holds", "holds in part", "does not hold", "undecided"
NEEDS_CURVES = "needs curves"  # published curves decide it, but none were given
NEEDS_TORCH = "needs PyTorch"  # the functions that train cannot be imported

REPORT = "c2d report --published-only"
PATH = " --published PATH"
LEDGER = "c2d ledger"

INTRO = """# Ledger: the paper's numbers and claims compared with ours

Written by `{command}`. Expected values are typed from the paper or read off its figures. Ours are computed from the
published scores bundled with the project and, where the command says `--published PATH`, from published curves
([where to get them](reports.md#published-curves)). The section "Mathematics" runs the functions that train agents.

* **reproduced**: equal within the tolerance. **differs**: not equal. **redrawn**: a figure without published numbers.
* **holds**, **does not hold**, **undecided**: a claim that one agent is above another holds if the 95 % interval of the
  difference (stratified bootstrap over runs, {replications:,} replications) lies above 0, does not hold if it lies
  below, and is undecided if it contains 0. "On par" holds if the interval contains 0. **Holds in part**: for one of the
  compared agents only.
* **needs curves**: published data decide it, but no directory was given. **needs training**: no published data can.
  **needs PyTorch**: PyTorch could not be imported.
"""


@dataclass(frozen=True)
class LedgerEntry:
    """A number, table, figure or claim of the paper, and ours."""

    section: str  # of the ledger
    what: str  # with its place in the paper
    command: str  # that reproduces ours
    expected: str
    ours: str
    tolerance: str
    status: str
    note: str = ""


def compared(section: str, what: str, command: str, expected: object, ours: object, note: str = "") -> LedgerEntry:
    """A value that must be equal."""
    status = REPRODUCED if expected == ours else DIFFERS
    return LedgerEntry(section, what, command, str(expected), str(ours), "exact", status, note)


def without_curves(section: str, what: str, expected: str, note: str = "") -> LedgerEntry:
    return LedgerEntry(section, what, f"{LEDGER}{PATH}", expected, "–", "–", NEEDS_CURVES, note)


def needs_training(section: str, what: str, command: str, frames: str, note: str = "") -> LedgerEntry:
    return LedgerEntry(section, what, command, "–", "–", "–", f"needs training: {frames}", note)


def counts(entries: Sequence[LedgerEntry]) -> str:
    """How many entries have each status."""
    numbers = Counter(entry.status.partition(":")[0] for entry in entries)
    return ", ".join(f"{number} {status}" for status, number in numbers.most_common())


def to_text(entries: Sequence[LedgerEntry]) -> str:
    """Text for the terminal: one block per entry, under the heading of its section."""
    lines: list[str] = []
    for place, entry in enumerate(entries):
        if not place or entry.section != entries[place - 1].section:
            lines += ["", entry.section, "-" * len(entry.section)]
        lines.append(f"[{entry.status}] {entry.what}")
        lines.append(f"    expected {entry.expected} | ours {entry.ours} | tolerance {entry.tolerance}")
        lines += [f"    {entry.note}"] * bool(entry.note)
        lines.append(f"    {entry.command}")
    return "\n".join([*lines, "", counts(entries)])


def to_markdown(entries: Sequence[LedgerEntry], command: str, replications: int) -> str:
    """A page with one table per section."""
    lines = [
        INTRO.format(command=command, replications=replications).strip(),
        "",
        f"**{len(entries)} entries:** {counts(entries)}.",
        "",
    ]
    for section in dict.fromkeys(entry.section for entry in entries):
        lines += [
            f"## {section}",
            "",
            "| what | expected | ours | tolerance | status | command |",
            "|---|---|---|---|---|---|",
        ]
        for entry in entries:
            if entry.section == section:
                what = entry.what + (f"<br>*{entry.note}*" if entry.note else "")
                cells = [what, entry.expected, entry.ours, entry.tolerance, f"**{entry.status}**", f"`{entry.command}`"]
                lines.append("| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |")
        lines.append("")
    return "\n".join(lines)
