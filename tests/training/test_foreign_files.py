"""Nothing is deleted that a run did not write, nothing outside is touched, and a fork is whole or not there."""

import errno
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from c2d.cli.main import main
from c2d.errors import NotSaved
from c2d.files import write_atomically
from c2d.runs.checkpoints import Checkpoints
from c2d.runs.lock import locked
from c2d.training import resume as resume_module
from c2d.training import saving as saving_module
from tests.training.crashed_runs import crashed, runs
from tests.training.short_runs import short_config
from tests.training.test_resume import go, results, saving

__all__ = ["crashed", "runs"]  # fixtures
ROOT = Path(__file__).parents[2]
NO_SPACE = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_every_command_meets_a_part_of_every_damage():
    """The harness in short; `make study-hostile` is the long form."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "studies" / "hostile.py"), "--compact"],
        capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3_000:] + done.stderr[-1_000:]
    assert re.search(r"\*\*34 of 34\*\* passed", done.stdout)


# ---------------------------------------------------------------------------------------------------- deleting


def test_files_of_the_user_inside_a_run_are_never_deleted(crashed):
    run, config, wanted, _ = crashed
    own = ["checkpoints/mine/thesis.txt", "checkpoints/000000000007/thesis.txt", "checkpoints/damaged-000000000007/a",
           "checkpoints/.000000000007.1.tmp/thesis.txt", "replay/half.tmp", "replay/.half.1.tmp", "replay/notes",
           "replay/slots-000000000000-000000000001.safetensors", ".notes.1.tmp", "notes.tmp"]  # fmt: skip
    for name in own:
        (run / name).parent.mkdir(exist_ok=True)
        (run / name).write_text("mine")
    kept = list(Checkpoints(run).newest_first())[-1] / "thesis.txt"
    kept.write_text("mine")
    assert go(config).digests == wanted
    assert [name for name in own if not (run / name).is_file() or (run / name).read_text() != "mine"] == []
    assert kept.read_text() == "mine" and os.listdir(kept.parent) == ["thesis.txt"]  # our files in it are gone
    assert len(list(Checkpoints(run).newest_first())) == config.checkpoint.keep


def test_a_file_of_the_user_with_the_name_of_a_segment_stays_and_segments_go(crashed):
    run, config, wanted, _ = crashed
    orphan = run / "replay" / "slots-000000009000-000000009001.safetensors"
    orphan.write_bytes(next((run / "replay").iterdir()).read_bytes())  # as a crash before its checkpoint leaves it
    mine = run / "replay" / "slots-000000000000-000000000001.safetensors"
    mine.write_text("mine")
    assert go(config).digests == wanted
    assert mine.read_text() == "mine" and not orphan.exists()


def test_what_killed_processes_left_half_written_is_removed(crashed):
    run, config, wanted, _ = crashed
    half = run / "checkpoints" / ".000000000333.99999999.tmp"
    half.mkdir()
    (half / "tensors.safetensors").write_bytes(b"torn")
    names = [".records.jsonl.99999999.tmp", ".weights.safetensors.99999999.tmp", ".config.json.99999999.tmp",
             "replay/.slots-000000000000-000000000050.safetensors.99999999.tmp"]  # fmt: skip
    for name in names:
        (run / name).write_bytes(b"torn")
    go(saving(config, keep=0), stop=200)  # at the beginning, not only when the next one is saved
    assert [path.name for path in run.rglob("*") if path.name.endswith(".tmp")] == []
    assert go(config).digests == wanted


def test_a_run_killed_while_it_was_described_leaves_a_directory_that_can_be_used(tmp_path, capsys):
    (tmp_path / "run").mkdir()
    for name in ("lock", "log.txt", ".config.json.99999999.tmp"):
        (tmp_path / "run" / name).write_text("x")
    assert go(saving(short_config("toy/sure", tmp_path / "run"))).result.state == "finished"
    assert not (tmp_path / "run" / ".config.json.99999999.tmp").exists()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / ".notes.99999999.tmp").write_text("mine")
    assert main(["train", "toy/sure", "--run-dir", str(tmp_path / "other")]) == 2
    assert "is not overwritten" in capsys.readouterr().err


def test_a_damaged_checkpoint_goes_if_its_manifest_is_whole_and_stays_otherwise(crashed):
    run, config, wanted, _ = crashed
    newest = next(Checkpoints(run).newest_first())
    (newest / "manifest.json").write_bytes(b"{}")
    assert go(config, stop=150).digests is not None
    aside = newest.with_name(f"damaged-{newest.name}")
    assert aside.is_dir() and len(os.listdir(aside)) == 6  # nobody knows any more what it is
    later = next(Checkpoints(run).newest_first())
    (later / "state.json").write_bytes(b"{}")
    assert go(config).digests == wanted
    assert not later.with_name(f"damaged-{later.name}").exists() and aside.is_dir()


@pytest.mark.parametrize("name", ["checkpoints", "replay", "tensorboard", "evaluations", "lock", "events.jsonl",
                                  "log.txt", "records.jsonl", "weights.safetensors"])  # fmt: skip
def test_a_link_inside_a_run_stops_every_command_that_writes(name, crashed, tmp_path, capsys):
    run, _, _, _ = crashed
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "thesis.txt").write_text("mine")
    if (run / name).is_dir():
        (run / name).rename(tmp_path / "was")
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(outside if "." not in name and name != "lock" else outside / "thesis.txt")
    before = sorted(path for path in run.rglob("*"))
    assert main(["resume", str(run)]) == 2
    error = capsys.readouterr().err
    assert f"{run / name} is a symbolic link" in error and error.count("\n") == 1
    assert os.listdir(outside) == ["thesis.txt"] and (outside / "thesis.txt").read_text() == "mine"
    assert sorted(path for path in run.rglob("*")) == before


def test_a_link_above_a_run_is_fine(crashed, tmp_path):
    run, config, wanted, _ = crashed
    (tmp_path / "other-disk").mkdir()
    run.rename(tmp_path / "other-disk" / "run")
    run.symlink_to(tmp_path / "other-disk" / "run")
    assert go(config).digests == wanted


# ------------------------------------------------------------------------------------------ a full disk at the end


def refusing(monkeypatch, until=10**9):
    """The disk takes no weights and no checkpoints any more, or not before so many attempts."""
    attempts = []

    def refuse(self, data):
        attempts.append(1)
        if len(attempts) < until:
            raise NO_SPACE
        write_atomically(self.weights, data)

    monkeypatch.setattr("c2d.runs.layout.RunDir.write_weights", refuse)
    monkeypatch.setattr(saving_module, "_PAUSE", 0.01)


def test_what_could_not_be_saved_at_the_end_is_told_with_exit_code_1(tmp_path, monkeypatch, capsys):
    refusing(monkeypatch)
    monkeypatch.setattr(saving_module, "_PATIENCE", 0.1)
    config = saving(short_config("toy/sure", tmp_path / "run"))
    monkeypatch.setattr("c2d.cli.train.read", lambda arguments: config)
    assert main(["train", "toy/sure"]) == 1
    out, err = capsys.readouterr()
    assert "NOT SAVED after 240 steps" in out and "finished" not in out and "next:" not in out
    assert "the weights (No space left on device): not saved in" in out and "waiting up to 0 s for room" in out
    assert err.count("\n") == 1
    assert "training is finished at step 240, but could not be saved: the weights (No space left on device)" in err
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["state"] == "failed" and "the weights" in summary["error"]
    monkeypatch.undo()
    assert go(config).result.state == "finished"
    assert (tmp_path / "run" / "weights.safetensors").is_file()
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["state"] == "finished"


def test_the_end_waits_for_room(tmp_path, monkeypatch):
    refusing(monkeypatch, until=6)
    trained = go(saving(short_config("toy/sure", tmp_path / "run")))
    assert trained.result.state == "finished" and (tmp_path / "run" / "weights.safetensors").is_file()
    assert any("waiting up to 10 min for room (Ctrl-C ends the wait)" in text for text in trained.notices)


def test_a_request_to_stop_ends_the_wait(tmp_path, monkeypatch):
    refusing(monkeypatch)
    config = saving(short_config("toy/sure", tmp_path / "run"))
    with pytest.raises(NotSaved, match="training is interrupted at step 100"):
        go(config, stop=100)
    assert [path.name for path in Checkpoints(tmp_path / "run").newest_first()] == ["000000000160"]


def test_a_full_disk_at_the_very_beginning_leaves_nothing_behind(tmp_path, monkeypatch, capsys):
    def full(*_):
        raise NO_SPACE

    monkeypatch.setattr("c2d.runs.lock.os.write", full)
    assert main(["train", "toy/sure", "--run-dir", str(tmp_path / "runs" / "run")]) == 2
    assert capsys.readouterr().err.endswith("run cannot be written: No space left on device\n")
    assert list(tmp_path.iterdir()) == []


# -------------------------------------------------------------------------------------------------------- forks


def test_a_fork_killed_early_leaves_nothing_in_the_way(crashed, monkeypatch):
    """Each file of the fork in turn is the last one written."""
    run, _, _, where = crashed
    new = run.with_name("new")
    write, count = write_atomically, [0]

    class Killed(BaseException):
        pass

    def deadly(path, data):
        count[0] -= 1
        if count[0] == 0:
            raise Killed
        write(path, data)

    monkeypatch.setattr(resume_module, "write_atomically", deadly)
    monkeypatch.setattr(resume_module, "_remove_unfinished_forks", lambda target: None)  # a kill asks nobody
    for last in range(1, 8):
        count[0] = last
        with pytest.raises(Killed):
            main(["resume", str(run), "--fork", str(new)])
        assert not new.exists()
        half = run.with_name(f".new.{os.getpid()}.fork")
        half.rename(run.with_name(f".new.{1_000_000 + last}.fork"))  # of another process
    (run.with_name(".new.1000001.fork") / "thesis.txt").write_text("mine")
    monkeypatch.undo()
    with locked(run.with_name(".new.1000007.fork") / "lock"):  # one that is at work
        assert main(["resume", str(run), "--fork", str(new)]) == 0
    left = sorted(path.name for path in run.parent.iterdir() if path.name.endswith(".fork"))
    assert left == [".new.1000001.fork", ".new.1000007.fork"]
    assert os.listdir(run.with_name(".new.1000001.fork")) == ["thesis.txt"]
    assert results(new) == results(where / "straight")
    assert json.loads((new / "summary.json").read_text())["state"] == "finished"


def test_a_fork_into_a_name_that_exists_changes_nothing(crashed, capsys):
    run, _, _, _ = crashed
    run.with_name("new").symlink_to("nowhere")
    assert main(["resume", str(run), "--fork", str(run.with_name("new"))]) == 2
    assert "exists; accepted: a new directory" in capsys.readouterr().err
