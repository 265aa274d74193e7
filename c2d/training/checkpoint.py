"""Checkpoints: everything a run depends on, on disk, whole or not at all.

    RUN/checkpoints/000000270000/      named by the steps made, random ones included
        tensors.safetensors            networks, optimizer, observation, what the sampler knows, the newest slot
        state.json                     counters, random generators, the game, statistics, config
        records.jsonl, episodes.csv    as they were
        manifest.json                  sizes and SHA-256 of the above and of the replay's segments, and of itself
    RUN/replay/slots-*.safetensors     the replay (replay/journal.py)

A directory is filled under another name, flushed to disk and then renamed. Taking a checkpoint draws no random
number and changes nothing in memory. Reading one executes nothing, and takes nothing of a size it did not expect.

Only what this program wrote is deleted: of a checkpoint the files that its manifest lists, of a half-written one
those of the names above. Whatever else lies in these directories stays, and so does a checkpoint without a manifest.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import json
import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.torch
import torch
from torch import Tensor

from c2d.files import (
    flush_directory,
    kind_of,
    load_json,
    make_directory,
    names_inside,
    read_file,
    remove_leftovers,
    write_flushed,
)
from c2d.replay.buffer import Replay
from c2d.replay.journal import LONG, Damaged, Journal, Segment, checked, unpacked
from c2d.training.session import Session

FORMAT = 1
MANIFEST, STATE, TENSORS = "manifest.json", "state.json", "tensors.safetensors"
RECORDS, EPISODES = "records.jsonl", "episodes.csv"  # copies of the run's own files
_FILES = (TENSORS, STATE, RECORDS, EPISODES, MANIFEST)
_NAME = re.compile(r"[0-9]{12,}")
_ASIDE = re.compile(r"damaged-[0-9]{12,}(-[0-9]+)?")
_HALF = re.compile(r"\.[0-9]{12,}\.[0-9]+\.tmp|\.(?:removed|incoming)-[0-9]{12,}")  # incoming: sweep/transfer.py
_LARGEST = {STATE: 1 << 26, RECORDS: 1 << 26, EPISODES: 1 << 28, MANIFEST: 1 << 24}  # bytes
_LARGEST_UNKNOWN = 1 << 30  # bytes of tensors where no session tells
_SPARE = 1 << 20  # bytes of a tensor file beside its tensors


# What libraries and environments raise for values that no run has saved
_WRONG = (
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    ArithmeticError,
    RuntimeError,
    AssertionError,
    SystemError,
)


class Saved(NamedTuple):
    """What a checkpoint cost."""

    path: Path
    steps: int  # made until then, random ones included
    seconds: float
    bytes: int  # written


@dataclass
class Checkpoint:
    """One that was read and found whole; the replay's segments are checked when they are read."""

    path: Path
    state: dict[str, Any]
    tensors: dict[str, Any]  # numpy arrays
    segments: list[Segment]
    records: list[dict[str, Any]]  # of the run until then, the first line included
    episodes: str


