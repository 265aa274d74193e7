"""The page of the public API, from the docstrings of what `c2d.__all__` lists.

.venv/bin/python studies/api_page.py --out docs/api.md
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import inspect
import textwrap
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import c2d

SECTIONS = {
    "Functions": (
        "train", "resume", "evaluate", "load", "make", "configure", "compare", "report", "run_sweep", "export",
        "check_env",
    ),
    "What they take and return": ("Config", "Result", "Evaluation", "RunComparison", "SweptRun", "UserError"),
    "Agents": ("Agent", "Distribution"),
    "Observers": (
        "Observer", "RunView", "FinishedGame", "PeriodicEvaluation", "KeepBest", "StopAtScore", "StopAfter",
    ),
    "Loggers": ("Logger", "TensorBoard", "CsvLog", "WandB", "MLflow"),
    "Earlier names": ("default_config",),
}  # fmt: skip
INTRODUCTION = """# The public API

What `c2d.__all__` lists is public: `import c2d`, and these names. They keep their meaning from version to version. What
changes stands in the [changelog](../CHANGELOG.md), and a name that goes is deprecated for one minor version first.
Everything else, such as the modules `c2d.training` or `c2d.runs`, is the package's own and may change at any time, and
so may names with a leading underscore. The declarations in [extending](extending.md), for parts of your own, are public
too.

Where a function takes a run, that is its directory, or what `c2d.train` returned.

[From Python](python.md) and [callbacks and loggers](callbacks.md) show how to use all this. The page is made from the
docstrings by `studies/api_page.py`; a test checks that it is up to date.
"""


def page() -> str:
    lines = [INTRODUCTION]
    for title, names in SECTIONS.items():
        lines.append(f"\n## {title}\n")
        for name in names:
            lines += _entry(name, getattr(c2d, name))
    return "\n".join(lines).rstrip() + "\n"


def _entry(name: str, value: Any) -> Iterator[str]:
    yield f"### {name}\n"
    if name != value.__name__:
        yield f"`c2d.{value.__name__}`, as it was called before. It stays.\n"
        return
    if inspect.isfunction(value):
        yield _code(f"c2d.{name}{signature(value)}")
        yield f"{_text(value)}\n"
        return
    named_tuple = issubclass(value, tuple)
    if "__init__" in vars(value) and not dataclasses.is_dataclass(value) and name not in ("RunView", "Agent"):
        yield _code(f"c2d.{name}{signature(value.__init__, skip=1)}")
    yield f"{_text(value)}\n"
    if "__init__" in vars(value) and not dataclasses.is_dataclass(value) and value.__init__.__doc__:
        yield f"{_text(value.__init__)}\n"
    rows = [
        *(_fields(value) if named_tuple or dataclasses.is_dataclass(value) else []),
        *_attributes(value),
        *_methods(value),
    ]
    if rows:
        yield "| | |"
        yield "|---|---|"
        yield from (
            f"| `{left.replace('|', chr(92) + '|')}` | {right.replace('|', chr(92) + '|')} |" for left, right in rows
        )
        yield ""


def _fields(cls: type) -> Iterator[tuple[str, str]]:
    """Fields of a dataclass or a named tuple, with the text below or beside them."""
    source = textwrap.dedent(inspect.getsource(cls)).splitlines()
    (tree,) = ast.parse("\n".join(source)).body
    assert isinstance(tree, ast.ClassDef)
    below = {id(field): text for field, text in pairwise(tree.body)}
    for field in tree.body:
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name) or field.target.id[0] == "_":
            continue
        default = (
            "" if field.value is None or "field(" in ast.unparse(field.value) else f" = {ast.unparse(field.value)}"
        )
        text = _constant(below.get(id(field))) or source[field.end_lineno - 1].partition("  # ")[2]
        yield f"{field.target.id}: {_plain(field.annotation)}{default}", " ".join(text.split())


def _plain(annotation: ast.expr) -> str:
    """The type of an annotation, without its limits."""
    if isinstance(annotation, ast.Subscript):
        outer, inner = ast.unparse(annotation.value), annotation.slice
        if outer == "Annotated" and isinstance(inner, ast.Tuple):
            return ast.unparse(inner.elts[0])
        if outer.startswith("tyro."):
            return ast.unparse(inner)
    return ast.unparse(annotation)


def _attributes(cls: type) -> Iterator[tuple[str, str]]:
    """What `__init__` sets and documents, and properties."""
    if not dataclasses.is_dataclass(cls) and "__init__" in vars(cls):
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(cls.__init__))).body
        assert isinstance(tree, ast.FunctionDef)
        for line, text in pairwise(tree.body):
            target = (
                line.target
                if isinstance(line, ast.AnnAssign)
                else line.targets[0]
                if isinstance(line, ast.Assign)
                else None
            )
            if isinstance(target, ast.Attribute) and target.attr[0] != "_" and _constant(text):
                yield target.attr, _constant(text)
    for name, value in vars(cls).items():
        if isinstance(value, property) and name[0] != "_":
            kind = value.fget.__annotations__.get("return", "")
            yield f"{name}: {kind}", _text(value.fget)


def _methods(cls: type) -> Iterator[tuple[str, str]]:
    for name, value in vars(cls).items():
        function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        if inspect.isfunction(function) and name[0] != "_" and function.__doc__ and _documents(cls, name):
            yield f"{name}{signature(function, skip=1)}", _text(function)


def _documents(cls: type, name: str) -> bool:
    """Not the events that a shipped observer handles, and not what a logger is as an observer."""
    return cls is c2d.Observer or not hasattr(c2d.Observer, name)


def _constant(node: Any) -> str:
    text = getattr(getattr(node, "value", None), "value", None) if isinstance(node, ast.Expr) else None
    return " ".join(text.split()) if isinstance(text, str) else ""


def _text(thing: Any) -> str:
    """A docstring, each paragraph on a line."""
    paragraphs = inspect.cleandoc(thing.__doc__ or "").split("\n\n")
    return (
        "\n\n" if inspect.isclass(thing) or (inspect.isfunction(thing) and "." not in thing.__qualname__) else " "
    ).join(" ".join(paragraph.split()) for paragraph in paragraphs)


def signature(function: Any, skip: int = 0) -> str:
    """With types, without quotes around them."""
    words, starred = [], False
    found = inspect.signature(function)
    for parameter in list(found.parameters.values())[skip:]:
        star = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        if parameter.kind == parameter.KEYWORD_ONLY and not starred:
            words.append("*")
        starred = starred or bool(star) or parameter.kind == parameter.KEYWORD_ONLY
        text = star + parameter.name
        if parameter.annotation is not parameter.empty:
            text += f": {parameter.annotation}"
        if parameter.default is not parameter.empty:
            text += f" = {parameter.default!r}"
        words.append(text)
    returned = "" if found.return_annotation in (found.empty, "None") else f" -> {found.return_annotation}"
    return f"({', '.join(words)}){returned}"


def _code(text: str) -> str:
    """A signature in a block, a parameter on each line if it is long."""
    if len(text) > 100:
        head, _, rest = text.partition("(")
        body, _, tail = rest.rpartition(")")
        parts, depth, start = [], 0, 0
        for place, letter in enumerate(body):
            depth += (letter in "([{") - (letter in ")]}")
            if letter == "," and depth == 0:
                parts.append(body[start:place].strip())
                start = place + 1
        parts.append(body[start:].strip())
        text = f"{head}(\n" + "".join(f"    {part},\n" for part in parts) + f"){tail}"
    return f"```text\n{text}\n```\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.parse_args().out.write_text(page())


if __name__ == "__main__":
    main()
