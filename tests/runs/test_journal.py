"""The replay on disk against the replay in memory: appends, wrap-arounds, checkpoints, crashes, deletions."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from c2d.envs.spec import EnvSpec
from c2d.replay.buffer import Replay
from c2d.runs import journal as journal_module
from c2d.runs.journal import Damaged, Journal
from c2d.types import ResetFrame, Step

SHAPES = {"picture": ((1, 12, 12), "uint8"), "planes": ((2, 4, 4), "uint8"), "vector": ((3,), "float32"),
          "masked": ((3,), "float32")}  # fmt: skip


def spec(kind, stack=2):
    shape, dtype = SHAPES[kind]
    if kind == "masked":  # more than one byte of bits
        return EnvSpec("toy/x", "gym", shape, dtype, stack, 11, 1, masked=True)
    return EnvSpec("toy/x", "gym", shape, dtype, stack, 3, 1)


class World:
    """A replay and the endless episodes that fill it."""

    def __init__(self, kind, capacity, n_step, truncation="bootstrap", compress=True, seed=0):
        self.spec = spec(kind)
        self.make = lambda packed=compress: Replay(self.spec, capacity, n_step, truncation=truncation, compress=packed)
        self.replay = self.make()
        self.rng = np.random.default_rng(seed)
        self.begun = False

    def frame(self):
        values = self.rng.integers(0, 255, self.spec.frame_shape)
        return (values * (self.rng.random(self.spec.frame_shape) < 0.3)).astype(self.spec.frame_dtype)

    def legal(self):
        if not self.spec.masked:
            return None
        mask = self.rng.random(self.spec.actions) < 0.3
        mask[self.rng.integers(self.spec.actions)] = True
        return mask

    def append(self, count):
        for _ in range(count):
            if not self.begun:
                self.replay.begin(ResetFrame(self.frame(), 1, self.legal()))
                self.begun = True
            ending = self.rng.random()
            terminal, truncated = ending < 0.1, 0.1 <= ending < 0.15
            opening = None
            if terminal or truncated:
                opening = ResetFrame(self.frame(), int(self.rng.integers(1, 3)), self.legal())
            legal = None if terminal else self.legal()
            step = Step(self.frame(), float(self.rng.normal()), terminal, truncated, opening, None, legal)
            self.replay.add(int(self.rng.integers(3)), step)


def contents(replay):
    slots = replay.sampleable()
    drawn = replay.sampler.draw(40, np.random.default_rng(1))[0].tolist() if len(replay) else []
    parts = replay.read(slots) if len(slots) else []
    batch = [None if part is None else part.numpy().tolist() for part in parts]
    return replay.head, replay.oldest, replay.ready, len(replay), slots.tolist(), drawn, batch


def saved(replay, journal, segments):
    """What a checkpoint keeps."""
    return journal.extend(replay.rings, segments), replay.state_dict()


def loaded(world, journal, checkpoint, compress=True):
    segments, state = checkpoint
    replay = world.make(compress)
    journal.read(replay.rings, segments)
    replay.load_state_dict(state)
    return replay


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    kind=st.sampled_from(sorted(SHAPES)),
    capacity=st.integers(8, 40),
    n_step=st.integers(1, 4),
    truncation=st.sampled_from(["drop", "bootstrap", "terminal"]),
    short=st.integers(1, 12),
    long=st.integers(1, 20),
    plan=st.lists(st.tuples(st.sampled_from(["append", "save", "crash", "prune"]), st.integers(1, 25)), max_size=14),
    seed=st.integers(0, 5),
)
def test_against_memory(tmp_path, monkeypatch, kind, capacity, n_step, truncation, short, long, plan, seed):
    """After any plan, what the newest checkpoint restores is what the replay held when it was taken."""
    monkeypatch.setattr(journal_module, "SHORT", short)
    monkeypatch.setattr(journal_module, "LONG", long)
    shutil.rmtree(tmp_path / "replay", ignore_errors=True)
    journal = Journal(tmp_path / "replay")
    world = World(kind, capacity, n_step, truncation, seed=seed)
    world.append(1)
    kept = [(saved(world.replay, journal, []), contents(world.replay))]
    for action, amount in plan:
        if action == "append":
            world.append(amount)
        elif action == "save":
            kept = [*kept[-1:], (saved(world.replay, journal, kept[-1][0][0]), contents(world.replay))]
        elif action == "prune":
            journal.prune({segment.name for checkpoint, _ in kept for segment in checkpoint[0]})
        else:  # killed: files of a checkpoint that never came to be are left, and the replay is that of the last one
            journal.extend(world.replay.rings, kept[-1][0][0])
            (journal.path / "half.tmp").write_bytes(b"half")
            world.replay = loaded(world, journal, kept[-1][0])
            assert contents(world.replay) == kept[-1][1]
    for checkpoint, wanted in kept:
        for compress in (True, False):
            assert contents(loaded(world, journal, checkpoint, compress)) == wanted


def test_only_what_is_new_is_written(tmp_path):
    journal, world = Journal(tmp_path / "replay"), World("picture", 20_000, 1)
    world.append(5_000)
    first = journal.extend(world.replay.rings, [])
    times = {path.name: path.stat().st_mtime_ns for path in journal.path.iterdir()}
    world.append(100)
    second = journal.extend(world.replay.rings, first)
    assert second[: len(first)] == first and len(second) == len(first) + 1
    assert second[-1].last - second[-1].first < 130
    world.append(100)
    third = journal.extend(world.replay.rings, second)
    assert third[:-1] == first and third[-1].first == second[-1].first  # the short one was written again, longer
    assert all((journal.path / name).stat().st_mtime_ns == time for name, time in times.items())
    assert journal.extend(world.replay.rings, third) == third


def test_a_segment_goes_only_when_nobody_needs_it(tmp_path):
    journal, world = Journal(tmp_path / "replay"), World("vector", 100, 1)
    world.append(90)
    old = journal.extend(world.replay.rings, [])
    world.append(300)
    new = journal.extend(world.replay.rings, old)
    assert not set(old) & set(new)
    journal.prune({segment.name for segment in (*old, *new)})
    assert {path.name for path in journal.path.iterdir()} == {segment.name for segment in (*old, *new)}
    (journal.path / "notes.txt").write_text("not ours")
    journal.prune({segment.name for segment in new})
    assert {path.name for path in journal.path.iterdir()} == {segment.name for segment in new} | {"notes.txt"}


@pytest.mark.parametrize("harm", ["flip", "cut", "remove", "swap"])
def test_harm_is_found_and_named(harm, tmp_path):
    journal, world = Journal(tmp_path / "replay"), World("picture", 50, 1)
    world.append(30)
    checkpoint = saved(world.replay, journal, [])
    path: Path = journal.path / checkpoint[0][0].name
    data = bytearray(path.read_bytes())
    if harm == "flip":
        data[len(data) // 2] ^= 1
    elif harm == "cut":
        del data[-1]
    elif harm == "swap":
        data[-2], data[-1] = data[-1] ^ 255, data[-2]
    path.unlink() if harm == "remove" else path.write_bytes(data)
    with pytest.raises(Damaged, match=path.name):
        loaded(world, journal, checkpoint)


def test_segments_of_another_shape_are_refused(tmp_path):
    journal, world = Journal(tmp_path / "replay"), World("picture", 50, 1)
    world.append(30)
    segments = journal.extend(world.replay.rings, [])
    with pytest.raises(Damaged, match="does not fit the run"):
        journal.read(World("vector", 50, 1).replay.rings, segments)
    with pytest.raises(Damaged, match="does not follow"):
        journal.read(world.make().rings, [segments[0], segments[0]])


def test_the_newest_slot_must_follow_the_segments(tmp_path):
    journal, world = Journal(tmp_path / "replay"), World("vector", 50, 1)
    world.append(30)
    segments, state = saved(world.replay, journal, [])
    world.append(1)
    for wrong in (world.replay.state_dict(), {**state, "streams": [{**state["streams"][0], "head": "31"}]}):
        with pytest.raises(ValueError, match="does not follow"):
            loaded(world, journal, (segments, wrong))


def test_every_stream_has_files_of_its_own(tmp_path):
    """The names of the first stream's are those of version 0.1.0, which had one."""
    journal, worlds = Journal(tmp_path / "replay"), [World("vector", 50, 1, seed=seed) for seed in (1, 2)]
    for world in worlds:
        world.append(30)
    rings = [world.replay.rings[0] for world in worlds]
    segments = journal.extend(rings, [])
    assert [segment.stream for segment in segments] == [0, 1]
    assert segments[0].name.count("-") == 2 and "-stream1." in segments[1].name
    made = [world.make() for world in worlds]
    fresh = [replay.rings[0] for replay in made]
    journal.read(fresh, segments)
    for replay, world in zip(made, worlds, strict=True):
        replay.load_state_dict(world.replay.state_dict())
        assert contents(replay) == contents(world.replay)
    with pytest.raises(Damaged, match="more streams"):
        journal.read(fresh[:1], segments)
    journal.prune({segments[0].name})
    assert [path.name for path in journal.path.iterdir()] == [segments[0].name]
