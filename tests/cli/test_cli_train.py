"""c2d train: settings, help, output, and the user's mistakes."""

import json
import re
import sys

import pytest

from c2d.cli.main import main
from c2d.cli.train import read
from c2d.config import default_config, to_json
from c2d.errors import UserError
from c2d.recipes.parts import MinAtar, Mlp, Nature
from c2d.training import progress
from c2d.training.session import Session

SHORT = ["--schedule.steps-per-iteration", "60", "--schedule.random-history", "40", "--schedule.replay-capacity", "500",
         "--iterations", "2", "--threads", "1", "--tensorboard", "False"]  # fmt: skip


def refused(capsys, *words):
    """The one line with which the command refuses."""
    code = main(["train", *words])
    out, err = capsys.readouterr()
    assert code == 2 and out == "" and err.startswith("c2d: ") and err.count("\n") == 1, (code, out, err)
    return err


def test_a_run_directory_may_begin_with_a_tilde(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert read(["gym/CartPole-v1", "--run-dir", "~/run"]).directory == tmp_path / "run"


def test_settings_reach_the_config():
    config = read(
        [
            "breakout",
            "--head.atoms",
            "7",
            "--seed=3",
            "--optim.clip-norm",
            "None",
            "--rules.sticky",
            "0",
            "--n-step",
            "3",
        ]
    )
    assert (config.env, config.recipe.head.atoms, config.seed, config.recipe.n_step) == ("atari/breakout", 7, 3, 3)
    assert config.recipe.optim.clip_norm is None and config.rules.sticky == 0
    assert config.recipe.schedule == default_config("breakout").recipe.schedule


@pytest.mark.parametrize(
    "words",
    [
        ["--seed", "3", "breakout"],
        ["--seed=3", "breakout"],
        ["breakout", "--seed", "3"],
        ["--seed", "3", "--noisy", "breakout"],  # a switch takes no word that is not True or False
        ["--head.train-alpha", "False", "breakout", "--seed=3"],
    ],
)
def test_environment_may_stand_anywhere(words):
    assert read(words).env == "atari/breakout" and read(words).seed == 3


def test_recipe_protocol_and_encoder_decide_the_defaults():
    assert read(["pong", "--recipe", "c2d-channel"]).recipe.encoder == Nature(norm="channel")
    assert read(["pong", "--protocol", "dopamine"]).rules.life_loss_ends_episode is False
    assert read(["pong", "--encoder", "minatar", "--encoder.channels", "4"]).recipe.encoder == MinAtar(channels=4)
    assert read(["gym/CartPole-v1", "--encoder.widths", "32", "16"]).recipe.encoder == Mlp((32, 16))


def test_config_file_then_settings(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(to_json(default_config("gym/CartPole-v1", seed=9, run_dir="old"))))
    config = read(["--config", str(path), "--iterations", "4"])
    assert (config.env, config.seed, config.iterations, config.run_dir) == ("gym/CartPole-v1", 9, 4, None)
    assert read(["gym/Acrobot-v1", f"--config={path}"]).env == "gym/Acrobot-v1"
    with pytest.raises(UserError, match="--config already has a recipe"):
        read(["--config", str(path), "--recipe", "c2d-channel"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "which environment?"),
        (["braekout"], "Did you mean 'breakout'"),
        (["minatar/brekout"], "Did you mean 'breakout'"),
        (["gym/CartPole-v99"], "unknown Gymnasium environment"),
        (["nosuchpackage.module:Env"], "nosuchpackage"),
        (["breakout", "--recipe", "rainbw"], 'unknown recipe "rainbw"'),
        (["breakout", "--protocol", "dopamin"], 'unknown protocol "dopamin"'),
        (["minatar/breakout", "--protocol", "dopamine"], "is for Atari games"),
        (["breakout", "--encoder", "resnet"], 'unknown encoder "resnet"'),
        (["gym/CartPole-v1", "--encoder", "nature"], "takes image observations"),
        (["breakout", "--encoder", "mlp"], "takes vector observations"),
        (["breakout", "--head.atom", "3"], "--head.atom"),
        (["breakout", "--head.atoms", "many"], "many"),
        (["breakout", "--head.atoms"], "--head.atoms"),
        (["breakout", "--seed"], "--seed"),
        (["breakout", "--recipe"], "--recipe needs a value"),
        (["breakout", "pong"], "pong"),
        (["breakout", "--encoder.norm", "group"], "group"),
        (["breakout", "--config", "/no/such/file.json"], "does not exist"),
        (["gym/Pendulum-v1"], "discrete"),
        (["breakout", "--rules.sticky", "2"], "from 0 to 1"),
        (["breakout", "--rules.frame-size", "20"], "too small"),
        (["gym/CartPole-v1", "--noisy", "--iterations", "0"], "--iterations is 0"),  # a switch alone is understood
        (["gym/CartPole-v1", "--noisy", "maybe"], '--noisy is "maybe"; accepted: True, False'),
        (["breakout", "--rules.sticky", "2"], "--rules.sticky is 2.0; accepted: a probability from 0 to 1"),
        (["gym/CartPole-v1", "--tensorboard", "maybe"], '--tensorboard is "maybe"; accepted: True, False'),
        (["gym/CartPole-v1", "--device", "nonsense"], "--device is \"nonsense\"; accepted: cpu, cuda, cuda:1"),
        (["gym/CartPole-v1", "--device", "cuda:99"], "--device is \"cuda:99\"; accepted: cpu, cuda, cuda:1"),
        (["gym/CartPole-v1", "--device", "meta"], "--device is \"meta\"; accepted: cpu, cuda, cuda:1"),
        (["gym/CartPole-v1", "--run-dir", "/dev/null/run"], "cannot be created"),
        (["gym/CartPole-v1", "--run-dir", "x" * 300], "File name too long"),
        (["gym/CartPole-v1", "--schedule.replay-capacity", "2000000000000"], "at least 1, at most 10^10"),
        (["gym/CartPole-v1", "--schedule.replay-capacity", "9000000000"], "its empty replay may take"),
        (["gym/CartPole-v1", "--encoder.widths", "1000000", "1000000"], "its networks may take"),
        (["toy/sure", "--recipe", "qr-dqn", "--head.atoms", "300000", "--head.hidden", "1"], "one update may take"),
    ],
)  # fmt: skip
def test_mistakes_get_one_line(words, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Session, "fill", None)  # what is accepted after all fails, and does not train for days
    assert message.lower() in refused(capsys, *words).lower()
    assert list(tmp_path.iterdir()) == []  # and no directory


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--lr", "1"], "unknown setting \"--lr\"; accepted: those in c2d train ENV --help-all. "
                        "Did you mean '--optim.learning-rate'?"),
        (["--learning-rate=1"], "Did you mean '--optim.learning-rate'?"),
        (["--learnng_rate=1"], "Did you mean '--optim.learning-rate'?"),
        (["--optim.lr", "1"], "Did you mean '--optim.learning-rate'?"),
        (["--batchsize", "1"], "Did you mean '--schedule.batch-size'?"),
        (["--checkpoint.every", "1"], "Did you mean '--checkpoint.every-steps' or '--checkpoint.every-minutes'?"),
        (["--seeds", "1"], "Did you mean '--seed'?"),
        (["--gpu"], "Did you mean '--device'?"),
        (["--zzz"], 'unknown setting "--zzz"; accepted: those in c2d train ENV --help-all'),
        (["--env", "pong"], "the environment stands without an option: c2d train ENV, such as c2d train breakout"),
        (["--recipe", "c51", "--head.alpha", "3"],
         "--head.alpha is a setting of --head conjugated, but this run has --head categorical; "
         "accepted: --head.atoms, --head.v-min, --head.v-max, --head.hidden"),
        (["--rules.sticky", "0"], "--rules.sticky is a rule of Atari and MinAtar environments, gym/CartPole-v1 is not "
                                  "one of these; accepted: --rules.cap-steps, --rules.truncation, --rules.stack, "
                                  "--rules.action-masks"),
        (["--iterations", "ten"], '--iterations is "ten"; accepted: a whole number'),
        (["--head.atoms", "3.5"], '--head.atoms is "3.5"; accepted: a whole number'),
        (["--head.alpha=x"], '--head.alpha is "x"; accepted: a number'),
        (["--optim.clip-norm", "x"], '--optim.clip-norm is "x"; accepted: a number, None'),
        (["--encoder.widths", "a", "b"], '--encoder.widths is "a b"; accepted: whole numbers, separated by blanks'),
        (["--initializer", "zeros"], '--initializer is "zeros"; accepted: glorot, fan-in, torch, orthogonal'),
        (["--head.train-alpha=maybe"], '--head.train-alpha is "maybe"; accepted: True, False'),
        (["--head.atoms"], "--head.atoms needs a value: a whole number"),
        (["--seed", "1", "2"], '"2" is one word too many; settings have the form --name value'),
    ],
)  # fmt: skip
def test_settings_that_do_not_exist_and_values_that_do_not_fit(words, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert refused(capsys, "gym/CartPole-v1", *words).endswith(f"{message}\n")


def test_constants_may_be_in_lower_case():
    config = read(["gym/CartPole-v1", "--dueling", "true", "--noisy=FALSE", "--optim.clip-norm", "none"])
    assert (config.recipe.dueling, config.recipe.noisy, config.recipe.optim.clip_norm) == (True, False, None)
    assert read(["--dueling", "false", "breakout", "--run-dir", "none"]).run_dir == "none"  # a text stays


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["evaluate", "run", "--game", "3"], "unknown option \"--game\"; accepted: those in c2d evaluate --help. "
                                             "Did you mean '--games'?"),
        (["sweep", "--recipe", "c2d"], "Did you mean '--recipes'?"),
        (["evaluate", "run", "--games", "ten"], '--games is "ten"; accepted: a whole number'),
    ],
)  # fmt: skip
def test_other_commands_answer_alike(words, message, capsys):
    assert main(words) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "value", "accepted"),
    [
        ("--iterations", "0", "at least 1"),
        ("--n-step", "0", "at least 1"),
        ("--seed", "-1", "0 or greater"),
        ("--threads", "0", "from 1 to 1024"),
        ("--threads", "100000", "from 1 to 1024"),
        ("--clip-reward", "0", "greater than 0"),
        ("--encoder.widths", "0", "at least 1"),
        ("--head.atoms", "0", "at least 1"),
        ("--head.hidden", "0", "at least 1"),
        ("--head.embedding", "-1", "0 or greater"),
        ("--head.alpha", "-1", "greater than 0"),
        ("--head.alpha", "nan", "greater than 0"),
        ("--head.c", "0", "greater than 0"),
        ("--phi.beta", "inf", "greater than 0"),
        ("--phi.eps", "-0.1", "0 or greater"),
        ("--optim.learning-rate", "0", "greater than 0"),
        ("--optim.learning-rate-final", "-1", "0 or greater"),
        ("--optim.decay-updates", "-1", "0 or greater"),
        ("--optim.eps", "-1", "greater than 0: weights without"),
        ("--optim.eps", "0", "greater than 0"),
        ("--optim.beta1", "1", "from 0 to below 1"),
        ("--optim.beta2", "-0.1", "from 0 to below 1"),
        ("--optim.clip-norm", "-1", "greater than 0"),
        ("--schedule.gamma", "1.01", "from 0 to 1"),
        ("--schedule.batch-size", "0", "at least 1"),
        ("--schedule.update-period", "0", "at least 1"),
        ("--schedule.target-period", "0", "at least 1"),
        ("--schedule.steps-per-iteration", "0", "at least 1"),
        ("--schedule.replay-capacity", "0", "at least 1"),
        ("--schedule.random-history", "1", "from n-step + 1 = 2 to the replay capacity"),
        ("--schedule.random-history", "10000000", "from n-step + 1 = 2 to the replay capacity"),
        ("--schedule.epsilon-initial", "1.1", "from 0 to 1"),
        ("--schedule.epsilon-min", "-0.1", "from 0 to 1"),
        ("--schedule.epsilon-eval", "nan", "from 0 to 1"),
        ("--schedule.epsilon-decay-steps", "-1", "0 or greater"),
        ("--rules.stack", "0", "at least 1"),
        ("--rules.cap-steps", "0", "at least 1"),
    ],
)
def test_values_out_of_range_are_named(option, value, accepted, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    line = refused(capsys, "gym/CartPole-v1", f"{option}={value}")
    assert accepted in line and f"{option} is " in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "text", ["{", "[]", "[" * 100_000, '{"class": "Config", "env": 3}', '{"class": "Config", "env": "pong", "sed": 1}']
)
def test_broken_config_file(text, capsys, tmp_path):
    (tmp_path / "c.json").write_text(text)
    assert "c.json" in refused(capsys, "--config", str(tmp_path / "c.json"))


