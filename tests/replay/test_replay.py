"""The buffer's own promises: uniform, deterministic, the same with and without compression, clear errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from c2d.agents.rollout import FrameStack
from c2d.envs.spec import EnvSpec
from c2d.errors import UserError
from c2d.replay.buffer import Replay, UniformSampler
from c2d.replay.ring import CompressedFrames, RawFrames
from c2d.types import Batch, ResetFrame, Step


def spec_of(frame_shape: tuple[int, ...] = (1, 12, 12), stack: int = 4, dtype: Any = "uint8") -> EnvSpec:
    return EnvSpec("test", "gym", frame_shape, dtype, stack, actions=6, frames_per_step=1)


def play(replay: Replay, steps: int, seed: int = 0, ends: float = 0.1) -> None:
    """A random history: noise for frames, terminals, truncations and lives of all sorts."""
    rng = np.random.default_rng(seed)

    def frame() -> np.ndarray:
        noise = rng.integers(0, 255, size=replay.spec.frame_shape)
        return noise.astype(replay.spec.frame_dtype)

    if not replay.head:
        replay.begin(ResetFrame(frame()))
    for _ in range(steps):
        terminal, truncated = rng.random() < ends, rng.random() < ends / 2
        opening = ResetFrame(frame(), int(rng.integers(1, 5))) if terminal or truncated else None
        replay.add(int(rng.integers(6)), Step(frame(), rng.normal(), terminal, truncated, opening, None))


def assert_same(one: Batch, other: Batch) -> None:
    for name in Batch._fields:
        torch.testing.assert_close(getattr(one, name), getattr(other, name), rtol=0, atol=0, msg=name)


def test_every_sampleable_slot_is_equally_likely_and_nothing_else_is_drawn() -> None:
    replay = Replay(spec_of(), capacity=60, n_step=3)
    play(replay, 200)
    slots = replay.sampleable()
    rng = np.random.default_rng(5)
    drawn = np.concatenate([replay.sample(32, rng).indices.numpy() for _ in range(600)])
    counts = np.bincount(drawn, minlength=60)
    assert counts.sum() == counts[slots].sum()
    assert 30 < len(slots) < 60  # some slots are not sampleable, so the line above says something
    assert stats.chisquare(counts[slots]).pvalue > 0.01


@pytest.mark.parametrize(("frame_shape", "dtype"), [((1, 84, 84), "uint8"), ((3, 9, 7), "uint8"), ((40,), "float32")])
def test_compression_changes_nothing(frame_shape: tuple[int, ...], dtype: str) -> None:
    batches = []
    for compress in (False, True):
        replay = Replay(spec_of(frame_shape, dtype=dtype), capacity=50, compress=compress)
        assert isinstance(replay.slots.frames, CompressedFrames if compress else RawFrames)
        play(replay, 120)
        batches.append(replay.sample(64, np.random.default_rng(1)))
    assert_same(*batches)
    assert batches[0].obs.dtype == getattr(torch, dtype)
    assert batches[0].obs.shape == (64, 4 * frame_shape[0], *frame_shape[1:])


def test_only_a_large_ring_is_compressed_unless_one_says_so() -> None:
    frame = spec_of((1, 84, 84))  # 7,056 bytes: 1 GiB holds 152,174 of them
    assert isinstance(Replay(frame, 152_174).slots.frames, RawFrames)
    assert isinstance(Replay(frame, 152_175).slots.frames, CompressedFrames)
    assert isinstance(Replay(frame, 152_175, compress=False).slots.frames, RawFrames)
    assert isinstance(Replay(frame, 50, compress=True).slots.frames, CompressedFrames)


def test_tiny_frames_are_not_compressed() -> None:
    assert isinstance(Replay(spec_of((4,), dtype="float32"), 50, compress=True).slots.frames, RawFrames)


def test_same_generator_same_batches() -> None:
    replay = Replay(spec_of(), capacity=50, n_step=2)
    play(replay, 120)
    rng, again = np.random.default_rng(7), np.random.default_rng(7)
    for _ in range(5):
        assert_same(replay.sample(16, rng), replay.sample(16, again))
    assert replay.sample(16, rng).indices.tolist() != replay.sample(16, rng).indices.tolist()


@pytest.mark.parametrize("compress", [False, True])
def test_a_batch_is_not_altered_later(compress: bool) -> None:
    replay = Replay(spec_of(), capacity=50, compress=compress)
    play(replay, 120)
    batch = replay.sample(32, np.random.default_rng(2))
    copy = Batch(*(None if field is None else field.clone() for field in batch))
    replay.sample(32, np.random.default_rng(3))
    play(replay, 120, seed=9)
    assert_same(batch, copy)


def test_a_frame_is_copied_when_stored() -> None:
    """Environments may reuse the memory of a frame."""
    for compress in (False, True):
        replay = Replay(spec_of(stack=1), capacity=9, compress=compress)
        shared = np.full((1, 12, 12), 3, dtype=np.uint8)
        replay.begin(ResetFrame(shared))
        shared[:] = 4
        replay.add(0, Step(shared, 0.0, False, False, None, None))
        shared[:] = 5
        batch = replay.read(replay.sampleable())
        assert (batch.obs == 3).all() and (batch.next_obs == 4).all()


def test_observations_are_those_the_actor_saw() -> None:
    """The stacks of the buffer and of `FrameStack` agree; frames need not be contiguous in memory."""
    spec = spec_of((2, 9, 8), stack=3)
    replay, actor, rng = (
        Replay(spec, capacity=500, truncation="bootstrap"),
        FrameStack(spec),
        np.random.default_rng(4),
    )

    def frame() -> np.ndarray:
        return rng.integers(0, 255, size=(8, 9, 2), dtype=np.uint8).T  # a transposed view

    opening = ResetFrame(frame(), 1)
    replay.begin(opening)
    seen = [actor.reset(opening).copy()]
    expected_obs, expected_next = [], []
    for _ in range(200):
        kind = rng.choice(["step", "terminal", "truncated"], p=[0.7, 0.15, 0.15])
        opening_or_none = None if kind == "step" else ResetFrame(frame(), int(rng.integers(1, 4)))
        step = Step(frame(), 0.0, kind == "terminal", kind == "truncated", opening_or_none, None)
        replay.add(0, step)
        expected_obs.append(seen[-1])
        final = actor.push(step.frame).copy() if kind == "truncated" else None
        seen.append(actor.push(step.frame).copy() if kind == "step" else actor.reset(step.reset).copy())
        expected_next.append(seen[-1] if final is None else final)
    batch = replay.read(replay.sampleable())
    np.testing.assert_array_equal(batch.obs, expected_obs)
    np.testing.assert_array_equal(batch.next_obs, expected_next)


@pytest.mark.parametrize(
    ("truncation", "expected"),
    [
        ("drop", [(1 + 10 * 0.5, 0.25), (10, 0.5)]),
        ("bootstrap", [(1 + 10 * 0.5 + 100 * 0.25, 0.125), (10 + 100 * 0.5, 0.25), (100, 0.5)]),
        ("terminal", [(1 + 10 * 0.5 + 100 * 0.25, 0.0), (10 + 100 * 0.5, 0.0), (100, 0.0)]),
    ],
)
def test_rewards_1_10_100_cut_by_a_cap(truncation: str, expected: list[tuple[float, float]]) -> None:
    replay = Replay(spec_of(stack=2), 20, n_step=3, gamma=0.5, truncation=truncation)
    frame = np.zeros((1, 12, 12), dtype=np.uint8)
    replay.begin(ResetFrame(frame))
    for reward in (1.0, 10.0):
        replay.add(0, Step(frame, reward, False, False, None, None))
    assert len(replay) == 0
    replay.add(0, Step(frame, 100.0, False, True, ResetFrame(frame), None))
    batch = replay.read(replay.sampleable())
    assert list(zip(batch.reward.tolist(), batch.discount.tolist(), strict=True)) == expected


def test_rewards_are_clipped_only_when_asked() -> None:
    frame = np.zeros((1, 12, 12), dtype=np.uint8)
    for limit, expected in ((None, [5.0, -7.0, 0.25]), (1.0, [1.0, -1.0, 0.25])):
        replay = Replay(spec_of(), 20, clip_reward=limit)
        replay.begin(ResetFrame(frame))
        for reward in (5.0, -7.0, 0.25):
            replay.add(0, Step(frame, reward, False, False, None, None))
        assert replay.read(replay.sampleable()).reward.tolist() == expected


class Listening(UniformSampler):
    """Notes what it is told."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self.heard: list[tuple[list[int], list[float]]] = []

    def feedback(self, index: np.ndarray, priority: np.ndarray) -> None:
        self.heard.append((index.tolist(), priority.tolist()))


