"""The replay of sequences offers what an obvious buffer of whole episodes offers, after any history."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from c2d.errors import UserError
from c2d.recipes.parts import Gru
from c2d.replay.buffer import PrioritizedSampler, UniformSampler
from c2d.replay.sequences import SequenceReplay
from c2d.types import Batch, ResetFrame, Sequences, Sight, Step
from tests.oracles.slow_sequences import Sequence, SlowSequences
from tests.replay.numbered_frames import FRAMES, observations, spec_of

GAMMA = 0.9
KINDS = ["step"] * 12 + ["terminal", "truncated", "begin"]
EVENTS = st.tuples(st.integers(0, 1), st.sampled_from(KINDS), st.sampled_from([1, 2, 4]))


def memory_of(stream: int, number: int) -> np.ndarray:
    """What the network of this test remembers before it sees a frame: nothing that two frames share."""
    return np.array([stream + 1, number + 1, 0.5], np.float32)


class Pair:
    """Feeds one history to a replay of two streams and to two obvious ones."""

    def __init__(
        self, room: int, stack: int, n_step: int, truncation: str, prioritized: bool, length: int, burn_in: int,
        overlap: int,
    ) -> None:  # fmt: skip
        self.core = Gru(sequence=length, burn_in=burn_in, overlap=overlap, priority_max=0.75)
        self.room = stack + n_step + burn_in + length + room
        self.made = (spec_of(stack), 2 * self.room, n_step, GAMMA, truncation, None, False)
        self.prioritized = prioritized
        self.fast = self.empty()
        self.slow = [
            SlowSequences(length, burn_in, overlap, self.room, stack, n_step, GAMMA, truncation) for _ in range(2)
        ]
        self.tag = 0
        for stream in range(2):
            self.begin(stream, 1)

    def empty(self) -> SequenceReplay:
        sampler = PrioritizedSampler(2 * self.room, streams=2) if self.prioritized else UniformSampler(2 * self.room, 2)
        return SequenceReplay(*self.made, sampler, 2, core=self.core, memory=3)

    def next_tag(self) -> int:
        self.tag += 1
        return self.tag

    def begin(self, stream: int, count: int) -> None:
        tag = self.next_tag()
        self.fast.begin(ResetFrame(FRAMES[tag], count), stream)
        self.slow[stream].begin(tag, count)

    def event(self, stream: int, kind: str, count: int) -> None:
        if kind == "begin":
            return self.begin(stream, count)
        tag, slow = self.next_tag(), self.slow[stream]
        opening = None if kind == "step" else (self.next_tag(), count)
        action, reward = tag % 50, float(tag * 7 % 31 - 15)
        memory = memory_of(stream, slow.frames - 1)
        slow.add(action, reward, tag, kind == "terminal", opening)
        first = None if opening is None else ResetFrame(FRAMES[opening[0]], count)
        step = Step(FRAMES[tag], reward, kind == "terminal", kind == "truncated", first, None)
        self.fast.add(action, step, stream, memory)

    def check(self) -> None:
        expected = [(stream, sequence) for stream, slow in enumerate(self.slow) for sequence in slow.sequences()]
        wanted = [stream * self.room + sequence.number % self.room for stream, sequence in expected]
        assert self.fast.sampleable().tolist() == wanted and len(self.fast) == len(wanted)
        if self.prioritized:
            assert np.flatnonzero(self.fast.sampler.state_dict()["priorities"]).tolist() == sorted(wanted)
        if not wanted:
            return
        assert set(self.fast.sampler.draw(20, np.random.default_rng(0))[0].tolist()) <= set(wanted)
        order = np.random.default_rng(len(wanted)).permutation(len(wanted))
        batch = self.fast.read(np.array(wanted)[order], order.astype(np.float32))
        self.compare(batch, [(*expected[k], wanted[k], k) for k in order])

    def compare(self, batch: Batch, drawn: list[tuple[int, Sequence, int, int]]) -> None:
        """Row by row. The batch has the sequences sorted by the lengths of their burn-ins."""
        drawn = sorted(drawn, key=lambda each: len(each[1].burn_in))
        seen, after = batch.obs, batch.next_obs
        assert isinstance(seen, Sequences) and isinstance(after, Sequences) and seen.obs is after.obs
        burn_ins = [length for count, length in seen.burn_ins for _ in range(count)]
        assert burn_ins == [len(s.burn_in) for _, s, _, _ in drawn]
        stack = self.slow[0].stack
        earlier = [x for _, s, _, _ in drawn for x in s.burn_in]
        assert len(seen.burn_in) == len(earlier)
        if earlier:
            np.testing.assert_array_equal(seen.burn_in, observations(earlier, stack))
        np.testing.assert_array_equal(seen.obs, observations([x for _, s, _, _ in drawn for x in s.obs], stack))
        before = [b for _, s, _, _ in drawn for b in s.before[: len(s.burn_in)]]
        before += [b for _, s, _, _ in drawn for b in s.before[len(s.burn_in) :]]
        assert list(zip(seen.action.tolist(), seen.reward.tolist(), strict=True)) == before
        assert seen.steps == max(len(s.obs) for _, s, _, _ in drawn)
        place, read, ahead, row = [], [], [], 0
        for number, (stream, sequence, index, weight) in enumerate(drawn):
            wanted = np.zeros(3) if sequence.memory_of is None else memory_of(stream, sequence.memory_of)
            assert seen.memory[number].tolist() == wanted.tolist()
            start, rows = number * seen.steps, slice(row, row + len(sequence.actions))
            place += [start + k for k in range(len(sequence.obs))]
            read += [start + k for k in range(len(sequence.actions))]
            ahead += [start + k for k in sequence.ahead]
            assert batch.action[rows].tolist() == sequence.actions
            np.testing.assert_allclose(batch.reward[rows], sequence.rewards, rtol=1e-6, atol=1e-6)
            np.testing.assert_allclose(batch.discount[rows], sequence.discounts, rtol=1e-6)
            assert set(batch.indices[rows].tolist()) == {index} and set(batch.weight[rows].tolist()) == {weight}
            row += len(sequence.actions)
        assert len(batch.action) == row and seen.place.tolist() == place and seen.read.tolist() == read
        alive = batch.discount > 0
        assert after.read[alive].tolist() == torch.tensor(ahead)[alive].tolist()
        assert set(after.read.tolist()) <= set(place)  # nothing is read where there is no observation

    def check_copy(self) -> None:
        """Through `pack` and `unpack`, and the `state_dict`: the copy goes on like the original."""
        copy = self.empty()
        for ring, own in zip(self.fast.rings, copy.rings, strict=True):
            first, newest = max(ring.head - ring.capacity, 0), ring.head - 1
            middle = (first + newest) // 2
            for start, end in ((first, middle), (middle, newest)):
                if end > start:
                    own.unpack(start, end, ring.pack(start, end))
        copy.load_state_dict(self.fast.state_dict())
        for stream, kind in ((0, "terminal"), (1, "step"), (0, "step")):
            assert copy.sampleable().tolist() == self.fast.sampleable().tolist()
            for ring, own in zip(self.fast.rings, copy.rings, strict=True):
                assert own.memories.keys() == ring.memories.keys()
            opening = None if kind == "step" else ResetFrame(FRAMES[7], 1)
            step = Step(FRAMES[9], 2.0, kind == "terminal", False, opening, None)
            for replay in (self.fast, copy):
                replay.add(1, step, stream, np.full(3, 4.0, np.float32))
        if len(copy):
            one, other = (replay.sample(5, np.random.default_rng(3)) for replay in (self.fast, copy))
            for left, right in zip(one, other, strict=True):
                parts = zip(left, right, strict=True) if isinstance(left, Sequences) else [(left, right)]
                assert all(np.array_equal(a, b) for a, b in parts)


@given(
    room=st.integers(1, 14),
    stack=st.integers(1, 3),
    n_step=st.integers(1, 3),
    truncation=st.sampled_from(["drop", "bootstrap", "terminal"]),
    prioritized=st.booleans(),
    length=st.integers(1, 6),
    burn_in=st.integers(0, 7),
    overlap=st.integers(0, 5),
    history=st.lists(EVENTS, min_size=1, max_size=120),
)
@settings(max_examples=60, derandomize=True, deadline=None)
def test_sequences_are_those_of_an_obvious_buffer(
    room: int, stack: int, n_step: int, truncation: str, prioritized: bool, length: int, burn_in: int, overlap: int,
    history: list[tuple[int, str, int]],
) -> None:  # fmt: skip
    pair = Pair(room, stack, n_step, truncation, prioritized, length, burn_in, min(overlap, length - 1))
    for position, event in enumerate(history):
        pair.event(*event)
        if position % 13 == 0:
            pair.check()
    pair.check()
    pair.check_copy()


def test_long_histories_wrap() -> None:
    rng = np.random.default_rng(4)
    for trial in range(3):
        pair = Pair(1 + trial * 3, 1 + trial % 3, 1 + trial % 2, "bootstrap", trial % 2 == 0, 4, 3, 2)
        for event in range(220):
            kind = str(rng.choice(["step", "terminal", "truncated", "begin"], p=[0.9, 0.04, 0.04, 0.02]))
            pair.event(int(rng.random() < 0.3), kind, 1)
            if event % 11 == trial:
                pair.check()
        assert pair.fast.rings[0].head > 3 * pair.room
        assert len(pair.fast.rings[0].memories) <= pair.room // 2 + 1  # those of lost slots are gone
        pair.check_copy()


def filled(steps: int, **core: object) -> SequenceReplay:
    """One episode of so many steps, then another that has just begun."""
    sampler = PrioritizedSampler(200, exponent=1.0)
    replay = SequenceReplay(spec_of(1), 200, core=Gru(**core), memory=3, sampler=sampler)  # type: ignore[arg-type]
    replay.begin(ResetFrame(FRAMES[1]))
    for step in range(steps):
        reset = ResetFrame(FRAMES[1]) if step == steps - 1 else None
        replay.add(0, Step(FRAMES[2], 1.0, reset is not None, False, reset, None), memory=memory_of(0, step))
    return replay


def test_the_picture_in_the_documentation() -> None:
    """T = 4, overlap 2, burn-in 3, an episode of 9 steps: sequences 0, 2, 4, 6 with 0, 2, 3, 3 steps before them."""
    replay = filled(9, sequence=4, overlap=2, burn_in=3)
    assert replay.sampleable().tolist() == [0, 2, 4, 6]
    batch = replay.read(np.array([6, 4, 2, 0]))
    assert isinstance(batch.obs, Sequences)
    assert batch.obs.burn_ins == ((1, 0), (1, 2), (2, 3))
    assert np.unique(batch.indices, return_counts=True)[1].tolist() == [4, 4, 4, 3]
    assert batch.obs.memory.tolist() == [[0] * 3, [0] * 3, memory_of(0, 3).tolist(), memory_of(0, 1).tolist()]


def test_priorities_of_steps_become_one_of_the_sequence() -> None:
    replay = filled(9, sequence=4, overlap=2, burn_in=0, priority_max=0.75)
    before = replay.sampler.state_dict()["priorities"].copy()
    replay.feedback(np.array([2, 2, 2, 2, 6, 6, 6]), np.array([1, 2, 3, 6, 0.5, 0.5, 2], np.float32))
    after = replay.sampler.state_dict()["priorities"]
    np.testing.assert_allclose(after[[2, 6]], [0.75 * 6 + 0.25 * 3, 0.75 * 2 + 0.25 * 1], rtol=1e-6)
    assert (after[[0, 4]] == before[[0, 4]]).all()


def test_memory_is_kept_for_few_steps() -> None:
    replay = filled(41, sequence=20, overlap=10, burn_in=10)
    assert sorted(replay.rings[0].memories) == [10, 20, 30, 40]
    assert not filled(41, sequence=20, overlap=10, burn_in=10, state="zero").rings[0].memories
    with pytest.raises(ValueError, match="brings the memory before it: 3 numbers"):
        ring = filled(2, sequence=2, overlap=1, burn_in=1)
        for _ in range(3):
            ring.add(0, Step(FRAMES[2], 1.0, False, False, None, None))


def test_zero_states_begin_with_nothing() -> None:
    batch = filled(41, sequence=20, overlap=10, burn_in=10, state="zero").read(np.array([0, 20]))
    assert isinstance(batch.obs, Sequences) and not batch.obs.memory.any()


def test_states_to_probe_are_where_memory_is_known() -> None:
    seen, _ = filled(41, sequence=20, overlap=10, burn_in=10).probe(50, np.random.default_rng(0))
    assert isinstance(seen, Sight) and set(seen.memory[:, 1].tolist()) == {0.0, 11.0, 21.0}
    assert ((seen.action == -1) == (seen.memory[:, 1] == 0)).all()


def test_a_replay_that_holds_no_sequence_is_rejected() -> None:
    with pytest.raises(UserError, match=r"capacity is 20; accepted: at least .* = 22"):
        SequenceReplay(spec_of(1), 20, core=Gru(sequence=15, burn_in=5, overlap=5), memory=3)
    with pytest.raises(UserError, match="no sequence is complete"):
        replay = SequenceReplay(spec_of(1), 40, core=Gru(sequence=15, burn_in=5, overlap=5), memory=3)
        replay.begin(ResetFrame(FRAMES[1]))
        replay.sample(4, np.random.default_rng(0))


def test_what_a_file_holds_is_checked() -> None:
    ring = filled(41, sequence=20, overlap=10, burn_in=10).rings[0]
    stored = ring.pack(0, 41)
    for name, value, message in (
        ("position", stored["position"].astype(np.int64), "positions are int64"),
        ("memory", stored["memory"][:, :2], "memories are float32"),
        ("memory", np.full_like(stored["memory"], np.nan), "not finite"),
        ("memory_at", stored["memory_at"] + 41, "of other slots"),
    ):
        with pytest.raises(ValueError, match=message):
            ring.unpack(0, 41, {**stored, name: value})
    with pytest.raises(ValueError, match="have no memory"):
        ring.unpack(0, 41, {name: array for name, array in stored.items() if name != "memory"})
