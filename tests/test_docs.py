"""The documentation's Python is run, in order, as a reader would run it."""

import csv
import importlib.util
import json
import re
import shlex
from pathlib import Path

import gymnasium
import pytest
import torch

import c2d
from c2d.cli.main import main
from c2d.config import default_config, flat, to_json
from c2d.returns.phi import scaled_h
from c2d.runs.reader import RunRecords
from c2d.sweep.plan import builtin_plan
from tests.cli.tiny_runs import tiny_run

DOCS = Path(__file__).parent.parent / "docs"


def test_the_python_page_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "python.md").read_text(), flags=re.DOTALL)
    assert len(blocks) == 10
    names: dict[str, object] = {"__name__": "page"}
    for block in blocks:
        exec(compile(block, "docs/python.md", "exec"), names)
    printed = capsys.readouterr().out
    assert "('length=1.0',)" in printed
    assert (
        "finished Quantile(atoms=50, hidden=128) scaled_h" in printed
        and "finished 2\n" in printed
        and re.search(r"action ([01]) \1\n", printed)
    )
    assert re.search(r"score \d+\.0 after \d+ steps", printed)
    assert names["law"].probs.sum(-1).round(4).tolist() == [1.0, 1.0]


def test_the_page_on_memory_runs(tmp_path, monkeypatch):
    """Its run is made shorter."""
    from tests.training.short_runs import short_config

    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"```python\n(.*?)```", (DOCS / "recurrent.md").read_text(), flags=re.DOTALL)
    monkeypatch.setattr(
        "c2d.default_config",
        lambda env, recipe, iterations, run_dir: short_config(env, run_dir, recipe=recipe, iterations=iterations),
    )
    names: dict[str, object] = {"__name__": "page"}
    exec(compile(block, "docs/recurrent.md", "exec"), names)
    assert names["ended"] and names["action"] == names["law"].mean.argmax()


def test_the_page_on_callbacks_runs(tmp_path, monkeypatch, capsys):
    """Commands and blocks in their order; the runs of the commands are made shorter."""
    monkeypatch.chdir(tmp_path)
    small = ["--schedule.steps-per-iteration", "600", "--schedule.random-history", "100", "--threads", "1"]
    names = {}
    for kind, block in re.findall(
        r"```(python|console)\n(.*?)```", (DOCS / "callbacks.md").read_text(), flags=re.DOTALL
    ):
        if kind == "python":
            exec(compile(block, "docs/callbacks.md", "exec"), names)
            continue
        for line in block.splitlines():
            words = shlex.split(line.removeprefix("$ c2d "))
            assert (
                main(
                    [
                        *words,
                        *(small + ["--iterations", "1"] * ("--iterations" not in words) if words[0] == "train" else []),
                    ]
                )
                == 0
            )
    printed = capsys.readouterr().out
    assert (
        "evaluation at 500 steps" in printed
        and "evaluation at 1,000 steps" in printed
        and "evaluation at 250 steps" in printed
    )
    assert "finished None\n" in printed and "\nfinished\n" in printed and printed.endswith("\niteration/episodes\n")
    assert Path("runs/logged/metrics.csv").exists() and Path("runs/watched/weights-best.safetensors").exists()
    assert names["best"].act([0.0] * 4) in (0, 1)


def test_the_page_on_own_parts_runs(tmp_path, monkeypatch, capsys, own_modules):
    """The blocks of my_parts.py are written into that file; commands and the other blocks are run in their order."""
    monkeypatch.chdir(tmp_path)
    page = (DOCS / "extending.md").read_text()
    module, others = [], []
    for kind, block in re.findall(r"```(python|console)\n(.*?)```", page, flags=re.DOTALL):
        (module if block.startswith("# my_parts.py") else others).append((kind, block))
    assert len(module) == 7 and len(others) == 9
    Path("my_parts.py").write_text("\n\n".join(block for _, block in module))
    small = ["--schedule.random-history", "100", "--tensorboard", "False", "--threads", "1"]
    for kind, block in others:
        if kind == "python":
            exec(compile(block, "docs/extending.md", "exec"), names := {})
            continue
        for line in block.splitlines():
            words = shlex.split(line.removeprefix("$ c2d "))
            assert main([*words, *(small if words[0] == "train" else [])]) == 0, line
    printed = capsys.readouterr().out
    assert names["result"].state == "finished" and "finished Gaussian(atoms=8, hidden=128)" in printed
    assert "my_parts:Gaussian: A normal distribution per action" in printed
    assert "--head.atoms: N: atoms of each action's return distribution. Accepted: at least 2, at most 200." in printed
    named = {path.name for path in Path("runs").iterdir()}
    assert any(name.startswith("gym-CartPole-v1-c2d-head=my_parts-Gaussian,head.atoms=8") for name in named)
    assert {"gaussian", "own-parts"} < named and len(named) >= 7


