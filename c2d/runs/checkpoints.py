"""Checkpoints: everything a run depends on, on disk, whole or not at all.

    RUN/checkpoints/000000270000/      named by the steps made, random ones included
        tensors.safetensors            every array of the session's `state_dict`, by its path in it
        state.json                     the rest of the `state_dict`, config and time
        records.jsonl, episodes.csv, points.jsonl    copies of the run's own
        manifest.json                  sizes and SHA-256 of these files and of the replay's segments, and of itself
    RUN/replay/slots-*.safetensors     the replay (runs/journal.py)

A directory is filled under another name, flushed to disk and then renamed. Taking a checkpoint draws no random number
and changes nothing in memory. Reading one executes nothing, and reads nothing of unexpected size.

What a session's `state_dict` holds is not known here: nested dictionaries and lists of plain JSON values, bytes and
NumPy arrays. Checkpoints of format 1 (version 0.1.0) are brought into today's form when they are read (`_upgraded`).

Only what this program wrote is deleted: of a checkpoint the files that its manifest lists, of a half-written one those
of the names above. Whatever else is in these directories stays, and so does a checkpoint without a manifest.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

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
from c2d.runs.journal import LONG, Damaged, Journal, Segment, SlotRing, checked, unpacked
from c2d.runs.layout import CHECKPOINT_NAME, CHECKPOINTS, EPISODES, MANIFEST, POINTS, RECORDS, REPLAY, STATE, TENSORS

FORMAT = 2
_READABLE = (1, 2)
_FILES = (TENSORS, STATE, RECORDS, EPISODES, POINTS, MANIFEST)
_ALWAYS = {TENSORS, STATE, RECORDS, EPISODES}  # checkpoints of version 0.1.0 have no points
_NAME = re.compile(CHECKPOINT_NAME)
_ASIDE = re.compile(rf"damaged-{CHECKPOINT_NAME}(-[0-9]+)?")
# the last one: sweep/transfer.py
_HALF = re.compile(rf"\.{CHECKPOINT_NAME}\.[0-9]+\.tmp|\.(?:removed|incoming)-{CHECKPOINT_NAME}")
LARGEST_STATE = 1 << 26  # bytes of state.json
_LARGEST = {STATE: LARGEST_STATE, RECORDS: 1 << 26, EPISODES: 1 << 28, POINTS: 1 << 28, MANIFEST: 1 << 24}  # bytes
_LARGEST_UNKNOWN = 1 << 30  # bytes of tensors where no session bounds them
_SPARE = 1 << 20  # bytes of a tensor file besides its tensors


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


class Resumable(Protocol):
    """What can be checkpointed: `training.session.Session`."""

    @property
    def steps_made(self) -> int: ...

    @property
    def state_bytes(self) -> int:
        """The most that the arrays of `state_dict` can take."""
        ...

    @property
    def rings(self) -> Sequence[SlotRing]:
        """The replay's slots, one ring per stream. All but the newest slot of each go to the journal."""
        ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """After the rings were filled from the journal."""
        ...


class Saved(NamedTuple):
    """What a checkpoint cost."""

    path: Path
    steps: int  # made until then, random ones included
    seconds: float
    bytes: int  # written


@dataclass
class Checkpoint:
    """One that was read and is whole; the replay's segments are checked when they are read."""

    path: Path
    config: Any  # in its JSON form
    seconds: float  # that the iteration had taken
    session: dict[str, Any]  # as `Session.state_dict` returned it
    segments: list[Segment]
    records: list[dict[str, Any]]  # of the run until then, the first line included
    episodes: str
    points: str

    def network(self, name: str) -> dict[str, NDArray[Any]]:
        """The weights of a network of the learner: "online", "target", or "acting" if a mean of weights acts."""
        weights: dict[str, NDArray[Any]] = self.session["learner"][name]
        return weights


