"""What MkDocs does to the documents beyond Markdown: links out of docs/, notebooks, equations, and no network.

The Markdown files are written to be read in the repository. Here links to code become links to C2D_REPOSITORY, or to
pages of this site that show the file; the Markdown files of the root and the notebooks become pages; equations become
MathML; and a page that would load anything from elsewhere is an error.
"""

from __future__ import annotations

import html
import os
import re
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from notebooks import as_markdown

ROOT = Path(__file__).resolve().parents[1]
PAGES = {  # files of the root that are pages of the site
    "README.md": "readme.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "LICENSE": "license.md",
}
ORIGINS = {page: name for name, page in PAGES.items()}
LANGUAGES = {".py": "python", ".c": "c", ".toml": "toml", ".json": "json", ".md": "markdown", ".sh": "bash"}
LARGEST = 200_000  # bytes; larger files are copied, not shown
CODE = re.compile(r"(^ *(`{3,}|~{3,}).*?^ *\2[`~]*[ ]*$|(?<!`)(`+)(?!`).*?(?<!`)\3(?!`))", re.DOTALL | re.MULTILINE)
THIN = '<mspace width="0.17em"></mspace>'
LINK = re.compile(r"(?<=\])\(([^)\s]+)\)")


class BrokenLink(Exception):
    """A link that leads nowhere."""


# ------------------------------------------------------------------------------------------------------- links


def origin(page: str) -> str:
    """The file of the repository that a page of the site was made from."""
    if page in ORIGINS:
        return ORIGINS[page]
    notebook = f"docs/{page.removesuffix('.md')}.ipynb"
    return notebook if (ROOT / notebook).exists() else f"docs/{page}"


def page_of(target: str, repository: str) -> str:
    """Where the site has this file of the repository: a path within the site, or an address."""
    if target in PAGES:
        return PAGES[target]
    if target.startswith("docs/"):
        inside = target.removeprefix("docs/")
        return f"{inside.removesuffix('.ipynb')}.md" if inside.endswith(".ipynb") else inside
    return f"{repository.rstrip('/')}/{target}" if repository else shown(target)


def shown(target: str) -> str:
    """The page of this site that shows a file or a directory of the repository, or the copy of a file."""
    path = ROOT / target
    if path.is_dir():
        return f"code/{target}/index.md"
    return f"code/{target}.md" if is_text(path) else f"code/{target}"


def is_text(path: Path) -> bool:
    return path.suffix in LANGUAGES and path.stat().st_size <= LARGEST


def outside_code(text: str, change: Callable[[str], str]) -> str:
    """Change Markdown outside of code."""
    parts, last = [], 0
    for match in CODE.finditer(text):
        parts += [change(text[last : match.start()]), match[0]]
        last = match.end()
    return "".join([*parts, change(text[last:])])


def targets(text: str, source: str) -> Iterator[tuple[str, str, str]]:
    """Links to files of the repository: as written, the file or directory, and what follows #."""
    found: list[str] = []
    outside_code(text, lambda prose: found.extend(LINK.findall(prose)) or prose)  # type: ignore[func-returns-value]
    for link in found:
        if not re.match(r"[a-z]+:|#", link):
            yield link, *resolve(link, source)


def resolve(link: str, source: str) -> tuple[str, str]:
    name, _, heading = link.partition("#")
    target = os.path.normpath(Path(source).parent / name)
    if target.startswith("..") or not (ROOT / target).exists():
        raise BrokenLink(f"{source}: {link} leads nowhere")
    return target, heading


def relink(text: str, page: str, repository: str) -> str:
    """The Markdown of a page with links that are right in the site."""
    source = origin(page)
    places = {link: (target, heading) for link, target, heading in targets(text, source)}

    def replace(match: re.Match[str]) -> str:
        if match[1] not in places:
            return match[0]
        target, heading = places[match[1]]
        place = page_of(target, repository)
        if "://" not in place:
            place = os.path.relpath(place, Path(page).parent)
        return f"({place}{'#' + heading if heading else ''})"

    return outside_code(text, lambda prose: LINK.sub(replace, prose))


def slug(words: str, separator: str) -> str:
    """The anchor of a heading, as code hosts make it."""
    return re.sub(r"[^\w -]", "", words.lower()).strip().replace(" ", separator)


# -------------------------------------------------------------------------------------------- pages that are made


def code_page(target: str) -> str:
    """Markdown that shows a file, or lists a directory."""
    path = ROOT / target
    head = f"---\nsearch:\n  exclude: true\ntitle: {target}\nhide: [toc]\n---\n\n# {target}\n\n"
    if path.is_dir():
        names = sorted(file.name for file in path.iterdir() if file.is_file() and is_text(file))
        return head + "\n".join(f"* [{name}]({name}.md)" for name in names) + "\n"
    fence = "~" * 12
    return f"{head}{fence}{LANGUAGES[path.suffix]}\n{path.read_text()}\n{fence}\n"