def test_the_page_on_environments_runs(tmp_path, monkeypatch, capsys, own_modules):
    """The blocks of my_envs.py are written into that file; the commands and the other block are run in their order."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    page = (DOCS / "environments.md").read_text()
    blocks = re.findall(r"```(python|console)\n(.*?)```", page, flags=re.DOTALL)
    module = [block for _, block in blocks if block.startswith("# my_envs.py")]
    (commands,) = [block for kind, block in blocks if kind == "console"]
    (last,) = [block for kind, block in blocks if kind == "python" and block not in module]
    assert len(module) == 3
    Path("my_envs.py").write_text("\n\n".join(module))
    small = ["--schedule.random-history", "100", "--tensorboard", "False", "--threads", "1"]
    for line in commands.splitlines():
        words = shlex.split(line.removeprefix("$ c2d "))
        assert main([*words, *(small if words[0] == "train" else [])]) == 0, line
    printed = capsys.readouterr().out
    for text in ("observations: 10 numbers: boxes (2), steps (8)", "action masks used"):
        assert text in page and text in printed
    exec(compile(last, "docs/environments.md", "exec"), names := {"__name__": "page"})
    shelf, taken = names["action"]
    assert names["first"].legal.reshape(2, 3)[shelf, taken] and names["agent"].spec.action_names[5] == "1,2"
    dictionary = gymnasium.spaces.Dict(
        {"image": gymnasium.spaces.Box(0, 255, (9, 9)), "x": gymnasium.spaces.Discrete(2)}
    )
    masked = gymnasium.spaces.Dict({"observation": dictionary["x"], "action_mask": gymnasium.spaces.MultiBinary(2)})
    import my_envs

    assert my_envs.Screen(Stub(dictionary, None)).observation({"image": 7, "x": 1}) == 7
    moved = my_envs.MaskInInfo(Stub(masked, {"observation": 1, "action_mask": [1, 0]}))
    assert moved.reset() == (1, {"action_mask": [1, 0]}) and moved.step(0)[0] == 1
    assert moved.step(0)[-1] == {"action_mask": [1, 0]} and moved.observation_space == dictionary["x"]


class Stub(gymnasium.Env):
    """Shows the same observation all the time."""

    def __init__(self, space, shown):
        self.observation_space, self.shown = space, shown

    def reset(self, *, seed=None, options=None):
        return self.shown, {}

    def step(self, action):
        return self.shown, 0.0, False, False, {}


def test_the_theory_page_runs(capsys):
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "theory.md").read_text(), flags=re.DOTALL)
    assert len(blocks) == 2
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "docs/theory.md", "exec"), names)
    printed = capsys.readouterr().out
    assert "T* and T_φ are one" in printed and "Q* [[" in printed and "step 12: W₁ 0.0" in printed


FAST = [line for line in re.findall(r"^\$ c2d (theory.*)$", (DOCS / "theory.md").read_text(), flags=re.MULTILINE)
        if not line.startswith(("theory check", "theory search"))]  # fmt: skip


@pytest.mark.parametrize("line", FAST)
def test_the_theory_page_shows_what_its_commands_print(line, capsys, tmp_path, monkeypatch):
    """But for the search and the check, which take longer; figures go elsewhere.

    Where a rounded φ is lost depends on how a processor rounds: a tenth of it is free.
    """
    page = (DOCS / "theory.md").read_text()
    shown = page.split(f"$ c2d {line}\n", 1)[1].split("\n```", 1)[0]
    (tmp_path / "docs" / "pictures").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(line)) == 0
    printed, lost = capsys.readouterr().out.strip(), r"(?<=lost from \|x\| = )\S+"
    assert re.sub(lost, "", printed) == re.sub(lost, "", shown.strip())
    places = ([float(place) for place in re.findall(lost, text)] for text in (printed, shown))
    assert next(places) == pytest.approx(next(places), rel=0.1)


def test_there_are_such_commands():
    assert len(FAST) == 3


def test_the_evaluation_page_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    tiny_run("minatar/breakout", "runs/minatar-breakout-c2d-s1")
    block, correcting = re.findall(r"```python\n(.*?)```", (DOCS / "evaluation.md").read_text(), flags=re.DOTALL)
    exec(compile(block, "docs/evaluation.md", "exec"), names := {})
    assert names["returns"].shape == names["probs"].shape == (1, 3, 4)
    assert re.search(r"tensor\(\[\[.*\]\]\) tensor\(\[[012]\]\)", capsys.readouterr().out)
    exec(compile(correcting, "docs/evaluation.md", "exec"), names)
    assert names["returns"].shape == names["law"].probs.shape == (3, 4)


def test_links_between_documents_lead_somewhere():
    """Files, and headings within them."""
    root, broken, seen = DOCS.parent, [], 0
    for page in (*root.glob("*.md"), *DOCS.rglob("*.md")):
        for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)):
            if re.match(r"[a-z]+:", target):
                continue
            name, _, heading = target.partition("#")
            file = page.parent / name if name else page
            headings = (
                re.findall(r"^#+ (.*)$", file.read_text(), flags=re.MULTILINE) if heading and file.is_file() else []
            )
            slugs = {re.sub(r"[^\w -]", "", words.lower()).replace(" ", "-") for words in headings}
            if file.name == "deviations.md":  # website/hooks.py gives each row an anchor
                slugs |= {number.lower() for number in re.findall(r"^\| (D\d+) \|", file.read_text(), re.MULTILINE)}
            seen += 1
            if not file.exists() or (heading and heading not in slugs):
                broken.append(f"{page.relative_to(root)}: {target}")
    assert broken == [] and seen > 60


def test_the_papers_settings_are_the_defaults():
    """Every value in the table is that of the recipe c2d on Atari."""
    table = (DOCS / "settings.md").read_text()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line.startswith("| ")]
    defaults = flat(to_json(default_config("breakout")))
    seen = 0
    for _, settings, value in rows[1:]:
        names = re.findall(r"`--([a-z0-9.-]+)`", settings)
        assert names, settings
        numbers = [float(word.replace(",", "")) for word in re.findall(r"\d[\d,]*(?:\.\d+)?", value)]
        for name in names:
            default = defaults[name]
            if isinstance(default, bool | str):
                assert str(default) in value, name
            else:
                assert default in numbers, (name, value)
            seen += 1
    assert seen >= 30


def script(name):
    where = importlib.util.spec_from_file_location(name, DOCS.parent / "studies" / f"{name}.py")
    module = importlib.util.module_from_spec(where)
    where.loader.exec_module(module)
    return module


def test_the_page_of_the_public_api_is_that_of_the_docstrings():
    """If it fails: .venv/bin/python studies/api_page.py --out docs/api.md"""
    study = script("api_page")
    assert study.page() == (DOCS / "api.md").read_text()
    assert sorted(name for names in study.SECTIONS.values() for name in names) == sorted(c2d.__all__)


@pytest.mark.parametrize("plan", ["minatar", "minatar-c2d"])
def test_the_studies_say_which_rows_have_changed_since(plan):
    """Today's settings against those in the records: when a row changes, the page must say so."""
    study = script("minatar_study")
    shipped, found = builtin_plan(plan), {}
    for path in (DOCS / "results" / "records" / "minatar").glob("*.jsonl"):
        header = json.loads(path.read_text().partition("\n")[0])
        game = header["config"]["env"]
        name = path.stem.removeprefix(f"{game.replace('/', '-')}-").rpartition("-s")[0]
        if game in shipped.envs and name in {variant.name for variant in shipped.variants}:
            found.setdefault((name, game), []).append(RunRecords(path, header, (), None))
    assert len(found) >= len(shipped.variants)
    assert study.age(found, shipped) in (DOCS / "results" / f"{plan}.md").read_text().splitlines()


def test_the_tables_on_the_start_of_c2d_are_those_of_its_scores():
    study = script("c2d_start")
    page = (DOCS / "results" / "c2d-start.md").read_text()
    lines = list(csv.DictReader((DOCS / "results" / "c2d-start.csv").read_text().splitlines()))
    assert len(study.TABLES) == 8
    for name, (studies, table) in study.TABLES.items():
        shown = page.split(f"<!-- {name} -->")[1].split(f"<!-- end of {name} -->")[0]
        assert shown.strip().splitlines() == table([line for line in lines if line["study"] in studies]), name
    assert study.forgotten(12.0, 0) == pytest.approx(12.0)
    phi, z = scaled_h(), torch.tensor(12.0, dtype=torch.float64)
    for _ in range(125):  # copies in four iterations, one after the other
        z = phi.to(0.99 * phi.back(z))
    assert study.forgotten(12.0, 4) == pytest.approx(float(z), rel=1e-9)
