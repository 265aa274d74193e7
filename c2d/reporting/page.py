"""A report and its files: one HTML page with the figures inside, plus figures, tables and numbers as separate files.

The page needs no script and nothing from the network. Tables are written as CSV, LaTeX and HTML. Names come from files,
so each format escapes them in its own way.
"""

from __future__ import annotations

import base64
import csv
import html
import io
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from c2d.envs.games import GAMES
from c2d.errors import UserError
from c2d.files import write_atomically
from c2d.formatting import finite_for_json
from c2d.reporting.analysis import Analysis, IntervalEstimate
from c2d.reporting.run_statistics import TITLES
from c2d.reporting.scores import frame_count

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
    """Formatted cells for people, and the same numbers in full for machines."""

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
    )  # a spreadsheet must not take it for a formula


def to_latex(table: Table) -> str:
    """A booktabs `tabular` in a `table` environment."""
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
    """Escape plain text for LaTeX, so that nothing in it is a command."""
    return "".join(_LATEX.get(letter, letter) for letter in text)


def to_html(table: Table) -> str:
    """Numbers stand at the right of their columns, words at the left."""
    columns = enumerate(zip(*table.rows, strict=True))
    words = {place for place, column in columns if all(cell[:1].isalpha() for cell in column)}

    def cells(row: Sequence[str], kind: str) -> str:
        tags = ["th" if place == 0 else kind for place in range(len(row))]
        marks = [" class='words'" if place in words else "" for place in range(len(row))]
        shown = zip(tags, marks, map(html.escape, row), strict=True)
        return "".join(f"<{tag}{mark}>{text}</{tag}>" for tag, mark, text in shown)

    body = "\n".join(f"<tr>{cells(row, 'td')}</tr>" for row in table.rows)
    head = cells(table.columns, "th")
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>'


# ------------------------------------------------------------------------------------------------ the HTML page


_STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #1b1b1b; background: #fff; margin: 0 auto; max-width: 62rem;
       padding: 1.5rem; }
h1 { font-size: 1.6rem; margin-bottom: .2rem; } h2 { font-size: 1.2rem; margin-top: 2.6rem; border-top: 1px solid #ddd;
       padding-top: 1rem; }
