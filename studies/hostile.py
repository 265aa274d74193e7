"""Every command that reads a run directory, on every kind of damage: nothing hangs, nothing outside is touched.

    python studies/hostile.py --out docs/results/hostile.md      # all of it
    python studies/hostile.py --compact                          # a part of it, for the test suite

Each case is a copy of a stopped run with one thing wrong, and one command, in a process of its own. It passes if the
command ends by itself with exit code 0, 1 or 2 within its time and memory, prints neither a traceback nor a control
character, and does not touch files outside the run or the user's own files inside it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors.numpy
import torch

from c2d.cli.main import COMMANDS, main
from c2d.config import Checkpointing, default_config, to_json
from c2d.files import write_atomically
from c2d.runs.checkpoints import _sign
from c2d.training.run import Observer, run

SECONDS = 20.0  # for a command
MEGABYTES = 1_500  # of memory, the program itself included
_DIGITS = "9" * 5_000
_DEEP = "[" * 100_000
_CONTROL = '{"class": "Config\\u001b[31m", "env": "\\u001b]0;owned\\u0007", "kind": "run\\u001b[2J"}'
SPARSE = 12 << 30
UNHARMED = "none: every command works"


class Case(NamedTuple):
    """One kind of damage to one file."""

    group: str
    name: str
    harm: Callable[[Place], None]


class Place:
    """The directories of a case."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.sweep = top / "sweep"
        self.run = top / "sweep" / "run"
        self.outside = top / "outside"
        self.new = top / "new"

    @property
    def newest(self) -> Path:
        return max(path for path in (self.run / "checkpoints").iterdir() if path.name.isdigit())

    @property
    def segment(self) -> Path:
        return max((self.run / "replay").glob("slots-0*.safetensors"))


@dataclass
class Outcome:
    """How a command ended."""

    code: int | None = None  # None: it had to be killed
    seconds: float = 0.0
    megabytes: float = 0.0
    text: str = ""
    troubles: list[str] = field(default_factory=list)


# -------------------------------------------------------------------------------------------------- a run to harm


class _Crash(BaseException):
    pass


class _Crasher(Observer):
    def step(self, run: Any, games: Any) -> None:
        if run.step == 100:
            raise _Crash


def template(top: Path) -> Place:
    """A stopped run with two checkpoints, in a sweep, next to files that do not belong to it."""
    place = Place(top)
    config = default_config(
        "gym/CartPole-v1", seed=1, iterations=2, run_dir=str(place.run), tensorboard=False, threads=1
    )
    schedule = replace(
        config.recipe.schedule, steps_per_iteration=60, random_history=40, replay_capacity=90, batch_size=4,
        update_period=8, target_period=50, epsilon_decay_steps=100,
    )  # fmt: skip
    head = replace(config.recipe.head, atoms=4, hidden=8, embedding=8)
    saving = Checkpointing(every_steps=40, every_minutes=0.0)
    config = replace(config, checkpoint=saving, recipe=replace(config.recipe, schedule=schedule, head=head))
    with suppress(_Crash):
        run(config, [_Crasher()])
    (place.run / "log.txt").write_text("begun\n")
    for name in ("evaluations", "tensorboard"):
        (place.run / name).mkdir(exist_ok=True)
    own = {"checkpoints/mine/notes.txt": "mine", "checkpoints/notes.txt": "mine", "replay/slots-mine.tmp": "mine",
           "replay/slots-000000000000-000000000009.safetensors": "not a segment", "my-notes.tmp": "mine"}  # fmt: skip
    for name, text in own.items():
        (place.run / name).parent.mkdir(exist_ok=True)
        (place.run / name).write_text(text)
    row = {"variant": "c2d", "hash": "x", "config": to_json(replace(config, run_dir=None))}
    (place.sweep / "sweep.json").write_text(json.dumps({"format": 1, "plan": "p", "runs": {"run": row}}))
    (place.sweep / "sweep-events.jsonl").write_text(
        '{"time": 1, "event": "failed", "run": "run", "error": "it broke"}\n'
    )
    (place.sweep / "sweep.lock").write_text("")
    place.outside.mkdir()
    for name in ("data/000000000077/thesis.txt", "data/half.tmp", "file.txt", "data/slots-1.safetensors"):
        (place.outside / name).parent.mkdir(parents=True, exist_ok=True)
        (place.outside / name).write_text("somebody else's")
    return place


