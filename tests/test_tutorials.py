"""The tutorials are run, cell by cell, in an empty directory, as a reader would run them; without Jupyter."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from c2d.recipes.part import PARTS
from c2d.user_code import TRUSTED

ROOT = Path(__file__).parent.parent
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.ipynb"))


@pytest.fixture(scope="module")
def notebooks():
    where = importlib.util.spec_from_file_location("notebooks", ROOT / "website" / "notebooks.py")
    module = importlib.util.module_from_spec(where)
    where.loader.exec_module(module)
    return module


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An empty directory; what is imported there is forgotten after it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.setattr(sys, "path", list(sys.path))
    for slot, parts in PARTS.items():
        monkeypatch.setitem(PARTS, slot, dict(parts))
    before = set(sys.modules)
    yield tmp_path
    for name in {path.stem for path in tmp_path.glob("*.py")} - before:
        sys.modules.pop(name, None)
    TRUSTED.clear()


SHOWN = {
    "own-environment": "5, 6]\n",  # the large prize
    "beliefs": "cvar:0.1",
    "compare": "95 % interval",
    "own-head": "accepted: at least 3, at most 101",
    "sweep": "plan wrong has 2 errors",
    "resume-and-fork": "weights.safetensors equal: True\nepisodes.csv equal: True\n",
}


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_the_tutorial_runs_and_shows_what_is_stored(path, place, notebooks):
    """Outputs are of the same kinds as those in the file; numbers depend on the processor. The sweep runs elsewhere."""
    notebook = json.loads(path.read_text())
    found = notebooks.run(notebook, without="sweep")
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for cell, outputs in zip(cells, found, strict=True):
        if "sweep" not in cell["metadata"].get("tags", []):
            kinds = [[kind(output) for output in shown] for shown in (outputs, cell["outputs"])]
            assert kinds[0] == kinds[1], "".join(cell["source"])
    text = "".join("".join(output.get("text", [])) for outputs in found for output in outputs)
    stored = "".join("".join(output.get("text", [])) for cell in cells for output in cell["outputs"])
    assert SHOWN[path.stem] in text and SHOWN[path.stem] in stored


def kind(output):
    return output["output_type"], *sorted(output.get("data", {}))


def test_cells_show_what_they_print_their_value_and_errors(notebooks, place):
    names = {"_command": notebooks.command, "__name__": "tutorial", "recipe": "iqn"}
    printed, value = notebooks.run_cell("print(1)\n2 + 3", names)
    assert printed["text"] == ["1\n"] and value["data"] == {"text/plain": ["5"]}
    assert notebooks.run_cell("6;", names) == [] and notebooks.run_cell("x = 7", names) == []
    (shown,) = notebooks.run_cell("for _ in range(2):\n    !c2d recipes {recipe} c2d", names)
    assert "".join(shown["text"]).count("all other settings are equal") == 2
    with pytest.raises(AssertionError, match="c2d recipes nosuch: exit code 2, not 0"):
        notebooks.run_cell("!c2d recipes nosuch", names)
    with pytest.raises(ZeroDivisionError):
        notebooks.run_cell("1 / 0", names)


def test_a_tutorial_becomes_markdown(notebooks, tmp_path):
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "\n", "Text."]},
        {"cell_type": "code", "source": ["!c2d x"], "outputs": [{"output_type": "stream", "text": ["done\n"]}]},
        {"cell_type": "code", "source": ["f()"], "outputs": [{"output_type": "x", "data": {"image/png": "AA"}}]},
    ]
    (tmp_path / "x.ipynb").write_text(json.dumps({"cells": cells}))
    page = notebooks.as_markdown(tmp_path / "x.ipynb", "NOTE")
    assert page.startswith("# Title\n\nNOTE\n\nText.")
    assert "~~~~~~console\n$ c2d x\n~~~~~~" in page and "\ndone\n~~~~~~" in page
    assert "~~~~~~python\nf()\n~~~~~~" in page and 'src="data:image/png;base64,AA"' in page
