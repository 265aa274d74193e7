"""Randomized histories: all that the ring offers equals what an obvious buffer of whole episodes offers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from c2d.replay.buffer import Replay
from c2d.types import ResetFrame, Step
from tests.oracles.slow_replay import SlowReplay
from tests.replay.numbered_frames import FRAMES, legal_of, observations, spec_of

GAMMA = 0.9

# One event of a history: what happens, and how often the next opening frame is counted.
EVENTS = st.tuples(st.sampled_from(["step"] * 6 + ["terminal", "truncated", "begin"]), st.sampled_from([1, 2, 4]))


class Pair:
    """Feeds one history to the ring and to the oracle."""

    def __init__(self, capacity: int, stack: int, n_step: int, truncation: str, compress: bool) -> None:
        self.fast = Replay(spec_of(stack), capacity, n_step, GAMMA, truncation, compress=compress)
        self.slow = SlowReplay(capacity, stack, n_step, GAMMA, truncation)
        self.tag = 0
        self.begin(1)

    def next_tag(self) -> int:
        self.tag += 1
        return self.tag

    def begin(self, count: int) -> None:
        tag = self.next_tag()
        self.fast.begin(ResetFrame(FRAMES[tag], count, legal_of(tag)))
        self.slow.begin(tag, count, legal_of(tag))

    def event(self, kind: str, count: int) -> None:
        if kind == "begin":
            return self.begin(count)
        tag = self.next_tag()
        opening = None if kind == "step" else (self.next_tag(), count, legal_of(self.tag))
        action, reward = tag % 50, float(tag * 7 % 31 - 15)
        legal = None if kind == "terminal" else legal_of(tag)
        self.slow.add(action, reward, tag, kind == "terminal", opening, legal)
        first = None if opening is None else ResetFrame(FRAMES[opening[0]], count, opening[2])
        self.fast.add(action, Step(FRAMES[tag], reward, kind == "terminal", kind == "truncated", first, None, legal))

    def check(self) -> None:
        expected = self.slow.transitions()
        slots = self.fast.sampleable()
        assert len(self.fast) == len(slots) == len(expected)
        np.testing.assert_array_equal(slots, [t.number % self.fast.capacity for t in expected])
        if not expected:
            return
        batch = self.fast.read(slots)
        np.testing.assert_array_equal(batch.obs, observations([t.obs for t in expected], self.slow.stack))
        np.testing.assert_array_equal(batch.next_obs, observations([t.next_obs for t in expected], self.slow.stack))
        assert batch.action.tolist() == [t.action for t in expected]
        np.testing.assert_allclose(batch.reward, [t.reward for t in expected], rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(batch.discount, [t.discount for t in expected], rtol=1e-6)
        np.testing.assert_array_equal(batch.legal, [t.legal for t in expected])
        np.testing.assert_array_equal(batch.next_legal, [t.next_legal for t in expected])
        assert batch.indices.tolist() == slots.tolist()
        drawn = self.fast.sampler.draw(50, np.random.default_rng(0))[0]
        assert set(drawn.tolist()) <= set(slots.tolist())


@given(
    room=st.integers(0, 31),
    stack=st.integers(1, 4),
    n_step=st.integers(1, 5),
    truncation=st.sampled_from(["drop", "bootstrap", "terminal"]),
    compress=st.booleans(),
    history=st.lists(EVENTS, min_size=1, max_size=120),
    stride=st.integers(1, 9),
)
@settings(max_examples=250)
def test_never_a_wrong_state(
    room: int, stack: int, n_step: int, truncation: str, compress: bool, history: list, stride: int
) -> None:
    pair = Pair(max(7, stack + n_step) + room, stack, n_step, truncation, compress)
    for position, (kind, count) in enumerate(history):
        pair.event(kind, count)
        if position % stride == 0:
            pair.check()
    pair.check()


def test_long_random_histories_wrap_many_times() -> None:
    """Hypothesis prefers short histories; these go several times around rings of all small sizes."""
    rng = np.random.default_rng(11)
    kinds = np.array(["step", "terminal", "truncated", "begin"])
    for trial in range(48):
        stack, n_step = int(rng.integers(1, 5)), int(rng.integers(1, 6))
        capacity = int(rng.integers(max(7, stack + n_step), 41))
        pair = Pair(capacity, stack, n_step, ["drop", "bootstrap", "terminal"][trial % 3], compress=trial % 2 == 0)
        ends = rng.uniform(0.02, 0.4)  # some histories of long episodes, some of short ones
        for event in range(4 * capacity):
            kind = str(rng.choice(kinds, p=[1 - ends, ends / 2, ends / 4, ends / 4]))
            pair.event(kind, int(rng.choice([1, 2, 4])))
            if event % 3 == trial % 3:
                pair.check()
        assert pair.fast.head > 2 * capacity or pair.fast.truncation == "drop"


@pytest.mark.parametrize("truncation", ["drop", "bootstrap", "terminal"])
@pytest.mark.parametrize("stack", [1, 4])
def test_the_smallest_ring_at_the_end_of_a_long_episode(stack: int, truncation: str) -> None:
    """A truncation may open two slots at once, more than the room to spare."""
    pair = Pair(stack + 3, stack, 3, truncation, compress=False)
    for kind in ["step"] * 20 + ["truncated", "step", "truncated"] + ["step"] * 20 + ["terminal", "truncated"]:
        pair.event(kind, 2)
        pair.check()