def untouchable(place: Place) -> dict[str, str]:
    """A hash of every file outside the run, and of the user's own files in it."""
    found = {}
    inside = [path for name in ("mine", "notes", "slots-000000000000-000000000009") for path in _below(place.run, name)]
    for path in [*sorted(place.outside.rglob("*")), *inside]:
        found[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "directory"
    return found


def _below(top: Path, word: str) -> Iterator[Path]:
    for directory, _, names in os.walk(top):  # does not follow links
        yield from (
            Path(directory) / name for name in names if word in name and not (Path(directory) / name).is_symlink()
        )


# ------------------------------------------------------------------------------------------------------- the harm

FILES = {
    "config.json": lambda p: p.run / "config.json",
    "env.json": lambda p: p.run / "env.json",
    "passport.json": lambda p: p.run / "passport.json",
    "summary.json": lambda p: p.run / "summary.json",
    "records.jsonl": lambda p: p.run / "records.jsonl",
    "episodes.csv": lambda p: p.run / "episodes.csv",
    "events.jsonl": lambda p: p.run / "events.jsonl",
    "lock": lambda p: p.run / "lock",
    "log.txt": lambda p: p.run / "log.txt",
    "weights.safetensors": lambda p: p.run / "weights.safetensors",
    "a checkpoint's manifest.json": lambda p: p.newest / "manifest.json",
    "a checkpoint's state.json": lambda p: p.newest / "state.json",
    "a checkpoint's tensors.safetensors": lambda p: p.newest / "tensors.safetensors",
    "a checkpoint's records.jsonl": lambda p: p.newest / "records.jsonl",
    "a checkpoint's episodes.csv": lambda p: p.newest / "episodes.csv",
    "a replay segment": lambda p: p.segment,
    "sweep.json": lambda p: p.sweep / "sweep.json",
    "sweep-events.jsonl": lambda p: p.sweep / "sweep-events.jsonl",
    "sweep.lock": lambda p: p.sweep / "sweep.lock",
}  # fmt: skip
DIRECTORIES = {
    "checkpoints": lambda p: p.run / "checkpoints",
    "a checkpoint": lambda p: p.newest,
    "a run of a sweep": lambda p: p.run,
    "replay": lambda p: p.run / "replay",
    "tensorboard": lambda p: p.run / "tensorboard",
    "evaluations": lambda p: p.run / "evaluations",
}


def _away(path: Path) -> Path:
    if path.is_dir() and not path.is_symlink():
        path.rename(path.with_name(f"{path.name}-was"))
    else:
        path.unlink(missing_ok=True)
    return path


def _sparse(path: Path) -> None:
    with open(path, "r+b" if path.exists() else "wb") as file:
        file.truncate(SPARSE)


def _claim(place: Place, path: Path) -> None:
    """As `_sparse`, and the manifest says so."""
    manifest = json.loads((place.newest / "manifest.json").read_bytes())
    if path.name in manifest["files"] and path.parent == place.newest:
        manifest["files"][path.name]["bytes"] = SPARSE
    elif path == place.segment:
        manifest["segments"][-1][2] = SPARSE
    _sparse(path)
    resign(place.newest, manifest)


def resign(checkpoint: Path, manifest: dict[str, Any]) -> None:
    manifest.pop("sha256", None)
    (checkpoint / "manifest.json").write_bytes(_sign(manifest))


KINDS: dict[str, Callable[[Place, Path], object]] = {
    "link to a file outside": lambda p, f: _away(f).symlink_to(p.outside / "file.txt"),
    "link to /dev/zero": lambda p, f: _away(f).symlink_to("/dev/zero"),
    "link to itself": lambda p, f: _away(f).symlink_to(f),
    "pipe": lambda p, f: os.mkfifo(_away(f)),
    "directory": lambda p, f: _away(f).mkdir(),
    "sparse file of 12 GB": lambda p, f: _sparse(f),
    "empty": lambda p, f: f.write_bytes(b""),
    "random bytes": lambda p, f: f.write_bytes(random.Random(1).randbytes(5_000)),
    "JSON 100,000 deep": lambda p, f: f.write_text(_DEEP),
    "number of 5,000 digits": lambda p, f: f.write_text(f'{{"format": {_DIGITS}, "steps": {_DIGITS}}}\n'),
    "control characters": lambda p, f: f.write_text(_CONTROL + "\n"),
    "half of a letter": lambda p, f: f.write_text('{"class": "\\ud800", "env": "\\udfff"}\n'),
    "list instead of an object": lambda p, f: f.write_text("[1, 2]\n"),
}  # fmt: skip
DIRECTORY_KINDS: dict[str, Callable[[Place, Path], object]] = {
    "link to a directory outside": lambda p, d: _away(d).symlink_to(p.outside / "data"),
    "link to nothing": lambda p, d: _away(d).symlink_to(p.top / "nothing"),
    "pipe": lambda p, d: os.mkfifo(_away(d)),
    "file": lambda p, d: _away(d).write_text("x"),
    "without permissions": lambda p, d: d.chmod(0),
}  # fmt: skip


def cases() -> Iterator[Case]:
    yield Case(UNHARMED, "all files", lambda p: None)
    for name, where in FILES.items():
        for kind, harm in KINDS.items():
            yield Case(kind, name, lambda p, where=where, harm=harm: harm(p, where(p)))
    for name in ("a checkpoint's tensors.safetensors", "a checkpoint's state.json", "a replay segment"):
        yield Case("sparse file of 12 GB, and a manifest that says so", name,
                   lambda p, where=FILES[name]: _claim(p, where(p)))  # fmt: skip
    for name, where in DIRECTORIES.items():
        for kind, harm in DIRECTORY_KINDS.items():
            yield Case(kind, name, lambda p, where=where, harm=harm: harm(p, where(p)))
    yield from _in_json("config.json", lambda p: p.run / "config.json", CONFIG_VALUES)
    yield from _in_json("env.json", lambda p: p.run / "env.json", ENV_VALUES)
    yield from _in_json("summary.json", lambda p: p.run / "summary.json", SUMMARY_VALUES)
    yield from _in_records()
    for name, change in STATE_VALUES.items():
        yield Case("a state that is signed but wrong", name, lambda p, change=change: _in_state(p, change))
    for name, change in SEGMENT_VALUES.items():
        yield Case("a replay that is signed but wrong", name, lambda p, change=change: _in_segment(p, change))
    for name in ("../outside/data", "/tmp", "..", ".", "a/b", "", "\x1b[31mred", "x" * 300):
        yield Case("a run's name in sweep.json", repr(name)[:30], lambda p, name=name: _in_sweep(p, name))


LARGE = (0, 10**7, 10**9, 10**12, 10**18, 10**30)
CONFIG_VALUES: dict[tuple[str, ...], tuple[Any, ...]] = {
    ("recipe", "encoder", "widths"): ([10**6, 10**6], [10**9], [10**12], [64] * 1_000, [10**30], "x"),
    ("recipe", "head", "atoms"): LARGE,
    ("recipe", "head", "hidden"): LARGE,
    ("recipe", "head", "embedding"): LARGE[1:],
    ("recipe", "schedule", "batch_size"): LARGE,
    ("recipe", "schedule", "replay_capacity"): LARGE,
    ("recipe", "schedule", "steps_per_iteration"): (0, 10**30),
    ("recipe", "n_step"): LARGE,
    ("recipe", "optim", "learning_rate"): (10**39, "fast", None),
    ("rules", "stack"): LARGE,
    ("seed",): (-1, 10**39, "one"),
    ("env",): ("gym/\x1b[31mNone-v0", "", "gym/os:system", 7),
    ("recipe_name",): ("\x1b[31mred\x07", "x" * 100_000, None),
    ("class",): (["Config"], "os.system"),
    ("recipe",): (None, {}, {"class": "Recipe", "head": {"class": "Mlp"}}),
}
ENV_VALUES: dict[tuple[str, ...], tuple[Any, ...]] = {
    ("frame_shape",): ([10**9], [10**12, 10**12, 10**12], [], [0], ["4"], 4, [-4]),
    ("stack",): (*LARGE, "1"),
    ("actions",): (*LARGE, -2, 1.5, 3),
    ("frame_dtype",): ("object", "float64", None),
    ("family",): ("\x1b[31m", None),
    ("name",): ("\x1b[31m", 5),
}
SUMMARY_VALUES: dict[tuple[str, ...], tuple[Any, ...]] = {
    ("steps",): ("many", -1, 10**39, None, [1]),
    ("iterations",): ("many", 10**39, [1]),
    ("state",): ("\x1b[31mred", 5, None),
}


def _in_json(
    name: str, where: Callable[[Place], Path], values: dict[tuple[str, ...], tuple[Any, ...]]
) -> Iterator[Case]:
    def harm(place: Place, keys: tuple[str, ...], value: Any) -> None:
        path = where(place)
        content = json.loads(path.read_text()) if path.exists() else {"state": "finished", "steps": 1, "iterations": 1}
        part = content
        for key in keys[:-1]:
            part = part[key]
        part[keys[-1]] = value
        path.write_text(json.dumps(content))

    for keys, choices in values.items():
        for value in choices:
            words = f"{'.'.join(keys)} = {str(value)[:30]!r}"
            yield Case(f"a value in {name}", words, lambda p, keys=keys, value=value: harm(p, keys, value))


RECORD_VALUES = {
    "mean_score": ("\x1b[31m", 10**39, [1], {"a": 1}),
    "steps": ("many", -5, 10**39, None),
    "iteration": ("first", 10**39, None),
    "measured": ("text", {"seconds": "long", "steps_per_second": "fast"}, None),
    "mean_loss": ("text", [1]),
}
HEADER_VALUES = {
    "config": ("text", {"env": "\x1b[31m"}, {"env": "atari/mspacman", "recipe_name": "\x1b[2J", "seed": 1}),
    "passport": ("text", {"protocol": "\x1b[31m", "hash": 5}, None),
    "versions": ("text", {"\x1b[31m": "\x07"}, None),
    "measured": ("text", {"threads": "\x1b[31m", "cpu": "\x1b[31m", "cores": "x"}, None),
}


def _in_records() -> Iterator[Case]:
    def harm(place: Place, line: int, key: str, value: Any) -> None:
        lines = (place.run / "records.jsonl").read_text().splitlines()
        record = json.loads(lines[line])
        record[key] = value
        lines[line] = json.dumps(record)
        (place.run / "records.jsonl").write_text("\n".join(lines) + "\n")

    for line, values in ((0, HEADER_VALUES), (1, RECORD_VALUES)):
        for key, choices in values.items():
            for value in choices:
                words = f"line {line + 1}, {key} = {str(value)[:30]!r}"
                yield Case("a value in records.jsonl", words,
                           lambda p, line=line, key=key, value=value: harm(p, line, key, value))  # fmt: skip


STATE_VALUES: dict[str, Callable[[dict[str, Any]], object]] = {
    "text in the tally": lambda s: s["session"]["tally"]["values"].update(mean_loss="much"),
    "text among the scores": lambda s: s["session"]["tally"].update(scores=["\x1b[31m", 1.0]),
    "no list of scores": lambda s: s["session"]["tally"].update(scores="many"),
    "endless numbers in the tally": lambda s: s["session"]["tally"]["values"].update(atom_max=10**39),
    "a count of updates with a fraction": lambda s: s["session"]["tally"].update(updates=1.5),
    "steps 10^39": lambda s: s["session"].update(step=10**39),
    "an action out of range": lambda s: s["session"]["streams"][0].update(action=99),
    "actions of the game out of range": lambda s: s["session"]["streams"][0]["environment"].update(actions=[99] * 3),
    "no environment": lambda s: s["session"]["streams"][0].update(environment=None),
    "a config of another run": lambda s: s["config"].update(env="gym/os:system"),
    "a config with control characters": lambda s: s["config"].update(recipe_name="\x1b[31m"),
    "generators of another kind": lambda s: s["session"]["generators"].update(actions={"bit_generator": "MT19937"}),
    "torch generators cut": lambda s: s["session"]["torch_generators"].update(acting={"base64": "AAAA"}),
    "an array that is missing": lambda s: s["session"]["streams"][0].update(observation={"array": "nothing"}),
    "numbers in place of an array": lambda s: s["session"]["learner"].update(online=[1.0, 2.0]),
    "seconds in words": lambda s: s.update(seconds="long"),
    "a replay head elsewhere": lambda s: s["session"]["replay"]["streams"][0].update(head=10**30),
}
SEGMENT_VALUES: dict[str, Callable[[dict[str, Any]], object]] = {
    "actions out of range": lambda a: a["action"].fill(99),
    "actions below -1": lambda a: a["action"].fill(-7),
    "openings out of range": lambda a: a["opening"].fill(200),
    "rewards that are not finite": lambda a: a["reward"].fill(np.nan),
    "lengths that do not fit": lambda a: a["lengths"].fill(2**31),
    "fields of another type": lambda a: a.update(action=a["action"].astype(np.float64)),
    "a field missing": lambda a: a.pop("frames"),
}


def _in_state(place: Place, change: Callable[[dict[str, Any]], object]) -> None:
    """Change all checkpoints; otherwise the previous one would be used."""
    for checkpoint in (path for path in (place.run / "checkpoints").iterdir() if path.name.isdigit()):
        state = json.loads((checkpoint / "state.json").read_bytes())
        change(state)
        data = json.dumps(state).encode()
        (checkpoint / "state.json").write_bytes(data)
        manifest = json.loads((checkpoint / "manifest.json").read_bytes())
        manifest["files"]["state.json"] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        resign(checkpoint, manifest)


def _in_segment(place: Place, change: Callable[[dict[str, Any]], object]) -> None:
    path = place.segment
    arrays = {name: array.copy() for name, array in safetensors.numpy.load(path.read_bytes()).items()}
    change(arrays)
    data = safetensors.numpy.save(arrays)
    path.write_bytes(data)
    manifest = json.loads((place.newest / "manifest.json").read_bytes())
    for entry in manifest["segments"]:
        if path.name == f"slots-{entry[0]:012d}-{entry[1]:012d}.safetensors":
            entry[2:] = [len(data), hashlib.sha256(data).hexdigest()]
    resign(place.newest, manifest)


def _in_sweep(place: Place, name: str) -> None:
    path = place.sweep / "sweep.json"
    content = json.loads(path.read_text())
    content["runs"][name] = content["runs"].pop("run")
    path.write_text(json.dumps(content))


# ---------------------------------------------------------------------------------------------------- the commands


def _atari(place: Place) -> None:
    """Fingerprints exist only for Atari runs: make the records claim to be one."""
    path = place.run / "records.jsonl"
    if path.is_file() and not path.is_symlink() and path.stat().st_size < 10**6:
        path.write_bytes(path.read_bytes().replace(b'"gym/CartPole-v1"', b'"atari/mspacman"'))


def _serve(place: Place) -> int:
    from c2d.runs.confined import Root
    from c2d.web.run_index import RunIndex

    index = RunIndex(Root(place.sweep))
    index.refresh()
    for name in list(index.runs):
        json.dumps([index.detail(name), index.curves([name])])
    return 0


COMMAND_LINES: dict[str, Callable[[Place], list[str]]] = {
    "train --config FILE": lambda p: ["train", "--config", f"{p.run}/config.json", "--run-dir", f"{p.new}"],
    "train into RUN": lambda p: ["train", "--config", f"{p.top}/config.json", "--run-dir", f"{p.run}"],
    "resume RUN": lambda p: ["resume", f"{p.run}"],
    "resume RUN --fork NEW": lambda p: ["resume", f"{p.run}", "--fork", f"{p.new}"],
    "evaluate RUN": lambda p: ["evaluate", f"{p.run}", "--games", "1", "--parallel", "1", "--cap-steps", "20"],
    "fingerprint RUN": lambda p: ["fingerprint", f"{p.run}"],
    "compare RUN": lambda p: ["compare", f"{p.run}", "--replications", "100"],
    "report RUN": lambda p: ["report", f"{p.run}", "--out", f"{p.new}", "--replications", "100"],
    "sweep status DIR": lambda p: ["sweep", "status", f"{p.sweep}"],
    "sweep retry DIR": lambda p: ["sweep", "retry", f"{p.sweep}", "--dry-run"],
    "serve DIR (what it reads)": lambda p: [],
}  # fmt: skip


def attempt(command: str, place: Place) -> Outcome:
    """Run a command in a process of its own, with limits."""
    before, outcome = untouchable(place), Outcome()
    out = place.top / "out.txt"
    began = time.perf_counter()
    child = os.fork()
    if not child:
        _act(command, place, out)
    status = None
    while status is None and time.perf_counter() - began < SECONDS:
        done, code, usage = os.wait4(child, os.WNOHANG)
        status = code if done else None
        if status is None:
            time.sleep(0.01)
    if status is None:
        os.kill(child, signal.SIGKILL)
        _, _, usage = os.wait4(child, 0)
        outcome.troubles.append(f"it did not end within {SECONDS:.0f} s")
    else:
        outcome.code = os.waitstatus_to_exitcode(status)
    outcome.seconds = time.perf_counter() - began
    outcome.megabytes = usage.ru_maxrss / 1024
    outcome.text = out.read_bytes().decode(errors="replace")
    _judge(outcome, before, untouchable(place))
    return outcome


def _act(command: str, place: Place, out: Path) -> None:
    """In the child; does not return."""
    code = 99
    try:
        os.setsid()
        for number, path, flags in ((0, os.devnull, os.O_RDONLY), (1, out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)):
            os.dup2(os.open(path, flags, 0o600), number)
        os.dup2(1, 2)
        # address space: what is already mapped, and a limit for the case
        mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (mapped + (6 << 30), mapped + (6 << 30)))
        code = _serve(place) if command.startswith("serve") else main(COMMAND_LINES[command](place))
    except SystemExit as exit:
        code = int(exit.code or 0) if isinstance(exit.code, int | None) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _judge(outcome: Outcome, before: dict[str, str], after: dict[str, str]) -> None:
    troubles = outcome.troubles
    if outcome.code is not None and outcome.code not in (0, 1, 2):
        troubles.append(f"it ended with {outcome.code}")
    if "Traceback" in outcome.text:
        troubles.append(f"traceback: {outcome.text.strip().splitlines()[-1][:150]}")
    strange = {letter for letter in outcome.text if not letter.isprintable() and letter != "\n"}
    if strange:
        troubles.append(f"control characters {sorted(map(repr, strange))}")
    if outcome.megabytes > MEGABYTES:
        troubles.append(f"it used {outcome.megabytes:.0f} MB")
    changed = sorted(path for path in before if after.get(path) != before[path]) + sorted(set(after) - set(before))
    if changed:
        troubles.append(f"changed or deleted: {', '.join(changed[:3])}")