class Checkpoints:
    """The checkpoints of one run directory."""

    def __init__(self, run: Path, keep: int = 2) -> None:
        self.run, self.path, self.keep = run, run / "checkpoints", keep
        self.journal = Journal(run / "replay")
        self._segments: list[Segment] = []  # written and still right
        self._needed: dict[str, set[str]] = {}  # checkpoint -> names of its segments
        self._known: set[str] = set()  # names of all segments that were ever among these

    def save(self, session: Session, beside: dict[str, Any], files: dict[str, bytes]) -> Saved:
        """Take one, with other values and files of the run beside it.

        OSError if it cannot be written; those taken before are untouched then.
        """
        began, steps = time.perf_counter(), session.steps_made
        make_directory(self.path)
        before = set(self._segments)
        self._segments = self.journal.extend(session.replay, self._segments)
        state = {"format": FORMAT, **beside, "replay_head": session.replay.head, **session.state()}
        contents = {TENSORS: _pack_tensors(session), STATE: _to_json(state), **files}
        for name, data in contents.items():
            if len(data) > _LARGEST.get(name, len(data)):
                raise OSError(errno.EFBIG, f"{name} would have {len(data):,} bytes, more than can be read back")
        manifest = {
            "format": FORMAT,
            "files": {name: _seal(data) for name, data in contents.items()},
            "segments": [list(segment) for segment in self._segments],
        }
        contents[MANIFEST] = _sign(manifest)
        final = self.path / f"{steps:012d}"
        self._place(contents, final)
        self._need(final.name, self._segments)
        self.tidy()
        written = sum(map(len, contents.values())) + sum(s.bytes for s in set(self._segments) - before)
        return Saved(final, steps, time.perf_counter() - began, written)

    def newest_first(self) -> Iterator[Path]:
        """Directories of the right name that hold any of a checkpoint's files."""
        for name in sorted(self._names(_NAME), key=lambda name: (len(name), name), reverse=True):
            if set(_listed(self.path / name)) & set(_FILES):
                yield self.path / name

    def read(self, path: Path, session: Session | None = None) -> Checkpoint:
        """Read and check one; Damaged if anything about it is wrong, but for segments (see `restore`).

        `session`, one of the run's config, tells how much its tensors may take.
        """
        manifest = _read_manifest(path, self.run)
        limits = {**_LARGEST, TENSORS: _LARGEST_UNKNOWN if session is None else _most_bytes(session)}
        contents = {name: self._content(path, manifest, name, limits[name]) for name in manifest["files"]}
        state = _state(path, contents.pop(STATE))
        try:
            tensors = unpacked(contents.pop(TENSORS), path / TENSORS)
            segments = [_segment(entry) for entry in manifest["segments"]]
            records = [dict(load_json(line)) for line in contents.pop(RECORDS).decode().splitlines()]
            episodes = contents.pop(EPISODES).decode()
            if not 0.0 <= float(state["seconds"]) < 1e12 or not isinstance(records[0]["versions"], dict):
                raise ValueError("it is not as this program writes it")
        except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
            raise Damaged(f"{path} cannot be read: {error}") from None
        return Checkpoint(path, state, tensors, segments, records, episodes)

    def read_state(self, path: Path) -> dict[str, Any]:
        """Only the plain values of a checkpoint, the config among them."""
        manifest = _read_manifest(path, self.run)
        return _state(path, self._content(path, manifest, STATE, _LARGEST[STATE]))

    def files(self, checkpoint: Checkpoint, **changes: Any) -> Iterator[tuple[str, bytes]]:
        """Names within the run, and contents, of all that a checkpoint is made of, other values in its state.

        Every byte is checked. The manifest comes last.
        """
        manifest = _read_manifest(checkpoint.path, self.run)
        for segment in checkpoint.segments:
            path = self.journal.path / segment.name
            yield f"replay/{segment.name}", checked(path, segment.bytes, segment.sha256, self.run)
        state = _to_json({**checkpoint.state, **changes})
        for name, seal in manifest["files"].items():
            data = state if name == STATE else checked(checkpoint.path / name, seal["bytes"], seal["sha256"], self.run)
            manifest["files"][name] = _seal(data)
            yield f"checkpoints/{checkpoint.path.name}/{name}", data
        yield f"checkpoints/{checkpoint.path.name}/{MANIFEST}", _sign(manifest)

    def _content(self, path: Path, manifest: dict[str, Any], name: str, limit: int) -> bytes:
        seal = manifest["files"][name]
        if seal["bytes"] > limit:
            raise Damaged(
                f"{path / name} is far too large: {seal['bytes']:,} bytes, and at most {limit:,} are possible"
            )
        return checked(path / name, seal["bytes"], seal["sha256"], self.run)

    def _names(self, pattern: re.Pattern[str]) -> list[str]:
        return [name for name in names_inside(self.run, self.path.name, directories=True) if pattern.fullmatch(name)]

    def restore(self, checkpoint: Checkpoint, session: Session) -> str | None:
        """Put a checkpoint into a fresh session. Returns what of the game could not be continued, if anything."""
        head = checkpoint.state.get("replay_head")
        if not isinstance(head, int) or head < 1 or _end(checkpoint.segments, head - 1) != head - 1:
            raise Damaged(f"{checkpoint.path / STATE} and the replay's files do not agree")
        self.journal.read(session.replay, checkpoint.segments, head)
        try:
            _unpack_tensors(session, checkpoint.tensors, head, checkpoint.segments)
            mismatch = session.restore(checkpoint.state)
        except _WRONG as error:
            raise Damaged(f"{checkpoint.path} does not fit the run: {error}") from None
        self._segments = checkpoint.segments
        return mismatch

    def adopt(self, path: Path | None) -> None:
        """Continue from `path`, or from none: older ones are kept as such; later ones, found damaged, are set aside."""
        newest = list(self.newest_first())
        later = newest.index(path) if path in newest else len(newest)
        for other in newest[:later]:
            self._set_aside(other)
        for other in newest[later:]:
            with suppress(Damaged, TypeError, ValueError):
                manifest = _read_manifest(other, self.run)
                self._need(other.name, map(_segment, manifest["segments"]))

    def _need(self, name: str, segments: Iterable[Segment]) -> None:
        self._needed[name] = {segment.name for segment in segments}
        self._known |= self._needed[name]

    def tidy(self) -> None:
        """Keep the newest `keep`, and no half-written ones; a segment goes when no checkpoint needs it.

        While the run's lock is held: nobody else is writing.
        """
        whole = [path for path in self.newest_first() if path.name in self._needed]
        for path in whole[self.keep :]:
            del self._needed[path.name]
            self.remove(path)
        for name in self._names(_ASIDE):
            self.remove(self.path / name)
        self.remove_half_written()
        # a checkpoint that was set aside and cannot be read may need segments that nobody knows of
        only = self._known if self._names(_ASIDE) else None
        self.journal.prune(set().union(*self._needed.values()), only)

    def remove_half_written(self) -> None:
        """What killed processes left. The lock is held."""
        for name in self._names(_HALF):
            _empty(self.path / name, _FILES)
        self.journal.remove_half_written()

    def remove_all(self, unfinished: bool = False) -> None:
        """Every checkpoint and the replay, of a run that is not to be continued. The lock is held.

        `unfinished`: of a run in the making, whose checkpoint may have no manifest yet.
        """
        self._needed.clear()
        for name in (*self._names(_NAME), *self._names(_ASIDE)):
            self.remove(self.path / name)
        for name in self._names(_NAME) if unfinished else ():
            _empty(self.path / name, _FILES)
        self.tidy()
        for path in (self.path, self.journal.path):
            with suppress(OSError):
                path.rmdir()

    def _place(self, contents: dict[str, bytes], final: Path) -> None:
        temporary = self.path / f".{final.name}.{os.getpid()}.tmp"
        _empty(temporary, _FILES)
        try:
            temporary.mkdir()
            for name, data in contents.items():
                write_flushed(temporary / name, data)
            flush_directory(temporary)
            if kind_of(final) is not None:  # of the same moment, and not the one this run continued from
                self.remove(final)
            if kind_of(final) is not None:
                self._set_aside(final)
            temporary.rename(final)
        finally:
            _empty(temporary, _FILES)
        flush_directory(self.path)

    def _set_aside(self, path: Path) -> None:
        number, aside = 1, path.with_name(f"damaged-{path.name}")
        while kind_of(aside) is not None:
            number += 1
            aside = path.with_name(f"damaged-{path.name}-{number}")
        path.rename(aside)

    def remove(self, path: Path) -> None:
        """Delete a checkpoint as its manifest lists it. One without a manifest that is whole stays."""
        try:
            listed = {*_read_manifest(path, self.run)["files"], MANIFEST}
        except Damaged:
            return
        number = re.search(r"[0-9]{12,}", path.name)
        if number is not None and set(_listed(path)) <= listed:
            with suppress(OSError):  # so that a kill in the middle leaves nothing that looks like a checkpoint
                path = path.rename(path.with_name(f".removed-{number.group()}"))
        _empty(path, listed)


