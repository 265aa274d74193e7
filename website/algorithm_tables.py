"""Write the tables of the algorithm pages from the recipes and the results, so that they cannot drift.

A page has comments `<!-- rows: c2d c2d-channel -->` and `<!-- results: c2d -->`, each closed by `<!-- end -->`; what
stands between is written by `python website/algorithm_tables.py`, and a test compares it.
"""

from __future__ import annotations

import csv
import dataclasses
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

from c2d.cli.settings import help_texts
from c2d.config import default_config, flat, to_json
from c2d.recipes.recipe import Recipe, Schedule
from c2d.recipes.rows import ROWS
from c2d.validation import option

DOCS = Path(__file__).resolve().parents[1] / "docs"
BLOCK = re.compile(r"<!-- (rows|results|all): ([^>]*?) -->\n.*?<!-- end -->", re.DOTALL)
SCALES = {"Atari": "breakout", "MinAtar": "minatar/breakout", "vectors": "gym/CartPole-v1"}
# A setting that has no effect with this value of another one, or this value of its own.
IDLE: dict[str, tuple[str, tuple[Any, ...]]] = {
    "core": ("core", ("none",)),
    "noise": ("noisy", (False,)),
    "dueling-hidden": ("dueling", (False,)),
    "phi.beta": ("phi.kind", ("identity", "h")),
    "phi.eps": ("phi.kind", ("identity",)),
    "optim.decay-updates": ("optim.learning-rate-final", (None,)),
    "optim.head-rate": ("optim.head-rate", (1.0,)),
    "schedule.epsilon-ladder": ("schedule.epsilon-ladder", (0.0,)),
    "schedule.updates-per-period": ("schedule.updates-per-period", (1,)),
    "head.logit-scale": ("head.logit-scale", (1.0,)),
    "head.unit": ("head.unit", (1.0,)),
    "loss.interpolate": ("phi.kind", ("identity",)),
    "bootstrap.scale": ("bootstrap.scale", ("one",)),
}


@cache
def helps_of(cls: type) -> dict[str, str]:
    return help_texts(cls)


@cache
def settings(name: str, env: str) -> dict[str, Any]:
    """All settings of a recipe that have an effect, by their names on the command line."""
    found: dict[str, Any] = flat(to_json(default_config(env, name).recipe))

    def idle(key: str) -> bool:
        other, values = IDLE.get(key, ("", ()))
        return found[key] is None or found[key] is False or found.get(other) in values

    return {key: value for key, value in found.items() if not idle(key)}


def meanings(recipe: Recipe) -> dict[str, str]:
    """The help text of each setting; of a part, the first line of what it says about itself."""
    found = {option(name): text for name, text in helps_of(Recipe).items()}
    for field in dataclasses.fields(recipe):
        part, slot = getattr(recipe, field.name), option(field.name)
        if dataclasses.is_dataclass(part):
            if not isinstance(part, Schedule):
                found[slot] = " ".join((type(part).__doc__ or "").split("\n\n")[0].split())
            found.update({f"{slot}.{option(name)}": text for name, text in helps_of(type(part)).items()})
    return found


def value(number: Any) -> str:
    if isinstance(number, float):
        return f"{number:g}"
    if isinstance(number, int) and not isinstance(number, bool):
        return f"{number:,}"
    return ", ".join(map(value, number)) if isinstance(number, list | tuple) else str(number)


def table(head: list[str], lines: list[list[str]]) -> list[str]:
    rows = [head, ["---"] * len(head), *lines]
    return [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]


# ------------------------------------------------------------------------------------------------------ the blocks


def rows(names: list[str]) -> list[str]:
    """Sources of the rows, their settings on Atari, and what is different at other scales."""
    facts = [[f"`{name}`", ROWS[name].about, ROWS[name].paper, ROWS[name].settings] for name in names]
    text = [*table(["recipe", "algorithm", "due to", "settings from"], facts), ""]
    text += [f"Note on `{name}`: {ROWS[name].note}." for name in names if ROWS[name].note]
    found = [settings(name, SCALES["Atari"]) for name in names]
    helps: dict[str, str] = {}
    for name in names:
        for key, text_of in meanings(ROWS[name].recipe).items():
            if text_of not in helps.get(key, ""):
                helps[key] = f"{helps[key]} {text_of}" if key in helps else text_of
    keys = sorted(dict.fromkeys(key for row in found for key in row), key=_place)
    lines = [[f"`--{key}`", *(value(row.get(key, "–")) for row in found), helps.get(key, "")] for key in keys]
    text += ["", "All settings on Atari that have an effect:", ""]
    text += table(["setting", *(f"`{name}`" for name in names), "meaning"], lines)
    scales = [settings(names[0], env) for env in SCALES.values()]
    keys = sorted(dict.fromkeys(key for row in scales for key in row), key=_place)
    lines = [
        [f"`--{key}`", *(value(row.get(key, "–")) for row in scales)]
        for key in keys
        if len({value(row.get(key, "–")) for row in scales}) > 1
    ]
    text += ["", f"What is different for `{names[0]}` in small environments:", ""]
    text += table(["setting", *SCALES], lines)
    return [*text, "", f"`c2d recipes {names[0]}{' ' + names[1] if len(names) > 1 else ''}` prints the same."]


