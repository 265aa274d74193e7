"""Where transitions are kept: rings of single frames and of what was done between them, one ring per stream.

A stream is what one environment plays, episode after episode. One slot per frame. Slot i of a ring holds the newest
frame of a state s_i, how it came about, and what followed:

    slot          0    1    2    3  |  4    5    6  |  7
    frame         a    b    c    d  |  e    f    g  |  h        newest frame of the slot's state
    opening       1    0    0    0  |  2    0    0  |  1        0, or how often a first frame is repeated
    action        +    +    +    +  |  +    +   -1  |  .        -1: none taken; s_6 is only bootstrapped from
    terminal      .    .    .    x  |  .    .    .  |  .        the transition from slot 3 ended its episode
    legal         bits of the actions that may be taken from the state; only where the environment has masks
    state (S=4)  000a 00ab 0abc abcd| 00ee 0eef eefg| 000h

Slots are written once, in order of time; the transition of a slot is final when the next slot is opened. A slot's
number only grows; modulo the capacity of the ring it is the slot's place. After a terminal, the next observation is
the first of the next episode: discount 0 masks its value, but it does enter the batch statistics of normalization
layers, as in the authors' code.

A transition is sampleable while everything it needs is in the ring: the oldest frame of its stack not yet overwritten,
the last slot of its n-step window already written. Both limits move with time only, so the sampleable slots of a ring
are those between two numbers, `oldest` and `ready`, less those without an action.

The rings of all streams lie one after the other in the same arrays: place p of stream s has index s · capacity + p.
A batch is read by index, from all streams at once.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import lz4.block
import numpy as np
from numpy.typing import NDArray

from c2d.envs.spec import EnvSpec
from c2d.types import ResetFrame

_FIELDS = ("opening", "action", "reward", "terminal")  # arrays with one element per slot
STORED = frozenset((*_FIELDS, "lengths", "frames"))  # arrays of `Ring.pack`; with masks also "legal"


class Slots:
    """The memory of all rings, and how it is read. An index never leads out of its stream."""

    def __init__(self, spec: EnvSpec, capacity: int, streams: int = 1, compress: bool | None = None) -> None:
        self.capacity, self.streams = capacity, streams  # slots of each stream
        self.frame_bytes = spec.frame_bytes + spec.mask_bytes
        self.stack, self.actions = spec.stack, spec.actions
        self._frame_shape, self._obs_shape, self._dtype = spec.frame_shape, spec.obs_shape, spec.frame_dtype
        total = capacity * streams
        self.opening = np.zeros(total, dtype=np.uint8)
        self.action = np.full(total, -1, dtype=np.int32)
        self.reward = np.zeros(total, dtype=np.float32)
        self.terminal = np.zeros(total, dtype=np.bool_)
        self.legal = np.zeros((total, spec.mask_bytes), dtype=np.uint8)  # a bit per action, or nothing
        self.fields = (*_FIELDS, "legal") if spec.masked else _FIELDS
        kind = CompressedFrames if compressed(spec.frame_bytes, total, compress) else RawFrames
        self.frames: Frames = kind(spec, total)
        self._back = np.arange(spec.stack - 1, -1, -1)  # [S] oldest frame first

    def bytes_used(self, written: int) -> int:
        """Memory that is occupied when `written` slots have been written."""
        per_slot = (self.opening, self.action, self.reward, self.terminal, self.legal)
        return self.frames.bytes_used(written) + sum(array.nbytes for array in per_slot)

    def shifted(self, indices: NDArray[np.int64], steps: NDArray[np.int64]) -> NDArray[np.int64]:
        """The indices `steps` slots later (or earlier, if negative) in the same ring."""
        place = indices % self.capacity
        return (indices - place) + (place + steps) % self.capacity

    def n_step(self, indices: NDArray[np.int64], n: int, gamma: float) -> Folded:
        """The n-step transitions that begin at `indices` [B]."""
        window = self.shifted(indices[:, None], np.arange(n))  # [B, n]
        return fold(self.reward[window], self.terminal[window], self.action[window] >= 0, gamma)

    def legal_actions(self, indices: NDArray[np.int64]) -> NDArray[np.bool_] | None:
        """The actions that may be taken from the states at `indices`; None: all. [*] -> [*, A]"""
        if not self.legal.shape[1]:
            return None
        return np.unpackbits(self.legal[indices], axis=-1, count=self.actions).view(np.bool_)

    def observations(self, indices: NDArray[np.int64]) -> NDArray[Any]:
        """The states at `indices`, as `FrameStack` shows them when acting. [*] -> [*, S·C, H, W], newest frame last"""
        sources = self.shifted(indices[..., None], -self._back)  # [*, S]
        opening = self.opening[sources]  # [*, S]
        # Looking back from the newest frame: how far is the first opening, and how often is it repeated?
        opens = opening[..., ::-1] > 0
        age = np.where(opens.any(axis=-1), opens.argmax(axis=-1), self.stack)[..., None]  # [*, 1]
        start = self.shifted(indices[..., None], -age)  # [*, 1]; meaningless where nothing opens
        earlier = np.where(self._back < age + self.opening[start], start, -1)  # [*, S] the opening, then zeros
        sources = np.where(self._back < age, sources, earlier)
        out = np.empty((*sources.shape, *self._frame_shape), dtype=self._dtype)
        self.frames.gather(sources, out)
        return out.reshape(*indices.shape, *self._obs_shape)


class SlotListener(Protocol):
    """Learns which slots may be drawn. `add` and `discard` of one stream each follow the order of time."""

    def add(self, index: int) -> None:
        """The slot has become complete: it may be drawn from now on."""
        ...

    def discard(self, index: int) -> None:
        """A frame that the slot needs was overwritten. Of those added in its stream, it is the oldest."""
        ...


class Ring:
    """One stream's slots: episodes go in frame by frame, and the listener learns what may be drawn."""

    def __init__(self, slots: Slots, stream: int, n_step: int, listener: SlotListener) -> None:
        self.slots, self.capacity, self.n_step, self.listener = slots, slots.capacity, n_step, listener
        self._base = stream * slots.capacity  # index of place 0
        self.head = 0  # slots written since the beginning; slot number head - 1 is the current state
        self.oldest = 0  # first slot number whose stack has lost nothing
        self.ready = 0  # first slot number whose n-step window is incomplete
        self._sampleable = 0
        self._unpacked: tuple[int, int] | None = None  # numbers of the slots that `unpack` filled: first, last + 1

    @property
    def frame_bytes(self) -> int:
        return self.slots.frame_bytes

    def __len__(self) -> int:
        """How many transitions may be drawn."""
        return self._sampleable

    def begin(self, opening: ResetFrame) -> None:
        """Open an episode. One in progress is cut: its last state may be bootstrapped from."""
        if opening.repeats < 1:
            raise ValueError(f"a first frame is repeated {opening.repeats} times; accepted: at least 1")
        self._append(opening.frame, min(opening.repeats, self.slots.stack), opening.legal)
        self._promote(self.head - 1)  # the episode before is closed: every window in it is complete

    def add(
        self, action: int, reward: float, terminal: bool, frame: NDArray[Any], legal: NDArray[np.bool_] | None = None
    ) -> None:
        """Store the transition from the current state. `frame` is the newest one of the state it led to, where the
        actions `legal` may be taken."""
        slots, here = self.slots, self._index(self.head - 1)
        slots.action[here] = action
        slots.reward[here] = reward
        slots.terminal[here] = terminal
        if not terminal:
            self._append(frame, 0, legal)
        self._promote(self.head - self.n_step)

    def sampleable(self) -> NDArray[np.int64]:
        """Indices of all slots that may be drawn, oldest first. Takes time in proportion to the capacity."""
        indices = self._indices(self.oldest, self.ready)
        return indices[self.slots.action[indices] >= 0]

    def returns(self, gamma: float) -> NDArray[np.float64]:
        """Discounted returns of all transitions in the ring, oldest first: G_t = r_t + γG_{t+1}.

        0 follows a terminal; a cut episode counts as if it had ended there. Takes time in proportion to the capacity.
        """
        indices = self._indices(max(self.head - self.capacity, 0), self.head)
        slots = self.slots
        taken = slots.action[indices] >= 0
        carried = np.where(taken & ~slots.terminal[indices], gamma, 0.0).tolist()
        rewards = np.where(taken, slots.reward[indices], 0.0).tolist()
        total, returns = 0.0, np.empty(len(indices))
        for place in range(len(indices) - 1, -1, -1):
            returns[place] = total = rewards[place] + carried[place] * total
        return returns[taken]

    # ------------------------------------------------------------ for checkpoints

    def pack(self, first: int, last: int) -> dict[str, NDArray[Any]]:
        """What slots numbered first … last - 1 hold. All but the newest slot never change again."""
        indices = self._indices(first, last)
        lengths, frames = self.slots.frames.pack(indices)
        return {
            **{name: getattr(self.slots, name)[indices] for name in self.slots.fields},
            "lengths": lengths,
            "frames": np.frombuffer(frames, np.uint8),
        }

    def unpack(self, first: int, last: int, stored: dict[str, NDArray[Any]]) -> None:
        """The inverse of `pack`; ValueError for what does not fit. In order of time, then `rebuild_index`."""
        fields = self.slots.fields
        if set(stored) != {*fields, "lengths", "frames"}:
            raise ValueError(f"stored fields are {sorted(stored)}")
        indices = self._indices(first, last)
        before = self._unpacked
        self._unpacked = (before[0] if before is not None and before[1] == first else first, last)
        for name in fields:
            own = getattr(self.slots, name)
            if stored[name].shape != indices.shape + own.shape[1:] or stored[name].dtype != own.dtype:
                raise ValueError(f"stored {name} is {stored[name].dtype} {stored[name].shape}")
        self._check_values(stored)
        for name in fields:
            getattr(self.slots, name)[indices] = stored[name]
        if stored["lengths"].dtype != np.uint32 or stored["frames"].dtype != np.uint8:
            raise ValueError("stored frames are of a wrong type")
        self.slots.frames.unpack(indices, stored["lengths"], stored["frames"].data)

    def state_dict(self) -> dict[str, Any]:
        """The newest slot, which still changes, and its number; the journal holds the slots before it."""
        return {"head": self.head, "newest": self.pack(self.head - 1, self.head) if self.head else {}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """After `unpack` of the slots before the newest. ValueError for what does not fit."""
        head = state["head"]
        if type(head) is not int or head < 1 or (self._unpacked or (0, head - 1))[1] != head - 1:
            raise ValueError("the newest slot does not follow the slots before it")
        self.unpack(head - 1, head, state["newest"])
        assert self._unpacked is not None
        self.rebuild_index(self._unpacked[0], head)

    def rebuild_index(self, first: int, head: int) -> None:
        """After `unpack` of slots numbered first … head - 1: which may be drawn follows from what they hold."""
        opening = self.slots.opening
        self.head = head
        lost = max(first, head - self.capacity) - 1  # the newest slot that is gone
        self.oldest = lost + 1
        while self.oldest < min(lost + self.slots.stack, head) and not opening[self._index(self.oldest)]:
            self.oldest += 1
        self.ready = max(head - self.n_step, 0)  # or the opening of the running episode, if that is later
        for number in range(head - 1, max(self.ready, lost), -1):
            if opening[self._index(number)]:
                self.ready = number
                break
        self._sampleable = len(self.sampleable())

    def _check_values(self, stored: dict[str, NDArray[Any]]) -> None:
        action, opening, slots = stored["action"], stored["opening"], self.slots
        if action.size and not (int(action.min()) >= -1 and int(action.max()) < slots.actions):
            raise ValueError(f"stored actions are not all below {slots.actions}")
        if opening.size and int(opening.max()) > slots.stack:
            raise ValueError(f"stored openings are not all at most {slots.stack}")
        if not np.isfinite(stored["reward"]).all():
            raise ValueError("stored rewards are not all finite")
        if "legal" in stored and not np.unpackbits(stored["legal"], axis=-1, count=slots.actions).any(-1).all():
            raise ValueError("a stored mask forbids every action")

    # ------------------------------------------------------------ by number of the slot

    def number(self, index: int) -> int:
        """Of the slot that is at this index now."""
        newest = self.head - 1
        return newest - (newest - (index - self._base)) % self.capacity

    def _index(self, number: int) -> int:
        return self._base + number % self.capacity

    def _indices(self, first: int, last: int) -> NDArray[np.int64]:
        return self._base + np.arange(first, last) % self.capacity

    def _append(self, frame: NDArray[Any], opening: int, legal: NDArray[np.bool_] | None) -> None:
        """Open the next slot, over the oldest one when the ring is full."""
        if self.head >= self.capacity:
            self._forget(self.head - self.capacity)
        slots, index = self.slots, self._index(self.head)
        slots.frames.write(index, frame)
        slots.opening[index] = opening
        slots.action[index] = -1
        slots.reward[index] = 0.0
        slots.terminal[index] = False
        if slots.legal.shape[1]:
            slots.legal[index] = np.packbits(np.ones(slots.actions, np.bool_) if legal is None else legal)
        self.head += 1

    def _forget(self, lost: int) -> None:
        """Discard what needs slot number `lost`: itself, and up to S - 1 successors in its episode.

        The stack of the bootstrap state reaches no further back than that of the state itself, so the latter
        decides. Each slot is passed once in its life, and only after the listener has learned of it:
        lost + S ≤ head - n ≤ ready, because the capacity is at least S + n.
        """
        slots = self.slots
        while self.oldest < lost + slots.stack:
            index = self._index(self.oldest)
            if self.oldest > lost and slots.opening[index]:
                break
            if slots.action[index] >= 0:
                self.listener.discard(index)
                self._sampleable -= 1
            self.oldest += 1

    def _promote(self, end: int) -> None:
        """Slots numbered below `end` have complete windows: the listener learns of them."""
        for number in range(self.ready, end):
            index = self._index(number)
            if self.slots.action[index] >= 0:
                self.listener.add(index)
                self._sampleable += 1
        self.ready = max(self.ready, end)


# ---------------------------------------------------------------------------------------------------- n-step returns


class Folded(NamedTuple):
    """An n-step transition: what it earned, how its bootstrap is discounted, how far it leads."""

    reward: NDArray[np.float64]  # [B] Σ_{k<m} γ^k r_{t+k}
    discount: NDArray[np.float64]  # [B] γ^m, or 0 if a terminal came within the m steps
    steps: NDArray[np.int64]  # [B] m: the bootstrap state is that of slot t + m


def fold(
    reward: NDArray[np.floating],  # [B, n] of slots t, t+1, ..., t+n-1
    terminal: NDArray[np.bool_],  # [B, n] the transition from the slot ended the episode
    taken: NDArray[np.bool_],  # [B, n] an action was taken from the slot
    gamma: float,
) -> Folded:
    """The m-step return, m ≤ n (Sutton and Barto 2018, Eq. 7.1), cut short where an episode ends.

    The window stops after a terminal transition, which leaves nothing to bootstrap from (discount 0), or before a
    slot without an action: the last known state of a truncated episode, which is bootstrapped from with the shorter
    γ^m. What lies beyond the stop is never read.

    With n = 3 and rewards 1, 10, 100:  terminal at the third:  1 + 10γ + 100γ²,  0,   m = 3
        second slot terminal:   1 + 10γ,  0,   m = 2        third slot without action:  1 + 10γ,  γ²,  m = 2
    """
    still_running = np.ones_like(terminal)  # no terminal before step k
    still_running[:, 1:] = ~np.logical_or.accumulate(terminal[:, :-1], axis=1)
    counted = still_running & np.logical_and.accumulate(taken, axis=1)  # [B, n]
    powers = gamma ** np.arange(reward.shape[1] + 1, dtype=np.float64)  # [n + 1]
    steps = counted.sum(axis=1)  # [B]
    total = np.where(counted, reward, 0.0) @ powers[:-1]  # [B]
    discount = np.where((terminal & counted).any(axis=1), 0.0, powers[steps])
    return Folded(total, discount, steps)


# ---------------------------------------------------------------------------------------------------- frames

WORTH_COMPRESSING = 128  # bytes; below, the header of a compressed frame outweighs the gain
RAW_AT_MOST = 1 << 30  # bytes of all frames; up to here they are not compressed by default, which is faster


def compressed(frame_bytes: int, capacity: int, setting: bool | None) -> bool:
    """Whether `capacity` frames are kept compressed. None: if they are many."""
    return frame_bytes >= WORTH_COMPRESSING and (capacity * frame_bytes > RAW_AT_MOST if setting is None else setting)


class Frames(Protocol):
    """Single frames by index. Index -1 stands for a frame of zeros."""

    def write(self, index: int, frame: NDArray[Any]) -> None:
        """Keep a copy of `frame` in place of the one there."""
        ...

    def gather(self, indices: NDArray[np.int64], out: NDArray[Any]) -> None:
        """Fill contiguous `out` [*indices.shape, *frame_shape] with the frames of `indices`; zeros for -1."""
        ...

    def pack(self, indices: NDArray[np.int64]) -> tuple[NDArray[np.uint32], bytes]:
        """The frames of `indices` for a file: lengths of the pieces and the pieces joined. One form for all kinds:
        one LZ4 block per frame of at least `WORTH_COMPRESSING` bytes, smaller frames joined as they are."""
        ...

    def unpack(self, indices: NDArray[np.int64], lengths: NDArray[np.uint32], data: memoryview) -> None:
        """The inverse of `pack`. Raises ValueError for what does not fit."""
        ...

    def bytes_used(self, written: int) -> int:
        """Memory that `written` frames occupy."""
        ...


class RawFrames:
    """Frames as they are, in one array whose last row is all zeros: index -1 finds it by itself."""

    def __init__(self, spec: EnvSpec, capacity: int) -> None:
        self._shape, self._dtype = spec.frame_shape, np.dtype(spec.frame_dtype)
        # The system commits pages of zeros only as they are written, so a large capacity costs nothing yet.
        self._rows = np.zeros((capacity + 1, *spec.frame_shape), dtype=self._dtype)
        self._frame_bytes = int(self._rows[0].nbytes)

    def write(self, index: int, frame: NDArray[Any]) -> None:
        _check(frame, self._shape, self._dtype)
        self._rows[index] = frame

    def gather(self, indices: NDArray[np.int64], out: NDArray[Any]) -> None:
        np.take(self._rows, indices, axis=0, out=out, mode="wrap")  # "raise" would go through a buffer

    def pack(self, indices: NDArray[np.int64]) -> tuple[NDArray[np.uint32], bytes]:
        frames = self._rows[indices]
        if self._frame_bytes < WORTH_COMPRESSING:
            return np.array([frames.nbytes], np.uint32), frames.tobytes()
        blobs = [lz4.block.compress(frame, store_size=False) for frame in frames]
        return _lengths(blobs), b"".join(blobs)

    def unpack(self, indices: NDArray[np.int64], lengths: NDArray[np.uint32], data: memoryview) -> None:
        size = self._frame_bytes
        if size < WORTH_COMPRESSING:
            _require(lengths.shape == (1,) and lengths[0] == len(data) == len(indices) * size)
            self._rows[indices] = np.frombuffer(data, self._dtype).reshape(len(indices), *self._shape)
        else:
            for index, blob in zip(indices.tolist(), _pieces(len(indices), lengths, data), strict=True):
                self._rows[index] = np.frombuffer(_expand(blob, size), self._dtype).reshape(self._shape)

    def bytes_used(self, written: int) -> int:
        return written * self._frame_bytes


class CompressedFrames:
    """Frames compressed one by one with LZ4; a frame needed several times by a gather is expanded once."""

    def __init__(self, spec: EnvSpec, capacity: int) -> None:
        self._shape, self._dtype = spec.frame_shape, np.dtype(spec.frame_dtype)
        self._size = spec.frame_bytes
        self._blobs: list[bytes] = [b""] * capacity
        self._compressed = 0  # bytes of all blobs
        self._zeros = bytes(self._size)

    def write(self, index: int, frame: NDArray[Any]) -> None:
        _check(frame, self._shape, self._dtype)
        blob = lz4.block.compress(np.ascontiguousarray(frame), store_size=False)
        self._compressed += len(blob) - len(self._blobs[index])
        self._blobs[index] = blob

    def gather(self, indices: NDArray[np.int64], out: NDArray[Any]) -> None:
        # Each distinct frame is expanded straight into the first place that needs it, then copied to the others.
        # Apart from `out` little is allocated: larger temporaries would make the C library return memory to the
        # system after each call and fetch it again, page by page.
        distinct, first, where = np.unique(indices, return_index=True, return_inverse=True)
        rows = out.reshape(indices.size, *self._shape)  # a view
        memory, size = rows.reshape(-1).view(np.uint8).data, self._size
        for index, row in zip(distinct.tolist(), first.tolist(), strict=True):
            frame = lz4.block.decompress(self._blobs[index], size) if index >= 0 else self._zeros
            memory[row * size : (row + 1) * size] = frame
        source = first[where.reshape(-1)]  # [indices.size] the row that holds what each row needs
        repeated = np.flatnonzero(source != np.arange(indices.size))
        rows[repeated] = rows[source[repeated]]

    def pack(self, indices: NDArray[np.int64]) -> tuple[NDArray[np.uint32], bytes]:
        blobs = [self._blobs[index] for index in indices.tolist()]
        return _lengths(blobs), b"".join(blobs)

    def unpack(self, indices: NDArray[np.int64], lengths: NDArray[np.uint32], data: memoryview) -> None:
        for index, piece in zip(indices.tolist(), _pieces(len(indices), lengths, data), strict=True):
            blob = bytes(piece)
            self._compressed += len(blob) - len(self._blobs[index])
            self._blobs[index] = blob

    def bytes_used(self, written: int) -> int:
        # A pointer of the list and the header of a bytes object per slot, in addition to the content.
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
        raise ValueError("the stored frames differ in size or number from what they should be")
