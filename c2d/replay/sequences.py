"""Sequences of steps for networks with memory, over the same slots as single transitions.

A sequence of T steps begins at every multiple of the stride, T - overlap, from the beginning of its episode, and never
leaves the episode: where that ends it is shorter, and left out if the one before it has all its steps already. With
T = 4, overlap 2 and a burn-in of 3, of an episode of 9 steps:

    step           0  1  2  3  4  5  6  7  8
    sequence 0     x  x  x  x
    sequence 2     b  b  x  x  x  x                    b: burn-in, as long as there is a past
    sequence 4        b  b  b  x  x  x  x
    sequence 6                 b  b  b  x  x  x        a sequence 8 would add nothing

It may be drawn when the n-step windows of its steps are complete, until the first slot of its burn-in is lost. Its name
is the index of its first step, so that samplers know sequences as they know slots. The memory of the network before the
burn-in is kept as it was when the step was played, for these steps only: K numbers for every stride of slots.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from c2d.envs.spec import EnvSpec
from c2d.errors import UserError
from c2d.recipes.part import Recurrent
from c2d.replay.buffer import Replay, Sampler, to_device
from c2d.replay.ring import Ring, Slots
from c2d.types import Batch, ResetFrame, Sequences, Sight, Step

_EXTRA = frozenset(("position", "memory", "memory_at"))  # arrays of `SequenceRing.pack`, besides those of a ring


class _Nobody:
    """Single slots are of no interest."""

    def add(self, index: int) -> None: ...

    def discard(self, index: int) -> None: ...


class SequenceRing(Ring):
    """One stream's slots, the sequences in them, and the memories that these begin with."""

    def __init__(self, slots: Slots, stream: int, n_step: int, sampler: Sampler, core: Recurrent, memory: int) -> None:
        super().__init__(slots, stream, n_step, _Nobody())
        self.sampler, self.core, self.memory = sampler, core, memory
        self.position = np.zeros(slots.capacity, np.int32)  # of each place, steps since its episode began
        self.memories: dict[int, NDArray[np.float32]] = {}  # by number of the slot, before it was seen
        self._waiting: deque[int] = deque()  # first slots of sequences that are not complete, by number
        self._offered: deque[int] = deque()  # of those that may be drawn
        self._lost = -1  # newest slot that is gone, by number

    @property
    def frame_bytes(self) -> int:
        return super().frame_bytes + 4 * self.memory

    def __len__(self) -> int:
        """How many sequences may be drawn."""
        return len(self._offered)

    def starts(self) -> NDArray[np.int64]:
        """Indices of all sequences that may be drawn, oldest first."""
        return self._base + np.array(self._offered, np.int64) % self.capacity

    @property
    def keeps_memory(self) -> bool:
        """Whether a sequence's burn-in may begin at the newest slot, so that the memory before it is wanted."""
        at = int(self.position[(self.head - 1) % self.capacity])
        return self.core.keeps_memory_at(at)

    def keep_memory(self, memory: NDArray[np.float32]) -> None:
        """Of the network before it saw the newest slot."""
        self.memories[self.head - 1] = memory.copy()

    def begin(self, opening: ResetFrame) -> None:
        super().begin(opening)
        now = self.head - 1  # the episode before is closed: of its sequences only the first that waits has new steps
        if self._waiting and self._waiting[0] < now:
            self._offer(self._waiting[0], now)
        while self._waiting and self._waiting[0] < now:
            self._waiting.popleft()

    def _append(self, frame: NDArray[Any], opening: int, legal: NDArray[np.bool_] | None) -> None:
        super()._append(frame, opening, legal)
        place, before = (self.head - 1) % self.capacity, (self.head - 2) % self.capacity
        self.position[place] = 0 if opening else self.position[before] + 1
        if self.position[place] % self.core.stride == 0:
            self._waiting.append(self.head - 1)

    def _promote(self, end: int) -> None:
        super()._promote(end)
        while self._waiting and self._complete(self._waiting[0]):
            self._offer(self._waiting.popleft(), None)

    def _forget(self, lost: int) -> None:
        super()._forget(lost)
        self._lost = lost
        self.memories.pop(lost, None)
        while self._offered and not self._whole(self._offered[0]):
            self.sampler.discard(self._index(self._offered.popleft()))

    def _complete(self, first: int) -> bool:
        """Whether all T steps are there, with complete n-step windows."""
        last = first + self.core.sequence - 1
        if last >= self.ready:
            return False
        within = self.position[last % self.capacity] == self.position[first % self.capacity] + last - first
        return bool(within) and int(self.slots.action[self._index(last)]) >= 0

    def _offer(self, first: int, end: int | None) -> None:
        """A sequence may be drawn, unless it is of a closed episode, whose slots end before `end`, and adds nothing."""
        if end is not None and not self._adds(first, end):
            return
        if self._whole(first):
            self._offered.append(first)
            self.sampler.add(self._index(first))

    def _adds(self, first: int, end: int) -> bool:
        """Whether it has steps that the sequence before it does not have."""
        start = int(self.position[first % self.capacity])
        steps = int(self.position[(end - 1) % self.capacity]) + (self.slots.action[self._index(end - 1)] >= 0)
        return bool(steps > start and (start == 0 or start + self.core.overlap < steps))

    def _whole(self, first: int) -> bool:
        """Whether all that it needs is there: its burn-in with the action before it, and the memory it begins with."""
        start = int(self.position[first % self.capacity])
        need = first - min(start, self.core.burn_in)
        if need < self.oldest or (start > self.core.burn_in and need - 1 <= self._lost):
            return False
        return start <= self.core.burn_in or self.core.state == "zero" or need in self.memories

    # ------------------------------------------------------------ for checkpoints

    def pack(self, first: int, last: int) -> dict[str, NDArray[Any]]:
        kept = [number for number in range(first, last) if number in self.memories]
        memories = np.stack([self.memories[number] for number in kept]) if kept else np.zeros((0, self.memory), "f4")
        return {
            **super().pack(first, last),
            "position": self.position[np.arange(first, last) % self.capacity],
            "memory": memories,
            "memory_at": np.array(kept, np.int64) - first,
        }

    def unpack(self, first: int, last: int, stored: dict[str, NDArray[Any]]) -> None:
        if missing := _EXTRA - set(stored):
            raise ValueError(f"stored fields have no {', '.join(sorted(missing))}")
        position, memory, at = (stored[name] for name in ("position", "memory", "memory_at"))
        if position.shape != (last - first,) or position.dtype != np.int32 or (len(position) and position.min() < 0):
            raise ValueError(f"stored positions are {position.dtype} {position.shape}")
        if memory.shape != (len(at), self.memory) or memory.dtype != np.float32 or not np.isfinite(memory).all():
            raise ValueError(f"stored memories are {memory.dtype} {memory.shape}, or not finite")
        if at.ndim != 1 or at.dtype != np.int64 or (len(at) and not 0 <= at.min() <= at.max() < last - first):
            raise ValueError("stored memories are of other slots")
        super().unpack(first, last, {name: array for name, array in stored.items() if name not in _EXTRA})
        self.position[np.arange(first, last) % self.capacity] = position
        self.memories |= {first + int(offset): row.copy() for offset, row in zip(at, memory, strict=True)}

    def rebuild_index(self, first: int, head: int) -> None:
        """Which sequences there are follows from positions, actions and memories."""
        super().rebuild_index(first, head)
        self._lost = max(first, head - self.capacity) - 1
        self.memories = {number: memory for number, memory in self.memories.items() if number > self._lost}
        numbers = np.arange(self._lost + 1, head)
        at = self.position[numbers % self.capacity]
        openings = [*numbers[at == 0].tolist(), head]
        self._waiting, self._offered = deque(), deque()
        for start in numbers[at % self.core.stride == 0].tolist():
            end = openings[int(np.searchsorted(openings, start, side="right"))]
            if self._complete(start) or (end < head and self._adds(start, end)):
                if self._whole(start):
                    self._offered.append(start)
            elif end == head:
                self._waiting.append(start)


