"""The replay buffer: what the learner sees of a step, which transitions are drawn, and the batches made of them.

`learner_view` is the one place that clips rewards and decides what a truncation means. `Replay` puts steps into the
rings of `ring.py`, one ring per stream, and reads n-step batches from them; one sampler draws from all streams.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from c2d.envs.protocols import TRUNCATIONS
from c2d.envs.spec import EnvSpec
from c2d.errors import UserError
from c2d.replay.ring import Ring, Slots
from c2d.types import Batch, ResetFrame, Sight, Step


class Seen(NamedTuple):
    """What the learner sees of a step."""

    reward: float  # clipped, if the recipe clips
    terminal: bool  # nothing follows
    kept: bool  # False: the learner never sees the transition


def learner_view(step: Step, truncation: str, clip: float | None) -> Seen:
    """A step as the learner sees it, under a rule for truncations and a bound on rewards."""
    reward = step.reward if clip is None else min(max(step.reward, -clip), clip)
    truncated = step.reset is not None and not step.terminal
    terminal = step.terminal or (truncated and truncation == "terminal")
    return Seen(reward, terminal, not (truncated and truncation == "drop"))


HIDDEN = 0.01  # weight in a return of what a truncation hides, at most


def horizon(gamma: float) -> int:
    """K: the smallest with γ^K ≤ 1 %. What comes K steps later, or never, hardly matters to a return."""
    if gamma >= 1.0:
        return 10**12
    return max(1, math.ceil(math.log(HIDDEN) / math.log(gamma))) if gamma > 0.0 else 1


_ALIGNED = 64  # bytes; where an array begins among those that travel together


def to_device(arrays: dict[str, NDArray[Any]], device: torch.device | str) -> dict[str, Tensor]:
    """The arrays as tensors on the device, in the types they have: frames travel as bytes.

    To another device all of them go in one copy. From pinned memory it runs beside the host's further work, and what
    the device does with the tensors waits for it. PyTorch does not use the memory again before the copy is done.
    """
    device = torch.device(device)
    if device.type == "cpu":
        return {name: torch.from_numpy(array) for name, array in arrays.items()}
    starts = np.cumsum([0, *(-(-array.nbytes // _ALIGNED) * _ALIGNED for array in arrays.values())]).tolist()
    staging = torch.empty(starts[-1], dtype=torch.uint8, pin_memory=device.type == "cuda")
    for start, array in zip(starts, arrays.values(), strict=False):
        staging.numpy()[start : start + array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    there = staging.to(device, non_blocking=True)
    return {
        name: there[start : start + array.nbytes]
        .view(torch.from_numpy(np.empty(0, array.dtype)).dtype)
        .view(array.shape)
        for start, (name, array) in zip(starts, arrays.items(), strict=False)
    }


class Replay:
    """Transitions of one or several streams of episodes, sampled as batches. `capacity` counts all slots (frames)."""

    kind = "transition"  # what is drawn

    def __init__(
        self,
        spec: EnvSpec,
        capacity: int,
        n_step: int = 1,
        gamma: float = 0.99,
        truncation: str = "drop",
        clip_reward: float | None = None,
        compress: bool | None = None,  # None: if large
        sampler: Sampler | None = None,  # for the same capacity and streams; None: uniform
        streams: int = 1,
    ) -> None:
        if truncation not in TRUNCATIONS:
            raise UserError(f'truncation is "{truncation}"; accepted: {", ".join(TRUNCATIONS)}')
        if n_step < 1:
            raise UserError(f"n_step is {n_step}; accepted: at least 1")
        if not 0.0 <= gamma <= 1.0:
            raise UserError(f"gamma is {gamma}; accepted: from 0 to 1")
        if clip_reward is not None and not clip_reward > 0.0:
            raise UserError(f"clip_reward is {clip_reward}; accepted: above 0, or None for no clipping")
        least = spec.stack + n_step  # slots that one transition needs at the same time
        if capacity // streams < least:
            each = "" if streams == 1 else f" for each of {streams} streams"
            raise UserError(f"replay capacity is {capacity}; accepted: at least stack + n_step = {least}{each}")
        self.spec, self.n_step, self.gamma = spec, n_step, gamma
        self.truncation, self.clip_reward = truncation, clip_reward
        self.capacity = capacity // streams * streams
        self.frame_bytes = spec.frame_bytes + spec.mask_bytes
        self.sampler: Sampler = UniformSampler(self.capacity, streams) if sampler is None else sampler
        self.slots = Slots(spec, capacity // streams, streams, compress)
        self.rings = [Ring(self.slots, stream, n_step, self.sampler) for stream in range(streams)]

    def __len__(self) -> int:
        """How many transitions may be drawn."""
        return sum(map(len, self.rings))

    @property
    def reach(self) -> int:
        """Slots that one sample is made of, at most, stacks apart."""
        return 1

    @property
    def bytes_used(self) -> int:
        return self.slots.bytes_used(sum(min(ring.head, ring.capacity) for ring in self.rings))

    def begin(self, opening: ResetFrame, stream: int = 0) -> None:
        """Open an episode of a stream. One in progress is cut: its last state may be bootstrapped from."""
        self.rings[stream].begin(opening)

    def add(self, action: int, step: Step, stream: int = 0, memory: NDArray[np.float32] | None = None) -> None:
        """Store the transition from the stream's current state; if it ended the episode, open the next.

        `memory` [K] is that of a network before it saw that state, for replays of sequences.
        """
        ring = self.rings[stream]
        if not ring.head:
            raise ValueError("add() before begin(): there is no state to act from")
        if (step.terminal or step.truncated) and step.reset is None:
            raise ValueError("a step that ends an episode must bring the first frame of the next")
        seen = learner_view(step, self.truncation, self.clip_reward)
        if seen.kept:
            ring.add(action, seen.reward, seen.terminal, step.frame, step.legal)
        if step.reset is not None:
            ring.begin(step.reset)

    def sample(self, batch_size: int, rng: np.random.Generator, device: torch.device | str = "cpu") -> Batch:
        """Draw with replacement. The batch is new memory: later additions do not alter it."""
        if not len(self):
            raise UserError(
                f"no {self.kind} is complete after {sum(ring.head for ring in self.rings)} stored frames; "
                f"accepted: a random history longer than n_step = {self.n_step}"
            )
        return self.read(*self.sampler.draw(batch_size, rng), device)

    def probe(self, count: int, rng: np.random.Generator) -> tuple[NDArray[Any] | Sight, NDArray[np.bool_] | None]:
        """States to ask a network about, as it sees them when acting, and the actions that are legal there."""
        batch = self.sample(count, rng)
        states: NDArray[Any] = batch.obs.numpy()  # type: ignore[union-attr]
        return states, None if batch.legal is None else batch.legal.numpy()

    def feedback(self, indices: NDArray[np.int64], priority: NDArray[np.float32]) -> None:
        """Hand the priorities of an update to the sampler. `indices` are those of the batch."""
        self.sampler.feedback(indices, priority)

    def sampleable(self) -> NDArray[np.int64]:
        """All indices that may be drawn: stream by stream, each oldest first. Takes time by the capacity."""
        return np.concatenate([ring.sampleable() for ring in self.rings])

    def returns(self) -> NDArray[np.float64]:
        """Discounted returns of all stored transitions, in rewards as the learner sees them."""
        return np.concatenate([ring.returns(self.gamma) for ring in self.rings])

    def read(
        self,
        indices: NDArray[np.int64],  # [B] each sampleable
        weight: NDArray[np.float32] | None = None,  # [B]
        device: torch.device | str = "cpu",
    ) -> Batch:
        """The transitions that begin at `indices`, which themselves stay on the host."""
        folded = self.slots.n_step(indices, self.n_step, self.gamma)
        states = np.stack((indices, self.slots.shifted(indices, folded.steps)))  # [2, B]
        obs, next_obs = self.slots.observations(states)
        arrays: dict[str, NDArray[Any]] = {
            "obs": obs,
            "action": self.slots.action[indices].astype(np.int64),
            "reward": folded.reward.astype(np.float32),
            "discount": folded.discount.astype(np.float32),
            "next_obs": next_obs,
            "weight": np.ones(len(indices), dtype=np.float32) if weight is None else weight,
        }
        if (legal := self.slots.legal_actions(states)) is not None:
            arrays["legal"], arrays["next_legal"] = legal
        return Batch(**to_device(arrays, device), indices=torch.from_numpy(indices.astype(np.int64)))

    def state_dict(self) -> dict[str, Any]:
        """All but the slots that the journal holds: the newest slot of each ring, and the sampler's state."""
        return {"streams": [ring.state_dict() for ring in self.rings], "sampler": self.sampler.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """After `Ring.unpack` of the slots before the newest. ValueError for what does not fit."""
        for ring, saved in zip(self.rings, state["streams"], strict=True):
            ring.load_state_dict(saved)
        self.sampler.load_state_dict(state["sampler"], self.sampleable())

    # ------------------------------------------------------------ of the first stream

    @property
    def head(self) -> int:
        return self.rings[0].head

    @property
    def oldest(self) -> int:
        return self.rings[0].oldest

    @property
    def ready(self) -> int:
        return self.rings[0].ready


# ---------------------------------------------------------------------------------------- samples per insertion


class RateLimiter:
    """Which updates belong to which step, so that samples per inserted step keep a ratio.

    Both sides are held: an update is made when the step that it belongs to has been inserted, and no step is inserted
    before the updates of those before it are made. After n steps, between r·n and r·n + b samples were drawn, where b
    are those of the updates that are made together.
    """

    def __init__(self, samples_per_insert: float | Fraction, batch_size: int, together: int = 1) -> None:
        self.samples_per_insert, self._together = Fraction(samples_per_insert), together
        self._rate = self.samples_per_insert / (batch_size * together)  # times per step that updates are due

    def due(self, step: int) -> int:
        """How many updates belong to this step; the first belong to step 0."""
        above, below = self._rate.numerator, self._rate.denominator
        times = -(-(step + 1) * above // below) - -(-step * above // below)  # of ceil(rate · steps)
        return self._together * times


# ---------------------------------------------------------------------------------------------------- samplers

_LEAST = 1e-100  # priority of a slot that may be drawn


class Sampler(Protocol):
    """A law over the slots that may be drawn. `add` and `discard` of one stream each follow the order of time."""

    def add(self, index: int) -> None:
        """Slot `index` has become complete: it may be drawn from now on."""
        ...

    def discard(self, index: int) -> None:
        """A frame that slot `index` needs was overwritten. Of those added in its stream, it is the oldest."""
        ...

    def draw(self, n: int, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Indices [n] with replacement, and their importance weights [n]. Never called when there are none."""
        ...

    def feedback(self, indices: NDArray[np.int64], priority: NDArray[np.float32]) -> None:
        """What an update learned about the slots it used. Slots discarded meanwhile are ignored."""
        ...

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """What it knows beyond which slots may be drawn."""
        ...

    def load_state_dict(self, state: dict[str, NDArray[Any]], indices: NDArray[np.int64]) -> None:
        """Become a sampler that knew `state` and to which `indices` were added, in the order of `Replay.sampleable`."""
        ...


class UniformSampler:
    """Every sampleable slot of every stream with the same probability.

    The sampleable slots of a stream wait in a queue in the order of their age: they become complete in the order of
    time and are lost in the order of time. So adding and discarding move one end each, and a draw is one vector of
    random integers without rejection: positions in all queues joined, stream by stream. The queues are a function of
    what the buffer holds, not of how it came about.
    """

    def __init__(self, capacity: int, streams: int = 1) -> None:
        self._length = capacity // streams
        self._queue = np.zeros((streams, self._length), dtype=np.int32)
        self._first = [0] * streams  # where the oldest slot stands in its queue
        self._count = [0] * streams

    def add(self, index: int) -> None:
        stream = index // self._length
        self._queue[stream, (self._first[stream] + self._count[stream]) % self._length] = index
        self._count[stream] += 1

    def discard(self, index: int) -> None:
        stream = index // self._length
        if not self._count[stream] or self._queue[stream, self._first[stream]] != index:
            raise ValueError(f"slot {index} is not the oldest that may be drawn")
        self._first[stream] = (self._first[stream] + 1) % self._length
        self._count[stream] -= 1

    def draw(self, n: int, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        ends = np.cumsum(self._count)  # [streams] where each queue ends among the joined ones
        position = rng.integers(ends[-1], size=n)  # [n]
        stream = ends.searchsorted(position, side="right")  # [n]
        start = np.array(self._first) - (ends - self._count)  # [streams] first place less what is joined before it
        place = (start[stream] + position) % self._length  # [n]
        return self._queue[stream, place].astype(np.int64), np.ones(n, dtype=np.float32)

    def feedback(self, indices: NDArray[np.int64], priority: NDArray[np.float32]) -> None:
        """Uniform sampling learns nothing."""

    def state_dict(self) -> dict[str, NDArray[Any]]:
        return {}

    def load_state_dict(self, state: dict[str, NDArray[Any]], indices: NDArray[np.int64]) -> None:
        for stream, queue in enumerate(self._queue):
            own = indices[indices // self._length == stream]
            queue[: len(own)] = own
            self._first[stream], self._count[stream] = 0, len(own)


class PrioritizedSampler:
    """Each slot with a probability in proportion to its priority (Schaul et al. 2016), found by a tree of sums.

    Priority: (loss + eps)^exponent, for a new slot the largest seen so far; 0 where nothing may be drawn. Weight of a
    drawn slot: (1/priority)^weight_exponent, divided by the largest of the batch: Dopamine's form, without annealing.

    tree[1] is the sum of all priorities, tree[k] = tree[2k] + tree[2k+1], and the leaves are tree[size:]. A node
    is always computed from its two children, so the tree is a function of its leaves, bit for bit.
    """

    def __init__(
        self,
        capacity: int,
        exponent: float = 0.5,
        weight_exponent: float = 0.5,
        eps: float = 1e-10,
        streams: int = 1,
    ) -> None:
        self.exponent, self.weight_exponent, self.eps, self._streams = exponent, weight_exponent, eps, streams
        self._capacity = capacity
        self._levels = max(capacity - 1, 1).bit_length()
        self._size = 1 << self._levels
        self._tree = np.zeros(2 * self._size)
        self._largest = 1.0  # priority seen so far

    def add(self, index: int) -> None:
        self._set_one(index, self._largest)

    def discard(self, index: int) -> None:
        self._set_one(index, 0.0)

    def draw(self, n: int, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """One slot from each of n equal parts of the total mass."""
        tree = self._tree
        left = (np.arange(n) + rng.random(n)) * (tree[1] / n)  # [n] mass to the left of the slot wanted
        node = np.ones(n, dtype=np.int64)
        for _ in range(self._levels):
            node <<= 1
            below = tree[node]
            right = (left >= below) & (tree[node + 1] > 0.0)  # rounding must not lead to a slot of priority 0
            left -= below * right
            node += right
        priority = tree[node]
        weight = (priority.min() / priority) ** self.weight_exponent  # at most 1: nothing overflows
        return node - self._size, weight.astype(np.float32)

    def feedback(self, indices: NDArray[np.int64], priority: NDArray[np.float32]) -> None:
        node = indices + self._size
        present = self._tree[node] > 0.0
        value = np.maximum((np.maximum(priority.astype(np.float64), 0.0) + self.eps) ** self.exponent, _LEAST)
        node, value = node[present], value[present]
        if not len(node):
            return
        self._largest = max(self._largest, float(value.max()))
        self._tree[node] = value
        for _ in range(self._levels):
            node >>= 1
            child = node << 1
            self._tree[node] = self._tree[child] + self._tree[child + 1]

    def state_dict(self) -> dict[str, NDArray[Any]]:
        leaves = self._tree[self._size : self._size + self._capacity]
        return {"priorities": leaves.copy(), "largest": np.array([self._largest])}

    def load_state_dict(self, state: dict[str, NDArray[Any]], indices: NDArray[np.int64]) -> None:
        priorities, largest = state["priorities"], state["largest"]
        plain = priorities.dtype == np.float64 and priorities.ndim == 1 and largest.shape == (1,)
        if not plain or not np.isfinite(priorities).all() or (priorities < 0).any() or not 0 < largest[0] < np.inf:
            raise ValueError("the priorities are of a wrong type or not finite")
        self._largest = float(largest[0])
        self._tree[:] = 0.0
        leaves = self._tree[self._size :]
        # a fork may have another capacity: places are counted from the start of their stream
        stream, place = np.divmod(indices, self._capacity // self._streams)
        before = len(priorities) // self._streams
        known = place < before
        leaves[indices[known]] = priorities[(stream * before + place)[known]]
        leaves[indices[leaves[indices] <= 0.0]] = self._largest  # where a fork has another capacity
        for level in range(self._levels - 1, -1, -1):
            nodes = np.arange(1 << level, 2 << level)
            self._tree[nodes] = self._tree[2 * nodes] + self._tree[2 * nodes + 1]

    def _set_one(self, index: int, value: float) -> None:
        tree, node = self._tree, index + self._size
        tree[node] = value
        while node > 1:
            node >>= 1
            tree[node] = tree[2 * node] + tree[2 * node + 1]