class Checkpoints:
    """The checkpoints of one run directory."""

    def __init__(self, run: Path, keep: int = 2) -> None:
        self.run, self.path, self.keep = run, run / CHECKPOINTS, keep
        self.journal = Journal(run / REPLAY)
        self._segments: list[Segment] = []  # written and still valid
        self._needed: dict[str, set[str]] = {}  # checkpoint -> names of its segments
        self._known: set[str] = set()  # names of all segments that any of these needed

    def save(self, session: Resumable, config: Any, seconds: float, files: dict[str, bytes]) -> Saved:
        """Take one. `config` in its JSON form; `files`: copies of the run's own.

        OSError if it cannot be written; the checkpoints taken before are untouched then.
        """
        started, steps = time.perf_counter(), session.steps_made
        make_directory(self.path)
        before = set(self._segments)
        self._segments = self.journal.extend(session.rings, self._segments)
        state, arrays = _split(session.state_dict())
        contents = {
            TENSORS: safetensors.numpy.save(arrays),
            STATE: _to_json({"format": FORMAT, "config": config, "seconds": seconds, "session": state}),
            **files,
        }
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
        return Saved(final, steps, time.perf_counter() - started, written)

    def newest_first(self) -> Iterator[Path]:
        """Directories with the name of a checkpoint that hold any of its files."""
        for name in sorted(self._names(_NAME), key=lambda name: (len(name), name), reverse=True):
            if set(_listed(self.path / name)) & set(_FILES):
                yield self.path / name

    def read(self, path: Path, session: Resumable | None = None) -> Checkpoint:
        """Read and check one. Damaged if anything about it is wrong, except for segments (see `restore`).

        `session`, one of the run's config, bounds what its tensors may take.
        """
        manifest = _read_manifest(path, self.run)
        largest = _LARGEST_UNKNOWN if session is None else session.state_bytes + _SPARE
        limits = {**_LARGEST, TENSORS: largest}
        contents = {name: self._content(path, manifest, name, limits[name]) for name in manifest["files"]}
        try:
            arrays = unpacked(contents[TENSORS], path / TENSORS)
            state = _read_state(contents[STATE], arrays)
            session_state, seconds = dict(state["session"]), float(state["seconds"])
            segments = [_segment(entry) for entry in manifest["segments"]]
            records = [dict(load_json(line)) for line in contents[RECORDS].decode().splitlines()]
            if not 0.0 <= seconds < 1e12 or not isinstance(records[0]["versions"], dict):
                raise ValueError("it is not as this program writes it")
            episodes, points = contents[EPISODES].decode(), contents.get(POINTS, b"").decode()
        except _WRONG as error:
            raise Damaged(f"{path} cannot be read: {error}") from None
        return Checkpoint(path, state.get("config"), seconds, session_state, segments, records, episodes, points)

    def read_config(self, path: Path) -> Any:
        """Only the config of a checkpoint, in its JSON form."""
        manifest = _read_manifest(path, self.run)
        data = self._content(path, manifest, STATE, _LARGEST[STATE])
        try:
            return load_json(data)["config"]
        except (ValueError, LookupError, TypeError) as error:
            raise Damaged(f"{path} cannot be read: {error}") from None

    def read_header(self, path: Path) -> Any:
        """Only the first line of a checkpoint's records."""
        data = self._content(path, _read_manifest(path, self.run), RECORDS, _LARGEST[RECORDS])
        try:
            return load_json(data.partition(b"\n")[0])
        except ValueError as error:
            raise Damaged(f"{path} cannot be read: {error}") from None

    def files(self, checkpoint: Checkpoint, config: Any) -> Iterator[tuple[str, bytes]]:
        """Names within the run, and contents, of all that a checkpoint consists of, with another config.

        Every byte is checked. The manifest comes last.
        """
        manifest = _read_manifest(checkpoint.path, self.run)
        for segment in checkpoint.segments:
            path = self.journal.path / segment.name
            yield f"{REPLAY}/{segment.name}", checked(path, segment.bytes, segment.sha256, self.run)
        for name, seal in manifest["files"].items():
            data = checked(checkpoint.path / name, seal["bytes"], seal["sha256"], self.run)
            if name == STATE:
                data = json.dumps({**load_json(data), "config": config}).encode()
            manifest["files"][name] = _seal(data)
            yield f"{CHECKPOINTS}/{checkpoint.path.name}/{name}", data
        yield f"{CHECKPOINTS}/{checkpoint.path.name}/{MANIFEST}", _sign(manifest)

    def _content(self, path: Path, manifest: dict[str, Any], name: str, limit: int) -> bytes:
        seal = manifest["files"][name]
        if seal["bytes"] > limit:
            raise Damaged(f"{path / name} is too large: it has {seal['bytes']:,} bytes; at most {limit:,} are possible")
        return checked(path / name, seal["bytes"], seal["sha256"], self.run)

    def _names(self, pattern: re.Pattern[str]) -> list[str]:
        return [name for name in names_inside(self.run, self.path.name, directories=True) if pattern.fullmatch(name)]

    def restore(self, checkpoint: Checkpoint, session: Resumable) -> None:
        """Put a checkpoint into a fresh session. Damaged if the two do not fit."""
        self.journal.read(session.rings, checkpoint.segments)
        try:
            session.load_state_dict(checkpoint.session)
        except _WRONG as error:
            raise Damaged(f"{checkpoint.path} does not fit the run: {error}") from None
        self._segments = checkpoint.segments

    def adopt(self, path: Path | None) -> None:
        """Continue from `path`, or from none. Older ones are kept; later ones, which are damaged, are set aside."""
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

        The run's lock is held: nobody else writes.
        """
        whole = [path for path in self.newest_first() if path.name in self._needed]
        for path in whole[self.keep :]:
            del self._needed[path.name]
            self.remove(path)
        for name in self._names(_ASIDE):
            self.remove(self.path / name)
        self.remove_half_written()
        # a checkpoint that was set aside and cannot be read may need segments that no manifest lists
        only = self._known if self._names(_ASIDE) else None
        self.journal.prune(set().union(*self._needed.values()), only)

    def remove_half_written(self) -> None:
        """Remove what killed processes left. The lock is held."""
        for name in self._names(_HALF):
            _empty(self.path / name, _FILES)
        self.journal.remove_half_written()

    def remove_all(self, unfinished: bool = False) -> None:
        """Remove every checkpoint and the replay of a run that is not to be continued. The lock is held.

        `unfinished`: of a run that is being created, whose checkpoint may not have a manifest yet.
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
            if kind_of(final) is not None:  # of the same step, and not the one this run continued from
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
        """Delete a checkpoint as its manifest lists it. One without a valid manifest stays."""
        try:
            listed = {*_read_manifest(path, self.run)["files"], MANIFEST}
        except Damaged:
            return
        number = re.search(r"[0-9]{12,}", path.name)
        if number is not None and set(_listed(path)) <= listed:
            with suppress(OSError):  # a kill in the middle then leaves nothing that looks like a checkpoint
                path = path.rename(path.with_name(f".removed-{number.group()}"))
        _empty(path, listed)


