"""Checkpoints: everything a run depends on, on disk, whole or not at all.

    RUN/checkpoints/000000270000/      named by the steps made, random ones included
        tensors.safetensors            networks, optimizer, observation, what the sampler knows, the newest slot
        state.json                     counters, random generators, the game, statistics, config
        records.jsonl, episodes.csv    as they were
        manifest.json                  sizes and SHA-256 of the above and of the replay's segments, and of itself
    RUN/replay/slots-*.safetensors     the replay (replay/journal.py)

A directory is filled under another name, flushed to disk and then renamed. Taking a checkpoint draws no random
number and changes nothing in memory. Reading one executes nothing, and takes nothing of a size it did not expect.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.torch
import torch
from torch import Tensor

from c2d.files import flush_directory, write_flushed
from c2d.replay.buffer import Replay
from c2d.replay.journal import Damaged, Journal, Segment, checked, unpacked
from c2d.training.session import Session

FORMAT = 1
MANIFEST, STATE, TENSORS = "manifest.json", "state.json", "tensors.safetensors"
RECORDS, EPISODES = "records.jsonl", "episodes.csv"  # copies of the run's own files
_NAME = re.compile(r"[0-9]{12}")
_LARGEST = 1 << 30  # bytes of a file that is no tensor
_LARGEST_TENSORS = 1 << 34


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
        self.path, self.keep = run / "checkpoints", keep
        self.journal = Journal(run / "replay")
        self._segments: list[Segment] = []  # written and still right
        self._needed: dict[str, set[str]] = {}  # checkpoint -> names of its segments

    def save(self, session: Session, beside: dict[str, Any], files: dict[str, bytes]) -> Saved:
        """Take one, with other values and files of the run beside it.

        OSError if it cannot be written; those taken before are untouched then.
        """
        began, steps = time.perf_counter(), session.steps_made
        self.path.mkdir(exist_ok=True)
        before = set(self._segments)
        self._segments = self.journal.extend(session.replay, self._segments)
        state = {"format": FORMAT, **beside, "replay_head": session.replay.head, **session.state()}
        contents = {TENSORS: _pack_tensors(session), STATE: _to_json(state), **files}
        manifest = {
            "format": FORMAT,
            "files": {name: _seal(data) for name, data in contents.items()},
            "segments": [list(segment) for segment in self._segments],
        }
        contents[MANIFEST] = _sign(manifest)
        final = self.path / f"{steps:012d}"
        self._place(contents, final)
        self._needed[final.name] = {segment.name for segment in self._segments}
        self._forget_old()
        written = sum(map(len, contents.values())) + sum(s.bytes for s in set(self._segments) - before)
        return Saved(final, steps, time.perf_counter() - began, written)

    def newest_first(self) -> Iterator[Path]:
        if self.path.is_dir():
            yield from sorted((p for p in self.path.iterdir() if _NAME.fullmatch(p.name)), reverse=True)

    def read(self, path: Path) -> Checkpoint:
        """Read and check one; Damaged if anything about it is wrong, but for segments (see `restore`)."""
        manifest = _read_manifest(path / MANIFEST)
        contents = {}
        for name, seal in manifest["files"].items():
            if "/" in name or name.startswith("."):
                raise Damaged(f"{path / MANIFEST} names a file elsewhere: {name}")
            if seal["bytes"] > (_LARGEST_TENSORS if name == TENSORS else _LARGEST):
                raise Damaged(f"{path / name} is far too large")
            contents[name] = checked(path / name, seal["bytes"], seal["sha256"])
        try:
            state = dict(_from_json(contents.pop(STATE)))
            if state["format"] != FORMAT:
                raise ValueError(f"{STATE} is of format {state['format']}")
            tensors = unpacked(contents.pop(TENSORS), path / TENSORS)
            segments = [_segment(entry) for entry in manifest["segments"]]
            records = [dict(json.loads(line)) for line in contents.pop(RECORDS).decode().splitlines()]
            episodes = contents.pop(EPISODES).decode()
            if not records or not float(state["seconds"]) >= 0.0 or contents:
                raise ValueError("it is not as this program writes it")
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise Damaged(f"{path} cannot be read: {error}") from None
        return Checkpoint(path, state, tensors, segments, records, episodes)

    def restore(self, checkpoint: Checkpoint, session: Session) -> str | None:
        """Put a checkpoint into a fresh session. Returns what of the game could not be continued, if anything."""
        head = checkpoint.state.get("replay_head")
        if not isinstance(head, int) or head < 1 or _end(checkpoint.segments, head - 1) != head - 1:
            raise Damaged(f"{checkpoint.path / STATE} and the replay's files do not agree")
        self.journal.read(session.replay, checkpoint.segments, head)
        try:
            _unpack_tensors(session, checkpoint.tensors, head, checkpoint.segments)
            astray = session.restore(checkpoint.state)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RuntimeError) as error:
            raise Damaged(f"{checkpoint.path} does not fit the run: {error}") from None
        self._segments = checkpoint.segments
        return astray

    def adopt(self, path: Path) -> None:
        """Continue from `path`: older ones are kept as such; later ones, found damaged, are set aside."""
        for other in self.newest_first():
            if other.name > path.name:
                aside = other.with_name(f"damaged-{other.name}")
                shutil.rmtree(aside, ignore_errors=True)
                other.rename(aside)
                continue
            try:
                names = {_segment(entry).name for entry in _read_manifest(other / MANIFEST)["segments"]}
            except (Damaged, TypeError, ValueError):
                continue
            self._needed[other.name] = names

    def restate(self, path: Path, **changes: Any) -> None:
        """Change values of a checkpoint's state, in a directory that is not a run yet."""
        manifest = _read_manifest(path / MANIFEST)
        data = _to_json({**json.loads((path / STATE).read_bytes()), **changes})
        manifest["files"][STATE] = _seal(data)
        write_flushed(path / STATE, data)
        write_flushed(path / MANIFEST, _sign(manifest))

    def _place(self, contents: dict[str, bytes], final: Path) -> None:
        temporary = self.path / f".{final.name}.{os.getpid()}.tmp"
        shutil.rmtree(temporary, ignore_errors=True)
        try:
            temporary.mkdir()
            for name, data in contents.items():
                write_flushed(temporary / name, data)
            flush_directory(temporary)
            if final.exists():  # of the same moment, and not the one this run continued from
                shutil.rmtree(final)
            temporary.rename(final)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        flush_directory(self.path)

    def _forget_old(self) -> None:
        """Keep the newest `keep`; a segment goes when no checkpoint needs it."""
        whole = [path for path in self.newest_first() if path.name in self._needed]
        for path in whole[self.keep :]:
            del self._needed[path.name]
        for path in self.path.iterdir():
            if path.name not in self._needed:
                shutil.rmtree(path, ignore_errors=True)
        self.journal.prune(set().union(*self._needed.values()))