def _listed(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return [MANIFEST]  # reading it reports the reason


def _empty(directory: Path, names: Iterable[str]) -> None:
    """Delete these files of a directory, and the directory itself if nothing else is in it."""
    if kind_of(directory) != "directory":
        return
    for name in names:
        with suppress(OSError):
            (directory / name).unlink()
    remove_leftovers(directory, "|".join(map(re.escape, _FILES)))
    with suppress(OSError):
        directory.rmdir()


def _most_bytes(session: Session) -> int:
    """Of the file of tensors of a checkpoint of such a session; a fork may have come from a larger replay."""
    replay = session.replay
    own = sum(tensor.nbytes for tensor in session.tensors().values())
    return own + 2 * replay.frame_bytes + 10 * 8 * replay.capacity + _SPARE


def _state(path: Path, data: bytes) -> dict[str, Any]:
    try:
        state = dict(_from_json(data))
        if state["format"] != FORMAT:
            raise ValueError(f"{STATE} is of format {state['format']}")
    except (KeyError, TypeError, ValueError) as error:
        raise Damaged(f"{path} cannot be read: {error}") from None
    return state


def _segment(entry: list[Any]) -> Segment:
    first, last, size, sha256 = entry
    if any(type(number) is not int for number in (first, last, size)) or not isinstance(sha256, str):
        raise ValueError("a segment that is not as this program writes it")
    if not 0 <= first < last <= first + LONG:
        raise ValueError(f"a segment from {first} to {last}")
    return Segment(first, last, size, sha256)


def _end(segments: list[Segment], default: int) -> int:
    return segments[-1].last if segments else default


def _pack_tensors(session: Session) -> bytes:
    replay: Replay = session.replay
    newest = replay.pack(replay.head - 1, replay.head)
    arrays = {f"sampler.{name}": array for name, array in replay.sampler.state().items()}
    arrays |= {f"newest.{name}": array for name, array in newest.items()}
    tensors = {f"session.{name}": tensor for name, tensor in session.tensors().items()}
    tensors |= {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}
    # a copy: safetensors refuses tensors that share memory
    return safetensors.torch.save({name: t.detach().cpu().clone(memory_format=torch.contiguous_format)
                                   for name, t in tensors.items()})  # fmt: skip


def _unpack_tensors(session: Session, arrays: dict[str, Any], head: int, segments: list[Segment]) -> None:
    parts: dict[str, dict[str, Any]] = {"session": {}, "newest": {}, "sampler": {}}
    for name, array in arrays.items():
        part, _, rest = name.partition(".")
        parts[part][rest] = array
    own: dict[str, Tensor] = session.tensors()
    if set(own) != set(parts["session"]):
        differing = sorted(set(own) ^ set(parts["session"]))
        raise ValueError(f"tensors differ: {', '.join(differing[:3])}")
    for name, tensor in own.items():
        stored = torch.from_numpy(parts["session"][name])
        if stored.shape != tensor.shape or stored.dtype != tensor.dtype:
            raise ValueError(f"{name} is {tuple(stored.shape)} in the checkpoint, {tuple(tensor.shape)} in the run")
        tensor.detach().copy_(stored)
    session.replay.unpack(head - 1, head, parts["newest"])
    session.replay.rebuild_index(segments[0].first if segments else head - 1, head, parts["sampler"])


def _seal(data: bytes) -> dict[str, Any]:
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _sign(manifest: dict[str, Any]) -> bytes:
    body = json.dumps(manifest, sort_keys=True)
    return json.dumps({**manifest, "sha256": hashlib.sha256(body.encode()).hexdigest()}, sort_keys=True).encode()


def _read_manifest(checkpoint: Path, run: Path) -> dict[str, Any]:
    """A manifest that is whole: its own hash fits, and it has the form it should have."""
    path = checkpoint / MANIFEST
    try:
        manifest = load_json(read_file(path, _LARGEST[MANIFEST], within=run))
        signature = manifest.pop("sha256")
        if hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest() != signature:
            raise Damaged(f"{path} is not what was written: its SHA-256 differs")
        if manifest["format"] != FORMAT:
            raise Damaged(f"{path} is of format {manifest['format']}; this version reads {FORMAT}")
        for name in manifest["files"]:
            if name not in _FILES:
                raise Damaged(f"{path} names a file elsewhere: {name}")
        if len(manifest["files"]) != len(_FILES) - 1 or not isinstance(manifest["segments"], list):
            raise Damaged(f"{path} is incomplete")
        for seal in manifest["files"].values():
            if type(seal["bytes"]) is not int or seal["bytes"] < 0 or not isinstance(seal["sha256"], str):
                raise Damaged(f"{path} has values of a wrong kind")
    except OSError as error:
        raise Damaged(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Damaged(f"{path} cannot be read: {error}") from None
    result: dict[str, Any] = manifest
    return result


def _to_json(state: dict[str, Any]) -> bytes:
    return json.dumps(state, default=lambda value: {"base64": base64.b64encode(value).decode()}).encode()


def _from_json(data: bytes) -> Any:
    def decode(value: dict[str, Any]) -> Any:
        return base64.b64decode(value["base64"]) if set(value) == {"base64"} else value

    return load_json(data, decode)
