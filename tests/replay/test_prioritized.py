"""Prioritized sampling: the tree of sums against a linear scan, weights, and what feedback does."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from c2d.envs.spec import EnvSpec
from c2d.replay.buffer import PrioritizedSampler, Replay
from c2d.types import ResetFrame, Step


class Scan:
    """The same law by a list and a loop."""

    def __init__(self, capacity, exponent=0.5, eps=1e-10):
        self.priority, self.largest, self.exponent, self.eps = [0.0] * capacity, 1.0, exponent, eps

    def add(self, index):
        self.priority[index] = self.largest

    def discard(self, index):
        self.priority[index] = 0.0

    def feedback(self, index, loss):
        new = [(i, (float(x) + self.eps) ** self.exponent) for i, x in zip(index, loss, strict=True)]
        new = [(i, p) for i, p in new if self.priority[i] > 0]
        for i, p in new:
            self.priority[i] = p
        self.largest = max([self.largest, *(p for _, p in new)])

    def draw(self, n, rng):
        places = (np.arange(n) + rng.random(n)) * (sum(self.priority) / n)
        found = []
        for place in places:
            total = 0.0
            chosen = 0
            for index, p in enumerate(self.priority):
                total += p
                if p:
                    chosen = index
                    if place < total:
                        break
            found.append(chosen)
        return found


@settings(max_examples=60)
@given(
    capacity=st.integers(1, 40),
    plan=st.lists(st.tuples(st.sampled_from(["add", "discard", "feedback"]), st.integers(0, 39)), max_size=60),
    seed=st.integers(0, 10),
)
def test_against_a_linear_scan(capacity, plan, seed):
    tree, scan, rng = PrioritizedSampler(capacity), Scan(capacity), np.random.default_rng(seed)
    for action, index in plan:
        index %= capacity
        if action == "feedback":
            indices = rng.integers(capacity, size=3)
            losses = rng.exponential(size=3).astype(np.float32)
            _, first = np.unique(indices[::-1], return_index=True)  # the last of equal indices counts
            tree.feedback(indices, losses)
            scan.feedback(indices[::-1][first], losses[::-1][first])
            scan.largest = tree._largest
        else:
            getattr(tree, action)(index)
            getattr(scan, action)(index)
    leaves = tree.state_dict()["priorities"]
    np.testing.assert_allclose(leaves, scan.priority, rtol=1e-12)
    assert tree._tree[1] == pytest.approx(sum(scan.priority))
    if sum(scan.priority):
        drawn, weights = tree.draw(16, np.random.default_rng(7))
        wanted = scan.draw(16, np.random.default_rng(7))
        assert np.mean(drawn == wanted) > 0.9  # sums of another order may tip a draw at an edge
        assert all(scan.priority[i] > 0 for i in drawn)
        raw = np.array([scan.priority[i] ** -0.5 for i in drawn])
        np.testing.assert_allclose(weights, raw / raw.max(), rtol=1e-5)
    again = PrioritizedSampler(capacity)
    again.load_state_dict(tree.state_dict(), np.flatnonzero(leaves))
    assert np.array_equal(again._tree, tree._tree) and again._largest == tree._largest  # bit for bit


def test_frequencies_follow_the_priorities():
    sampler = PrioritizedSampler(4, exponent=1.0, eps=0.0)
    for slot in range(4):
        sampler.add(slot)
    sampler.feedback(np.arange(4), np.array([1, 2, 3, 4], np.float32))
    rng = np.random.default_rng(0)
    drawn = np.concatenate([sampler.draw(10, rng)[0] for _ in range(2_000)])
    np.testing.assert_allclose(np.bincount(drawn) / len(drawn), [0.1, 0.2, 0.3, 0.4], atol=0.005)


@pytest.mark.parametrize(("eps", "exponent", "weight_exponent"), [(0.0, 0.5, 0.5), (1e-10, 40.0, 9.0), (0.0, 1.0, 0.0)])
def test_weights_are_numbers_even_where_no_loss_is_left(eps, exponent, weight_exponent):
    sampler = PrioritizedSampler(8, exponent, weight_exponent, eps)
    for slot in range(4):
        sampler.add(slot)
    for losses in (np.zeros(4, np.float32), np.array([0, 0, 0, 3], np.float32)):
        sampler.feedback(np.arange(4), losses)
        slots, weights = sampler.draw(64, np.random.default_rng(0))
        assert (
            set(slots) <= set(range(4)) and np.isfinite(weights).all() and weights.max() == 1.0 and weights.min() >= 0
        )
    sampler.feedback(np.arange(4), np.zeros(4, np.float32))  # all slots are still known, and all alike
    assert set(sampler.draw(64, np.random.default_rng(0))[0]) == {0, 1, 2, 3}


def test_new_slots_get_the_largest_priority_seen():
    sampler = PrioritizedSampler(4)
    sampler.add(0)
    sampler.feedback(np.array([0]), np.array([9.0], np.float32))
    sampler.feedback(np.array([0]), np.array([0.25], np.float32))
    sampler.add(1)
    assert sampler.state_dict()["priorities"][:2] == pytest.approx([0.5, 3.0])


def test_feedback_to_a_slot_that_is_gone_changes_nothing():
    sampler = PrioritizedSampler(4)
    sampler.add(2)
    before = sampler._tree.copy()
    sampler.feedback(np.array([1]), np.array([100.0], np.float32))
    assert np.array_equal(before, sampler._tree) and sampler._largest == 1.0


def test_in_a_replay_that_comes_round():
    spec = EnvSpec("toy/x", "gym", (2,), "float32", 1, 2, 1)
    replay, rng = Replay(spec, 16, sampler=PrioritizedSampler(16)), np.random.default_rng(0)
    replay.begin(ResetFrame(np.zeros(2, np.float32)))
    for number in range(100):
        frame = np.full(2, number, np.float32)
        ended = number % 7 == 6
        replay.add(0, Step(frame, 1.0, ended, False, ResetFrame(frame) if ended else None, None))
        if number > 5:
            batch = replay.sample(8, rng)
            assert set(batch.indices.tolist()) <= set(replay.sampleable().tolist())
            replay.feedback(batch.indices.numpy(), rng.random(8).astype(np.float32))
        present = np.flatnonzero(replay.sampler.state_dict()["priorities"])
        assert sorted(present) == sorted(replay.sampleable())