ORDER = ["encoder", "core", "head", "phi", "loss", "bootstrap", "sampler"]


def _place(key: str) -> tuple[int, str, int]:
    """Parts first, in the order of data; then the recipe's own settings, the schedule and the optimizer."""
    slot = key.partition(".")[0]
    rank = {**{name: i for i, name in enumerate(ORDER)}, "schedule": 8, "optim": 9}.get(slot, 7)
    return rank, slot, 0 if "." not in key else 1


def results(names: list[str]) -> list[str]:
    """Training scores on MinAtar and speeds of these rows, as far as they are in docs/results."""
    text: list[str] = []
    with open(DOCS / "results" / "minatar.csv", newline="") as file:
        scores = [line for line in csv.DictReader(file) if line["recipe"] in names]
    study = (DOCS / "results" / "minatar.md").read_text()
    if scores:
        games = list(dict.fromkeys(line["game"] for line in scores))
        lines = []
        for name in dict.fromkeys(line["recipe"] for line in scores):
            cells = [", ".join(f"{float(x['score']):.1f}" for x in scores if (x["recipe"], x["game"]) == (name, game)) for game in games]  # fmt: skip  # noqa: E501
            lines.append([f"`{name}`", *cells])
        old = re.search(r"^\*\*Trained with (.*?)\. Since then .*$", study, re.MULTILINE)
        older = [name for name in names if old and f"`{name}`" in old[0]]
        text += ["Mean training scores on MinAtar after 100,000 steps, one number per seed", "(`c2d sweep minatar --seeds 2`, [the whole study](RESULTS/minatar.md)):", ""]  # fmt: skip  # noqa: E501
        text += table(["recipe", *games], lines)
        if older and old:
            said = " and ".join(f"`{name}`" for name in older)
            text += ["", f"Trained with {old[1]}; settings of {said} have changed since."]
        text.append("")
    speeds = _speeds(names)
    if speeds:
        text += ["Speed of the whole training loop, in agent steps per second, two windows each", "([how it was measured](RESULTS/speed-recipes.md)):", ""]  # fmt: skip  # noqa: E501
        text += [*table(["recipe", "Breakout, 2 threads", "MinAtar Breakout, 1 thread"], speeds), ""]
    return text[:-1] if text else ["There are no runs of these rows in [the results](RESULTS/minatar.md) yet."]


def _speeds(names: list[str]) -> list[list[str]]:
    atari, _, minatar = (DOCS / "results" / "speed-recipes.md").read_text().partition("\n## MinAtar")
    found = []
    for name in names:
        cells = [re.search(rf"^\| {name} \|[^|]*\|([^|]*)\|", part, re.MULTILINE) for part in (atari, minatar)]
        if any(cells):
            found.append([f"`{name}`", *(cell[1].strip() if cell else "–" for cell in cells)])
    return found


def every() -> list[str]:
    """All recipes, with the page of each."""
    lines = []
    for name, row in ROWS.items():
        page = next((page for page in pages() if name in _rows_of(page)), None)
        assert page is not None, f"no page has the row {name}"
        link = page.name if page.parent.name == "algorithms" else f"../{page.name}"
        lines.append([f"[`{name}`]({link})", row.about, row.paper, row.settings])
    return table(["recipe", "algorithm", "due to", "settings from"], lines)


# ------------------------------------------------------------------------------------------------------- the pages


def pages() -> list[Path]:
    return [*sorted((DOCS / "algorithms").glob("*.md")), DOCS / "btr.md"]


def _rows_of(page: Path) -> list[str]:
    return [name for kind, names in BLOCK.findall(page.read_text()) if kind == "rows" for name in names.split()]


def filled(page: Path) -> str:
    """The text of a page with its tables as they should be."""
    where = "../results" if page.parent.name == "algorithms" else "results"

    def block(match: re.Match[str]) -> str:
        kind, names = match[1], match[2].split()
        lines = {"rows": rows, "results": results, "all": lambda _: every()}[kind](names)
        text = "\n".join(lines).replace("RESULTS/", f"{where}/")
        return f"<!-- {kind}: {match[2]} -->\n\n{text}\n\n<!-- end -->"

    return BLOCK.sub(block, page.read_text())


if __name__ == "__main__":
    for page in pages():
        text = filled(page)
        if text != page.read_text():
            page.write_text(text)
            print(f"written: {page.relative_to(DOCS.parent)}", file=sys.stderr)
