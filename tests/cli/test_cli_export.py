"""c2d export, as a user types it: files for other programs, and a directory with a model card."""

import json
import shutil

import numpy as np
import pytest
import torch
import yaml

import c2d
from c2d.cli.main import main
from tests.cli.tiny_runs import tiny_run


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    run = tiny_run("gym/CartPole-v1", tmp_path_factory.mktemp("runs") / "cartpole")
    assert main(["evaluate", str(run), "--games", "3", "--calibration"]) == 0
    return run


@pytest.fixture
def run(trained, tmp_path):
    """A copy to damage."""
    return shutil.copytree(trained, tmp_path / "run")


def header_of(card):
    _, header, text = card.read_text().split("---\n", 2)
    return yaml.safe_load(header), text


def test_all_at_once(run, tmp_path, capsys):
    files = {"--onnx": tmp_path / "policy.onnx", "--torch-export": tmp_path / "policy.pt2", "--hub": tmp_path / "hub"}
    words = [str(word) for pair in files.items() for word in pair]
    assert main(["export", str(run), *words]) == 0
    printed = capsys.readouterr().out
    for path in files.values():
        assert f"written: {path}\n" in printed and path.exists()
    assert printed.count("  largest difference from PyTorch: ") == 2


def test_the_directory_is_an_agent_with_its_card(run, tmp_path, capsys):
    hub = tmp_path / "hub"
    (written,) = c2d.export(run, hub=hub)
    assert written.path == hub and written.comparison is None
    assert sorted(path.name for path in hub.iterdir()) == [
        "README.md", "config.json", "env.json", "passport.json", "summary.json", "weights.safetensors"
    ]  # fmt: skip
    obs = np.full((5, 4), 0.1, np.float32)
    for one, other in zip(c2d.load(run).distribution(obs), c2d.load(hub).distribution(obs), strict=True):
        np.testing.assert_array_equal(one, other)
    was = json.loads((run / "config.json").read_text())["run_dir"]
    assert was and was not in "".join(path.read_text(errors="replace") for path in hub.iterdir())
    (evaluation,) = (run / "evaluations").glob("*.json")
    played = json.loads(evaluation.read_text())
    header, text = header_of(hub / "README.md")
    assert header["library_name"] == "c2d" and {"c2d", "gym/CartPole-v1"} <= set(header["tags"])
    (result,) = header["model-index"][0]["results"]
    low, high = played["summary"]["interval"]
    mean, median = played["summary"]["mean"], played["summary"]["median"]
    assert result["metrics"][0]["value"] == f"{mean:.2f} (95 % interval {low:.2f} to {high:.2f})"
    assert f"| `gym/CartPole-v1` | 40 | 3 | {mean:.2f} | {low:.2f} to {high:.2f} | {median:.2f} | 0.001 | 0 |" in text
    bias = played["calibration"]["bias"]
    interval = "({:.3f} to {:.3f})".format(*bias["interval"])
    assert f"| bias: predicted less realized | {bias['value']:.3f} {interval} |" in text
    assert f"`{played['passport']['hash']}`" in text and "| returns within the 50 % interval | " in text
    assert "--head.atoms 4" in text and "Mean of the last" in text
    assert main(["evaluate", str(hub), "--games", "2"]) == 0
    assert "trained for 40 steps (complete iterations: 1)" in capsys.readouterr().out


def test_nothing_of_the_user_is_overwritten(run, tmp_path, capsys):
    hub = tmp_path / "hub"
    hub.mkdir()
    (hub / ".gitattributes").write_text("mine")
    assert main(["export", str(run), "--hub", str(hub)]) == 0
    (hub / "README.md").write_text("my words")
    assert main(["export", str(run), "--hub", str(hub)]) == 2
    assert "has config.json, env.json, passport.json, weights.safetensors, summary.json, README.md already" in (
        capsys.readouterr().err
    )
    assert (hub / "README.md").read_text() == "my words"
    assert main(["export", str(run), "--hub", str(hub), "--overwrite"]) == 0
    assert header_of(hub / "README.md")[0]["library_name"] == "c2d" and (hub / ".gitattributes").read_text() == "mine"
    before = (run / "weights.safetensors").read_bytes()
    assert main(["export", str(run), "--hub", str(run), "--overwrite"]) == 2
    assert "holds a run, which is never overwritten" in capsys.readouterr().err
    assert (run / "weights.safetensors").read_bytes() == before and not (run / "README.md").exists()


