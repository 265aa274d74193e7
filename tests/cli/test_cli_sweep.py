"""c2d sweep, c2d sweep status, c2d sweep retry and c2d ablate, as far as they work without Ray."""

import json

import pytest

from c2d.cli.main import main
from c2d.runs.lock import locked
from c2d.sweep.directory import SweepDir
from c2d.sweep.plan import multiply
from c2d.user_code import TRUSTED
from tests.sweep.tiny_plans import TINY, straight, tiny_plan


def rejected(capsys, *words, lines=1):
    assert main(list(words)) == 2
    out, err = capsys.readouterr()
    assert err.startswith("c2d: ") and err.count("\n") == lines and "Traceback" not in out + err
    return err


def shown(capsys, *words):
    assert main([*words, "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "nothing was run" in out
    return out


def test_dry_run_shows_the_plan_with_time_memory_and_disk(capsys, tmp_path):
    out = shown(capsys, "sweep", "--recipes", "c2d,c51", "--envs", "minatar/*", "--seeds", "3", "--iterations", "2",
                "--out", str(tmp_path / "x"))  # fmt: skip
    assert out.startswith("c2d sweep | plan sweep: 30 runs in ")
    for line in ("c2d      5 environments  1, 2, 3  20,000", "time    about ", "memory  up to ", "disk    up to "):
        assert line in out
    assert "a first comparison (one seed of everything) after" in out
    assert not (tmp_path / "x").exists()


def test_builtin_plans_by_name_and_modified(capsys, tmp_path):
    out = shown(capsys, "sweep", "minatar", "--seeds", "1", "--recipes", "dqn", "--out", str(tmp_path / "x"))
    assert "plan minatar: 2 runs" in out and "100,000" in out
    out = shown(capsys, "ablate", "c51", "--env", "toy/sure", "--seeds", "2", "--steps", "6000")
    assert "plan ablate-c51: 2 runs in runs/ablate-c51" in out and "10,000" in out
    out = shown(capsys, "sweep", "paper", "--seeds", "1", "--keep-replay", "False", "--rate", "120", "--budget", "1d")
    assert "275 runs" in out and "55 environments" in out and "at 120 steps/s per run, as stated" in out
    assert "budget  1 d 0 h: by the forecast, not one seed of everything" in out


def test_settings_on_the_command_line(capsys):
    out = shown(capsys, "sweep", "--recipes", "c51", "--envs", "toy/sure", "--seeds", "4,7", "--set",
                "optim.learning-rate=1e-3,1e-4", "schedule.batch-size=8")  # fmt: skip
    assert "4 runs" in out and "c51-optim.learning-rate-0.0001" in out and "4, 7" in out
    again = shown(capsys, "sweep", "--set", "optim.learning-rate=1e-3,1e-4", "--recipes", "c51", "--envs", "toy/sure",
                  "--set=schedule.batch-size=8", "--set", "schedule.steps-per-iteration=300", "--seeds", "4,7",
                  "--iterations", "2")  # fmt: skip
    assert "4 runs" in again and "c51-optim.learning-rate-0.0001" in again and " 600 " in again


def test_plan_file(capsys, tmp_path):
    (tmp_path / "mine.yaml").write_text("recipes: [c51]\nenvs: [toy/sure]\nseeds: 2\niterations: 1\n")
    assert "plan mine: 2 runs in runs/mine" in shown(capsys, "sweep", str(tmp_path / "mine.yaml"))
    (tmp_path / "own.toml").write_text('recipes = ["c51"]\nenvs = ["tests.sweep.faulty_envs:Countdown"]\n')
    assert "add --envs tests.sweep.faulty_envs:Countdown" in rejected(capsys, "sweep", str(tmp_path / "own.toml"))
    words = ["sweep", str(tmp_path / "own.toml"), "--envs", "tests.sweep.faulty_envs:Countdown"]
    assert "3 runs" in shown(capsys, *words)
    (tmp_path / "phi.toml").write_text('recipes = ["c51"]\nenvs = ["toy/sure"]\nsettings = { "phi.kind" = "x:phi" }\n')
    assert "add --set phi.kind=x:phi" in rejected(capsys, "sweep", str(tmp_path / "phi.toml"))
    TRUSTED.discard("x:phi")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["sweep"], "no plan given"),
        (["sweep", "minature"], 'unknown plan "minature"; accepted: paper, btr, minatar'),
        (["sweep", "minatar", "--seeds", "0"], "--seeds is 0"),
        (["sweep", "minatar", "--seeds", "some"], "--seeds is some"),
        (["sweep", "minatar", "--threads", "0"], "--threads is 0"),
        (["sweep", "minatar", "--budget", "soon"], '--budget is "soon"'),
        (["sweep", "minatar", "--rate", "-1"], "--rate is -1"),
        (["sweep", "smoke", "--gpus-per-run", "0.25"], "PyTorch finds no GPU on this machine"),
        (["sweep", "minatar", "--set", "head.atoms"], "accepted: setting=value"),
        (["sweep", "minatar", "--iterations", "2", "--steps", "5"], "either iterations or steps"),
        (["sweep", "minatar", "--address", "127.0.0.1:9"], "nothing answers at 127.0.0.1:9"),
        (["sweep", "smoke", "--env", "toy/sure", "--protocol", "dopamine"], "is for Atari games"),
        (["sweep", "none.toml"], "plan none.toml cannot be read: No such file"),
        (["sweep", "status"], "no sweep given"),
        (["sweep", "status", "/nowhere"], "/nowhere is not a sweep"),
        (["sweep", "retry"], "no sweep given"),
        (["ablate", "c3d"], "unknown recipe"),
        (["ablate", "c2d", "--env", "minatar/brekout"], "Did you mean 'breakout'"),
    ],
)  # fmt: skip
def test_errors(words, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert message in rejected(capsys, *words)
    assert list(tmp_path.iterdir()) == []


def test_all_errors_of_a_plan_together(capsys):
    err = rejected(capsys, "sweep", "--recipes", "c3d,c51", "--envs", "minatar/brekout,breakot,toy/sure", lines=4)
    assert "3 errors" in err and "c3d" in err and "brekout" in err and "breakot" in err


def test_a_remote_address_gives_a_warning(capsys, monkeypatch):
    monkeypatch.setattr("socket.create_connection", _refuse)
    assert main(["sweep", "smoke", "--address", "192.0.2.77:6379", "--dry-run"]) == 2
    out = capsys.readouterr().out
    assert "warning: anyone who can reach 192.0.2.77:6379 can run code on that cluster" in out


def _refuse(*_, **__):
    raise ConnectionRefusedError(111, "Connection refused")


# ------------------------------------------------------------------------------------------------ the directory


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """The files of a sweep of three runs: one finished, one failed, one that was running."""
    where = tmp_path_factory.mktemp("swept") / "sweep"
    runs = multiply(tiny_plan(seeds=(1, 2, 3)), where).runs
    sweep = SweepDir(where)
    sweep.create()
    sweep.save_plan("tiny", runs)
    straight(runs[0].config, runs[0].config.directory)
    for run in runs:
        sweep.append_event("planned", run.name)
        sweep.append_event("started", run.name, where="127.0.0.1", attempt=1)
    sweep.append_event("lost", runs[0].name, error="its node died")
    sweep.append_event("started", runs[0].name, where="127.0.0.1", attempt=2)
    sweep.append_event("finished", runs[0].name)
    sweep.append_event("failed", runs[1].name, error="MemoryError")
    with open(sweep.events, "a") as file:
        file.write('{"half a line')
    return where


def test_status_with_and_without_an_active_process(swept, capsys):
    assert main(["sweep", "status", str(swept)]) == 0
    out = capsys.readouterr().out
    assert "3 runs: 1 done, 0 running, 0 waiting, 1 stopped, 1 failed; no active process" in out
    assert "MemoryError" in out and f"c2d sweep retry {swept} --failed" in out
    with locked(SweepDir(swept).lock):
        main(["sweep", "status", str(swept)])
    assert "1 running, 0 waiting, 0 stopped, 1 failed; active: process" in capsys.readouterr().out
    cells = out.splitlines()[2].split()
    assert cells[:3] == ["toy-sure-c51-s1", "done", "2/2"] and cells[-1] == "1"  # lost once


def test_two_sweeps_on_one_directory(swept, capsys):
    settings = [f"{name}={value}" for name, value in TINY.items()]
    words = ["sweep", "--recipes", "c51", "--envs", "toy/sure", "--iterations", "2", "--out", str(swept), "--set"]
    with locked(SweepDir(swept).lock):
        assert "is in use by another sweep, process" in rejected(capsys, *words, *settings)


def test_a_directory_with_other_runs_is_not_touched(swept, capsys):
    words = ["sweep", "--recipes", "c51", "--envs", "toy/sure", "--out", str(swept), "--set", "head.atoms=7"]
    before = (swept / "sweep.json").read_bytes()
    assert "is a run with other settings (head.atoms: " in rejected(capsys, *words)
    assert (swept / "sweep.json").read_bytes() == before


def test_retry_lists_failed_or_all_unfinished_runs(swept, capsys):
    assert "plan retry: 1 run in" in shown(capsys, "sweep", "retry", str(swept), "--failed")
    assert "plan retry: 3 runs in" in shown(capsys, "sweep", "retry", str(swept))


def test_damaged_sweep_file(swept, tmp_path, capsys):
    for text in ("{", "[]", json.dumps({"format": 9, "runs": {}}), json.dumps({"format": 1, "runs": {"a": {}}})):
        (tmp_path / "sweep.json").write_text(text)
        assert "sweep.json cannot be read" in rejected(capsys, "sweep", "status", str(tmp_path))


def test_status_prints_no_control_characters(capsys, tmp_path):
    """A directory may have come from anywhere."""
    run = multiply(tiny_plan(seeds=(1,)), tmp_path).runs[0]
    sweep = SweepDir(tmp_path)
    sweep.save_plan("tiny", [run])
    error = "\x1b]0;owned\x07 \x9b2J\r\n\u202egnp"
    sweep.events.write_text(json.dumps({"event": "failed", "run": run.name, "error": error}) + "\n")
    run.config.directory.mkdir()
    records = [
        {"kind": "run"},
        {"kind": "iteration", "iteration": 0, "steps": 5, "mean_score": "\x1b[2J", "measured": ["\x1b"]},
        {"kind": "iteration", "iteration": 1, "steps": 10, "mean_score": 1.0, "measured": ["\x1b"]},
    ]
    (run.config.directory / "records.jsonl").write_text("".join(json.dumps(line) + "\n" for line in records))
    assert main(["sweep", "status", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert all(letter == "\n" or letter.isprintable() for letter in out)
    assert r"\x1b]0;owned\x07 \x9b2J\r\n\u202egnp" in out and "1/2" in out
