"""c2d recipes, c2d sweep, c2d ablate, and parts exchanged on the command line."""

import json

import pytest

from c2d.agents.parts import Categorical, Cramer, Prioritized, Quantile, RmsProp, Uniform
from c2d.agents.recipes import RECIPES, find
from c2d.agents.trust import TRUSTED
from c2d.cli.main import main
from c2d.cli.train import read
from c2d.config import validate
from c2d.plans.plan import ablations, find_plan, plan
from c2d.plans.pool import execute, finished
from tests.training.short_runs import short_config


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


@pytest.mark.parametrize("words", [["c3d"], ["c2d", "iqm"], ["a", "b", "c"]])
def test_mistaken_names(words, capsys):
    assert "recipe" in refused(capsys, "recipes", *words)


# ------------------------------------------------------------------------------------------- parts by their names


def test_parts_can_be_exchanged_and_set():
    config = read(["minatar/breakout", "--head", "quantile", "--head.atoms", "20", "--loss", "quantile-huber",
                   "--loss.kappa", "0.5", "--sampler", "prioritized", "--sampler.exponent", "0.7", "--noisy", "True",
                   "--optim", "rmsprop", "--phi.kind", "symlog", "--schedule.polyak", "0.01"])  # fmt: skip
    agent = config.agent
    assert agent.head == Quantile(atoms=20, hidden=128)  # of the size that the scale chose
    assert agent.loss.kappa == 0.5 and agent.sampler == Prioritized(exponent=0.7) and agent.noisy
    assert isinstance(agent.optim, RmsProp) and agent.optim.learning_rate == 1e-3
    assert agent.phi.kind == "symlog" and agent.schedule.polyak == 0.01
    validate(config)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--head", "kwantile"], "unknown head \"kwantile\". Did you mean 'quantile'"),
        (["--loss", "cross-entropy"], "--loss cross-entropy does not go with --head conjugated"),
        (
            ["--sampler", "prioritized", "--sampler.exponent", "-1"],
            "--sampler.exponent is -1.0; accepted: 0 or greater",
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
        assert "code that is not imported because a file names it" in refused(capsys, *command)
    assert main(["resume", str(tmp_path / "run"), "--iterations", "2", "--phi.kind", "own_phi_module:cube"]) == 0
    TRUSTED.clear()
    assert main(["evaluate", str(tmp_path / "run"), "--phi", "own_phi_module:cube", "--games", "2"]) == 0
    bad = [*words[:3], str(tmp_path / "bad"), *short, "--phi.kind", "own_phi_module:number"]
    assert "is no c2d.types.Phi" in refused(capsys, *bad)


# ------------------------------------------------------------------------------------------------ plans and pool


def test_ablation_removes_one_ingredient_at_a_time():
    full = find("rainbow-c2d-full")
    variants = {variant.name: variant.change(full) for variant in ablations("rainbow-c2d-full", full)}
    assert list(variants) == [
        "rainbow-c2d-full", *(f"rainbow-c2d-full-no-{what}" for what in (
            "n-step", "priorities", "double", "noise", "dueling", "phi", "embedding"))
    ]  # fmt: skip
    assert variants["rainbow-c2d-full"] == full
    assert variants["rainbow-c2d-full-no-priorities"].sampler == Uniform()
    quiet = variants["rainbow-c2d-full-no-noise"]
    assert not quiet.noisy and quiet.schedule.epsilon_initial == 1.0  # something must explore
    for variant in list(variants.values())[1:]:
        assert variant != full


def test_papers_claims_are_all_there(tmp_path):
    planned = plan(find_plan("paper-claims"), ["minatar/breakout"], [1], 100, tmp_path)
    runs = {run.variant: run.config.agent for run in planned}
    assert runs["c51-cramer"].loss == Cramer() and isinstance(runs["c51-cramer"].head, Categorical)
    assert runs["c2d-no-embedding"].head.embedding == 0 and not runs["c2d-alpha-fixed"].head.train_alpha
    assert not runs["c2d-support-fixed"].head.train_atoms
    assert runs["c2d-identity-clipped"].clip_reward == 1.0 and runs["c2d-identity-raw"].clip_reward is None
    assert {runs[name].phi.kind for name in ("c2d", "c2d-h", "c2d-identity-raw")} == {"scaled_h", "h", "identity"}
    assert runs["c2d-orthogonal"].initializer == "orthogonal" and runs["c2d-norm-column"].encoder.norm == "column"
    assert {runs[f"c2d-beta-{b}"].phi.beta for b in (1, 1.5, 3)} == {1.0, 1.5, 3.0}
    assert runs["c2d-c-10"].head.c == 10.0 and runs["c2d-alpha-25"].head.alpha == 25.0
    for run in planned:
        validate(run.config)


def test_plan_is_printed_and_nothing_is_run(capsys, tmp_path):
    words = ["ablate", "c51", "--env", "toy/sure", "--seeds", "2", "--steps", "6000", "--out", str(tmp_path / "x")]
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "2 runs in" in out and "10,000 steps" in out and "nothing was run: add --execute True" in out
    assert not (tmp_path / "x").exists()


def test_pool_runs_what_is_not_finished_and_tells_failures(tmp_path):
    good = [run._replace(config=short_config("toy/sure", tmp_path / f"run{run.config.seed}", seed=run.config.seed))
            for run in plan(find_plan("minatar")[:1], ["toy/sure"], [1, 2], 100, tmp_path)]  # fmt: skip
    (tmp_path / "bad").write_text("a file")
    bad = good[0]._replace(config=short_config("toy/sure", tmp_path / "bad"))
    told = []
    assert execute([*good, bad], 2, told.append) == [bad]
    assert all(map(finished, good)) and not finished(bad)
    assert any("exists already, holds no run" in line for line in told)
    before = (tmp_path / "run1" / "summary.json").stat().st_mtime_ns
    told.clear()
    longer = [run._replace(config=short_config("toy/sure", run.config.run_dir, seed=run.config.seed, iterations=3))
              for run in good[:1]]  # fmt: skip
    assert execute([*longer, good[1]], 2, told.append) == []
    assert len(told) == 1 and (tmp_path / "run1" / "summary.json").stat().st_mtime_ns > before
    assert json.loads((tmp_path / "run1" / "summary.json").read_text())["iterations"] == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["sweep", "minature"], "unknown plan"),
        (["sweep", "minatar", "--seeds", "0"], "--seeds is 0"),
        (["ablate", "c3d"], "unknown recipe"),
        (["ablate", "c2d", "--env", "minatar/brekout"], "Did you mean 'breakout'"),
    ],
)
def test_mistakes(words, message, capsys):
    assert message in refused(capsys, *words)
