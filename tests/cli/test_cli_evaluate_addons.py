"""c2d evaluate --risk, --calibration and --video, as a user types them."""

import json
import shutil
import statistics
from dataclasses import replace
from xml.etree import ElementTree

import pytest
import safetensors.torch

from c2d.api import train
from c2d.cli.main import main
from c2d.envs.protocols import GymRules
from tests.cli.tiny_runs import tiny_config, tiny_run
from tests.training.short_runs import short_config


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return tiny_run("toy/skewed", tmp_path_factory.mktemp("runs") / "toy")


@pytest.fixture
def run(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "run")


def saved(run, number=1):
    return json.loads((run / "evaluations" / f"evaluation-{number:03d}.json").read_text())


def test_all_at_once(run, tmp_path, capsys):
    common = ["--games", "30", "--seed", "2"]
    assert main(["evaluate", str(run), *common]) == 0
    plain = capsys.readouterr().out.splitlines()
    film, figure = tmp_path / "game.mp4", tmp_path / "calibration.png"
    words = ["--risk", "cvar:0.2", "--calibration", "--plot", str(figure), "--video", str(film)]
    assert main(["evaluate", str(run), *words, *common]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[:5] == plain[:5]  # the games played by the mean do not change
    text = "\n".join(printed)
    for fact in ("predictions are of the discounted return (γ 0.99) in real rewards, of an action followed by",
                 "by mean   by cvar:0.2  difference (95 % interval)", "score: cvar:0.2", "return from the start: mean",
                 "the two disagree in", "calibration: 90 predictions of executed actions (every step of 30",
                 "  95 % interval   covers", f"video: {film}, 0.1 s at 30 frames per second, a game with score",
                 f"figure: {figure}"):  # fmt: skip
        assert fact in text
    assert printed[-1] == f"written to {run}/evaluations/evaluation-002.json"
    first, second = saved(run), saved(run, 2)
    assert first["scores"] == second["scores"] and first["returns"] == second["returns"]
    assert "risk" not in first and "calibration" not in first
    risk, calibration = second["risk"], second["calibration"]
    assert risk["criterion"] == "cvar:0.2" and len(risk["scores"]) == len(risk["returns"]) == 30
    assert calibration["steps"] == 90 and sum(bar["value"] for bar in calibration["histogram"]) == pytest.approx(1.0)
    assert film.stat().st_size > 500 and figure.read_bytes().startswith(b"\x89PNG")


def test_the_same_numbers_and_figure_each_time(run, tmp_path, capsys):
    for _ in range(2):
        assert main(["evaluate", str(run), "--calibration", "--games", "5"]) == 0
    assert saved(run)["calibration"] == saved(run, 2)["calibration"]
    figures = [(run / "evaluations" / f"evaluation-00{k}.svg").read_bytes() for k in (1, 2)]
    assert figures[0] == figures[1] and ElementTree.fromstring(figures[0]).tag.endswith("svg")
    assert main(["evaluate", str(run), "--calibration", "False", "--games", "2"]) == 0
    assert "calibration" not in saved(run, 3)


def test_one_atom_gets_a_note(tmp_path, capsys):
    run = train(short_config("toy/skewed", tmp_path / "dqn", recipe="dqn", iterations=1), progress=False).run_dir.path
    assert main(["evaluate", str(run), "--risk", "cvar:0.1", "--calibration", "--games", "4"]) == 0
    printed = capsys.readouterr().out
    assert "note: recipe dqn has one atom, where cvar:0.1 chooses as the mean does" in printed
    assert "note: one atom has no spread" in printed and "real rewards clipped to ±1" in printed
    assert "risk" not in saved(run)


def test_random_actions_and_the_munchausen_bonus_get_notes(tmp_path, capsys):
    config = short_config("toy/skewed", tmp_path / "miqn", recipe="munchausen-iqn", iterations=1)
    run = train(config, progress=False).run_dir.path
    assert main(["evaluate", str(run), "--risk", "entropic:-0.1", "--games", "4", "--epsilon", "0.5"]) == 0
    printed = capsys.readouterr().out
    assert "those of Munchausen agents include its bonus" in printed and "had random actions, ε 0.5" in printed
    assert saved(run)["risk"]["criterion"] == "entropic:-0.1"


def test_the_mean_is_not_another_criterion(run, capsys):
    assert main(["evaluate", str(run), "--risk", "mean", "--games", "2"]) == 0
    assert "nothing to compare" in capsys.readouterr().out and "risk" not in saved(run)


def test_games_cut_too_early_for_any_calibration(tmp_path, capsys):
    config = replace(tiny_config("toy/skewed", tmp_path / "cut"), rules=GymRules(cap_steps=2))
    run = train(config, progress=False).run_dir.path
    assert main(["evaluate", str(run), "--calibration", "--games", "3"]) == 0
    assert "calibration: none. A game was cut after 2 steps" in capsys.readouterr().out
    assert saved(run)["calibration"] is None and len(list((run / "evaluations").iterdir())) == 1


def test_without_matplotlib_the_numbers_remain(run, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("c2d.plotting.can_draw", lambda: False)
    monkeypatch.setattr("c2d.cli.evaluate.can_draw", lambda: False)
    assert main(["evaluate", str(run), "--calibration", "--games", "3"]) == 0
    assert "it needs matplotlib, pip install 'c2d[report]'" in capsys.readouterr().out
    assert main(["evaluate", str(run), "--calibration", "--plot", str(tmp_path / "a.svg")]) == 2
    assert "--plot: figures need matplotlib: pip install 'c2d[report]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--risk", "cvr:0.1"],
            "\"cvr\"; accepted: mean, cvar:ALPHA, entropic:BETA, mean-std:C, above:X. Did you mean 'cvar'?",
        ),
        (["--risk", "cvar:0"], "ALPHA is 0; accepted: a number above 0 and at most 1"),
        (["--risk", "cvar"], 'criterion "cvar" has no number'),
        (["--risk", "cvar:0.1", "--games", "1"], "--games is 1; accepted: at least 2"),
        (["--calibration", "--plot", "{tmp}/a.gif"], "the name must end in .svg or .png or .pdf"),
        (["--calibration", "--plot", "{tmp}/missing/a.svg"], "in a directory that exists"),
        (["--plot", "{tmp}/a.svg"], "--plot is given without --calibration"),
        (["--video", "{tmp}/a.gif"], "the name must end in .mp4"),
        (["--video", "{tmp}/missing/a.mp4"], "in a directory that exists"),
        (["--video", "{tmp}/a.mp4", "--video-seconds", "0"], "--video-seconds is 0; accepted: above 0"),
        (["--video-seconds", "3"], "--video-seconds is given without --video"),
    ],
)
def test_bad_input(trained, tmp_path, capsys, words, message):
    assert main(["evaluate", str(trained), *(word.format(tmp=tmp_path) for word in words)]) == 2
    errors = capsys.readouterr().err
    assert message in errors and errors.count("\n") == 1
    assert not (trained / "evaluations").exists() and not list(tmp_path.iterdir())


