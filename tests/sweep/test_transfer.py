"""Run directories copied while they are written, and a worker without Ray."""

import os
import random
import shutil
import threading
from dataclasses import replace

import pytest

from c2d.config import to_json
from c2d.runs.checkpoints import Checkpoints
from c2d.sweep.plan import multiply
from c2d.sweep.transfer import Inbox, Look, Outbox, Piece, listing
from c2d.sweep.worker import Request, Trainer
from c2d.training.resume import continue_from
from c2d.training.session import Session
from tests.sweep.faulty_envs import Raises
from tests.sweep.tiny_plans import left_by, straight, tiny_plan


def contents(path):
    return {name: (path / name).read_bytes() for name in listing(path)}


def everything(outbox, limit=1 << 20):
    while items := outbox.take(limit):
        yield from items


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_new_changed_and_deleted_files_arrive(tmp_path):
    source, target = tmp_path / "a", tmp_path / "b"
    source.mkdir()
    outbox, inbox = Outbox(source), Inbox(target)
    write(source / "records.jsonl", "1\n")
    write(source / "lock", "me")
    write(source / "replay" / "slots-1", "s" * 100)
    write(source / "replay" / ".half.tmp", "x")
    for name in ("state.json", "manifest.json", "tensors"):
        write(source / "checkpoints" / "000000000100" / name, name * 3)
    inbox.put(everything(outbox))
    assert contents(target) == contents(source) and len(contents(target)) == 5
    assert list(everything(outbox)) == []
    write(source / "records.jsonl", "1\n2\n")
    write(source / "checkpoints" / "000000000200" / "manifest.json", "m")
    shutil.rmtree(source / "checkpoints" / "000000000100")
    (source / "replay" / "slots-1").unlink()
    inbox.put(everything(outbox))
    assert contents(target) == contents(source)
    assert [path.name for path in (target / "checkpoints").iterdir()] == ["000000000200"]


def test_a_checkpoint_is_there_whole_or_not_at_all(tmp_path):
    """Cut the stream after every item: what has arrived holds no checkpoint without its manifest, or its segments."""
    source = tmp_path / "a"
    source.mkdir()
    outbox = Outbox(source)
    write(source / "replay" / "slots-1", "s")
    for name in ("manifest.json", "records.jsonl", "state.json"):
        write(source / "checkpoints" / "000000000100" / name, name)
    items = list(everything(outbox))
    assert isinstance(items[-1], Look) and len(items) == 5
    for cut in range(len(items) + 1):
        target = tmp_path / f"cut{cut}"
        Inbox(target).put(items[:cut])
        whole = target / "checkpoints" / "000000000100"
        assert whole.is_dir() == (cut >= 4)
        if whole.is_dir():
            assert len(list(whole.iterdir())) == 3 and (target / "replay" / "slots-1").is_file()


def test_large_files_come_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr("c2d.sweep.transfer.PIECE", 7)
    source, target = tmp_path / "a", tmp_path / "b"
    source.mkdir()
    outbox = Outbox(source)
    data = bytes(random.Random(1).randbytes(100))
    (source / "weights").write_bytes(data)
    (source / "empty").touch()
    items = list(everything(outbox, limit=1))
    assert sum(isinstance(item, Piece) for item in items) == 15 + 1
    Inbox(target).put(items)
    assert contents(target) == {"weights": data, "empty": b""}
    broken = [item for item in items if not (isinstance(item, Piece) and item.offset == 14)]
    Inbox(tmp_path / "c").put(broken)
    assert not (tmp_path / "c" / "weights").exists()  # a gap is never taken for a file


@pytest.mark.parametrize("name", ["../up", "/etc/passwd", "checkpoints/../../x", ""])
def test_nothing_is_written_elsewhere(name, tmp_path):
    with pytest.raises(ValueError, match="no place within a run"):
        Inbox(tmp_path / "run").put([Piece(name, 0, 1, b"x")])
    assert list(tmp_path.iterdir()) == []


def test_files_of_the_user_and_links_are_left_alone(tmp_path):
    """On both sides: an outbox sends none of what a link leads to, an inbox deletes only what came or a run wrote."""
    source, target, outside = tmp_path / "a", tmp_path / "b", tmp_path / "outside"
    write(outside / "checkpoints" / "000000000100" / "state.json", "secret")
    write(outside / "file", "secret")
    write(source / "weights", "w")
    (source / "linked").symlink_to(outside / "file")
    (source / "checkpoints").symlink_to(outside / "checkpoints")
    os.mkfifo(source / "pipe")
    assert listing(source) == ["weights"]
    for name in ("checkpoints/mine/notes", "checkpoints/000000000007/notes", "replay/notes", "replay/half.tmp"):
        write(target / name, "mine")
    inbox = Inbox(target)
    inbox.put([Piece("replay/slots-1", 0, 1, b"s"), Look(("weights",))])
    assert not (target / "replay" / "slots-1").exists()
    assert sorted(path.read_text() for path in target.rglob("*") if path.is_file()) == ["mine"] * 4
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "replay").symlink_to(outside)
    with pytest.raises(OSError, match="replay is a link"):
        Inbox(tmp_path / "c").put([Piece("replay/slots-1", 0, 1, b"s")])
    assert sorted(path.name for path in outside.iterdir()) == ["checkpoints", "file"]


