"""Proof of exact resume: a run that never stops and one that is killed and resumed, compared part by part.

As a program (`python -m c2d.training.verification`) it is one process of such a run: it reads from its input as JSON
what to do, and writes to its output the digests of the session it ends with.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from c2d.config import Config, from_json, to_json
from c2d.errors import UserError
from c2d.runs.layout import RunDir
from c2d.runs.reader import canonical_records
from c2d.training.observers import Observer, RunView
from c2d.training.process import keep_memory
from c2d.training.run import run
from c2d.training.session import Session
from c2d.types import FinishedGame
from c2d.user_code import TRUSTED

_BATCH = 1_024  # slots of the replay that are read together


class Comparison(NamedTuple):
    """One part of the state after the same number of steps."""

    part: str
    straight: str  # digests
    resumed: str

    @property
    def equal(self) -> bool:
        return self.straight == self.resumed


def verify(config: Config, kills: list[int], where: Path, tell: Callable[[str], None]) -> list[Comparison]:
    """Run `config` straight, and again with SIGKILL after each number of steps in `kills`; compare the ends."""
    straight, resumed = where / "straight", where / "resumed"
    tell(f"training {config.steps:,} steps without a stop ...")
    wanted = _process(dataclasses.replace(config, run_dir=str(straight)), None)
    for step in kills:
        tell(f"training again, kill -9 after step {step:,} ...")
        _process(dataclasses.replace(config, run_dir=str(resumed)), step)
    tell("resuming to the end ...")
    found = _process(dataclasses.replace(config, run_dir=str(resumed)), None)
    for name, digest in (("records", _records), ("episodes", _episodes), ("weights file", _weights)):
        wanted[name], found[name] = digest(straight), digest(resumed)
    return [Comparison(part, wanted[part], found.get(part, "missing")) for part in wanted]


def digests(session: Session) -> dict[str, str]:
    """A hash of each part of a session; equal for equal futures."""
    state = session.state_dict()
    learner, replay = state.pop("learner"), session.replay
    parts: dict[str, Any] = {
        "random generators": [state.pop("generators"), state.pop("torch_generators")],
        "environment": [stream.pop("environment") for stream in state["streams"]],
        "observation": [stream.pop("observation") for stream in state["streams"]],
        "online network": learner.pop("online"),
        "target network": learner.pop("target"),
        **({"acting network": learner.pop("acting")} if "acting" in learner else {}),
        "optimizer": learner,
        "sampler": state.pop("replay")["sampler"],
        "counters and statistics": state,
    }
    found = {name: _hash([json.dumps(value, sort_keys=True, default=_hex).encode()]) for name, value in parts.items()}
    slots = replay.sampleable()
    ends = [number for ring in replay.rings for number in (ring.head, ring.oldest, ring.ready)]
    counters = np.array([*ends, len(replay)])
    contents = [counters.tobytes(), slots.tobytes()]
    count = max(_BATCH // replay.reach, 1)
    for start in range(0, len(slots), count):
        contents += [_hash(_bytes(replay.read(slots[start : start + count]))).encode()]
    return {**found, "replay": _hash(contents)}


def _bytes(part: Any) -> Iterator[bytes]:
    """All that a batch consists of."""
    if isinstance(part, Tensor):
        yield part.numpy().tobytes()
    elif isinstance(part, tuple):
        for inner in part:
            yield from _bytes(inner)
    elif part is not None:
        yield repr(part).encode()


def _hex(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else f"{value.dtype} {value.shape} {value.tobytes().hex()}"


def _hash(parts: Any) -> str:
    total = hashlib.sha256()
    for part in parts:
        total.update(part)
    return total.hexdigest()[:16]


def _records(run: Path) -> str:
    return _hash([canonical_records(RunDir(run).records)])


def _episodes(run: Path) -> str:
    return _hash([RunDir(run).episodes.read_bytes()])


def _weights(run: Path) -> str:
    return _hash([RunDir(run).weights.read_bytes()])


def _process(config: Config, kill_after: int | None, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """One process of a run; the digests it ended with, or nothing if it was to be killed."""
    done = subprocess.run(
        [sys.executable, "-m", "c2d.training.verification"],
        input=json.dumps({"config": to_json(config), "kill_after": kill_after, "trusted": sorted(TRUSTED)}),
        capture_output=True,
        text=True,
        env=dict(environment),
    )
    if kill_after is not None and done.returncode == -signal.SIGKILL:
        return {}
    if done.returncode != 0 or kill_after is not None:
        last = (done.stderr.strip() or "no message").splitlines()[-1]
        raise UserError(f"a process of the verification ended with exit code {done.returncode}: {last}")
    answer: dict[str, str] = json.loads(done.stdout)
    return answer


class _Witness(Observer):
    """Kills the process at a step, or keeps the digests of the end."""

    def __init__(self, kill_after: int | None) -> None:
        self.kill_after = kill_after
        self.found: dict[str, str] = {}

    def step(self, run: RunView, games: Sequence[FinishedGame]) -> None:
        if self.kill_after is not None and run.step >= self.kill_after:
            os.kill(os.getpid(), signal.SIGKILL)

    def end(self, run: RunView, summary: Mapping[str, Any]) -> None:
        self.found = digests(run._session)


def _main() -> None:
    request = json.loads(sys.stdin.read())
    witness = _Witness(request["kill_after"])
    keep_memory()  # this process is ours
    TRUSTED.update(request["trusted"])
    run(from_json(request["config"]), [witness])
    print(json.dumps(witness.found))


if __name__ == "__main__":
    _main()