def made(sources: dict[str, str], repository: str) -> dict[str, str | None]:
    """Page -> Markdown of all pages that are not in docs/ as such; None: the file is copied as it is."""
    pages: dict[str, str | None] = {}
    for name, page in PAGES.items():
        text = (ROOT / name).read_text()
        pages[page] = text if name.endswith(".md") else f"# License\n\n```\n{text}```\n"
    for notebook in sorted((ROOT / "docs").rglob("*.ipynb")):
        page = notebook.relative_to(ROOT / "docs").with_suffix(".md").as_posix()
        link = f"[This page as a notebook]({notebook.name}){{ .notebook download }}"
        pages[page] = as_markdown(notebook, link)
    if repository:
        return pages
    for page, text in list({**sources, **pages}.items()):
        for _, target, _ in targets(text or "", origin(page)):
            place = page_of(target, "")
            if place.startswith("code/") and place not in pages:
                pages.update(code_pages(target))
    return pages


def code_pages(target: str) -> dict[str, str | None]:
    path = ROOT / target
    if not path.is_dir():
        return {shown(target): code_page(target) if is_text(path) else None}
    inside = [f"{target}/{file.name}" for file in path.iterdir() if file.is_file() and is_text(file)]
    return {shown(name): code_page(name) for name in [target, *inside]}


# ---------------------------------------------------------------------------------------------------- equations


def equations(page: str) -> str:
    """MathML for what arithmatex has marked."""
    from latex2mathml.converter import convert

    def block(match: re.Match[str]) -> str:
        inline = match["open"] == r"\("
        return spaced(convert(html.unescape(match["tex"]).strip(), display="inline" if inline else "block"))

    marked = r'<(?P<tag>span|div) class="arithmatex">(?P<open>\\\(|\\\[)(?P<tex>.*?)(?:\\\)|\\\])</(?P=tag)>'
    return re.sub(marked, block, page, flags=re.DOTALL)


def spaced(mathml: str) -> str:
    """Names of functions are no operators, but stand apart from their neighbors; a bar has no space around it."""
    mathml = re.sub(r"<mo>([A-Za-z ]{2,})</mo>", r"<mi>\1</mi>", mathml)
    mathml = re.sub(r"(?<=</mi>)(?=<mi>[a-z]{2,}</mi>)|(?<=[a-z]{2}</mi>)(?=<m(?:i|sub|sup|subsup)>)", THIN, mathml)
    return re.sub(r"<mo[^>]*>(&#x0007C;|\|)</mo>", r'<mo stretchy="false" lspace="0" rspace="0">\1</mo>', mathml)


def math_font() -> Path:
    """STIX Two Math, which has what a browser needs to set equations; ziamath brings it along."""
    found = find_spec("ziamath")
    assert found is not None and found.origin is not None
    return Path(found.origin).parent / "fonts" / "STIXTwoMath-Regular.ttf"


# -------------------------------------------------------------------------------------------------- no network


LOADED = re.compile(
    r"<(?:script|img|iframe|source|video|audio|embed)\b[^>]*?\bsrc=[\"']?(https?:)?//[^\"' >]+"
    r"|<link\b(?![^>]*rel=[\"']?canonical)[^>]*?\bhref=[\"']?(https?:)?//[^\"' >]+|url\([\"']?(https?:)?//[^)]+",
    re.IGNORECASE,
)


def loaded_from_elsewhere(text: str) -> list[str]:
    """What a page or style sheet would load from the network."""
    return [match[0][:200] for match in LOADED.finditer(text)]


# -------------------------------------------------------------------------------------- what MkDocs calls


def on_config(config: Any) -> Any:
    config.mdx_configs.setdefault("toc", {})["slugify"] = slug
    config.extra_css.append("assets/site.css")
    return config


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.exceptions import PluginError
    from mkdocs.structure.files import File

    sources = {file.src_uri: file.content_string for file in files.documentation_pages()}
    try:
        pages = made(sources, config.extra["repository"])
    except BrokenLink as error:
        raise PluginError(str(error)) from None
    for page, text in pages.items():
        if text is None:
            copied = str(ROOT / page.removeprefix("code/"))
            files.append(File.generated(config, page, abs_src_path=copied))
        else:
            files.append(File.generated(config, page, content=text))
    for file in (*(Path(__file__).parent / name for name in ("site.css", "iframe-worker.js")), math_font()):
        files.append(File.generated(config, f"assets/{file.name}", abs_src_path=str(file)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    from mkdocs.exceptions import PluginError

    if page.file.src_uri.startswith("code/"):
        return markdown
    markdown = re.sub(r"^\| (D\d+) \|", _numbered, markdown, flags=re.MULTILINE)
    try:
        return relink(markdown, page.file.src_uri, config.extra["repository"])
    except BrokenLink as error:
        raise PluginError(str(error)) from None


def _numbered(row: re.Match[str]) -> str:
    """A row of a table that begins with the number of a deviation, with an anchor."""
    return f'| <a id="{row[1].lower()}"></a>{row[1]} |'


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    from mkdocs.exceptions import PluginError

    text = re.sub(r"<code>(--[^<\s]{1,40})</code>", r'<code class="setting">\1</code>', equations(html))
    for equation in re.findall(r"<math.*?</math>", text, re.DOTALL):
        if "\\" in equation:
            raise PluginError(f"{page.file.src_uri}: an equation has a command without a meaning: {equation}")
    return text


def on_post_build(config: Any) -> None:
    from mkdocs.exceptions import PluginError

    for file in sorted(Path(config.site_dir).rglob("*")):
        if file.suffix in {".html", ".css"} and (found := loaded_from_elsewhere(file.read_text())):
            raise PluginError(f"{file.relative_to(config.site_dir)} loads from elsewhere: {found[0]}")
