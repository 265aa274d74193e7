"""The documents as a site: what `make docs` builds on. The build itself checks links, anchors and equations."""

import importlib.util
import json
import re
import shlex
import sys
from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from c2d.cli.main import main
from c2d.config import default_config, flat, to_json
from c2d.recipes.part import PARTS
from c2d.recipes.rows import RECIPES
from c2d.validation import option

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"


def module(name):
    where = importlib.util.spec_from_file_location(name, ROOT / "website" / f"{name}.py")
    made = sys.modules[name] = importlib.util.module_from_spec(where)
    where.loader.exec_module(made)
    return made


@pytest.fixture(scope="module")
def hooks():
    return module("hooks")


def test_every_document_has_a_place_in_the_navigation():
    named = re.findall(r"([\w./-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), flags=re.MULTILINE)
    made = {"readme.md", "changelog.md", "contributing.md", "security.md", "license.md"}
    notebooks = {path.relative_to(DOCS).with_suffix(".md").as_posix() for path in DOCS.rglob("*.ipynb")}
    written = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    assert set(named) == written | notebooks | made
    assert len(named) == len(set(named)) > 60


def test_links_lead_from_the_site_to_what_they_named_in_the_repository(hooks):
    def relinked(text, page="algorithms/c2d.md", repository=""):
        return hooks.relink(text, page, repository)

    code = "[x](../../c2d/nets/heads.py)"
    assert relinked(code) == "[x](../code/c2d/nets/heads.py.md)"
    assert relinked(code, repository="https://host/a/b/") == "[x](https://host/a/b/c2d/nets/heads.py)"
    assert relinked("[x](../../README.md#train)") == "[x](../readme.md#train)"
    assert relinked("[x](docs/gpu.md#how)", "readme.md") == "[x](gpu.md#how)"
    assert relinked("![x](docs/pictures/lens.png)", "readme.md") == "![x](pictures/lens.png)"
    assert relinked("[x](../tutorials/sweep.ipynb)") == "[x](../tutorials/sweep.md)"
    assert relinked("[x](../../c2d/runs)") == "[x](../code/c2d/runs/index.md)"
    assert relinked("[x](../../c2d/reporting/data/rewards.csv)") == "[x](../code/c2d/reporting/data/rewards.csv)"
    kept = "[x](https://a/b) [y](#equations) `[x](../../c2d/nets/heads.py)`\n```\n[x](nowhere.md)\n```\n"
    assert relinked(kept) == kept
    with pytest.raises(hooks.BrokenLink, match=r"docs/algorithms/c2d.md: \.\./nosuch.md leads nowhere"):
        relinked("[x](../nosuch.md)")
    with pytest.raises(hooks.BrokenLink):
        relinked("[x](../../../etc/passwd)")


def test_code_that_documents_link_to_has_a_page(hooks):
    pages = hooks.made({"reading-order.md": (DOCS / "reading-order.md").read_text()}, "")
    assert "def backup(" in pages["code/c2d/returns/bellman.py.md"]
    assert "* [layout.py](layout.py.md)" in pages["code/c2d/runs/index.md"] and "code/c2d/runs/layout.py.md" in pages
    assert "Permission is hereby granted" in pages["license.md"]
    assert not any(page.startswith("code/") for page in hooks.made({}, "https://host/a/b"))


def test_what_would_be_loaded_from_elsewhere_is_found(hooks):
    found = hooks.loaded_from_elsewhere
    assert found('<script src="https://cdn/x.js">') and found("<link rel=stylesheet href=//cdn/x.css>")
    assert found('<img alt="x" src="http://a/b.png">') and found("@font-face{src:url('https://a/b.woff')}")
    assert not found('<a href="https://a/b">x</a><img src="data:image/png;base64,AA"><link href="../x.css">')


def test_names_of_functions_stand_apart_in_equations(hooks):
    assert hooks.spaced("<mi>α</mi><mo>tanh</mo>") == f"<mi>α</mi>{hooks.THIN}<mi>tanh</mi>"
    assert hooks.spaced("<mi>log</mi><msub>") == f"<mi>log</mi>{hooks.THIN}<msub>"
    assert hooks.spaced("<mi>x</mi><mi>y</mi>") == "<mi>x</mi><mi>y</mi>"


def test_the_tables_of_the_algorithm_pages_are_those_of_the_recipes():
    tables = module("algorithm_tables")
    stale = [page.name for page in tables.pages() if tables.filled(page) != page.read_text()]
    assert stale == [], "write them with: make tutorials, or python website/algorithm_tables.py"
    named = [name for page in tables.pages() for name in tables._rows_of(page)]
    assert set(named) == set(RECIPES)
    c2d = (DOCS / "algorithms" / "c2d.md").read_text()
    assert "| `--head.alpha` | 50 | 50 | 50 |" in c2d and "| `c2d` | 6.7, 7.7 | 21.9, 21.2 |" in c2d


PAGES = [*sorted((DOCS / "algorithms").glob("*.md")), *(DOCS / f"{name}.md" for name in (
    "index", "tuning", "migration", "faq", "cluster", "troubleshooting"))]  # fmt: skip
# Of other programs, in code.
FOREIGN = """constraint port head address generate env-id total-timesteps learning-rate buffer-size gamma batch-size
    learning-starts train-frequency target-network-frequency tau start-e end-e exploration-fraction n-atoms v-min v-max
    num-envs capture-video save-model cpus-per-task track
    wandb-project-name time array bind lr"""


@pytest.fixture(scope="module")
def known():
    names = {"env-kwargs", "version", "help-all"}
    for env in ("breakout", "minatar/breakout", "gym/CartPole-v1"):
        names |= {key for recipe in RECIPES for key in flat(to_json(default_config(env, recipe)))}
    names = {option(name.removeprefix("recipe.")) for name in names}
    for slot, parts in PARTS.items():
        names |= {f"{slot}.{option(field.name)}" for cls in parts.values() for field in fields(cls)}
    for file in [*(ROOT / "c2d" / "cli").glob("*.py"), ROOT / "c2d" / "sweep" / "options.py"]:
        names |= {option(name) for name in re.findall(r"^    (\w+): ", file.read_text(), flags=re.MULTILINE)}
        names |= set(re.findall(r"\"--([a-z-]+)\"", file.read_text()))
    return names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_settings_that_pages_name_exist(page, known):
    text = page.read_text()
    named = set(re.findall(r"(?<![\w-])--([a-z][a-z0-9-]*(?:\.[a-z0-9-]+)?)(?![\w.]*\*)(?!\w)", text))
    assert {name for name in named - known - {*FOREIGN.split()} if not name.startswith("env-kwargs")} == set()
    assert set(re.findall(r"--recipe ([a-z0-9-]+)", text)) <= set(RECIPES)


MESSAGES = re.findall(r"^\$ c2d (.*)\n(c2d: .*)$", (DOCS / "troubleshooting.md").read_text(), flags=re.MULTILINE)


@pytest.mark.parametrize(("line", "message"), MESSAGES, ids=[line for line, _ in MESSAGES])
def test_the_messages_under_troubleshooting_are_those_of_the_commands(line, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(line)) == 2
    assert capsys.readouterr().err.strip().replace(str(tmp_path), "DIRECTORY") == message
    assert list(tmp_path.iterdir()) == []


def test_there_are_such_messages():
    assert len(MESSAGES) == 5


def test_the_citation_is_valid_and_that_of_the_readme():
    """What Citation File Format 1.2.0 requires, and types of what is given."""
    given = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= set(given) and given["cff-version"] == "1.2.0"
    assert given["type"] == "software" and given["license"] == "MIT"
    paper = given["preferred-citation"]
    assert {"type", "title", "authors"} <= set(paper) and isinstance(paper["year"], int)
    readme = (ROOT / "README.md").read_text()
    assert f"title     = {{{paper['title']}}}" in readme and f"year      = {{{paper['year']}}}" in readme
    assert [person["family-names"] for person in paper["authors"]] == ["Lindenberg", "Nordqvist", "Lindahl"]
    assert f"booktitle = {{{paper['collection-title']}}}" in readme


def test_the_tools_of_the_site_are_pinned():
    extras = (ROOT / "pyproject.toml").read_text()
    pinned = (ROOT / "constraints.txt").read_text()
    (docs,) = re.findall(r"^docs = (\[.*\])$", extras, flags=re.MULTILINE)
    for requirement in json.loads(docs):
        assert f"\n{requirement.partition('>=')[0]}==" in pinned