def test_a_directory_that_is_resumed_keeps_its_agent(run, tmp_path, capsys):
    hub = tmp_path / "hub"
    assert main(["export", str(run), "--hub", str(hub)]) == 0
    weights = (hub / "weights.safetensors").read_bytes()
    assert main(["resume", str(hub)]) == 0
    assert "it starts from scratch; what it had recorded is kept in" in capsys.readouterr().out
    assert [path.read_bytes() for path in hub.glob("before*/weights.safetensors")] == [weights]


DAMAGE = {
    "no weights yet": lambda run: (run / "weights.safetensors").unlink(),
    "does not fit the run's config or is damaged": lambda run: (run / "weights.safetensors").write_bytes(b"\x80\x04]."),
    "links inside a run directory are not followed": lambda run: _link(run / "weights.safetensors"),
    "config file": lambda run: (run / "config.json").write_text("[" * 100_000),
    "accepted: integers from 1 to 1,000,000": lambda run: _change(run / "env.json", actions=0),
    "that are not finite": lambda run: _diverge(run / "weights.safetensors"),
}


def _link(path):
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def _change(path, **values):
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def _diverge(path):
    from safetensors.torch import load_file, save_file

    save_file({name: tensor * float("nan") for name, tensor in load_file(path).items()}, path)


@pytest.mark.parametrize("message", DAMAGE)
def test_a_damaged_or_hostile_directory_is_one_line(run, tmp_path, capsys, message):
    DAMAGE[message](run)
    assert main(["export", str(run), "--hub", str(tmp_path / "hub")]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert not (tmp_path / "hub").exists()


def test_texts_of_a_run_have_no_meaning_in_the_card(run, tmp_path):
    """Markdown, HTML and YAML of somebody else's run are shown as they are; evaluations that are none are left out."""
    evil = '`|\n# <script>x</script>: "[a](b)\x1b[31m'
    _change(run / "env.json", action_names=[evil, "1"])
    _change(run / "passport.json", **{evil: evil})
    _change(run / "config.json", recipe_name=evil)
    for name, content in {"evaluation-002.json": "[]", "evaluation-003.json": '{"summary": 3}', "x": "{"}.items():
        (run / "evaluations" / name).write_text(content)
    (good,) = (run / "evaluations").glob("evaluation-001.json")
    _change(good, calibration={"games": "many", "coverage": 7}, env=evil)
    (run / "episodes.csv").write_text("iteration,step,score\n1,2")
    c2d.export(run, hub=tmp_path / "hub")
    header, text = header_of(tmp_path / "hub" / "README.md")
    assert any("<script>" in tag for tag in header["tags"]) and "model-index" not in header
    outside = [part for place, part in enumerate(text.replace("\\`", "").split("`")) if place % 2 == 0]
    assert "\x1b" not in text and not any("<script>" in part.replace("\\<", "") for part in outside)
    assert "\n# <" not in text and "## Calibration" not in text and "Mean of the last" not in text


@pytest.mark.parametrize(
    "words, message",
    [
        ([], "no run given; accepted: c2d export RUN"),
        (["RUN"], "nothing to write; accepted: --onnx policy.onnx"),
        (["RUN", "--opset", "17", "--hub", "x"], "--opset is given without --onnx"),
        (["RUN", "--overwrite", "--onnx", "x.onnx"], "--overwrite is given without --hub"),
        (["RUN", "--torchscript", "x.pt"], 'unknown option "--torchscript"; accepted: those in c2d export --help'),
        (["RUN", "--hub", "no/where"], "--hub no/where cannot be written; accepted: a directory within one"),
        (["RUN", "--torch-export", "policy.pt"], "the name must end in .pt2"),
        (["nowhere", "--hub", "x"], "nowhere is not a run directory"),
    ],
)
def test_bad_input_is_one_line(trained, tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    assert main(["export", *[str(trained) if word == "RUN" else word for word in words]]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_other_weights_than_the_newest(run, tmp_path, capsys):
    assert main(["export", str(run), "--hub", str(tmp_path / "hub"), "--weights", "best"]) == 2
    assert "holds no best weights: c2d train --eval-every N --keep-best keeps them" in capsys.readouterr().err
    (run / "weights").mkdir()
    kept = run / "weights" / "000000000020.safetensors"
    agent = c2d.load(run)
    with torch.no_grad():
        next(agent.network.parameters()).add_(1.0)
    kept.write_bytes(agent.to_bytes())
    c2d.export(run, hub=tmp_path / "hub", weights=20)
    assert (tmp_path / "hub" / "weights.safetensors").read_bytes() == kept.read_bytes()
    assert json.loads((tmp_path / "hub" / "summary.json").read_text())["steps"] == 20
    header, text = header_of(tmp_path / "hub" / "README.md")  # the evaluation was of others
    assert "model-index" not in header and "## Calibration" not in text and "| 40 | 3 |" in text
