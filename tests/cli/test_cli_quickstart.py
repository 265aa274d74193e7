"""c2d quickstart with a budget of a second: the wiring, not the learning."""

from dataclasses import replace
from pathlib import Path

import pytest

import c2d.cli.quickstart as quickstart
from c2d.cli.main import main
from c2d.evaluation.statistics import summarize
from c2d.reporting.quickstart import QuickstartResult
from c2d.types import GameEnd
from tests.cli.tiny_runs import tiny_config

full_config = quickstart.quickstart_config


def tiny(seed):
    config = full_config(seed)
    agent = tiny_config(config.env, "unused").recipe
    return replace(config, iterations=1, tensorboard=False, recipe=agent)


@pytest.fixture
def budget(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(quickstart, "quickstart_config", tiny)
    monkeypatch.setattr(quickstart, "RANDOM_GAMES", 20)
    monkeypatch.setattr(quickstart, "GAMES", 4)


def exit_code(words) -> int:
    try:
        return main(["quickstart", *words])
    except SystemExit as end:
        return end.code


def test_full_config_is_the_games_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = full_config(5)
    assert (config.env, config.recipe_name, config.seed) == ("minatar/breakout", "c2d", 5)
    assert config.iterations == quickstart.ITERATIONS and config.run_dir == "runs/quickstart-s5"
    assert quickstart.RANDOM_GAMES >= 100 and quickstart.GAMES == 30 and quickstart.GOAL == 4.0


def test_tells_no_when_it_did_not_learn(budget, monkeypatch, capsys):
    monkeypatch.setattr(quickstart, "GOAL", 1_000.0)
    assert exit_code([]) == 1
    printed = capsys.readouterr().out
    assert "learned        no" in printed and "did not reach 1000 times the score of random play in 40 steps" in printed


def test_tells_yes_and_what_to_type_and_works_again(budget, monkeypatch, capsys):
    monkeypatch.setattr("c2d.evaluation.play.random_scores", lambda *_: [GameEnd(0.5, 10), GameEnd(0.7, 10)])
    monkeypatch.setattr("c2d.evaluation.play.evaluate", lambda *_, **__: [GameEnd(6.0, 10), GameEnd(12.0, 10)])
    assert exit_code(["--seed", "2"]) == 0
    printed = capsys.readouterr().out
    for words in (
        "random play on minatar/breakout: mean 0.60",
        "trained agent  mean 9.00",
        "ratio          15.0",
        "learned        yes",
        "time taken",
        "c2d evaluate runs/quickstart-s2 ",
        "tensorboard --logdir runs/quickstart-s2",
        "c2d serve runs\nthen open http://127.0.0.1:8265/lens?run=quickstart-s2 in a browser\n",
    ):
        assert words in printed
    assert exit_code(["--seed", "2"]) == 0
    assert "c2d evaluate runs/quickstart-s2-2 " in capsys.readouterr().out
    assert sorted(path.name for path in Path("runs").iterdir()) == ["quickstart-s2", "quickstart-s2-2"]


def test_several_seeds_make_a_table(budget, monkeypatch, capsys):
    monkeypatch.setattr("c2d.evaluation.play.random_scores", lambda *_: [GameEnd(0.5, 10), GameEnd(0.7, 10)])
    scores = iter([6.0, 0.5])  # of the two seeds: only the first learned
    monkeypatch.setattr("c2d.evaluation.play.evaluate", lambda *_, **__: [GameEnd(next(scores), 10)] * 2)
    assert exit_code(["--seeds", "1", "2", "--out", "docs/table.md"]) == 1
    printed = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in printed] == ["seed 1", "seed 2", "written to docs/table.md"]
    page = Path("docs/table.md").read_text()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith("| ")]
    assert rows[0][:4] == ["seed", "random mean", "trained mean", "interval"]
    assert [row[0] for row in rows[1:]] == ["1", "2"] and all(float(row[-1]) > 0 for row in rows[1:])
    assert "`c2d quickstart --seeds 1 2 --out docs/table.md`" in page and "torch " in page and "cores" in page


def test_stopped_training_is_not_evaluated(budget, monkeypatch, capsys):
    import c2d.api

    train = c2d.api.train
    monkeypatch.setattr(
        c2d.api, "train", lambda config, progress: train(config, progress)._replace(state="interrupted")
    )
    assert exit_code([]) == 130
    assert "nothing to evaluate" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("chance", "skill", "learned"),
    [(0.5, 2.0, True), (0.5, 1.9, False), (0.0, 0.0, False), (0.0, 0.1, True)],
)
def test_goal(chance, skill, learned):
    outcome = QuickstartResult(1, "runs/x", summarize([chance] * 2), summarize([skill] * 2), 4.0, 100, 1.0, 2.0)
    assert outcome.learned is learned


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--seed", "-1"], "a seed is -1"),
        (["--seeds", "x"], "--seeds"),
        (["--out", "."], "a directory; accepted: a file name"),
    ],
)
def test_bad_input(budget, capsys, words, message):
    assert exit_code(words) == 2
    errors = capsys.readouterr().err
    assert message in errors and errors.count("\n") == 1
    assert not Path("runs").exists()
