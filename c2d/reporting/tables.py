"""Tables as CSV, LaTeX and HTML. Names come from files: each form escapes them in its own way."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Sequence
from dataclasses import dataclass

Cell = str | float | int | None

_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "_": r"\_",
    "%": r"\%",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "−": "-",
    "τ": r"$\tau$",
    "≥": r"$\geq$",
    "±": r"$\pm$",
    "→": r"$\rightarrow$",
    "…": r"\ldots{}",
    "–": "--",
}


@dataclass(frozen=True)
class Table:
    """What people read, and the same numbers in full for machines."""

    name: str  # of its files
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    data_columns: tuple[str, ...]
    data_rows: tuple[tuple[Cell, ...], ...]


def to_csv(table: Table) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(table.data_columns)
    for row in table.data_rows:
        writer.writerow([_csv_cell(cell) for cell in row])
    return stream.getvalue()


def _csv_cell(cell: Cell) -> str:
    if cell is None or cell != cell:
        return ""
    if isinstance(cell, float):
        return f"{cell:.10g}"
    text = str(cell)
    return (
        f"'{text}" if isinstance(cell, str) and text[:1] in "=+-@" and text[:1] else text
    )  # no formula for a spreadsheet


def to_latex(table: Table) -> str:
    """A `tabular` of booktabs in a `table`."""
    align = "l" + "r" * (len(table.columns) - 1)
    lines = [
        r"\begin{table}[ht]",
        r"  \centering",
        r"  \small",
        rf"  \begin{{tabular}}{{{align}}}",
        r"    \toprule",
        "    " + _latex_row(table.columns),
        r"    \midrule",
        *("    " + _latex_row(row) for row in table.rows),
        r"    \bottomrule",
        r"  \end{tabular}",
        rf"  \caption{{{latex(table.caption)}}}",
        rf"  \label{{tab:{table.name}}}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(map(latex, cells)) + r" \\"


def latex(text: str) -> str:
    """Plain text for LaTeX: nothing in it is a command."""
    return "".join(_LATEX.get(letter, letter) for letter in text)


def to_html(table: Table) -> str:
    head = "".join(f"<th>{html.escape(column)}</th>" for column in table.columns)
    body = "\n".join(
        "<tr>" + "".join(_td(place, cell) for place, cell in enumerate(row)) + "</tr>" for row in table.rows
    )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>'


def _td(place: int, cell: str) -> str:
    return f"<th>{html.escape(cell)}</th>" if place == 0 else f"<td>{html.escape(cell)}</td>"
