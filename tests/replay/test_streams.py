"""Several streams in one buffer: each offers what an obvious buffer of its own offers, and nothing crosses."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from c2d.errors import UserError
from c2d.replay.buffer import PrioritizedSampler, Replay, Sampler, UniformSampler, learner_view
from c2d.types import ResetFrame, Step
from tests.oracles.slow_replay import SlowReplay, Transition
from tests.replay.numbered_frames import FRAMES, observations, spec_of

GAMMA = 0.9

# One event: in which stream (modulo their number), what happens, how often the next first frame is repeated.
# A terminal may be the loss of a life or the end of a game: the buffer sees no difference.
KINDS = ["step"] * 6 + ["terminal", "truncated", "begin"]
EVENTS = st.tuples(st.integers(0, 3), st.sampled_from(KINDS), st.sampled_from([1, 2, 4]))


class Every(np.random.Generator):
    """Instead of random integers below n: each of them once, in order."""

    def __init__(self) -> None:
        super().__init__(np.random.PCG64(0))

    def integers(self, high: int, size: int) -> np.ndarray:  # type: ignore[override]
        return np.arange(high)


def sampler_of(prioritized: bool, capacity: int, streams: int) -> Sampler:
    return PrioritizedSampler(capacity) if prioritized else UniformSampler(capacity, streams)


class Streams:
    """Feeds one history to a buffer of N streams and to N obvious ones. Frame tags are unique among all streams."""

    def __init__(
        self, streams: int, room: int, stack: int, n_step: int, truncation: str, compress: bool, prioritized: bool
    ) -> None:
        self.settings = (spec_of(stack), streams * room, n_step, GAMMA, truncation, None, compress)
        self.streams, self.prioritized = streams, prioritized
        self.fast = self.empty()
        self.slow = [SlowReplay(room, stack, n_step, GAMMA, truncation) for _ in range(streams)]
        self.tag = 0
        for stream in range(streams):
            self.begin(stream, 1)

    def empty(self) -> Replay:
        sampler = sampler_of(self.prioritized, self.settings[1], self.streams)
        return Replay(*self.settings, sampler, self.streams)

    def next_tag(self) -> int:
        self.tag += 1
        return self.tag

    def begin(self, stream: int, count: int) -> None:
        tag = self.next_tag()
        self.fast.begin(ResetFrame(FRAMES[tag], count), stream)
        self.slow[stream].begin(tag, count)

    def event(self, stream: int, kind: str, count: int) -> None:
        stream %= self.streams
        if kind == "begin":
            return self.begin(stream, count)
        tag = self.next_tag()
        opening = None if kind == "step" else (self.next_tag(), count)
        action, reward = tag % 50, float(tag * 7 % 31 - 15)
        self.slow[stream].add(action, reward, tag, kind == "terminal", opening)
        first = None if opening is None else ResetFrame(FRAMES[opening[0]], count)
        step = Step(FRAMES[tag], reward, kind == "terminal", kind == "truncated", first, None)
        self.fast.add(action, step, stream)

    def check(self) -> None:
        room = self.fast.slots.capacity
        expected: list[Transition] = []
        indices: list[int] = []
        for stream, slow in enumerate(self.slow):
            found = slow.transitions()
            expected += found
            indices += [stream * room + transition.number % room for transition in found]
            assert len(self.fast.rings[stream]) == len(found)
        assert len(self.fast) == len(expected) and self.fast.sampleable().tolist() == indices
        self.check_sampler(indices)
        if not expected:
            return
        order = np.random.default_rng(len(indices)).permutation(len(indices))  # streams mixed, as in a batch
        batch = self.fast.read(np.array(indices)[order])
        drawn = [expected[k] for k in order]
        stack = self.slow[0].stack
        np.testing.assert_array_equal(batch.obs, observations([t.obs for t in drawn], stack))
        np.testing.assert_array_equal(batch.next_obs, observations([t.next_obs for t in drawn], stack))
        assert batch.action.tolist() == [t.action for t in drawn]
        np.testing.assert_allclose(batch.reward, [t.reward for t in drawn], rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(batch.discount, [t.discount for t in drawn], rtol=1e-6)
        assert batch.indices.tolist() == np.array(indices)[order].tolist()

    def check_sampler(self, indices: list[int]) -> None:
        """It knows exactly the sampleable slots."""
        sampler = self.fast.sampler
        if self.prioritized:
            assert np.flatnonzero(sampler.state_dict()["priorities"]).tolist() == sorted(indices)
        elif indices:
            assert sampler.draw(1, Every())[0].tolist() == indices
        if indices:
            drawn = sampler.draw(40, np.random.default_rng(0))[0]
            assert set(drawn.tolist()) <= set(indices)
            sampler.feedback(drawn, np.random.default_rng(1).random(40).astype(np.float32))

    def check_copy(self) -> None:
        """Through `pack` and `unpack` of each ring, and the `state_dict`: the copy draws and reads the same."""
        copy = self.empty()
        for ring, own in zip(self.fast.rings, copy.rings, strict=True):
            first, newest = max(ring.head - ring.capacity, 0), ring.head - 1
            if newest > first:
                own.unpack(first, newest, ring.pack(first, newest))
        copy.load_state_dict(self.fast.state_dict())
        for ring, own in zip(self.fast.rings, copy.rings, strict=True):
            assert (own.oldest, own.ready, len(own)) == (ring.oldest, ring.ready, len(ring))
        assert copy.sampleable().tolist() == self.fast.sampleable().tolist()
        if len(copy):
            one, other = (replay.sample(20, np.random.default_rng(3)) for replay in (self.fast, copy))
            for left, right in zip(one, other, strict=True):
                np.testing.assert_array_equal(left, right)


@given(
    streams=st.integers(2, 4),
    room=st.integers(0, 12),
    stack=st.integers(1, 4),
    n_step=st.integers(1, 4),
    truncation=st.sampled_from(["drop", "bootstrap", "terminal"]),
    compress=st.booleans(),
    prioritized=st.booleans(),
    history=st.lists(EVENTS, min_size=1, max_size=150),
    stride=st.integers(1, 9),
)
@settings(max_examples=200, derandomize=True, deadline=None)
def test_every_stream_is_a_buffer_of_its_own(
    streams: int,
    room: int,
    stack: int,
    n_step: int,
    truncation: str,
    compress: bool,
    prioritized: bool,
    history: list[tuple[int, str, int]],
    stride: int,
) -> None:
    pair = Streams(streams, stack + n_step + room, stack, n_step, truncation, compress, prioritized)
    for position, event in enumerate(history):
        pair.event(*event)
        if position % stride == 0:
            pair.check()
    pair.check()
    pair.check_copy()


def test_long_random_histories_wrap_in_some_streams_more_often_than_in_others() -> None:
    rng = np.random.default_rng(5)
    kinds = np.array(["step", "terminal", "truncated", "begin"])
    for trial in range(24):
        streams, stack, n_step = int(rng.integers(2, 5)), int(rng.integers(1, 5)), int(rng.integers(1, 5))
        truncation = ["drop", "bootstrap", "terminal"][trial % 3]
        room = stack + n_step + int(rng.integers(0, 12))
        pair = Streams(streams, room, stack, n_step, truncation, trial % 2 == 0, trial % 4 < 2)
        share = rng.dirichlet(np.ones(streams))  # in lock-step all streams would get the same
        for event in range(300):
            ends = 0.15 * (1 + trial % 3)
            kind = str(rng.choice(kinds, p=[1 - ends, ends / 2, ends / 4, ends / 4]))
            pair.event(int(rng.choice(streams, p=share)), kind, int(rng.choice([1, 2, 4])))
            if event % 7 == trial % 7:
                pair.check()
        pair.check_copy()
        heads = [ring.head for ring in pair.fast.rings]
        assert max(heads) > 3 * room or truncation == "drop"


def filled(streams: int, capacity: int, steps: list[int], sampler: Sampler | None = None) -> Replay:
    """Streams of unequal length without ends; every frame names its stream."""
    replay = Replay(spec_of(2), capacity, sampler=sampler, streams=streams)
    for stream, count in enumerate(steps):
        replay.begin(ResetFrame(FRAMES[stream + 1]), stream)
        for _ in range(count):
            replay.add(stream, Step(FRAMES[stream + 1], float(stream), False, False, None, None), stream)
    return replay


def test_uniform_over_all_transitions_not_over_streams() -> None:
    replay = filled(3, 90, [5, 0, 80])
    assert [len(ring) for ring in replay.rings] == [5, 0, 28]
    drawn = replay.sample(20_000, np.random.default_rng(0)).indices.numpy()
    counts = np.bincount(drawn, minlength=90)[replay.sampleable()]
    assert counts.sum() == 20_000 and stats.chisquare(counts).pvalue > 0.01


def test_a_batch_has_the_frames_rewards_and_actions_of_one_stream_in_each_row() -> None:
    for prioritized in (False, True):
        replay = filled(3, 60, [30, 9, 50], sampler_of(prioritized, 60, 3))
        batch = replay.sample(200, np.random.default_rng(0))
        stream = batch.indices // 20
        assert set(stream.tolist()) == {0, 1, 2}
        assert batch.action.tolist() == stream.tolist() and batch.reward.tolist() == stream.tolist()
        for obs in (batch.obs, batch.next_obs):
            tags = obs[:, [0, 2], 3, 0]  # [B, S]; 0 before the first frame of an episode
            assert ((tags == stream[:, None] + 1) | (tags == 0)).all()


def test_capacity_is_divided_and_frames_are_compressed_by_their_total_size() -> None:
    replay = Replay(spec_of(4), 103, streams=4)
    assert replay.capacity == 100 and [ring.capacity for ring in replay.rings] == [25] * 4
    with pytest.raises(
        UserError, match=r"capacity is 30; accepted: at least stack \+ n_step = 9 for each of 4 streams"
    ):
        Replay(spec_of(4), 30, n_step=5, streams=4)


def test_bytes_used_counts_what_was_written_in_each_stream() -> None:
    frame = FRAMES[0].nbytes
    few, many = filled(4, 400, [0, 0, 0, 9]), filled(4, 400, [9, 9, 9, 500])
    assert many.bytes_used - few.bytes_used == (3 * 10 + 100 - 13) * frame


def test_discarding_out_of_order_is_an_error_within_a_stream_only() -> None:
    sampler = UniformSampler(8, streams=2)
    for index in (1, 2, 5, 6):
        sampler.add(index)
    sampler.discard(5)
    sampler.discard(1)
    with pytest.raises(ValueError, match="slot 7 is not the oldest"):
        sampler.discard(7)
    assert sampler.draw(1, Every())[0].tolist() == [2, 6]


@pytest.mark.parametrize(
    ("truncation", "terminal", "truncated", "expected"),
    [
        ("drop", False, False, (False, True)),
        ("drop", True, False, (True, True)),
        ("drop", False, True, (False, False)),
        ("drop", True, True, (True, True)),
        ("bootstrap", False, True, (False, True)),
        ("bootstrap", True, True, (True, True)),
        ("terminal", False, True, (True, True)),
    ],
)
def test_what_the_learner_sees_of_an_end(
    truncation: str, terminal: bool, truncated: bool, expected: tuple[bool, bool]
) -> None:
    reset = ResetFrame(FRAMES[1]) if terminal or truncated else None
    for reward, clip, wanted in ((5.0, None, 5.0), (5.0, 1.0, 1.0), (-0.25, 1.0, -0.25), (-9.0, 2.0, -2.0)):
        seen = learner_view(Step(FRAMES[0], reward, terminal, truncated, reset, None), truncation, clip)
        assert seen == (wanted, *expected)


def test_returns_of_all_that_is_stored() -> None:
    """By hand, γ = 0.5: 0 after a terminal, cut episodes from 0, and the ring has come round."""
    replay = Replay(spec_of(1), capacity=2 * 6, gamma=0.5, truncation="bootstrap", streams=2)

    def step(stream: int, reward: float, end: str = "") -> None:
        reset = ResetFrame(FRAMES[1]) if end else None
        replay.add(0, Step(FRAMES[2], reward, end == "terminal", end == "truncated", reset, None), stream)

    for stream in range(2):
        replay.begin(ResetFrame(FRAMES[0]), stream)
    for reward in (100.0, 100.0, 100.0):  # overwritten later
        step(0, reward)
    step(0, 1.0)
    step(0, 2.0, "terminal")  # 2
    step(0, 4.0)
    step(0, 8.0, "truncated")  # 8: then a slot without an action
    step(0, -1.0)
    for reward in (0.0, 6.0):
        step(1, reward)
    assert replay.returns().tolist() == [2.0, 8.0, 8.0, -1.0, 3.0, 6.0]
