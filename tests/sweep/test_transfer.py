"""Run directories copied while they are being written."""

import os
import random
import shutil
import threading

import pytest

from c2d.runs.checkpoints import Checkpoints
from c2d.sweep.plan import multiply
from c2d.sweep.transfer import FileChunk, RunReceiver, RunSender, SentFiles, transfer_order
from c2d.training.resume import continue_from
from c2d.training.session import Session
from tests.sweep.tiny_plans import straight, tiny_plan


def contents(path):
    return {name: (path / name).read_bytes() for name in transfer_order(path)}


def everything(sender, limit=1 << 20):
    while items := sender.take(limit):
        yield from items


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_new_changed_and_deleted_files_arrive(tmp_path):
    source, target = tmp_path / "a", tmp_path / "b"
    source.mkdir()
    sender, receiver = RunSender(source), RunReceiver(target)
    write(source / "records.jsonl", "1\n")
    write(source / "lock", "me")
    write(source / "replay" / "slots-1", "s" * 100)
    write(source / "replay" / ".half.tmp", "x")
    write(source / "weights" / "000000000100.safetensors", "w")
    for name in ("state.json", "manifest.json", "tensors"):
        write(source / "checkpoints" / "000000000100" / name, name * 3)
    receiver.put(everything(sender))
    assert contents(target) == contents(source) and len(contents(target)) == 6
    write(target / "weights" / "mine.safetensors", "w")
    assert list(everything(sender)) == []
    write(source / "records.jsonl", "1\n2\n")
    write(source / "checkpoints" / "000000000200" / "manifest.json", "m")
    shutil.rmtree(source / "checkpoints" / "000000000100")
    (source / "replay" / "slots-1").unlink()
    (source / "weights" / "000000000100.safetensors").rename(source / "weights" / "000000000200.safetensors")
    receiver.put(everything(sender))
    (target / "weights" / "mine.safetensors").unlink()  # which was left alone
    assert contents(target) == contents(source)
    assert [path.name for path in (target / "checkpoints").iterdir()] == ["000000000200"]


def test_a_checkpoint_is_complete_or_absent(tmp_path):
    """Cut the stream after every item: no checkpoint has arrived without its manifest or its segments."""
    source = tmp_path / "a"
    source.mkdir()
    sender = RunSender(source)
    write(source / "replay" / "slots-1", "s")
    for name in ("manifest.json", "records.jsonl", "state.json"):
        write(source / "checkpoints" / "000000000100" / name, name)
    items = list(everything(sender))
    assert isinstance(items[-1], SentFiles) and len(items) == 5
    for cut in range(len(items) + 1):
        target = tmp_path / f"cut{cut}"
        RunReceiver(target).put(items[:cut])
        whole = target / "checkpoints" / "000000000100"
        assert whole.is_dir() == (cut >= 4)
        if whole.is_dir():
            assert len(list(whole.iterdir())) == 3 and (target / "replay" / "slots-1").is_file()


def test_large_files_are_sent_in_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr("c2d.sweep.transfer.CHUNK", 7)
    source, target = tmp_path / "a", tmp_path / "b"
    source.mkdir()
    sender = RunSender(source)
    data = bytes(random.Random(1).randbytes(100))
    (source / "weights").write_bytes(data)
    (source / "empty").touch()
    items = list(everything(sender, limit=1))
    assert sum(isinstance(item, FileChunk) for item in items) == 15 + 1
    RunReceiver(target).put(items)
    assert contents(target) == {"weights": data, "empty": b""}
    broken = [item for item in items if not (isinstance(item, FileChunk) and item.offset == 14)]
    RunReceiver(tmp_path / "c").put(broken)
    assert not (tmp_path / "c" / "weights").exists()  # a file with a gap is never written


@pytest.mark.parametrize("name", ["../up", "/etc/passwd", "checkpoints/../../x", ""])
def test_nothing_is_written_outside_the_run(name, tmp_path):
    with pytest.raises(ValueError, match="not a path inside a run"):
        RunReceiver(tmp_path / "run").put([FileChunk(name, 0, 1, b"x")])
    assert list(tmp_path.iterdir()) == []


def test_files_of_the_user_and_links_are_left_alone(tmp_path):
    """The sender does not follow links; the receiver deletes only what it received or a run wrote."""
    source, target, outside = tmp_path / "a", tmp_path / "b", tmp_path / "outside"
    write(outside / "checkpoints" / "000000000100" / "state.json", "secret")
    write(outside / "file", "secret")
    write(source / "weights", "w")
    (source / "linked").symlink_to(outside / "file")
    (source / "checkpoints").symlink_to(outside / "checkpoints")
    os.mkfifo(source / "pipe")
    assert transfer_order(source) == ["weights"]
    for name in ("checkpoints/mine/notes", "checkpoints/000000000007/notes", "replay/notes", "replay/half.tmp"):
        write(target / name, "mine")
    receiver = RunReceiver(target)
    receiver.put([FileChunk("replay/slots-1", 0, 1, b"s"), SentFiles(("weights",))])
    assert not (target / "replay" / "slots-1").exists()
    assert sorted(path.read_text() for path in target.rglob("*") if path.is_file()) == ["mine"] * 4
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "replay").symlink_to(outside)
    with pytest.raises(OSError, match="replay is a link"):
        RunReceiver(tmp_path / "c").put([FileChunk("replay/slots-1", 0, 1, b"s")])
    assert sorted(path.name for path in outside.iterdir()) == ["checkpoints", "file"]


def test_a_file_deleted_after_it_was_listed_does_not_hide_new_files(tmp_path):
    """As at the end of a run: the last checkpoint replaces one that was about to be sent."""
    source, target = tmp_path / "run", tmp_path / "copy"
    source.mkdir()
    sender, receiver = RunSender(source), RunReceiver(target)
    for name in ("a", "b", "manifest.json"):
        write(source / "checkpoints" / "000000000020" / name, name)
    receiver.put(sender.take(limit=1))
    assert sender.busy
    shutil.rmtree(source / "checkpoints" / "000000000020")
    write(source / "checkpoints" / "000000000040" / "manifest.json", "whole")
    write(source / "weights.safetensors", "the last")
    receiver.put(everything(sender))
    assert contents(target) == contents(source)


def test_copies_of_an_active_run_can_be_resumed_at_any_moment(tmp_path, monkeypatch):
    """A run saves every 20 steps; between its writes a chunk goes to the copy, with complete checkpoints only."""
    config = multiply(tiny_plan(seeds=(1,), **{"checkpoint.every-steps": 20}), tmp_path).runs[0].config
    source, target = config.directory, tmp_path / "copy"
    source.mkdir()
    sender, receiver = RunSender(source), RunReceiver(target)
    seen, at_work, flush = set(), threading.Lock(), os.fsync

    def flush_and_send(file):
        flush(file)
        if not at_work.acquire(blocking=False):  # the copy's own writes
            return
        receiver.put(sender.take(limit=1))
        for path in Checkpoints(target).newest_first():
            if path.name not in seen:
                seen.add(path.name)
                warnings = []
                session, checkpoint = continue_from(Checkpoints(target), lambda: Session(config), warnings.append)
                session.close()
                assert checkpoint is not None and warnings == []
        at_work.release()

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", flush_and_send)
        straight(config, source)
    receiver.put(everything(sender))
    assert len(seen) > 2 and contents(target) == contents(source)