# --------------------------------------------------------------------------------------------------------- the study


def copied(source: Place, top: Path) -> Place:
    shutil.rmtree(top, ignore_errors=True)
    shutil.copytree(source.top, top)
    return Place(top)


def study(pairs: list[tuple[Case, str]], where: Path) -> Iterator[tuple[Case, str, Outcome]]:
    source = template(where / "template")
    shutil.copy(source.run / "config.json", source.top / "config.json")  # of the run as it was
    for case, command in pairs:
        place = copied(source, where / "case")
        if command.startswith("fingerprint"):
            _atari(place)
        case.harm(place)
        outcome = attempt(command, place)
        if case.group == UNHARMED and outcome.code != 0:
            outcome.troubles.append(f"it ended with {outcome.code} on an undamaged run: {outcome.text[-200:]}")
        yield case, command, outcome


_READ_BY = {  # who reads what; other commands are skipped
    "a value in config.json": ("train", "resume", "evaluate", "compare", "sweep", "serve"),
    "a value in env.json": ("evaluate", "resume RUN", "serve"),
    "a value in summary.json": ("resume RUN", "evaluate", "fingerprint", "compare", "report", "sweep status", "serve"),
    "a value in records.jsonl": ("resume RUN", "evaluate", "fingerprint", "compare", "report", "sweep status", "serve"),
    "a state that is signed but wrong": ("train into", "resume"),
    "a replay that is signed but wrong": ("train into", "resume"),
    "a run's name in sweep.json": ("sweep", "serve"),
    "sweep": ("sweep", "serve"),
    "a checkpoint": ("train into", "resume", "evaluate", "sweep retry", "serve"),
    "a replay segment": ("train into", "resume", "evaluate", "sweep retry", "serve"),
}