def test_feedback_reaches_the_sampler() -> None:
    sampler = Listening(20)
    replay = Replay(spec_of(), 20, sampler=sampler)
    play(replay, 30)
    replay.feedback(np.array([3, 5]), np.array([0.5, 2.0], dtype=np.float32))
    assert sampler.heard == [([3, 5], [0.5, 2.0])]


def test_uniform_sampler_refuses_to_discard_out_of_order() -> None:
    sampler = UniformSampler(4)
    for slot in (2, 3):
        sampler.add(slot)
    with pytest.raises(ValueError, match="not the oldest"):
        sampler.discard(3)


def test_bytes_used_grows_with_what_is_stored() -> None:
    for compress in (False, True):
        replay = Replay(spec_of((1, 84, 84)), 100, compress=compress)
        play(replay, 10)
        before = replay.bytes_used
        play(replay, 20)
        assert replay.bytes_used - before > 20 * 84 * 84 * 0.9  # noise does not compress
        play(replay, 500)
        assert replay.bytes_used < 110 * 84 * 84


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"truncation": "ignore"}, 'truncation is "ignore"; accepted: drop, bootstrap, terminal'),
        ({"n_step": 0}, "n_step is 0"),
        ({"gamma": 1.5}, "gamma is 1.5"),
        ({"gamma": float("nan")}, "gamma is nan"),
        ({"clip_reward": 0.0}, "clip_reward is 0.0"),
        ({"capacity": 6, "n_step": 3}, "capacity is 6; accepted: at least stack"),
    ],
)
def test_bad_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Replay(spec_of(), **{"capacity": 20, **settings})