class SequenceReplay(Replay):
    """A replay whose samples are sequences. A batch has a row for each of their steps, and no padding."""

    kind = "sequence"
    rings: list[SequenceRing]  # type: ignore[assignment]

    def __init__(self, spec: EnvSpec, capacity: int, *rest: Any, core: Recurrent, memory: int, **settings: Any) -> None:
        super().__init__(spec, capacity, *rest, **settings)
        self.core, self.memory = core, memory
        least, streams = spec.stack + self.n_step + core.burn_in + core.sequence, self.slots.streams
        if self.slots.capacity < least:
            raise UserError(
                f"replay capacity is {capacity}; accepted: at least stack + n_step + burn-in + sequence = {least}"
                + (f" for each of {streams} streams" if streams > 1 else "")
            )
        self.rings = [
            SequenceRing(self.slots, stream, self.n_step, self.sampler, core, memory) for stream in range(streams)
        ]

    @property
    def reach(self) -> int:
        return self.core.burn_in + self.core.sequence + self.n_step

    @property
    def bytes_used(self) -> int:
        kept = sum(len(ring.memories) for ring in self.rings)
        return super().bytes_used + 4 * self.memory * kept + sum(ring.position.nbytes for ring in self.rings)

    def add(self, action: int, step: Step, stream: int = 0, memory: NDArray[np.float32] | None = None) -> None:
        """`memory` [K] is the network's before it saw the state that the step begins in."""
        ring = self.rings[stream]
        if ring.head and ring.keeps_memory:
            if memory is None or memory.shape != (self.memory,):
                raise ValueError(f"a step brings the memory before it: {self.memory} numbers")
            ring.keep_memory(memory)
        super().add(action, step, stream)

    def sampleable(self) -> NDArray[np.int64]:
        """First slots of all sequences that may be drawn: stream by stream, each oldest first."""
        return np.concatenate([ring.starts() for ring in self.rings])

    def probe(self, count: int, rng: np.random.Generator) -> tuple[Sight, NDArray[np.bool_] | None]:
        """States where burn-ins begin: there the memory is known. And the actions that are legal there."""
        indices, _ = self.sampler.draw(count, rng)
        position = self._positions(indices)
        burn_in = np.minimum(position, self.core.burn_in)
        first = self.slots.shifted(indices, -burn_in)
        action, reward = self._before(first, position - burn_in)
        seen = Sight(self.slots.observations(first), action, reward, self._memories(indices, position, burn_in))
        return seen, self.slots.legal_actions(first)

    def feedback(self, indices: NDArray[np.int64], priority: NDArray[np.float32]) -> None:
        """From the priorities of steps to those of sequences: η·max + (1 − η)·mean (Kapturowski et al. 2019)."""
        sequences, which = np.unique(indices, return_inverse=True)
        largest = np.full(len(sequences), -np.inf)
        np.maximum.at(largest, which, priority)
        mean = np.bincount(which, priority) / np.bincount(which)
        eta = self.core.priority_max
        self.sampler.feedback(sequences, (eta * largest + (1.0 - eta) * mean).astype(np.float32))

    def read(
        self,
        indices: NDArray[np.int64],  # [B] each sampleable
        weight: NDArray[np.float32] | None = None,  # [B]
        device: torch.device | str = "cpu",
    ) -> Batch:
        """The sequences that begin at `indices`, those of short burn-ins first."""
        slots, core = self.slots, self.core
        order = np.argsort(np.minimum(self._positions(indices), core.burn_in), kind="stable")
        indices = indices[order]
        position = self._positions(indices)  # [B]
        burn_in = np.minimum(position, core.burn_in)
        lengths, stretches = np.unique(burn_in, return_counts=True)
        # the steps that are learned from and, beyond them, the states that they bootstrap from
        ahead = np.arange(core.sequence + self.n_step)
        window = slots.shifted(indices[:, None], ahead)  # [B, T + n]
        within = np.logical_and.accumulate(self._positions(window) == position[:, None] + ahead, axis=1)
        steps = int(within.sum(axis=1).max())
        window, within = window[:, :steps], within[:, :steps]
        learned = within & (slots.action[window] >= 0) & (ahead[:steps] < core.sequence)
        states, rows, read = window[within], window[learned], np.flatnonzero(learned)  # [F], [R], [R]
        folded = slots.n_step(rows, self.n_step, self.gamma)
        sequence = np.nonzero(learned)[0]  # [R] which one each step is of
        earlier = np.concatenate(
            [
                slots.shifted(indices[burn_in == length, None], np.arange(-length, 0)).ravel()
                for length in lengths.tolist()
            ]
        )  # [E]
        since = (position[:, None] + ahead[:steps])[within]
        action, reward = self._before(
            np.concatenate((earlier, states)), np.concatenate((self._positions(earlier), since))
        )
        arrays: dict[str, NDArray[Any]] = {
            "burn_in": slots.observations(earlier),
            "obs": slots.observations(states),
            "before": action,
            "earned": reward,
            "memory": self._memories(indices, position, burn_in),
            "place": np.flatnonzero(within),
            "read": read,
            "read_next": np.where(folded.discount > 0.0, read + folded.steps, read),  # where nothing follows: anywhere
            "action": slots.action[rows].astype(np.int64),
            "reward": folded.reward.astype(np.float32),
            "discount": folded.discount.astype(np.float32),
            "weight": np.ones(len(rows), np.float32) if weight is None else weight[order][sequence],
        }
        legal = slots.legal_actions(np.stack((rows, slots.shifted(rows, folded.steps))))  # [2, R, A]
        masks = {} if legal is None else dict(zip(("legal", "next_legal"), legal, strict=True))
        there = to_device({**arrays, **masks}, device)
        given = Sequences(
            there["burn_in"],
            there["obs"],
            there["before"],
            there["earned"],
            there["memory"],
            there["place"],
            there["read"],
            tuple(zip(stretches.tolist(), lengths.tolist(), strict=True)),
            steps,
        )
        return Batch(
            obs=given,
            **{name: there[name] for name in ("action", "reward", "discount", "weight", *masks)},
            next_obs=given._replace(read=there["read_next"]),
            indices=torch.from_numpy(indices[sequence]),
        )

    def _positions(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        stream, place = np.divmod(indices, self.slots.capacity)
        found = np.empty(indices.shape, np.int64)
        for number, ring in enumerate(self.rings):
            own = stream == number
            found[own] = ring.position[place[own]]
        return found

    def _before(
        self, indices: NDArray[np.int64], position: NDArray[np.integer[Any]]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """What was done before each state, and the reward that came with it; -1 and 0 where an episode begins."""
        previous, begins = self.slots.shifted(indices, np.full_like(indices, -1)), position == 0
        action = np.where(begins, -1, self.slots.action[previous]).astype(np.int64)
        return action, np.where(begins, np.float32(0), self.slots.reward[previous])

    def _memories(
        self, indices: NDArray[np.int64], position: NDArray[np.integer[Any]], burn_in: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """Before the first state of each burn-in: zeros where the episode begins, or as it was stored. [B, K]"""
        memories = np.zeros((len(indices), self.memory), np.float32)
        if self.core.state == "zero":
            return memories
        first = self.slots.shifted(indices, -burn_in)
        for row in np.flatnonzero(position > burn_in).tolist():
            ring = self.rings[int(first[row]) // self.slots.capacity]
            memories[row] = ring.memories[ring.number(int(first[row]))]
        return memories
