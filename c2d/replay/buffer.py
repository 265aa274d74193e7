"""The replay buffer: a ring of single frames and what was done between them, read as n-step batches.

One slot per frame. Slot i holds the newest frame of a state s_i, how it came about, and what followed:

    slot          0    1    2    3  |  4    5    6  |  7
    frame         a    b    c    d  |  e    f    g  |  h        newest frame of the slot's state
    opening       1    0    0    0  |  2    0    0  |  1        0, or how often an opening frame is repeated
    action        +    +    +    +  |  +    +   -1  |  .        -1: none taken; s_6 is only bootstrapped from
    terminal      .    .    .    x  |  .    .    .  |  .        the transition from slot 3 ended its episode
    state (S=4)  000a 00ab 0abc abcd| 00ee 0eef eefg| 000h

Slots are written in order, once; the transition of a slot is final when the next slot is opened. A counter
that only grows, modulo the capacity, is the slot. After a terminal, next_obs is the opening state of the
next episode: its value is masked by discount 0, but the state does enter the batch statistics of
normalization layers, as in the authors' code.

A transition may be drawn while everything it needs is in the ring: the oldest frame of its stack not yet
overwritten, the last slot of its n-step window already written. Both limits move with time only, so the
sampleable slots are those between two counters, `oldest` and `ready`, less those without an action.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from c2d.envs.spec import EnvSpec
from c2d.errors import UserError
from c2d.replay.frames import CompressedFrames, Frames, RawFrames, compressed
from c2d.replay.nstep import fold
from c2d.replay.samplers import Sampler, UniformSampler
from c2d.types import Batch, ResetFrame, Step

# What becomes of the transition at which an episode was cut by a cap:
#   drop       it is not stored (the paper)
#   bootstrap  it is stored and bootstraps from the true final observation
#   terminal   it is stored as if the episode had ended by itself
Truncation = Literal["drop", "bootstrap", "terminal"]


_FIELDS = ("opening", "action", "reward", "terminal")  # arrays with one element per slot
STORED = frozenset((*_FIELDS, "lengths", "frames"))  # arrays of `Replay.pack`


class Replay:
    """Transitions of one stream of episodes, sampled as batches. `capacity` counts slots (frames)."""

    def __init__(
        self,
        spec: EnvSpec,
        capacity: int,
        n_step: int = 1,
        gamma: float = 0.99,
        truncation: str = "drop",
        clip_reward: float | None = None,
        compress: bool | None = None,  # None: if large
        sampler: Sampler | None = None,
    ) -> None:
        if truncation not in get_args(Truncation):
            accepted = ", ".join(get_args(Truncation))
            raise UserError(f'truncation "{truncation}" is unknown; accepted: {accepted}')
        if n_step < 1:
            raise UserError(f"n_step is {n_step}; it must be at least 1")
        if not 0.0 <= gamma <= 1.0:
            raise UserError(f"gamma is {gamma}; it must lie in [0, 1]")
        if clip_reward is not None and not clip_reward > 0.0:
            raise UserError(f"clip_reward is {clip_reward}; it must be positive, or None for no clipping")
        least = spec.stack + n_step  # slots that one transition needs at the same time
        if capacity < least:
            raise UserError(f"replay capacity is {capacity}; it must be at least stack + n_step = {least}")
        self.spec, self.capacity, self.n_step, self.gamma = spec, capacity, n_step, gamma
        self.truncation, self.clip_reward = truncation, clip_reward
        self.opening = np.zeros(capacity, dtype=np.uint8)
        self.action = np.full(capacity, -1, dtype=np.int32)
        self.reward = np.zeros(capacity, dtype=np.float32)
        self.terminal = np.zeros(capacity, dtype=np.bool_)
        self.head = 0  # slots written since the beginning; slot number head - 1 is the current state
        self.oldest = 0  # first slot number whose stack has lost nothing
        self.ready = 0  # first slot number whose n-step window is incomplete
        self.frame_bytes = spec.frame_bytes
        kind = CompressedFrames if compressed(self.frame_bytes, capacity, compress) else RawFrames
        self.frames: Frames = kind(spec, capacity)
        self.sampler: Sampler = UniformSampler(capacity) if sampler is None else sampler
        self._sampleable = 0
        self._unpacked: tuple[int, int] | None = None  # numbers of the slots that `unpack` filled: first, last + 1
        self._back = np.arange(spec.stack - 1, -1, -1)  # [S] oldest frame first
        self._ahead = np.arange(n_step)  # [n]

    def __len__(self) -> int:
        """How many transitions may be drawn."""
        return self._sampleable

    @property
    def bytes_used(self) -> int:
        per_slot = (self.opening, self.action, self.reward, self.terminal)
        return self.frames.bytes_used + sum(array.nbytes for array in per_slot)

    def begin(self, opening: ResetFrame) -> None:
        """Open an episode. One in progress is cut: its last state may be bootstrapped from."""
        if opening.repeats < 1:
            raise ValueError(f"an opening frame is counted at least once, not {opening.repeats} times")
        self._append(opening.frame, min(opening.repeats, self.spec.stack))
        self._promote(self.head - 1)  # the episode before is closed: every window in it is complete

    def add(self, action: int, step: Step) -> None:
        """Store the transition from the current state; if it ended the episode, open the next."""
        if not self.head:
            raise ValueError("add() before begin(): there is no state to act from")
        ended = step.reset is not None
        if (step.terminal or step.truncated) and not ended:
            raise ValueError("a step that ends an episode must bring the opening of the next")
        terminal = step.terminal or (ended and self.truncation == "terminal")
        if terminal or not ended or self.truncation == "bootstrap":
            here, reward, limit = (self.head - 1) % self.capacity, step.reward, self.clip_reward
            self.action[here] = action
            self.reward[here] = reward if limit is None else min(max(reward, -limit), limit)
            self.terminal[here] = terminal
            if not terminal:
                self._append(step.frame, 0)
        self._promote(self.head - self.n_step)
        if step.reset is not None:
            self.begin(step.reset)

    def sample(self, batch_size: int, rng: np.random.Generator, device: torch.device | str = "cpu") -> Batch:
        """Draw with replacement. The batch is new memory: later additions do not alter it."""
        if not self._sampleable:
            raise UserError(
                f"no transition is complete after {self.head} stored frames; "
                f"the random history must be longer than n_step = {self.n_step}"
            )
        slots, weight = self.sampler.draw(batch_size, rng)
        return self.read(slots, weight, device)

    def feedback(self, index: NDArray[np.int64], priority: NDArray[np.float32]) -> None:
        """Hand the priorities of an update to the sampler. `index` is that of the batch."""
        self.sampler.feedback(index, priority)

    def sampleable(self) -> NDArray[np.int64]:
        """All slots that may be drawn, oldest first. Takes time in proportion to the capacity."""
        slots = np.arange(self.oldest, self.ready) % self.capacity
        return slots[self.action[slots] >= 0]

    def read(
        self,
        slots: NDArray[np.int64],  # [B] each sampleable
        weight: NDArray[np.float32] | None = None,  # [B]
        device: torch.device | str = "cpu",
    ) -> Batch:
        """The transitions that begin at `slots`."""
        window = (slots[:, None] + self._ahead) % self.capacity  # [B, n]
        folded = fold(self.reward[window], self.terminal[window], self.action[window] >= 0, self.gamma)
        states = np.stack((slots, (slots + folded.steps) % self.capacity))  # [2, B]
        obs, next_obs = self._observations(states)
        if weight is None:
            weight = np.ones(len(slots), dtype=np.float32)
        return Batch(
            obs=torch.from_numpy(obs).to(device),
            action=torch.from_numpy(self.action[slots].astype(np.int64)).to(device),
            reward=torch.from_numpy(folded.reward.astype(np.float32)).to(device),
            discount=torch.from_numpy(folded.discount.astype(np.float32)).to(device),
            next_obs=torch.from_numpy(next_obs).to(device),
            weight=torch.from_numpy(weight).to(device),
            indices=torch.from_numpy(slots.astype(np.int64)).to(device),
        )

    # ------------------------------------------------------------ for checkpoints

    def pack(self, first: int, last: int) -> dict[str, NDArray[Any]]:
        """What slots numbered first … last - 1 hold. All but the newest slot never change again."""
        slots = np.arange(first, last) % self.capacity
        lengths, frames = self.frames.pack(slots)
        return {
            **{name: getattr(self, name)[slots] for name in _FIELDS},
            "lengths": lengths,
            "frames": np.frombuffer(frames, np.uint8),
        }

    def unpack(self, first: int, last: int, stored: dict[str, NDArray[Any]]) -> None:
        """The inverse of `pack`; ValueError for what does not fit. In order of time, then `rebuild_index`."""
        if set(stored) != STORED:
            raise ValueError(f"stored fields are {sorted(stored)}")
        slots = np.arange(first, last) % self.capacity
        follows = self._unpacked is not None and self._unpacked[1] == first
        self._unpacked = (self._unpacked[0] if self._unpacked is not None and follows else first, last)
        for name in _FIELDS:
            mine = getattr(self, name)
            if stored[name].shape != slots.shape or stored[name].dtype != mine.dtype:
                raise ValueError(f"stored {name} is {stored[name].dtype} {stored[name].shape}")
        self._check_values(stored)
        for name in _FIELDS:
            getattr(self, name)[slots] = stored[name]
        if stored["lengths"].dtype != np.uint32 or stored["frames"].dtype != np.uint8:
            raise ValueError("stored frames are of a wrong type")
        self.frames.unpack(slots, stored["lengths"], stored["frames"].data)

    def _check_values(self, stored: dict[str, NDArray[Any]]) -> None:
        action, opening = stored["action"], stored["opening"]
        if action.size and not (int(action.min()) >= -1 and int(action.max()) < self.spec.actions):
            raise ValueError(f"stored actions are not all below {self.spec.actions}")
        if opening.size and int(opening.max()) > self.spec.stack:
            raise ValueError(f"stored openings are not all at most {self.spec.stack}")
        if not np.isfinite(stored["reward"]).all():
            raise ValueError("stored rewards are not all finite")

    def state_dict(self) -> dict[str, Any]:
        """All but the slots that the journal holds: the newest slot, which still changes, and the sampler's state."""
        newest = self.pack(self.head - 1, self.head) if self.head else {}
        return {"streams": [{"head": self.head, "newest": newest}], "sampler": self.sampler.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """After `unpack` of the slots before the newest. ValueError for what does not fit."""
        (stream,) = state["streams"]
        head = stream["head"]
        if type(head) is not int or head < 1 or (self._unpacked or (0, head - 1))[1] != head - 1:
            raise ValueError("the newest slot does not follow the slots before it")
        self.unpack(head - 1, head, stream["newest"])
        assert self._unpacked is not None
        self.rebuild_index(self._unpacked[0], head, state["sampler"])

    def rebuild_index(self, first: int, head: int, sampler_state: dict[str, NDArray[Any]]) -> None:
        """After `unpack` of slots numbered first … head - 1: which may be drawn follows from what they hold."""
        self.head, stack = head, self.spec.stack
        lost = max(first, head - self.capacity) - 1  # the newest slot that is gone
        self.oldest = lost + 1
        while self.oldest < min(lost + stack, head) and not self.opening[self.oldest % self.capacity]:
            self.oldest += 1
        self.ready = max(head - self.n_step, 0)  # or the opening of the running episode, if that is later
        for number in range(head - 1, max(self.ready, lost), -1):
            if self.opening[number % self.capacity]:
                self.ready = number
                break
        slots = self.sampleable()
        self._sampleable = len(slots)
        self.sampler.load_state_dict(sampler_state, slots)

    def _observations(self, states: NDArray[np.int64]) -> NDArray[Any]:
        """Stacks of the states of given slots. [*] -> [*, S·C, H, W], newest frame last"""
        sources = (states[..., None] - self._back) % self.capacity  # [*, S]
        opening = self.opening[sources]  # [*, S]
        # Looking back from the newest frame: how far is the first opening, and how often is it repeated?
        opens = opening[..., ::-1] > 0
        age = np.where(opens.any(axis=-1), opens.argmax(axis=-1), self.spec.stack)[..., None]  # [*, 1]
        start = (states[..., None] - age) % self.capacity  # [*, 1]; meaningless where nothing opens
        earlier = np.where(self._back < age + self.opening[start], start, -1)  # [*, S] the opening, then zeros
        sources = np.where(self._back < age, sources, earlier)
        out = np.empty((*sources.shape, *self.spec.frame_shape), dtype=self.spec.frame_dtype)
        self.frames.gather(sources, out)
        return out.reshape(*states.shape, *self.spec.obs_shape)

    def _append(self, frame: NDArray[Any], opening: int) -> None:
        """Open the next slot, over the oldest one when the ring is full."""
        if self.head >= self.capacity:
            self._forget(self.head - self.capacity)
        slot = self.head % self.capacity
        self.frames.write(slot, frame)
        self.opening[slot] = opening
        self.action[slot] = -1
        self.reward[slot] = 0.0
        self.terminal[slot] = False
        self.head += 1

    def _forget(self, lost: int) -> None:
        """Discard what needs slot number `lost`: itself, and up to S - 1 successors in its episode.

        The stack of the bootstrap state reaches no further back than that of the state itself, so the
        latter decides. Each slot is passed once in its life, and only after it was offered to the sampler:
        lost + S ≤ head - n ≤ ready, because the capacity is at least S + n.
        """
        while self.oldest < lost + self.spec.stack:
            slot = self.oldest % self.capacity
            if self.oldest > lost and self.opening[slot]:
                break
            if self.action[slot] >= 0:
                self.sampler.discard(slot)
                self._sampleable -= 1
            self.oldest += 1

    def _promote(self, end: int) -> None:
        """Slots numbered below `end` have complete windows: offer them to the sampler."""
        for number in range(self.ready, end):
            slot = number % self.capacity
            if self.action[slot] >= 0:
                self.sampler.add(slot)
                self._sampleable += 1
        self.ready = max(self.ready, end)
