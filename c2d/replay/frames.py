"""Where frames lie: a ring of single frames, plain or compressed. Slot -1 stands for a frame of zeros."""

from __future__ import annotations

import math
from typing import Any, Protocol

import lz4.block
import numpy as np
from numpy.typing import NDArray

from c2d.envs.spec import EnvSpec


class Frames(Protocol):
    """Single frames by slot."""

    def write(self, slot: int, frame: NDArray[Any]) -> None:
        """Keep a copy of `frame`, in place of what the slot held."""
        ...

    def gather(self, slots: NDArray[np.int64], out: NDArray[Any]) -> None:
        """Fill contiguous `out` [*slots.shape, *frame_shape] with the frames of `slots`; zeros for -1."""
        ...

    @property
    def bytes_used(self) -> int:
        """Memory the frames written so far occupy."""
        ...


class RawFrames:
    """Frames as they are, in one array whose last row is all zeros: index -1 finds it by itself."""

    def __init__(self, spec: EnvSpec, capacity: int) -> None:
        self._shape, self._dtype = spec.frame_shape, np.dtype(spec.frame_dtype)
        # The system commits pages of zeros only as they are written, so a large capacity costs nothing yet.
        self._ring = np.zeros((capacity + 1, *spec.frame_shape), dtype=self._dtype)
        self._written = 0  # slots written so far

    def write(self, slot: int, frame: NDArray[Any]) -> None:
        _check(frame, self._shape, self._dtype)
        self._ring[slot] = frame
        self._written = max(self._written, slot + 1)

    def gather(self, slots: NDArray[np.int64], out: NDArray[Any]) -> None:
        np.take(self._ring, slots, axis=0, out=out, mode="wrap")  # "raise" would go through a buffer

    @property
    def bytes_used(self) -> int:
        return self._written * int(self._ring[0].nbytes)


class CompressedFrames:
    """Frames compressed one by one with LZ4; a frame needed several times by a gather is expanded once."""

    def __init__(self, spec: EnvSpec, capacity: int) -> None:
        self._shape, self._dtype = spec.frame_shape, np.dtype(spec.frame_dtype)
        self._size = math.prod(spec.frame_shape) * self._dtype.itemsize
        self._blobs: list[bytes] = [b""] * capacity
        self._compressed = 0  # bytes of all blobs
        self._zeros = bytes(self._size)

    def write(self, slot: int, frame: NDArray[Any]) -> None:
        _check(frame, self._shape, self._dtype)
        blob = lz4.block.compress(np.ascontiguousarray(frame), store_size=False)
        self._compressed += len(blob) - len(self._blobs[slot])
        self._blobs[slot] = blob

    def gather(self, slots: NDArray[np.int64], out: NDArray[Any]) -> None:
        # Each distinct frame is expanded straight into the first place that needs it, then copied to the
        # others. Besides `out` little is allocated: larger temporaries would make the C library give memory
        # back to the system after each call and fetch it again, page by page.
        distinct, first, where = np.unique(slots, return_index=True, return_inverse=True)
        rows = out.reshape(slots.size, *self._shape)  # a view
        memory, size = rows.reshape(-1).view(np.uint8).data, self._size
        for slot, row in zip(distinct.tolist(), first.tolist(), strict=True):
            frame = lz4.block.decompress(self._blobs[slot], size) if slot >= 0 else self._zeros
            memory[row * size : (row + 1) * size] = frame
        source = first[where.reshape(-1)]  # [slots.size] the place that holds what each place needs
        repeated = np.flatnonzero(source != np.arange(slots.size))
        rows[repeated] = rows[source[repeated]]

    @property
    def bytes_used(self) -> int:
        # A pointer of the list and the header of a bytes object per slot, besides the content.
        return self._compressed + len(self._blobs) * (8 + b"".__sizeof__())


def _check(frame: NDArray[Any], shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    if frame.shape != shape or frame.dtype != dtype:
        raise ValueError(f"frame is {frame.dtype}{frame.shape}, expected {dtype}{shape}")