def _segment(entry: list[Any]) -> Segment:
    first, last, size, sha256 = entry
    if not 0 <= int(first) < int(last):
        raise ValueError(f"a segment from {first} to {last}")
    return Segment(int(first), int(last), int(size), str(sha256))


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
    session.replay.recount(segments[0].first if segments else head - 1, head, parts["sampler"])


def _seal(data: bytes) -> dict[str, Any]:
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _sign(manifest: dict[str, Any]) -> bytes:
    body = json.dumps(manifest, sort_keys=True)
    return json.dumps({**manifest, "sha256": hashlib.sha256(body.encode()).hexdigest()}, sort_keys=True).encode()


def _read_manifest(path: Path) -> dict[str, Any]:
    """A manifest that is whole: its own hash fits, and it has the form it should have."""
    try:
        if path.stat().st_size > _LARGEST:
            raise Damaged(f"{path} is far too large")
        manifest = json.loads(path.read_bytes())
        signature = manifest.pop("sha256")
        if hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest() != signature:
            raise Damaged(f"{path} is not what was written: its SHA-256 differs")
        if manifest["format"] != FORMAT:
            raise Damaged(f"{path} is of format {manifest['format']}; this version reads {FORMAT}")
        if not {STATE, TENSORS} <= set(manifest["files"]) or not isinstance(manifest["segments"], list):
            raise Damaged(f"{path} is incomplete")
        for seal in manifest["files"].values():
            if not isinstance(seal["bytes"], int) or not isinstance(seal["sha256"], str):
                raise Damaged(f"{path} has values of a wrong kind")
    except OSError as error:
        raise Damaged(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Damaged(f"{path} cannot be read: {error}") from None
    result: dict[str, Any] = manifest
    return result


def _to_json(state: dict[str, Any]) -> bytes:
    return json.dumps(state, default=lambda value: {"base64": base64.b64encode(value).decode()}).encode()


def _from_json(data: bytes) -> Any:
    def decode(value: dict[str, Any]) -> Any:
        return base64.b64decode(value["base64"]) if set(value) == {"base64"} else value

    return json.loads(data, object_hook=decode)