@pytest.mark.parametrize(
    ("env", "package", "extra"),
    [("breakout", "ale_py", "c2d[atari]"), ("breakout", "cv2", "c2d[atari]"),
     ("minatar/breakout", "minatar", "c2d[minatar]"),
     ("gym/CartPole-v1", "torch.utils.tensorboard", "c2d[tensorboard]")],
)  # fmt: skip
def test_missing_package_names_the_extra(env, package, extra, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, package, None)
    for name in [name for name in sys.modules if name.startswith(("c2d.envs._minatar", package + "."))]:
        monkeypatch.delitem(sys.modules, name)
    assert extra in refused(capsys, env, "--tensorboard", "True")


def test_output_is_plain_lines_when_not_a_terminal(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "_LINE", 0.0)
    assert main(["train", "gym/CartPole-v1", "--run-dir", str(tmp_path / "run"), *SHORT]) == 0
    out, err = capsys.readouterr()
    assert err == "" and "\x1b" not in out and "\r" not in out
    lines = out.splitlines()
    assert lines[0].startswith("c2d train gym/CartPole-v1 --recipe c2d --seed 1 --iterations 2 --schedule.")
    assert " | protocol default [" in lines[0]
    assert lines[1] == f"results in {tmp_path / 'run'}"
    iterations = [line for line in lines if line.startswith("iteration 1/2 | 60 steps | 60 frames | ")]
    assert len(iterations) == 1 and re.search(
        r"loss [\d.]+ \| atoms -?[\d.]+ … [\d.]+ \| α [\d.]+ \| ε \d\.\d+ \| \d+ steps/s$", iterations[0]
    )
    between = [line for line in lines if line.startswith("iteration 2/2 | steps ")]
    for word in ("frames", "steps/s", "ETA", "mean score", "ε", "loss", "atoms", "α"):
        assert f"| {word} " in between[-1]
    assert lines[-2].startswith("finished after 120 steps (2 whole iterations)")
    assert lines[-1] == f"next: c2d evaluate {tmp_path / 'run'}"