def test_the_smallest_capacity_offers_one_transition() -> None:
    replay = Replay(spec_of(stack=4), capacity=7, n_step=3)
    play(replay, 50, ends=0.0)
    assert len(replay) == 1


def test_a_slot_without_action_keeps_nothing_of_its_former_use() -> None:
    replay = Replay(spec_of(), capacity=20)
    play(replay, 200, ends=0.3)
    unused = replay.slots.action < 0
    assert unused.sum() > 1
    assert not replay.slots.reward[unused].any()
    assert not replay.slots.terminal[unused].any()


def test_an_opening_may_be_counted_more_often_than_it_fits() -> None:
    replay = Replay(spec_of(), capacity=20)
    frame = np.full((1, 12, 12), 9, dtype=np.uint8)
    replay.begin(ResetFrame(frame, 300))
    replay.add(0, Step(frame + 1, 0.0, False, False, None, None))
    batch = replay.read(replay.sampleable())
    assert batch.obs[0, :, 0, 0].tolist() == [9, 9, 9, 9]
    assert batch.next_obs[0, :, 0, 0].tolist() == [9, 9, 9, 10]


def test_sampling_before_anything_is_complete() -> None:
    replay = Replay(spec_of(), 20, n_step=3)
    play(replay, 2, ends=0.0)
    with pytest.raises(UserError, match="no transition is complete"):
        replay.sample(4, np.random.default_rng(0))


def test_misuse() -> None:
    frame = np.zeros((1, 12, 12), dtype=np.uint8)
    replay = Replay(spec_of(), 20)
    with pytest.raises(ValueError, match="before begin"):
        replay.add(0, Step(frame, 0.0, False, False, None, None))
    with pytest.raises(ValueError, match="accepted: at least 1"):
        replay.begin(ResetFrame(frame, 0))
    for compress in (False, True):
        with pytest.raises(ValueError, match="frame is"):
            Replay(spec_of(), 20, compress=compress).begin(ResetFrame(frame[0]))
        with pytest.raises(ValueError, match="frame is"):
            Replay(spec_of(), 20, compress=compress).begin(ResetFrame(frame.astype(np.float32)))
    replay.begin(ResetFrame(frame))
    with pytest.raises(ValueError, match="must bring the first frame"):
        replay.add(0, Step(frame, 0.0, True, False, None, None))