def matters(case: Case, command: str) -> bool:
    """Whether a command might read the damaged file."""
    by = _READ_BY.get(case.group) or next((who for what, who in _READ_BY.items() if case.name.startswith(what)), None)
    return by is None or command.startswith(by)


def compact(everything: list[Case]) -> list[tuple[Case, str]]:
    """A part that takes a few seconds: each kind of damage and each command, but not each pair of them."""
    wanted = {
        ("link to a directory outside", "checkpoints"): ["resume RUN", "train into RUN"],
        ("link to a directory outside", "replay"): ["resume RUN"],
        ("link to a directory outside", "evaluations"): ["evaluate RUN"],
        ("link to a file outside", "lock"): ["resume RUN"],
        ("link to a file outside", "events.jsonl"): ["resume RUN"],
        ("pipe", "config.json"): ["train --config FILE", "resume RUN", "evaluate RUN", "sweep retry DIR"],
        ("pipe", "records.jsonl"): ["fingerprint RUN", "compare RUN", "sweep status DIR"],
        ("link to /dev/zero", "records.jsonl"): ["report RUN", "serve DIR (what it reads)"],
        ("link to /dev/zero", "env.json"): ["evaluate RUN"],
        ("pipe", "a checkpoint's manifest.json"): ["resume RUN", "resume RUN --fork NEW"],
        ("sparse file of 12 GB, and a manifest that says so", "a checkpoint's tensors.safetensors"): ["resume RUN"],
        ("sparse file of 12 GB, and a manifest that says so", "a replay segment"): ["resume RUN"],
        ("sparse file of 12 GB", "weights.safetensors"): ["evaluate RUN"],
        ("number of 5,000 digits", "config.json"): ["resume RUN"],
        ("JSON 100,000 deep", "summary.json"): ["evaluate RUN", "sweep status DIR"],
        ("control characters", "records.jsonl"): ["fingerprint RUN"],
        ("a value in config.json", "recipe.encoder.widths = '[1000000000000]'"): [
            "evaluate RUN",
            "train --config FILE",
        ],
        ("a value in config.json", "recipe.schedule.batch_size = '1000000000'"): ["train --config FILE"],
        ("a value in env.json", "frame_shape = '[1000000000]'"): ["evaluate RUN"],
        ("a state that is signed but wrong", "text in the tally"): ["resume RUN"],
        ("a state that is signed but wrong", "a config with control characters"): ["resume RUN"],
        ("a replay that is signed but wrong", "actions out of range"): ["resume RUN"],
        ("a run's name in sweep.json", "'../outside/data'"): ["sweep status DIR", "sweep retry DIR"],
    }
    found = {(case.group, case.name): case for case in everything}
    return [(found[key], command) for key, commands in wanted.items() for command in commands]


