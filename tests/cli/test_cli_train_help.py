"""c2d train --help: every setting, and what decides which there are."""

import re

import pytest

from c2d.cli.main import COMMANDS, main
from c2d.cli.train import read

# Option and default for each row of the tables in the paper's appendix.
PAPER = {
    "--head.atoms": "32", "--optim.learning-rate": "5e-05", "--optim.eps": "0.0003125", "--optim.clip-norm": "10.0",
    "--iterations": "200", "--schedule.steps-per-iteration": "250000", "--schedule.replay-capacity": "1000000",
    "--schedule.random-history": "20000", "--schedule.epsilon-initial": "1.0", "--schedule.epsilon-min": "0.01",
    "--schedule.epsilon-decay-steps": "250000", "--schedule.target-period": "8000", "--schedule.update-period": "4",
    "--schedule.batch-size": "32", "--schedule.gamma": "0.99", "--phi.kind": "scaled_h", "--phi.eps": "0.001",
    "--phi.beta": "1.99", "--head.alpha": "50.0", "--head.train-alpha": "True", "--head.c": "5.0",
    "--head.hidden": "512", "--head.embedding": "512", "--rules.frame-size": "84", "--rules.cap-steps": "27000",
    "--rules.action-repeat": "4", "--rules.stack": "4", "--rules.life-loss-ends-episode": "True",
    "--rules.sticky": "0.25", "--encoder.norm": "column",
}  # fmt: skip


def helped(capsys, monkeypatch, *words):
    """Option -> the form of its value and its help text."""
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as exit:
        main(["train", *words, "--help-all"])
    assert exit.value.code == 0
    lines = []
    for line in capsys.readouterr().out.splitlines():
        match = re.match(r"^  (--[a-z0-9.-]+) (.*)$", line)
        if match:
            lines.append([match[1], match[2]])
        elif lines and line.startswith("     "):
            lines[-1][1] += line
    return {option: " ".join(text.split()) for option, text in lines}


def test_help_lists_every_hyperparameter_of_the_paper(capsys, monkeypatch):
    options = helped(capsys, monkeypatch)
    for option, default in PAPER.items():
        assert options[option].endswith(f"(default: {default})"), (option, options[option])


def test_help_explains_what_decides_the_settings(capsys):
    with pytest.raises(SystemExit, match="0"):
        read(["gym/CartPole-v1", "--head", "quantile", "--loss", "quantile-huber", "--help-all"])
    text = " ".join(capsys.readouterr().out.split())
    wanted = ["ENV: an Atari game", "--config: Start from", "--encoder: network from the observation"]
    wanted += ["mlp, impala (default: mlp)", "fraction, conjugated (default: quantile)", "rmsprop (default: adam)"]
    for words in wanted:
        assert words in text, words


@pytest.mark.parametrize("env", ["breakout", "minatar/breakout", "gym/CartPole-v1"])
def test_every_option_is_explained(env, capsys, monkeypatch):
    options = helped(capsys, monkeypatch, env)
    assert len(options) > 38
    for option, text in options.items():
        words = text.partition(" ")[2].partition("(default")[0]
        assert len(words) > 12, (option, text)


def test_help_is_short_and_says_where_the_rest_is(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit, match="0"):
        main(["train", "minatar/breakout", "--head", "quantile", "--loss", "quantile-huber", "--help"])
    text = capsys.readouterr().out
    assert len(text.splitlines()) < 62
    assert re.search(r"^  --iterations +Iterations to train \(default: 100\)$", text, re.M)
    assert re.search(r"--head +scalar, .*\(default: quantile\) --loss", " ".join(text.split()))
    number = int(re.search(r"c2d train ENV --help-all explains all (\d+) settings", text)[1])
    with pytest.raises(SystemExit, match="0"):
        main(["train", "minatar/breakout", "--head", "quantile", "--loss", "quantile-huber", "--help-all"])
    found = set(re.findall(r"^  (--[a-z0-9.-]+) ", capsys.readouterr().out, re.M))
    assert number == len(found)


@pytest.mark.parametrize("words", [["breakout"], ["gym/CartPole-v1"]])
def test_a_default_is_told_once_and_in_words(words, capsys, monkeypatch):
    options = helped(capsys, monkeypatch, *words)
    for option, text in options.items():
        assert text.lower().count("default:") == ("If given" not in text), (option, text)
        assert "default: None" not in text or text.count("None") > 2, (option, text)  # it says what None means
    assert options["--threads"].startswith("N|None CPU threads for the networks; a resumed run has")
    assert "(default: all cores, or 1 for a network of fewer than" in options["--threads"]
    assert options["--recipe"].startswith("RECIPE ") and options["--compile"].startswith("off|default|reduce-overhead ")


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in ("train", "resume")])
def test_help_of_a_command_has_no_word_of_python(name, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = []
    for words in [[name]] if name != "theory" else [[name, part] for part in ("example", "check", "search", "phi")]:
        with pytest.raises(SystemExit, match="0"):
            main([*words, "--help"])
        lines += capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"usage: c2d {name}") and max(map(len, lines)) <= 80
    for strange in ("STR", "INT", "FLOAT", "None", "False}", "(default: )", "''", "│"):
        assert not [line for line in lines if strange in line]


def test_help_of_a_command_says_what_is_given_and_what_is_taken_otherwise(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit, match="0"):
        main(["sweep", "-h"])
    text = " ".join(capsys.readouterr().out.split())
    wanted = ["usage: c2d sweep [PLAN] [options]", "--dry-run Show the plan", "(default: as many as fit into cores,"]
    wanted += [
        "--envs, --env ENVS Environments",
        "--keep-replay True|False",
        "--set SET ... Settings",
        "--trust TRUST Your",
    ]
    for words in wanted:
        assert words in text, words
    assert main(["sweep", "status", "--help"]) == 0
    assert capsys.readouterr().out.startswith("usage: c2d sweep status DIR")
