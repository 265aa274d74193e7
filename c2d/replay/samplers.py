"""Which transitions a batch is made of. The buffer says which slots may be drawn; a sampler chooses."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


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

    def state(self) -> dict[str, NDArray[Any]]:
        """What it knows beyond which slots may be drawn."""
        ...

    def restore(self, slots: NDArray[np.int64], state: dict[str, NDArray[Any]]) -> None:
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

    def state(self) -> dict[str, NDArray[Any]]:
        return {}

    def restore(self, slots: NDArray[np.int64], state: dict[str, NDArray[Any]]) -> None:
        self._queue[: len(slots)] = slots
        self._first, self._count = 0, len(slots)