def page(results: list[tuple[Case, str, Outcome]], seconds: float, command: str) -> str:
    failed = [(case, words, outcome) for case, words, outcome in results if outcome.troubles]
    commands, groups = list(dict.fromkeys(words for _, words, _ in results)), {}
    for case, words, outcome in results:
        groups.setdefault(case.group, {}).setdefault(words, []).append(outcome)
    lines = [
        "# Hostile run directories",
        "",
        "Each kind of damage below was applied to a stopped run, its checkpoints, its replay or its sweep, and each "
        f"command that might read it was run: {len(results):,} cases, of which "
        f"**{len(results) - len(failed):,} of {len(results):,}** passed. "
        f"A case passes if the command ends by itself within {SECONDS:.0f} s and {MEGABYTES:,} MB of memory, the "
        "program itself included, with exit code 0, 1 or 2; prints no traceback and no control character; and does "
        "not touch files outside the run or the user's own files inside it.",
        "",
        f"Command: `{command}`, {time.strftime('%d %B %Y', time.gmtime())}, {seconds:.0f} s. The longest case took "
        f"{max(outcome.seconds for *_, outcome in results):.1f} s, the largest "
        f"{max(outcome.megabytes for *_, outcome in results):.0f} MB.",
        "",
        f"| damage | cases | {' | '.join(commands)} |",
        f"|---|---:|{'---:|' * len(commands)}",
    ]
    for group, by_command in groups.items():
        cells = []
        for words in commands:
            outcomes = by_command.get(words, [])
            cells.append(f"{sum(not one.troubles for one in outcomes)}/{len(outcomes)}" if outcomes else "–")
        lines.append(f"| {group} | {sum(map(len, by_command.values()))} | {' | '.join(cells)} |")
    for case, words, outcome in failed:
        lines += ["", f"* {words}, {case.group}: {case.name}: {'; '.join(outcome.troubles)}"]
    if os.geteuid() == 0:
        lines += ["", "The cases ran as root, which ignores permissions."]
    codes = {code: sum(outcome.code == code for *_, outcome in results) for code in (0, 1, 2)}
    counted = ", ".join(f"{count:,} times {code}" for code, count in codes.items())
    lines += [
        "",
        f"Exit codes: {counted} (2: the input is rejected with one line; 0: the damage did not matter, or the run went "
        "back to an earlier checkpoint, or started from scratch).",
    ]
    return "\n".join(lines) + "\n"