def test_what_was_listed_and_then_deleted_does_not_hide_what_is_new(tmp_path):
    """As at the end of a run: the last checkpoint takes the place of one that was about to be sent."""
    source, target = tmp_path / "run", tmp_path / "copy"
    source.mkdir()
    outbox, inbox = Outbox(source), Inbox(target)
    for name in ("a", "b", "manifest.json"):
        write(source / "checkpoints" / "000000000020" / name, name)
    inbox.put(outbox.take(limit=1))
    assert outbox.busy
    shutil.rmtree(source / "checkpoints" / "000000000020")
    write(source / "checkpoints" / "000000000040" / "manifest.json", "whole")
    write(source / "weights.safetensors", "the last")
    inbox.put(everything(outbox))
    assert contents(target) == contents(source)


def test_copies_of_a_run_at_work_can_be_resumed_at_any_moment(tmp_path, monkeypatch):
    """A run saves every 20 steps; between its writes a piece goes to the copy, whose checkpoints are always whole."""
    config = multiply(tiny_plan(seeds=(1,), **{"checkpoint.every-steps": 20}), tmp_path).runs[0].config
    source, target = config.directory, tmp_path / "copy"
    source.mkdir()
    outbox, inbox = Outbox(source), Inbox(target)
    seen, at_work, flush = set(), threading.Lock(), os.fsync

    def flush_and_send(file):
        flush(file)
        if not at_work.acquire(blocking=False):  # the copy's own writes
            return
        inbox.put(outbox.take(limit=1))
        for path in Checkpoints(target).newest_first():
            if path.name not in seen:
                seen.add(path.name)
                warnings = []
                session, found = continue_from(Checkpoints(target), lambda: Session(config), warnings.append)
                session.close()
                assert found is not None and warnings == []
        at_work.release()

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", flush_and_send)
        straight(config, source)
    inbox.put(everything(outbox))
    assert len(seen) > 2 and contents(target) == contents(source)


# ---------------------------------------------------------------------------------------------------------- worker


def begin(config, where, ship, files=(), **more):
    where.mkdir(parents=True, exist_ok=True)
    (where / "mark").write_text("token")
    trainer = Trainer(Request(to_json(config), str(where / "mark"), "token", ship, **more))
    assert trainer.shared != ship
    trainer.begin(files)
    return trainer


def finish(trainer, inbox):
    while (news := trainer.news(0.05)).state is None:
        inbox.put(news.items)
    return news


def test_worker_without_the_disk_sends_everything_and_goes_on_from_what_it_gets(tmp_path):
    where = tmp_path / "sweep"
    config = multiply(tiny_plan(seeds=(1,), iterations=3), where).runs[0].config
    wanted = straight(config, tmp_path / "straight")
    half = replace(config, iterations=1)
    first = begin(half, where, ship=True)
    news = finish(first, Inbox(config.directory))
    assert news.state == "finished" and news.pid == os.getpid() and news.steps == 240
    assert not first._path.exists()  # nothing is left where it ran
    files = [(name, (config.directory / name).read_bytes()) for name in listing(config.directory)]
    second = begin(config, where, True, files, keep_replay=False)
    assert finish(second, Inbox(config.directory)).state == "finished"
    assert left_by(config.directory) == wanted
    assert "resumed from the checkpoint at step 200: exact" in (config.directory / "log.txt").read_text()
    assert not list(config.directory.glob("checkpoints/*")) and not list(config.directory.glob("replay/*"))


def test_worker_on_the_same_disk_works_in_place_and_stops_when_told(tmp_path):
    where = tmp_path / "sweep"
    config = multiply(tiny_plan(seeds=(1,), iterations=400), where).runs[0].config
    trainer = begin(config, where, ship=False)
    while not config.directory.joinpath("weights.safetensors").is_file():
        assert trainer.news(0.05).items == []
    trainer.stop()
    news = finish(trainer, Inbox(tmp_path / "nowhere"))
    assert news.state == "interrupted" and not (tmp_path / "nowhere").exists()
    assert list((config.directory / "checkpoints").iterdir())


def test_worker_tells_errors_in_one_line_and_logs_the_rest(tmp_path, monkeypatch):
    monkeypatch.setenv("C2D_TEST_MARKS", str(tmp_path))
    monkeypatch.setattr(Raises, "pause", 0.0)
    config = multiply(tiny_plan(("tests.sweep.faulty_envs:Raises",), seeds=(1,)), tmp_path).runs[0].config
    news = finish(begin(config, tmp_path, ship=False), Inbox(tmp_path))
    assert (news.state, news.error) == ("failed", "RuntimeError: the emulator lost its mind")
    assert "Traceback" in (config.directory / "log.txt").read_text()
    broken = replace(config, run_dir=str(tmp_path / "file" / "run"))
    (tmp_path / "file").write_text("a file")
    news = finish(begin(broken, tmp_path, ship=False), Inbox(tmp_path))
    assert news.state == "failed" and "\n" not in news.error
