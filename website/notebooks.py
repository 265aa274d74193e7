"""Run a tutorial without Jupyter, keep what it shows, and turn it into Markdown.

A cell is Python, or lines `!c2d ...`, which are run in this process. What a cell shows is what it prints, the value of
its last expression, and the figures it draws. `python website/notebooks.py` runs all tutorials and writes their outputs
into the files; the tests run them without writing.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import os
import re
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Any

TUTORIALS = Path(__file__).resolve().parents[1] / "docs" / "tutorials"
Output = dict[str, Any]


def read(path: Path) -> dict[str, Any]:
    notebook: dict[str, Any] = json.loads(path.read_text())
    return notebook


def source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


# ------------------------------------------------------------------------------------------------------- running


def run(notebook: dict[str, Any], without: str = "") -> list[list[Output]]:
    """The outputs of each code cell, run in the working directory; those with this tag are left out."""
    names: dict[str, Any] = {"__name__": "tutorial", "_command": command}
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return [[] if without in cell["metadata"].get("tags", []) else run_cell(source(cell), names) for cell in cells]


def run_cell(text: str, names: dict[str, Any]) -> list[Output]:
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        for kind, part in parts(text):
            if kind == "file":
                name, _, content = part.partition("\n")
                Path(name).write_text(content)
                print(f"Writing {name}")
            else:
                value = python(part, names)
    said = re.sub(r"\x1b\[[0-9;]*m", "", printed.getvalue())
    outputs: list[Output] = []
    if said:
        outputs.append({"output_type": "stream", "name": "stdout", "text": said.splitlines(keepends=True)})
    if value is not None:
        shown = repr(value).splitlines(keepends=True)
        outputs.append(
            {"output_type": "execute_result", "execution_count": None, "metadata": {}, "data": {"text/plain": shown}}
        )
    return [*outputs, *figures()]


def parts(text: str) -> list[tuple[str, str]]:
    """A cell as a file to write, or as Python in which commands are calls; {names} in a command are filled in."""
    if text.startswith("%%writefile "):
        return [("file", text.removeprefix("%%writefile ").rstrip() + "\n")]
    return [("python", re.sub(r"^( *)!(.*)$", r'\1_command(rf"""\2""")', text, flags=re.MULTILINE))]


def command(line: str) -> None:
    from c2d.cli.main import main

    words = shlex.split(line, comments=True)
    assert words[0] == "c2d", f"only c2d can be run here, not {words[0]}"
    wanted = 2 if line.endswith("# is rejected") else 0
    code = main(words[1:]) or 0
    assert code == wanted, f"{line}: exit code {code}, not {wanted}"


def python(text: str, names: dict[str, Any]) -> Any:
    tree = ast.parse(text)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "<cell>", "exec"), names)
    value = None if last is None else eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)
    return None if text.rstrip().endswith(";") else value  # as in a notebook


def figures() -> list[Output]:
    """The figures that are open, as images; and they are closed."""
    if "matplotlib.pyplot" not in sys.modules:
        return []
    import matplotlib.pyplot as plt

    outputs: list[Output] = []
    for number in plt.get_fignums():
        image = io.BytesIO()
        plt.figure(number).savefig(image, format="png", dpi=110, bbox_inches="tight", metadata={"Software": None})
        data = {"image/png": base64.b64encode(image.getvalue()).decode()}
        outputs.append({"output_type": "display_data", "metadata": {}, "data": data})
    plt.close("all")
    return outputs


def write(path: Path) -> None:
    """Run a notebook in an empty directory and store its outputs."""
    notebook, before = read(path), Path.cwd()
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        try:
            found = run(notebook)
        finally:
            os.chdir(before)
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for cell, outputs in zip(cells, found, strict=True):
        cell["outputs"], cell["execution_count"] = outputs, None
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


# ------------------------------------------------------------------------------------------------------ showing


def as_markdown(path: Path, note: str = "") -> str:
    """The page of a notebook: texts, code, and what it showed. The note stands below the title."""
    pieces = []
    for cell in read(path)["cells"]:
        text = source(cell)
        if cell["cell_type"] == "markdown":
            pieces.append(text)
            continue
        commands = all(line.startswith("!") for line in text.splitlines())
        pieces.append(_fence("console", text.replace("!", "$ ")) if commands else _fence("python", text))
        pieces += [shown for output in cell["outputs"] if (shown := _shown(output))]
    title, _, rest = "\n\n".join(pieces).partition("\n\n")
    return f"{title}\n\n{note}\n\n{rest}\n"


def _fence(language: str, text: str) -> str:
    return f"~~~~~~{language}\n{text.rstrip()}\n~~~~~~"


def _shown(output: Output) -> str:
    if output["output_type"] == "stream":
        return _fence("text { .output }", "".join(output["text"]))
    data = output["data"]
    if "image/png" in data:
        return f'<img alt="Figure drawn by the cell above" src="data:image/png;base64,{data["image/png"]}">'
    return _fence("text { .output }", "".join(data["text/plain"]))


if __name__ == "__main__":
    for tutorial in [Path(name) for name in sys.argv[1:]] or sorted(TUTORIALS.glob("*.ipynb")):
        write(tutorial.resolve())
        print(tutorial)