def run_study() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compact", action="store_true", help="a part of it that takes a few seconds")
    parser.add_argument("--only", default="", help="only cases whose group, name or command contains this word")
    parser.add_argument("--out", type=Path, help="Markdown file to write")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    import importlib

    for module, _ in COMMANDS.values():
        importlib.import_module(module.partition(":")[0])
    import c2d.api
    import c2d.evaluation.loaded_run
    import c2d.reporting.report
    import c2d.sweep.directory
    import c2d.web.run_index  # noqa: F401  (imported once, before the children)

    everything = list(cases())
    where = Path(tempfile.mkdtemp(prefix="c2d-hostile-"))
    began, results = time.perf_counter(), []
    try:
        if chosen.compact:
            pairs = compact(everything)
        else:
            pairs = [(case, command) for case in everything for command in COMMAND_LINES if matters(case, command)]
        pairs = [(case, command) for case, command in pairs if chosen.only in f"{case.group} {case.name} {command}"]
        for case, command, outcome in study(pairs, where):
            results.append((case, command, outcome))
            for trouble in outcome.troubles:
                print(f"{command} | {case.group} | {case.name}: {trouble}", flush=True)
    finally:
        shutil.rmtree(where, ignore_errors=True)
    text = page(results, time.perf_counter() - began, " ".join(["python", *sys.argv]))
    print(text)
    if chosen.out is not None:
        write_atomically(chosen.out, text.encode())
    if any(outcome.troubles for *_, outcome in results):
        sys.exit(1)


if __name__ == "__main__":
    run_study()
