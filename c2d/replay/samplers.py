"""Which transitions a batch is made of. The buffer says which slots may be drawn; a sampler chooses."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

_LEAST = 1e-100  # priority of a slot that may be drawn


class Sampler(Protocol):
    """A law over the slots that may be drawn. `add` and `discard` each follow the order of time."""

    def add(self, index: int) -> None:
        """Slot `index` has become complete: it may be drawn from now on."""
        ...

    def discard(self, index: int) -> None:
        """A frame that slot `index` needs was overwritten. It is the oldest slot of those added."""
        ...

    def draw(self, n: int, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Slots [n] with replacement, and their importance weights [n]. Never called when there are none."""
        ...

    def feedback(self, index: NDArray[np.int64], priority: NDArray[np.float32]) -> None:
        """What an update learned about the slots it used. Slots discarded meanwhile are ignored."""
        ...

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """What it knows beyond which slots may be drawn."""
        ...

    def load_state_dict(self, state: dict[str, NDArray[Any]], slots: NDArray[np.int64]) -> None:
        """Become a sampler to which `slots` were added, oldest first, and which knew `state`."""
        ...


class UniformSampler:
    """Every sampleable slot with the same probability.

    The sampleable slots wait in a queue in the order of their age: they become complete in the order of
    time and are lost in the order of time. So adding and discarding move one end each, a draw is one
    vector of random integers without rejection, and the queue is a function of what the buffer holds,
    not of how it came about.
    """

    def __init__(self, capacity: int) -> None:
        self._queue = np.zeros(capacity, dtype=np.int32)
        self._first = 0  # where the oldest slot stands in the queue
        self._count = 0

    def add(self, index: int) -> None:
        self._queue[(self._first + self._count) % len(self._queue)] = index
        self._count += 1

    def discard(self, index: int) -> None:
        if not self._count or self._queue[self._first] != index:
            raise ValueError(f"slot {index} is not the oldest that may be drawn")
        self._first = (self._first + 1) % len(self._queue)
        self._count -= 1

    def draw(self, n: int, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        place = (self._first + rng.integers(self._count, size=n)) % len(self._queue)  # [n]
        return self._queue[place].astype(np.int64), np.ones(n, dtype=np.float32)

    def feedback(self, index: NDArray[np.int64], priority: NDArray[np.float32]) -> None:
        """Uniform sampling learns nothing."""

    def state_dict(self) -> dict[str, NDArray[Any]]:
        return {}

    def load_state_dict(self, state: dict[str, NDArray[Any]], slots: NDArray[np.int64]) -> None:
        self._queue[: len(slots)] = slots
        self._first, self._count = 0, len(slots)


class PrioritizedSampler:
    """Each slot with a probability in proportion to its priority (Schaul et al. 2016), found by a tree of sums.

    Priority: (loss + eps)^exponent, for a new slot the largest seen so far; 0 where nothing may be drawn. Weight of a
    drawn slot: (1/priority)^weight_exponent, divided by the largest of the batch: Dopamine's form, without annealing.

    tree[1] is the sum of all priorities, tree[k] = tree[2k] + tree[2k+1], and the leaves are tree[size:]. A node
    is always computed from its two children, so the tree is a function of its leaves, bit for bit.
    """

    def __init__(self, capacity: int, exponent: float = 0.5, weight_exponent: float = 0.5, eps: float = 1e-10) -> None:
        self.exponent, self.weight_exponent, self.eps = exponent, weight_exponent, eps
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

    def feedback(self, index: NDArray[np.int64], priority: NDArray[np.float32]) -> None:
        node = index + self._size
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

    def load_state_dict(self, state: dict[str, NDArray[Any]], slots: NDArray[np.int64]) -> None:
        priorities, largest = state["priorities"], state["largest"]
        plain = priorities.dtype == np.float64 and priorities.ndim == 1 and largest.shape == (1,)
        if not plain or not np.isfinite(priorities).all() or (priorities < 0).any() or not 0 < largest[0] < np.inf:
            raise ValueError("the priorities are of a wrong kind")
        self._largest = float(largest[0])
        self._tree[:] = 0.0
        leaves = self._tree[self._size :]
        known = slots < len(priorities)
        leaves[slots[known]] = priorities[slots[known]]
        leaves[slots[leaves[slots] <= 0.0]] = self._largest  # of a fork with another capacity
        for level in range(self._levels - 1, -1, -1):
            nodes = np.arange(1 << level, 2 << level)
            self._tree[nodes] = self._tree[2 * nodes] + self._tree[2 * nodes + 1]

    def _set_one(self, index: int, value: float) -> None:
        tree, node = self._tree, index + self._size
        tree[node] = value
        while node > 1:
            node >>= 1
            tree[node] = tree[2 * node] + tree[2 * node + 1]