p, figcaption, li { max-width: 50rem; } figure { margin: 1rem 0; }
img { width: 100%; height: auto; }
figcaption, .small { color: #444; font-size: .9rem; }
code { background: #f3f3f3; padding: 0 .25em; overflow-wrap: anywhere; }
.wide { overflow-x: auto; margin: 1rem 0; } nav { margin-top: 1rem; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }
th, td { padding: .15rem .7rem; text-align: right; border-bottom: 1px solid #eee; white-space: nowrap; }
th:first-child { text-align: left; } thead th { border-bottom: 1px solid #888; }
tbody th { font-weight: 500; text-align: left; } .words { text-align: left; } tbody tr:hover { background: #f7f7f7; }
.missing { border-left: 4px solid #b58900; padding: .3rem 1rem; background: #fdf8e6; }
.notes { border-left: 4px solid #888; padding: .1rem 1rem; background: #f6f6f6; }
nav a { margin-right: 1rem; } @media print { nav { display: none; } figure, tr { break-inside: avoid; } }
"""


@dataclass(frozen=True)
class Section:
    """One section of a report: a figure, tables, or the reason why they are missing."""

    name: str  # of its files and its HTML anchor
    title: str
    caption: str
    figure: dict[str, bytes] = field(default_factory=dict)  # "svg", "png"
    tables: tuple[Table, ...] = ()
    missing: str = ""


def page(title: str, facts: Sequence[str], notes: Sequence[str], sections: Sequence[Section]) -> str:
    links = " ".join(f'<a href="#{html.escape(one.name)}">{html.escape(one.title)}</a>' for one in sections)
    parts = [
        f"<h1>{html.escape(title)}</h1>",
        *(f'<p class="small">{_code(fact)}</p>' for fact in facts),
        _notes(notes),
        f'<nav class="small">{links}</nav>',
        *map(_section, sections),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
        "style-src 'unsafe-inline'\">\n"
        f"<title>{html.escape(title)}</title>\n<style>{_STYLE}</style></head>\n<body>\n"
        + "\n".join(part for part in parts if part)
        + "\n</body></html>\n"
    )


def _code(text: str) -> str:
    """Escape HTML, and set `text` in backquotes as code."""
    pieces = html.escape(text).split("`")
    return "".join(f"<code>{piece}</code>" if place % 2 else piece for place, piece in enumerate(pieces))


def _notes(notes: Sequence[str]) -> str:
    if not notes:
        return ""
    items = "".join(f"<li>{_code(note)}</li>" for note in notes)
    return f'<div class="notes"><p><strong>Notes</strong></p><ul>{items}</ul></div>'


def _section(section: Section) -> str:
    parts = [f'<h2 id="{html.escape(section.name)}">{html.escape(section.title)}</h2>']
    if section.missing:
        parts.append(f'<p class="missing">{_code(section.missing)}</p>')
    if section.figure:
        data = base64.b64encode(section.figure["svg"]).decode()
        parts.append(
            f'<figure><img style="max-width: {_rem(section.figure["svg"]):.1f}rem" '
            f'src="data:image/svg+xml;base64,{data}" alt="{html.escape(section.title)}">'
            f"<figcaption>{_code(section.caption)}</figcaption></figure>"
        )
    elif section.caption:
        parts.append(f'<p class="small">{_code(section.caption)}</p>')
    for table in section.tables:
        parts.append(to_html(table))
    return "\n".join(parts)


def _rem(svg: bytes) -> float:
    """Display width of a figure: somewhat larger than in print."""
    width = re.search(rb'width="([0-9.]+)pt"', svg[:1000])
    return 1.3 * float(width[1]) / 12 if width else 60.0


# ----------------------------------------------------------------------------------------------- all its files


@dataclass(frozen=True)
class Report:
    """Everything that is written."""

    title: str
    facts: tuple[str, ...]  # what is compared and how, one line each
    notes: tuple[str, ...]
    sections: tuple[Section, ...]
    numbers: dict[str, Any] = field(default_factory=dict)


def write(report: Report, out: Path) -> list[Path]:
    """Write report.html, numbers.json, figures/*.svg and *.png, tables/*.csv and *.tex, each atomically."""
    files: dict[str, bytes] = {
        "report.html": page(report.title, report.facts, report.notes, report.sections).encode(),
        "numbers.json": _json({"facts": report.facts, "notes": report.notes, **report.numbers}),
    }
    for section in report.sections:
        for kind, data in section.figure.items():
            files[f"figures/{section.name}.{kind}"] = data
        for table in section.tables:
            files[f"tables/{table.name}.csv"] = to_csv(table).encode()
            files[f"tables/{table.name}.tex"] = to_latex(table).encode()
    try:
        for directory in (out, out / "figures", out / "tables"):
            directory.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            write_atomically(out / name, data)
    except OSError as error:
        raise UserError(f"--out {out} cannot be written: {error.strerror}") from None
    return [out / name for name in files]


def _json(value: Any) -> bytes:
    return (json.dumps(finite_for_json(value, digits=8), indent=1, ensure_ascii=False) + "\n").encode()


# -------------------------------------------------------------------------------------- tables of an analysis


def game_title(key: str) -> str:
    """bankheist -> Bank Heist"""
    if key not in GAMES:
        return key
    name = GAMES[key].gym
    return "".join(f" {letter}" if letter.isupper() and place else letter for place, letter in enumerate(name))


def format_estimate(estimate: IntervalEstimate, digits: int = 3) -> str:
    """0.512 (0.498, 0.530)"""
    if estimate.interval is None:
        return f"{estimate.point:.{digits}f}"
    low, high = estimate.interval
    return f"{estimate.point:.{digits}f} ({low:.{digits}f}, {high:.{digits}f})"


def estimate_json(estimate: IntervalEstimate) -> dict[str, Any]:
    """The JSON form of an estimate."""
    return {"point": estimate.point, "ci95": None if estimate.interval is None else list(estimate.interval)}


def _ends(estimate: IntervalEstimate) -> tuple[float | None, float | None]:
    return (None, None) if estimate.interval is None else estimate.interval


def overview(analysis: Analysis, other_rules: Sequence[str] = ()) -> Table:
    """The agents compared and their runs per game; `other_rules`: agents scored under rules that differ from yours."""
    rows: list[tuple[str, ...]] = []
    data: list[tuple[Cell, ...]] = []
    for agent in analysis.agents:
        counts = (~np.isnan(analysis.scores(agent))).sum(0)
        runs = f"{counts.min()}" if counts.min() == counts.max() else f"{counts.min()} to {counts.max()}"
        kind = "own" if agent in analysis.dataset.own else "published"
        rules = (
            "differ: see the notes"
            if agent in other_rules
            else "–"
            if kind == "own" or not analysis.dataset.own
            else "same"
        )
        rows.append((agent, kind, str(len(analysis.games)), runs, rules))
        data.append((agent, kind, len(analysis.games), int(counts.min()), int(counts.max()), rules))
    return Table(
        "agents",
        f"Agents compared at {frame_count(analysis.frames)} frames, and their runs per game.",
        ("agent", "from", "games", "runs per game", "rules vs. yours"),
        tuple(rows),
        ("agent", "from", "games", "runs_min", "runs_max", "rules"),
        tuple(data),
    )


def aggregate_table(analysis: Analysis) -> Table:
    rows, data = [], []
    for agent, estimates in analysis.aggregates.items():
        rows.append((agent, *(format_estimate(estimates[name]) for name in TITLES)))
        data += [(agent, name, estimates[name].point, *_ends(estimates[name])) for name in TITLES]
    return Table(
        "aggregates",
        f"Human-normalized scores over {len(analysis.games)} games at {frame_count(analysis.frames)} frames, "
        "with 95 % intervals (stratified bootstrap over runs).",
        ("agent", *TITLES.values()),
        tuple(rows),
        ("agent", "aggregate", "point", "low", "high"),
        tuple(data),
    )


def score_table(analysis: Analysis, agent: str, checkpoints: Sequence[float], name: str) -> Table:
    """Mean and standard deviation (n - 1) over seeds, per game and checkpoint, as in the paper's table."""
    columns = {at: analysis.raw(agent, at) for at in checkpoints}
    rows, data = [], []
    for place, game in enumerate(analysis.games):
        cells = [game_title(game)]
        for at in checkpoints:
            values = columns[at][:, place]
            values = values[~np.isnan(values)]
            spread = float(values.std(ddof=1)) if len(values) > 1 else None
            average = float(values.mean()) if len(values) else None
            cells.append("–" if average is None else f"{average:.1f}" + ("" if spread is None else f" ({spread:.1f})"))
            data.append((agent, game, at, average, spread, len(values)))
        rows.append(tuple(cells))
    return Table(
        name,
        f"Raw scores of {agent}: mean over seeds, one standard deviation in parentheses "
        f"({analysis.scoring.convention.words}).",
        ("game", *(f"{at:g}M" for at in checkpoints)),
        tuple(rows),
        ("agent", "game", "frames_millions", "mean", "std", "seeds"),
        tuple(data),
    )


def rank_table(analysis: Analysis) -> Table:
    places = range(1, len(analysis.agents) + 1)
    order = sorted(analysis.agents, key=analysis.mean_rank)
    return Table(
        "ranks",
        f"On how many of {len(analysis.games)} games an agent's mean score has each rank "
        f"at {frame_count(analysis.frames)} frames (1 is best; ties share the better rank).",
        ("agent", "mean rank", *map(str, places)),
        tuple((a, f"{analysis.mean_rank(a):.2f}", *(str(analysis.ranks[a][p]) for p in places)) for a in order),
        ("agent", "mean_rank", *(f"rank_{p}" for p in places)),
        tuple((a, analysis.mean_rank(a), *(analysis.ranks[a][p] for p in places)) for a in order),
    )


def improvement_table(rows: Sequence[tuple[str, str, IntervalEstimate]]) -> Table:
    return Table(
        "improvement",
        "Probability that a run of the first agent scores higher than a run of the second on a game drawn at random, "
        "with 95 % intervals.",
        ("first", "second", "P(first > second)"),
        tuple((ours, theirs, format_estimate(p)) for ours, theirs, p in rows),
        ("first", "second", "probability", "low", "high"),
        tuple((ours, theirs, p.point, *_ends(p)) for ours, theirs, p in rows),
    )


def difference_table(gaps: dict[str, IntervalEstimate], ours: str, theirs: str, name: str) -> Table:
    order = sorted(gaps, key=lambda game: -gaps[game].point)
    return Table(
        name,
        f"Human-normalized score of {ours} minus that of {theirs}, game by game, with 95 % intervals.",
        ("game", f"{ours} − {theirs}"),
        tuple((game_title(game), format_estimate(gaps[game])) for game in order),
        ("game", "difference", "low", "high"),
        tuple((game, gaps[game].point, *_ends(gaps[game])) for game in order),
    )
