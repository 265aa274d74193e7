"""The documentation's Python is run, in order, as a reader would run it."""

import re
from pathlib import Path

from tests.cli.tiny_runs import tiny_run

DOCS = Path(__file__).parent.parent / "docs"


def test_the_python_page_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "python.md").read_text(), flags=re.DOTALL)
    assert len(blocks) == 5
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "docs/python.md", "exec"), names)
    printed = capsys.readouterr().out
    assert "finished" in printed and re.search(r"action [01]\n", printed)
    assert re.search(r"score \d+\.0 after \d+ steps", printed)
    assert names["law"].probs.sum(-1).round(4).tolist() == [1.0, 1.0]


def test_the_evaluation_page_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    tiny_run("minatar/breakout", "runs/minatar-breakout-c2d-s1")
    (block,) = re.findall(r"```python\n(.*?)```", (DOCS / "evaluation.md").read_text(), flags=re.DOTALL)
    exec(compile(block, "docs/evaluation.md", "exec"), names := {})
    assert names["returns"].shape == names["probs"].shape == (1, 3, 4)
    assert re.search(r"tensor\(\[\[.*\]\]\) tensor\(\[[012]\]\)", capsys.readouterr().out)
