"""Damage, full disks, two processes at once: what is lost (nothing saved) and what the user sees."""

import errno
import os
import shutil
import subprocess
import sys
import time
from collections import namedtuple
from dataclasses import replace

import pytest

from c2d.cli.main import main
from c2d.config import read_config
from c2d.errors import UserError
from c2d.files import write_flushed
from c2d.runs import checkpoints as checkpoint_module
from c2d.runs.checkpoints import Checkpoints
from c2d.runs.lock import locked
from c2d.runs.records import LineFile
from c2d.training import saving as saving_module
from tests.training.crashed_runs import GAME, crashed, runs
from tests.training.short_runs import short_config
from tests.training.test_resume import Witness, go, results, saving

__all__ = ["crashed", "runs"]  # fixtures


def harm(path, how):
    data = bytearray(path.read_bytes())
    if how == "flip":
        if not data:
            data = bytearray(b"process 1 on nowhere")  # a lock that nobody holds is empty
        data[len(data) // 2] ^= 4
        path.write_bytes(data)
    elif how == "cut":
        path.write_bytes(data[: len(data) // 2])
    elif how == "empty":
        path.write_bytes(b"")
    else:
        path.unlink()


@pytest.mark.parametrize("how", ["flip", "cut", "empty", "remove"])
@pytest.mark.parametrize(
    "file", ["manifest.json", "state.json", "tensors.safetensors", "records.jsonl", "episodes.csv"]
)
def test_a_damaged_checkpoint_is_named_and_the_one_before_used(file, how, crashed):
    run, config, wanted, where = crashed
    newest = next(Checkpoints(run).newest_first())
    harm(newest / file, how)
    resumed = go(config)
    warning = next(text for text in resumed.notices if text.startswith("warning: "))
    assert str(newest / file) in warning and "trying the one before it" in warning
    assert any("resumed from the checkpoint at step 120" in text for text in resumed.notices)
    assert resumed.digests == wanted and results(run) == results(where / "straight")


def harm_newest_replay(run, how):
    checkpoints = Checkpoints(run)
    newest, before = checkpoints.newest_first()
    own = {s.name for s in checkpoints.read(newest).segments} - {s.name for s in checkpoints.read(before).segments}
    harm(run / "replay" / own.pop(), how)


@pytest.mark.parametrize("how", ["flip", "cut", "remove"])
def test_a_damaged_replay_is_named(how, crashed):
    run, config, wanted, where = crashed
    harm_newest_replay(run, how)
    resumed = go(config)
    assert any("warning" in text and "slots-" in text for text in resumed.notices)
    assert resumed.digests == wanted and results(run) == results(where / "straight")


def test_a_damaged_replay_of_compressed_pictures_is_named(tmp_path):
    wanted = go(saving(short_config("breakout", tmp_path / "straight"))).digests  # not compressed, and no different
    config = replace(saving(short_config("breakout", tmp_path / "run"), every_steps=60), compress_replay=True)
    go(config, crash=190)
    harm_newest_replay(tmp_path / "run", "flip")
    resumed = go(config)
    assert any("warning" in text and "slots-" in text for text in resumed.notices)
    assert resumed.digests == wanted


def test_when_all_is_damaged_the_run_begins_again(crashed):
    run, config, wanted, where = crashed
    for path in Checkpoints(run).newest_first():
        harm(path / "state.json", "cut")
    resumed = go(config)
    assert sum("cannot be used" in text for text in resumed.notices) == 2
    assert f"it starts from scratch; what it had recorded is kept in {run / 'before-2'}" in resumed.notices[-1]
    assert (run / "before-2" / "records.jsonl").read_text().count("iteration") > 1  # nothing is overwritten
    assert resumed.digests == wanted and results(run) == results(where / "straight")


@pytest.mark.parametrize("file", ["config.json", "passport.json", "env.json", "records.jsonl", "episodes.csv", "lock"])
@pytest.mark.parametrize("how", ["flip", "cut", "remove"])
def test_the_runs_own_files_are_mended_from_the_checkpoint(file, how, crashed):
    run, config, wanted, where = crashed
    harm(run / file, how)
    resumed = go(config)
    assert resumed.digests == wanted and results(run) == results(where / "straight")
    assert read_config(run / "config.json") == config


def test_command_mends_a_damaged_config(crashed, capsys):
    run, _, _, where = crashed
    harm(run / "config.json", "cut")
    assert main(["resume", str(run)]) == 0
    streams = capsys.readouterr()
    assert "config.json cannot be read" in streams.err and "instead" in streams.err
    assert results(run) == results(where / "straight")


def test_a_setting_changed_in_the_file_is_told_and_not_used(crashed, capsys):
    """By hand, or by a bit of the disk: the run's settings are those it was saved with."""
    run, config, _, where = crashed
    text = (run / "config.json").read_text()
    (run / "config.json").write_text(text.replace('"gamma": 0.99', '"gamma": 0.98'))
    assert read_config(run / "config.json") != config
    assert main(["resume", str(run)]) == 0
    assert "config.json was changed after the checkpoint (schedule.gamma: 0.99 → 0.98)" in capsys.readouterr().err
    assert results(run) == results(where / "straight") and read_config(run / "config.json") == config


# ------------------------------------------------------------------------------------------ disks that refuse


def test_a_full_disk_does_not_stop_training(tmp_path, monkeypatch, runs):
    where, wanted = runs
    monkeypatch.setattr(saving_module, "_RETRY", 0.0)
    tries = []

    def refusing(path, data):
        tries.append(path)
        if 8 < len(tries) < 40:
            write_flushed(path, data[: len(data) // 2])  # as far as it fits
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_flushed(path, data)

    monkeypatch.setattr(checkpoint_module, "write_flushed", refusing)
    trained = go(saving(short_config(GAME, tmp_path / "run"), every_steps=20))
    warnings = [text for text in trained.notices if text.startswith("warning: ")]
    assert len(warnings) == 2, warnings
    assert "the checkpoint at step" in warnings[0] and "No space left on device; training continues" in warnings[0]
    assert "saving works again" in warnings[1]
    assert trained.digests == wanted and results(tmp_path / "run") == results(where / "straight")
    assert not [path for path in (tmp_path / "run").rglob("*") if path.name.endswith(".tmp")]
    for path in Checkpoints(tmp_path / "run").newest_first():
        Checkpoints(tmp_path / "run").read(path)


def test_a_disk_that_stays_full_keeps_the_last_good_checkpoint(tmp_path, monkeypatch, runs):
    where, wanted = runs
    config = saving(short_config(GAME, tmp_path / "run"), every_steps=60)

    def refusing(path, data):
        if any(True for _ in Checkpoints(tmp_path / "run").newest_first()):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_flushed(path, data)

    monkeypatch.setattr(checkpoint_module, "write_flushed", refusing)
    go(config, crash=150)
    monkeypatch.undo()
    assert [path.name for path in Checkpoints(tmp_path / "run").newest_first()] == ["000000000060"]
    resumed = go(config)
    assert resumed.digests == wanted and results(tmp_path / "run") == results(where / "straight")


def test_lines_the_disk_refuses_are_written_later(tmp_path, monkeypatch):
    file = LineFile(tmp_path / "lines", "first\n")
    write = os.pwrite

    def refusing(number, data, offset):
        write(number, data[:3], offset)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", refusing)
    file.append("second\n")
    file.append("third\n")
    assert file.trouble is not None and (tmp_path / "lines").read_text() == "first\n"
    with pytest.raises(OSError, match="No space"):
        file.content()
    monkeypatch.undo()
    file.append("fourth\n")
    assert file.trouble is None and file.content() == b"first\nsecond\nthird\nfourth\n"
    file.close()
    assert (tmp_path / "lines").read_text() == "first\nsecond\nthird\nfourth\n"


def test_too_little_room_is_told_before_the_run(tmp_path, monkeypatch):
    usage = namedtuple("usage", "total used free")(10**12, 10**12 - 10**6, 10**6)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    config = short_config("breakout", tmp_path / "run")
    with pytest.raises(UserError, match=r"may take [3-9]\.\d MB and .* has 1\.0 MB left: make room"):
        go(config)
    assert not (tmp_path / "run").exists()
    go(saving(config, keep=0))


# --------------------------------------------------------------------------------------- processes and clocks


def test_two_processes_do_not_share_a_run(tmp_path):
    path = tmp_path / "run"
    path.mkdir()
    code = (
        "import sys; from pathlib import Path; from c2d.runs.lock import locked\n"
        f"with locked(Path({str(path / 'lock')!r})): print(1, flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        holder.stdout.readline()
        with pytest.raises(UserError, match=rf"is in use by process {holder.pid} on .*; wait for it or stop it first"):
            go(short_config("toy/sure", path))
        assert [file.name for file in path.iterdir()] == ["lock"]
    finally:
        holder.kill()
        holder.wait()
    assert go(saving(short_config("toy/sure", path))).result.state == "finished"  # the lock died with its holder


def test_lock_is_free_again_afterwards(tmp_path):
    for _ in range(2):
        with locked(tmp_path / "lock"):
            assert f"process {os.getpid()} on " in (tmp_path / "lock").read_text()


def test_a_clock_that_goes_backwards_changes_nothing(tmp_path, monkeypatch, runs):
    where, wanted = runs
    now = iter(range(10**6, 0, -1000))
    monkeypatch.setattr(time, "time", lambda: float(next(now)))
    config = saving(short_config(GAME, tmp_path / "run"), every_minutes=1e-3)
    go(config, stop=90)
    assert go(config).digests == wanted
    assert results(tmp_path / "run") == results(where / "straight")


def test_a_disk_that_is_full_at_the_start_gets_one_line(tmp_path, monkeypatch):
    def refusing(path, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("c2d.runs.records.write_atomically", refusing)
    with pytest.raises(UserError, match="run cannot be written: No space left on device"):
        go(short_config("toy/sure", tmp_path / "run"))


def test_tensorboard_that_cannot_write_does_not_stop_training(tmp_path):
    from c2d.training.loggers import TensorBoard

    class Refusing:
        def __init__(self, *_, **__): ...

        def add_scalar(self, *_):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    board = TensorBoard()
    board._make_writer = Refusing
    from c2d.training.run import run

    told = Witness()
    assert run(saving(short_config("toy/sure", tmp_path / "run")), [board, told]).state == "finished"
    said = [text for text in told.notices if "TensorBoard" in text]
    assert said == ["warning: TensorBoard no longer logs this run: No space left on device; training goes on"]
