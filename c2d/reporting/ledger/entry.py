"""One line of the ledger, and how the whole of it is printed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

REPRODUCED = "reproduced"
DIFFERS = "differs"
REDRAWN = "redrawn"  # a figure whose values were never published as numbers
HOLDS, PARTLY, FAILS, UNDECIDED = "holds", "holds in part", "does not hold", "undecided"
CURVES = "needs curves"  # published data decide it, but were not named

REPORT = "c2d report --published-only"
PATH = " --published PATH"
LEDGER = "c2d ledger"


@dataclass(frozen=True)
class Entry:
    """A number, table, figure or claim of the paper beside ours."""

    part: str  # heading under which it stands
    what: str  # with its place in the paper
    command: str  # that gives ours
    expected: str
    ours: str
    tolerance: str
    status: str
    note: str = ""


def compared(part: str, what: str, command: str, expected: object, ours: object, note: str = "") -> Entry:
    """A value that must be the same."""
    status = REPRODUCED if expected == ours else DIFFERS
    return Entry(part, what, command, str(expected), str(ours), "exact", status, note)


def without_curves(part: str, what: str, expected: str, note: str = "") -> Entry:
    return Entry(part, what, f"{LEDGER}{PATH}", expected, "–", "–", CURVES, note)


def needs_training(part: str, what: str, command: str, frames: str, note: str = "") -> Entry:
    return Entry(part, what, command, "–", "–", "–", f"needs training: {frames}", note)


def counts(entries: Sequence[Entry]) -> str:
    """How many of each status."""
    found = Counter(entry.status.partition(":")[0] for entry in entries)
    return ", ".join(f"{number} {status}" for status, number in found.most_common())


def to_text(entries: Sequence[Entry]) -> str:
    """For the terminal: one block per entry, under the heading of its part."""
    lines: list[str] = []
    for place, entry in enumerate(entries):
        if not place or entry.part != entries[place - 1].part:
            lines += ["", entry.part, "-" * len(entry.part)]
        lines.append(f"[{entry.status}] {entry.what}")
        lines.append(f"    expected {entry.expected} | ours {entry.ours} | tolerance {entry.tolerance}")
        lines += [f"    {entry.note}"] * bool(entry.note)
        lines.append(f"    {entry.command}")
    return "\n".join([*lines, "", counts(entries)])


def to_markdown(entries: Sequence[Entry], intro: str) -> str:
    """A page with one table per part."""
    lines = [intro.strip(), "", f"**{len(entries)} entries:** {counts(entries)}.", ""]
    for part in dict.fromkeys(entry.part for entry in entries):
        lines += [
            f"## {part}",
            "",
            "| what | expected | ours | tolerance | status | command |",
            "|---|---|---|---|---|---|",
        ]
        for entry in entries:
            if entry.part == part:
                what = entry.what + (f"<br>*{entry.note}*" if entry.note else "")
                cells = [what, entry.expected, entry.ours, entry.tolerance, f"**{entry.status}**", f"`{entry.command}`"]
                lines.append("| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |")
        lines.append("")
    return "\n".join(lines)
