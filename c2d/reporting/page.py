"""A report and its files: one HTML page with the figures inside, no script and nothing from the network, plus figures,
tables and numbers as separate files."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from c2d.errors import UserError
from c2d.files import write_atomically
from c2d.reporting.tables import Table, to_csv, to_html, to_latex

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
tbody th { font-weight: 500; text-align: left; } tbody tr:hover { background: #f7f7f7; }
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
    found = re.search(rb'width="([0-9.]+)pt"', svg[:1000])
    return 1.3 * float(found[1]) / 12 if found else 60.0


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
    return (json.dumps(_finite(value), indent=1, ensure_ascii=False) + "\n").encode()


def _finite(value: Any) -> Any:
    """Replace NaN, which JSON does not have, by null."""
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    if isinstance(value, float):
        return None if value != value else round(value, 8)
    return value
