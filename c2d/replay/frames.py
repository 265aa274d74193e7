"""Where frames lie: a ring of single frames, plain or compressed. Slot -1 stands for a frame of zeros."""

from __future__ import annotations

from typing import Any, Protocol

import lz4.block
import numpy as np
from numpy.typing import NDArray

from c2d.envs.spec import EnvSpec

WORTH_COMPRESSING = 128  # bytes; below, the header of a compressed frame outweighs the gain
RAW_AT_MOST = 1 << 30  # bytes of a whole ring that are left as they are, which is faster, if nobody wishes otherwise


def compressed(frame_bytes: int, capacity: int, wish: bool | None) -> bool:
    """Whether a ring of `capacity` frames is kept compressed."""
    return frame_bytes >= WORTH_COMPRESSING and (capacity * frame_bytes > RAW_AT_MOST if wish is None else wish)


class Frames(Protocol):
    """Single frames by slot."""

    def write(self, slot: int, frame: NDArray[Any]) -> None:
        """Keep a copy of `frame`, in place of what the slot held."""
        ...

    def gather(self, slots: NDArray[np.int64], out: NDArray[Any]) -> None:
        """Fill contiguous `out` [*slots.shape, *frame_shape] with the frames of `slots`; zeros for -1."""
        ...

    def pack(self, slots: NDArray[np.int64]) -> tuple[NDArray[np.uint32], bytes]:
        """The frames of `slots` for a file: lengths of the pieces and the pieces joined. One form for all kinds:
        one LZ4 block per frame of at least `WORTH_COMPRESSING` bytes, smaller frames joined as they are."""
        ...

    def unpack(self, slots: NDArray[np.int64], lengths: NDArray[np.uint32], data: memoryview) -> None:
        """The inverse of `pack`. Raises ValueError for what does not fit."""
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
        self._frame_bytes = int(self._ring[0].nbytes)
        self._written = 0  # slots written so far

    def write(self, slot: int, frame: NDArray[Any]) -> None:
        _check(frame, self._shape, self._dtype)
        self._ring[slot] = frame
        self._written = max(self._written, slot + 1)

    def gather(self, slots: NDArray[np.int64], out: NDArray[Any]) -> None:
        np.take(self._ring, slots, axis=0, out=out, mode="wrap")  # "raise" would go through a buffer

    def pack(self, slots: NDArray[np.int64]) -> tuple[NDArray[np.uint32], bytes]:
        frames = self._ring[slots]
        if self._frame_bytes < WORTH_COMPRESSING:
            return np.array([frames.nbytes], np.uint32), frames.tobytes()
        blobs = [lz4.block.compress(frame, store_size=False) for frame in frames]
        return _lengths(blobs), b"".join(blobs)

    def unpack(self, slots: NDArray[np.int64], lengths: NDArray[np.uint32], data: memoryview) -> None:
        size = self._frame_bytes
        if size < WORTH_COMPRESSING:
            _require(lengths.shape == (1,) and lengths[0] == len(data) == len(slots) * size)
            self._ring[slots] = np.frombuffer(data, self._dtype).reshape(len(slots), *self._shape)
        else:
            for slot, blob in zip(slots.tolist(), _pieces(len(slots), lengths, data), strict=True):
                self._ring[slot] = np.frombuffer(_expand(blob, size), self._dtype).reshape(self._shape)
        self._written = max(self._written, int(slots.max(initial=-1)) + 1)

    @property
    def bytes_used(self) -> int:
        return self._written * self._frame_bytes


class CompressedFrames:
    """Frames compressed one by one with LZ4; a frame needed several times by a gather is expanded once."""

    def __init__(self, spec: EnvSpec, capacity: int) -> None:
        self._shape, self._dtype = spec.frame_shape, np.dtype(spec.frame_dtype)
        self._size = spec.frame_bytes
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

    def pack(self, slots: NDArray[np.int64]) -> tuple[NDArray[np.uint32], bytes]:
        blobs = [self._blobs[slot] for slot in slots.tolist()]
        return _lengths(blobs), b"".join(blobs)

    def unpack(self, slots: NDArray[np.int64], lengths: NDArray[np.uint32], data: memoryview) -> None:
        for slot, piece in zip(slots.tolist(), _pieces(len(slots), lengths, data), strict=True):
            blob = bytes(piece)
            self._compressed += len(blob) - len(self._blobs[slot])
            self._blobs[slot] = blob

    @property
    def bytes_used(self) -> int:
        # A pointer of the list and the header of a bytes object per slot, besides the content.
        return self._compressed + len(self._blobs) * (8 + b"".__sizeof__())


def _check(frame: NDArray[Any], shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    if frame.shape != shape or frame.dtype != dtype:
        raise ValueError(f"frame is {frame.dtype}{frame.shape}, expected {dtype}{shape}")


def _lengths(blobs: list[bytes]) -> NDArray[np.uint32]:
    return np.fromiter(map(len, blobs), np.uint32, len(blobs))


def _pieces(count: int, lengths: NDArray[np.uint32], data: memoryview) -> list[memoryview]:
    """`data` cut at `lengths`, which must use it up."""
    ends = lengths.astype(np.int64).cumsum()
    _require(lengths.shape == (count,) and (int(ends[-1]) if count else 0) == len(data))
    return [data[end - length : end] for end, length in zip(ends.tolist(), lengths.tolist(), strict=True)]


def _expand(blob: memoryview, size: int) -> bytes:
    try:
        frame: bytes = lz4.block.decompress(blob, size)
    except lz4.block.LZ4BlockError as error:
        raise ValueError(f"a frame cannot be expanded: {error}") from None
    _require(len(frame) == size)
    return frame


def _require(ok: bool) -> None:
    if not ok:
        raise ValueError("the stored frames are not of the size or number they should be")