def test_quiet_between_iterations_by_default(capsys, tmp_path):
    main(["train", "gym/CartPole-v1", "--run-dir", str(tmp_path / "run"), *SHORT])
    assert len(capsys.readouterr().out.splitlines()) == 7


def test_existing_run_with_other_settings_is_refused_and_left_alone(capsys, tmp_path):
    words = ["gym/CartPole-v1", "--run-dir", str(tmp_path / "run"), *SHORT]
    assert main(["train", *words]) == 0
    capsys.readouterr()
    before = {file: file.stat().st_mtime_ns for file in (tmp_path / "run").rglob("*") if file.name != "lock"}
    line = refused(capsys, *words, "--seed", "2", "--optim.learning-rate", "0.5")
    assert "seed: 1 → 2" in line and "optim.learning-rate: 0.002 → 0.5" in line and "--fork" in line
    assert before == {file: file.stat().st_mtime_ns for file in (tmp_path / "run").rglob("*") if file.name != "lock"}


def test_the_same_command_again_goes_on(capsys, tmp_path):
    words = ["train", "gym/CartPole-v1", "--run-dir", str(tmp_path / "run"), *SHORT]
    assert main(words) == 0
    capsys.readouterr()
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "resumed from the checkpoint at step" in out and ": exact" in out
    assert "nothing is left to do: raise --iterations" in out


def test_tensorboard_scalars(tmp_path):
    assert main(["train", "gym/CartPole-v1", "--run-dir", str(tmp_path / "run"), *SHORT[:-2]]) == 0
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    tags = events.Tags()["scalars"]
    assert "game/score" in tags
    for name in (
        "mean_score",
        "mean_loss",
        "atom_min",
        "atom_max",
        "gradient_norm_max",
        "alpha",
        "epsilon",
        "steps_per_second",
    ):
        assert f"iteration/{name}" in tags
    assert [event.step for event in events.Scalars("iteration/mean_loss")] == [60, 120]