def test_an_agent_that_diverged_gets_a_note(run, capsys):
    weights = safetensors.torch.load_file(run / "weights.safetensors")
    next(iter(weights.values())).fill_(float("nan"))
    safetensors.torch.save_file(weights, run / "weights.safetensors")
    assert main(["evaluate", str(run), "--games", "2"]) == 0
    assert "note: the network has weights that are not finite" in capsys.readouterr().out
    assert main(["evaluate", str(run), "--games", "2", "--calibration"]) == 2
    assert "need finite predictions" in capsys.readouterr().err


def test_an_environment_that_cannot_be_shown_is_rejected_in_one_line(run, tmp_path, capsys, monkeypatch):
    from c2d.envs.toy import ToyEnv
    from c2d.errors import UserError

    def blind(self):
        raise UserError("toy/skewed cannot be shown")

    monkeypatch.setattr(ToyEnv, "render", blind)
    assert main(["evaluate", str(run), "--video", str(tmp_path / "a.mp4")]) == 2
    assert capsys.readouterr().err == "c2d: toy/skewed cannot be shown\n"
    assert not (tmp_path / "a.mp4").exists() and not (run / "evaluations").exists()


# --------------------------------------------------------------------------------------------------- several networks


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A run that has kept three networks of five."""
    config = tiny_config("toy/skewed", tmp_path_factory.mktemp("kept") / "toy", iterations=5)
    config = replace(config, checkpoint=replace(config.checkpoint, keep_weights=3))
    return train(config, progress=False).run_dir.path


def test_the_last_networks_one_by_one_and_their_mean(kept, tmp_path, capsys):
    run = shutil.copytree(kept, tmp_path / "run")
    assert main(["evaluate", str(run), "--calibration", "--nets", "3", "--games", "25"]) == 0
    printed = capsys.readouterr().out.splitlines()
    table = printed[printed.index("the last 3 networks of the run, 25 games each, with the same seeds:") + 1 :]
    assert table[0].split()[-1] == "skill"
    assert [line.split()[0] for line in table[1:6]] == ["120", "160", "200", "mean", "std"]
    nets = saved(run)["nets"]
    for name in ("score", "bias", "relative_bias", "coverage", "crps", "skill"):
        values = [row[name] for row in nets["each"]]
        assert nets["mean"][name] == pytest.approx(sum(values) / 3)
        assert nets["std"][name] == pytest.approx(statistics.stdev(values))
    alone = []
    for name in sorted((run / "weights").iterdir()):  # each of them as the only network of a run
        one = shutil.copytree(kept, tmp_path / name.stem)
        shutil.copy(name, one / "weights.safetensors")
        assert main(["evaluate", str(one), "--calibration", "--games", "25"]) == 0
        alone.append(saved(one))
    for row, single in zip(nets["each"], alone, strict=True):
        calibration = single["calibration"]
        assert row["scores"] == single["scores"] and row["score"] == single["summary"]["mean"]
        assert row["bias"] == calibration["bias"]["value"] and row["crps"] == calibration["crps"]["value"]
        assert row["coverage"] == calibration["coverage"]["0.8"]["value"]
        assert row["skill"] == calibration["skill"]["value"]
        assert row["relative_bias"] == abs(row["bias"]) / abs(calibration["realized"]["value"])
    whole = saved(run)
    assert (whole["steps"], whole["iterations"]) == (200, 5)
    assert whole["scores"] == alone[-1]["scores"] and whole["calibration"] == alone[-1]["calibration"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("--calibration --nets 7", "--nets is 7; accepted: 1 to 3, as many as the run has kept (--checkpoint.keep"),
        ("--calibration --nets 0", "--nets is 0; accepted: at least 1"),
        ("--nets 2", "--nets is given without --calibration, which it averages; accepted: both"),
        ("--calibration --nets 2 --risk cvar:0.1", "--risk is given with --nets 2; accepted: only one of them"),
        ("--calibration --nets 2 --plot a.svg", "--plot is given with --nets 2; accepted: only one of them"),
        ("--calibration --nets 2 --video a.mp4", "--video is given with --nets 2; accepted: only one of them"),
        ("--recalibrate 9", "--recalibrate is given without --calibration, which shows what it gains; accepted: both"),
        ("--calibration --recalibrate 1", "--recalibrate is 1; accepted: 0, or at least 2 games"),
    ],
)  # fmt: skip
def test_networks_that_cannot_be_averaged(kept, words, reason, capsys):
    assert main(["evaluate", str(kept), *words.split()]) == 2
    assert reason in capsys.readouterr().err


def test_laws_corrected_by_other_games(kept, tmp_path, capsys):
    """Scores and raw calibration stay; the correction is fitted to games that are not among those it is judged by."""
    run = shutil.copytree(kept, tmp_path / "run")
    assert main(["evaluate", str(run), "--calibration", "--games", "25"]) == 0
    raw = saved(run)
    assert main(["evaluate", str(run), "--calibration", "--games", "25", "--recalibrate", "40"]) == 0
    assert "laws corrected by what came of 40 other games: mean ↦ " in capsys.readouterr().out
    both = json.loads((run / "evaluations" / "evaluation-002.json").read_text())
    assert both["scores"] == raw["scores"] and both["calibration"] == raw["calibration"]
    assert both["recalibration"]["games"] == 40
    assert both["recalibrated"]["realized"] == raw["calibration"]["realized"]
    line, found, means = both["recalibration"], both["recalibrated"], raw["calibration"]
    assert found["predicted"]["value"] == pytest.approx(line["offset"] + line["slope"] * means["predicted"]["value"])
    assert abs(found["bias"]["value"]) > 1e-6  # on the games it was fitted to it would be 0
    assert main(["evaluate", str(run), "--calibration", "--nets", "3", "--games", "9", "--recalibrate", "9"]) == 0
    nets = json.loads((run / "evaluations" / "evaluation-003.json").read_text())["nets"]
    slopes = [row["recalibration"]["slope"] for row in nets["each"]]
    assert len(set(slopes)) > 1 and nets["recalibrated mean"]["bias"] != nets["mean"]["bias"]


def test_a_run_that_kept_only_the_newest(run, capsys):
    assert main(["evaluate", str(run), "--calibration", "--nets", "2"]) == 2
    assert "--nets is 2; accepted: 1, the newest (--checkpoint.keep-weights 2" in capsys.readouterr().err


def test_networks_without_a_step_to_compare(tmp_path, capsys):
    """Games that are all cut early: scores remain."""
    config = tiny_config("gym/CartPole-v1", tmp_path / "run", iterations=2)
    config = replace(config, checkpoint=replace(config.checkpoint, keep_weights=2))
    run = train(config, progress=False).run_dir.path
    assert main(["evaluate", str(run), "--calibration", "--nets", "2", "--games", "2", "--cap-steps", "3"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("–") == 4 * 5 and printed.count("calibration: none. A game was cut after 3 steps") == 1
    assert saved(run)["nets"]["mean"]["score"] == 3.0 and saved(run)["nets"]["mean"]["bias"] is None