def _listed(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return [MANIFEST]  # reading it reports the reason


def _empty(directory: Path, names: Iterable[str]) -> None:
    """Delete these files of a directory, and the directory if nothing else is in it."""
    if kind_of(directory) != "directory":
        return
    for name in names:
        with suppress(OSError):
            (directory / name).unlink()
    remove_leftovers(directory, "|".join(map(re.escape, _FILES)))
    with suppress(OSError):
        directory.rmdir()


def _segment(entry: list[Any]) -> Segment:
    first, last, size, sha256, *more = entry
    stream = more[0] if more else 0
    if any(type(number) is not int for number in (first, last, size, stream)) or not isinstance(sha256, str):
        raise ValueError("a segment is not as this program writes it")
    if not 0 <= first < last <= first + LONG or not 0 <= stream < 10**6:
        raise ValueError(f"a segment of stream {stream} goes from {first} to {last}")
    return Segment(first, last, size, sha256, stream)


def _seal(data: bytes) -> dict[str, Any]:
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _sign(manifest: dict[str, Any]) -> bytes:
    body = json.dumps(manifest, sort_keys=True)
    return json.dumps({**manifest, "sha256": hashlib.sha256(body.encode()).hexdigest()}, sort_keys=True).encode()


def _read_manifest(checkpoint: Path, run: Path) -> dict[str, Any]:
    """A valid manifest: its own hash fits, and it has the form it should have."""
    path = checkpoint / MANIFEST
    try:
        manifest = load_json(read_file(path, _LARGEST[MANIFEST], within=run))
        signature = manifest.pop("sha256")
        if hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest() != signature:
            raise Damaged(f"{path} is not what was written: its SHA-256 differs")
        if manifest["format"] not in _READABLE:
            raise Damaged(f"{path} is of format {manifest['format']}; this version reads 1 to {FORMAT}")
        for name in manifest["files"]:
            if name not in _FILES:
                raise Damaged(f"{path} names a file elsewhere: {name}")
        if not set(manifest["files"]) >= _ALWAYS or not isinstance(manifest["segments"], list):
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


# ------------------------------------------------------------------------------------------------- state in two files


def _split(state: Any, path: tuple[str, ...] = ()) -> tuple[Any, dict[str, NDArray[Any]]]:
    """A state without its arrays, each replaced by the path under which it is in the dictionary of arrays."""
    arrays: dict[str, NDArray[Any]] = {}
    if isinstance(state, np.ndarray):
        return {"array": "/".join(path)}, {"/".join(path): state}
    if not isinstance(state, dict | list):
        return state, {}
    plain: dict[Any, Any] = {}
    for key, value in state.items() if isinstance(state, dict) else enumerate(state):
        plain[key], inner = _split(value, (*path, str(key)))
        arrays |= inner
    return (plain if isinstance(state, dict) else list(plain.values())), arrays


def _to_json(state: dict[str, Any]) -> bytes:
    return json.dumps(state, default=lambda value: {"base64": base64.b64encode(value).decode()}).encode()


def _from_json(data: bytes, arrays: dict[str, NDArray[Any]]) -> Any:
    def decode(value: dict[str, Any]) -> Any:
        if set(value) == {"base64"}:
            return base64.b64decode(value["base64"])
        return arrays[value["array"]] if set(value) == {"array"} else value

    return load_json(data, decode)


def _read_state(data: bytes, arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
    """The content of state.json in today's form; one of `_WRONG` if it has none."""
    state: dict[str, Any] = _from_json(data, arrays)
    if state["format"] not in _READABLE:
        raise ValueError(f"{STATE} is of format {state['format']}")
    return _upgraded(state, arrays) if state["format"] == 1 else state


def saved_games(state: bytes, arrays: dict[str, NDArray[Any]]) -> tuple[int, int, list[dict[str, Any]]]:
    """Out of the two files of a checkpoint's state: random and training steps made, and the state of each stream."""
    try:
        session = _read_state(state, arrays)["session"]
        history, step, streams = (session[name] for name in ("history", "step", "streams"))
        return int(history), int(step), [dict(stream) for stream in streams]
    except _WRONG as error:
        raise Damaged(f"{STATE} cannot be read: {error}") from None


def network_arrays(arrays: dict[str, NDArray[Any]], name: str) -> dict[str, NDArray[Any]]:
    """Out of the tensor file of a checkpoint: the weights of the network "online", "target" or "acting"."""
    for prefix in (f"learner/{name}/", f"session.{name}."):  # of format 2, of format 1
        weights = {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}
        if weights:
            return weights
    return {}


def _upgraded(state: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
    """A checkpoint of format 1, with one stream and arrays named session.*, newest.* or sampler.*, in today's form."""
    parts: dict[str, dict[str, NDArray[Any]]] = {"session": {}, "newest": {}, "sampler": {}}
    for name, array in arrays.items():
        part, _, rest = name.partition(".")
        parts[part][rest] = array
    own = parts["session"]
    count = len({name.split(".")[1] for name in own if name.startswith("optimizer.")})
    optimizers = [{"updates": state["updates"], **_below(own, f"optimizer.{number}.")} for number in range(count)]
    tally = dict(state["tally"])
    names = {"mean_loss": "loss_sum", **{name: name for name in ("atom_min", "atom_max", "gradient_norm_max")}}
    values = {name: tally[old] for name, old in names.items()} if tally["updates"] else {}
    counts = dict.fromkeys(values, tally["updates"])
    session = {
        **{name: state[name] for name in ("history", "step", "iteration", "generators", "torch_generators")},
        "tally": {"scores": tally["scores"], "updates": tally["updates"], "counts": counts, "values": values},
        "streams": [
            {
                "environment": state["environment"],
                "observation": own["observation"],
                "action": state.get("chosen"),
            }
        ],
        "learner": {
            "online": network_arrays(arrays, "online"),
            "target": network_arrays(arrays, "target"),
            "optimizers": optimizers,
        },
        "replay": {
            "streams": [{"head": state["replay_head"], "newest": parts["newest"]}],
            "sampler": parts["sampler"],
        },
    }
    return {"format": FORMAT, "config": state["config"], "seconds": state["seconds"], "session": session}


def _below(arrays: dict[str, NDArray[Any]], prefix: str) -> dict[str, NDArray[Any]]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
