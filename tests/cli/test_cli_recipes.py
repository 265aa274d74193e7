"""c2d recipes, and parts exchanged on the command line."""

import pytest

from c2d.cli.main import main
from c2d.cli.train import read
from c2d.config import validate
from c2d.recipes.parts import Prioritized, Quantile, RmsProp
from c2d.recipes.rows import RECIPES
from c2d.user_code import TRUSTED


def refused(capsys, *words):
    assert main(list(words)) == 2
    out, err = capsys.readouterr()
    assert err.startswith("c2d: ") and err.count("\n") == 1 and "Traceback" not in out + err
    return err


def test_list_names_every_row_with_source_differences_and_size(capsys):
    assert main(["recipes"]) == 0
    out = capsys.readouterr().out
    for name in RECIPES:
        assert f"\n{name} " in f"\n{out}"
    assert "Dabney et al. 2018b; settings: Dopamine (Castro et al. 2018); 4,548,836 weights on breakout" in out
    assert "1,947,113 weights" in out and "differs from c2d in: encoder.norm channel" in out


def test_two_side_by_side(capsys):
    assert main(["recipes", "rainbow", "c51"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["setting", "rainbow", "c51"]
    assert ["n-step", "3", "1"] in lines and ["sampler", "prioritized", "uniform"] in lines
    assert not any(line[0] == "head" for line in lines)


def test_one_alone_shows_all_its_settings(capsys):
    assert main(["recipes", "fqf", "--env", "minatar/breakout"]) == 0
    out = capsys.readouterr().out
    assert "head.entropy" in out and "head.hidden" in out and "128" in out
    assert "fqf: at the paper's rate of 2.5e-9 the fractions move slowly" in out


def test_sources_and_notes_are_listed(capsys):
    assert main(["recipes", "--env", "minatar/breakout"]) == 0
    lines = capsys.readouterr().out.splitlines()
    said = {line.split()[0]: line for line in lines if not line.startswith(" ")}
    for name in ("dqn-adam", "qr-dqn", "rainbow-full"):
        assert "settings: Dopamine's JAX agent" in said[name]
    for name in ("dqn", "c51", "iqn", "rainbow"):
        assert "settings: Dopamine (Castro et al. 2018)" in said[name]
    assert sum("the fractions move slowly" in line for line in lines) == 1


@pytest.mark.parametrize("words", [["c3d"], ["c2d", "iqm"], ["a", "b", "c"]])
def test_mistaken_names(words, capsys):
    assert "recipe" in refused(capsys, "recipes", *words)


# ------------------------------------------------------------------------------------------- parts by their names


def test_parts_can_be_exchanged_and_set():
    config = read(["minatar/breakout", "--head", "quantile", "--head.atoms", "20", "--loss", "quantile-huber",
                   "--loss.kappa", "0.5", "--sampler", "prioritized", "--sampler.exponent", "0.7", "--noisy", "True",
                   "--optim", "rmsprop", "--phi.kind", "symlog", "--schedule.polyak", "0.01"])  # fmt: skip
    agent = config.recipe
    assert agent.head == Quantile(atoms=20, hidden=128)  # of the size that the scale chose
    assert agent.loss.kappa == 0.5 and agent.sampler == Prioritized(exponent=0.7) and agent.noisy
    assert isinstance(agent.optim, RmsProp) and agent.optim.learning_rate == 1e-3
    assert agent.phi.kind == "symlog" and agent.schedule.polyak == 0.01
    validate(config)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--head", "kwantile"], 'unknown head "kwantile"; accepted: scalar, categorical'),
        (["--loss", "cross-entropy"], "--loss cross-entropy does not fit --head conjugated"),
        (
            ["--sampler", "prioritized", "--sampler.exponent", "-1"],
            "--sampler.exponent is -1.0; accepted: 0 or greater",
        ),
        (
            ["--sampler", "prioritized", "--sampler.eps", "0"],
            "--sampler.eps is 0.0; accepted: greater than 0",
        ),
        (
            ["--bootstrap", "munchausen", "--n-step", "3"],
            "--n-step is 3; accepted: 1 with --bootstrap munchausen",
        ),
        (["--schedule.polyak", "1.5"], "--schedule.polyak is 1.5"),
        (["--bootstrap", "triple"], 'unknown bootstrap "triple"'),
        (["--phi.kind", "square"], 'unknown φ "square"'),
        (["--phi.kind", "nowhere:phi"], "cannot be imported"),
    ],
)
def test_bad_parts_get_one_line(words, message, capsys, tmp_path):
    assert message in refused(capsys, "train", "toy/sure", "--run-dir", str(tmp_path / "run"), *words)
    assert not (tmp_path / "run").exists()


def test_own_phi_from_the_command_line_and_never_from_a_file(tmp_path, monkeypatch, capsys):
    (tmp_path / "own_phi_module.py").write_text(
        "import torch\nfrom c2d.types import Phi\n"
        "cube = Phi(lambda x: x.sign() * x.abs() ** (1 / 3), lambda y: y ** 3)\nnumber = 3\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    short = ["--iterations", "1", "--schedule.steps-per-iteration", "40", "--tensorboard", "False", "--threads", "1"]
    words = ["train", "toy/sure", "--run-dir", str(tmp_path / "run"), *short, "--phi.kind", "own_phi_module:cube"]
    assert main(words) == 0
    capsys.readouterr()
    TRUSTED.clear()
    for command in (["evaluate", str(tmp_path / "run")], ["resume", str(tmp_path / "run"), "--iterations", "2"]):
        assert "code that is imported only if you name it yourself" in refused(capsys, *command)
    assert main(["resume", str(tmp_path / "run"), "--iterations", "2", "--phi.kind", "own_phi_module:cube"]) == 0
    TRUSTED.clear()
    assert main(["evaluate", str(tmp_path / "run"), "--phi", "own_phi_module:cube", "--games", "2"]) == 0
    bad = [*words[:3], str(tmp_path / "bad"), *short, "--phi.kind", "own_phi_module:number"]
    assert "is not a c2d.types.Phi" in refused(capsys, *bad)
