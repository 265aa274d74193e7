"""The run directory: the names of its files, how it is made, and the small files that describe the run.

The names of a run's files exist only here.
"""

from __future__ import annotations

import json
import math
import os
import re
import shlex
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

from c2d.config import Config, read_config, to_json, user_code
from c2d.envs.names import must_be_named
from c2d.envs.spec import EnvSpec, Family
from c2d.errors import UserError
from c2d.files import (
    SMALL,
    append_line,
    kind_of,
    leftover,
    make_directory,
    names_inside,
    read_json,
    remove_leftovers,
    write_atomically,
    write_json,
)

CONFIG = "config.json"  # every setting
PASSPORT = "passport.json"  # the rules under which scores arise
ENV = "env.json"  # shapes of observations and actions
RECORDS = "records.jsonl"  # the header, then one line per iteration (runs/records.py)
EPISODES = "episodes.csv"  # every whole game
POINTS = "points.jsonl"  # the metrics of an iteration at up to 50 points of it (runs/records.py)
EVALUATED = "evaluations.jsonl"  # the evaluations that were made while training
METRICS = "metrics.csv"  # what the CSV logger wrote
WEIGHTS = "weights.safetensors"  # the newest network
BEST = "weights-best.safetensors"  # the network that scored best in an evaluation while training
SERIES = "weights"  # networks at the end of the last iterations, named by training steps, if they are kept
SERIES_NAME = r"([0-9]{12,})\.safetensors"
SUMMARY = "summary.json"  # how the run ended
EVENTS = "events.jsonl"  # warnings and resumes
LOCK = "lock"  # who is at work on the run (runs/lock.py)
LOG = "log.txt"  # the output of a run of a sweep
CHECKPOINTS = "checkpoints"  # directories named by the steps made (runs/checkpoints.py)
REPLAY = "replay"  # the replay on disk (runs/journal.py)
TENSORBOARD = "tensorboard"
EVALUATIONS = "evaluations"  # one file per `c2d evaluate`
REPORTS = ("report/report.html", "report.html")  # where `c2d report RUN --out` may have put one
# of a checkpoint
MANIFEST, STATE, TENSORS = "manifest.json", "state.json", "tensors.safetensors"
CHECKPOINT_NAME = r"[0-9]{12,}"


def episodes_header(envs: int) -> str:
    """Of each whole game: when it ended, raw score, agent steps; in runs of several environments, which one played."""
    return "iteration,step,score,length,env\n" if envs > 1 else "iteration,step,score,length\n"


_NOT_A_RUN = "is not a run directory: it has no {name} (give the directory that `c2d train` made)"
_LARGEST_OBSERVATION = 10**7  # numbers


class RunDir:
    """Paths of one run, and what is written and read as a whole. Nothing read here is executed."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.config = self.path / CONFIG
        self.passport = self.path / PASSPORT
        self.env = self.path / ENV
        self.records = self.path / RECORDS
        self.episodes = self.path / EPISODES
        self.points = self.path / POINTS
        self.evaluated = self.path / EVALUATED
        self.metrics = self.path / METRICS
        self.weights = self.path / WEIGHTS
        self.best = self.path / BEST
        self.series = self.path / SERIES
        self.summary = self.path / SUMMARY
        self.tensorboard = self.path / TENSORBOARD
        self.checkpoints = self.path / CHECKPOINTS
        self.replay = self.path / REPLAY
        self.evaluations = self.path / EVALUATIONS
        self.events = self.path / EVENTS
        self.lock = self.path / LOCK
        self.log = self.path / LOG
        self._created: list[Path] = []  # directories that `open` created, the innermost first

    def __fspath__(self) -> str:
        return str(self.path)

    @classmethod
    def open(cls, path: Path) -> RunDir:
        """A new directory, or one that holds a run; anything else is never touched."""
        run_dir = cls(path)
        try:
            foreign = path.exists() and not run_dir.holds_run()
            if foreign and (not path.is_dir() or any(map(run_dir.foreign, os.listdir(path)))):
                raise UserError(
                    f"{path} exists, does not hold a run, and is not overwritten; "
                    f"train into a new directory with --run-dir {free_name(path)}"
                )
            run_dir._created = [directory for directory in (path, *path.parents) if not directory.exists()]
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"run directory {path} cannot be created: {error.strerror}; choose another with --run-dir"
            ) from None
        return run_dir

    def command(self, verb: str, config: Config) -> str:
        """The shell command for this run. The user's own code must be named again, or it is not imported."""
        own = config.env.removeprefix("gym/")
        words = ["c2d", verb, str(self.path), *(["--env", own] if must_be_named(own, config.rules) else [])]
        return shlex.join([*words, *(word for name in user_code(config) for word in ("--trust", name))])

    def foreign(self, name: str) -> bool:
        """Whether a name in a directory that is to become a run's is not the remnant of a run that never started."""
        return name not in (self.lock.name, self.log.name) and not re.fullmatch(leftover(self._names), name)

    def holds_run(self) -> bool:
        return kind_of(self.config) == "file" or kind_of(self.checkpoints) == "directory"

    def reject_links(self) -> None:
        """UserError if a part of the run is a link, and so lies elsewhere, or is a pipe or a device."""
        directories = (self.checkpoints, self.replay, self.series, self.tensorboard, self.evaluations)
        for path in (*self._files, self.lock, self.log, self.events, *directories):
            wanted, kind = "directory" if path in directories else "file", kind_of(path)
            if kind not in (None, wanted):
                what = {"link": "a symbolic link", "other": "a pipe or a device"}.get(kind, f"a {kind}")
                raise UserError(
                    f"{path} is {what}, where a run has a {wanted}: nothing inside a run directory may lead elsewhere; "
                    "to keep a run on another disk, move the whole directory there"
                )

    @property
    def _files(self) -> tuple[Path, ...]:
        """Files that are replaced as a whole."""
        described, recorded = (self.config, self.passport, self.env), (self.records, self.episodes, self.points)
        return (*described, *recorded, self.evaluated, self.metrics, self.weights, self.best, self.summary)

    def remove_half_written(self) -> None:
        """Remove what killed processes left of the run's files. The lock is held."""
        remove_leftovers(self.path, self._names)
        if kind_of(self.series) == "directory":
            remove_leftovers(self.series, SERIES_NAME)

    @property
    def _names(self) -> str:
        return "|".join(re.escape(path.name) for path in self._files)

    def abandon(self) -> None:
        """Undo `open` of a directory in which no run was started."""
        if not self.holds_run():
            if kind_of(self.lock) == "file":
                self.lock.unlink(missing_ok=True)
            with suppress(OSError):
                for directory in self._created:
                    directory.rmdir()

    def set_aside(self) -> Path:
        """Move what the run has recorded out of the way of a run that starts from scratch."""
        aside = free_name(self.path / "before")
        make_directory(aside)
        recorded = (self.records, self.episodes, self.points, self.evaluated, self.metrics)
        for file in (*recorded, self.weights, self.best, self.summary):
            if kind_of(file) == "file":
                file.rename(aside / file.name)
        if kind_of(self.series) == "directory":
            self.series.rename(aside / self.series.name)
        return aside

    def log_event(self, event: dict[str, Any]) -> None:
        """Keep what happened to the run but is not a result of it."""
        with suppress(OSError):
            append_line(self.events, json.dumps(event, ensure_ascii=False) + "\n")

    def describe(self, config: Config, spec: EnvSpec, passport: dict[str, Any]) -> None:
        """Write what the run is, before it starts."""
        write_json(self.config, to_json(config))
        write_json(self.passport, passport)
        values = {field.name: getattr(spec, field.name) for field in fields(spec)}
        usual = {field.name: field.default for field in fields(spec) if field.name in _LATER}
        write_json(self.env, {name: value for name, value in values.items() if value != usual.get(name, ...)})

    def write_weights(self, data: bytes) -> None:
        write_atomically(self.weights, data)

    def write_best(self, data: bytes) -> None:
        write_atomically(self.best, data)

    def keep_weights(self, steps: int, data: bytes, keep: int) -> None:
        """Add the network after these training steps to the series; of that only the newest `keep` stay."""
        make_directory(self.series)
        write_atomically(self.series / f"{steps:012d}.safetensors", data)
        for path in list(self.kept_weights().values())[:-keep]:
            path.unlink(missing_ok=True)

    def kept_weights(self) -> dict[int, Path]:
        """The networks of the series by the training steps behind them, the oldest first."""
        found = (re.fullmatch(SERIES_NAME, name) for name in names_inside(self.path, SERIES))
        return dict(sorted((int(match[1]), self.series / match[0]) for match in found if match))

    def forget_weights(self, after: int) -> None:
        """Remove networks of more training steps than these: the run is resumed from there, and makes them again."""
        for steps, path in self.kept_weights().items():
            if steps > after:
                path.unlink(missing_ok=True)

    def finished(self, iterations: int) -> bool:
        """Whether the run has completed this number of iterations."""
        try:
            summary = read_json(self.summary, within=self.path)
            return bool(summary["state"] == "finished" and summary["iterations"] >= iterations)
        except (OSError, ValueError, KeyError, TypeError):
            return False

    def read_config(self) -> Config:
        if kind_of(self.config) is None:
            raise UserError(f"{self.path} " + _NOT_A_RUN.format(name=self.config.name))
        return read_config(self.config, within=self.path)

    def read_json(self, path: Path) -> dict[str, Any]:
        try:
            value = read_json(path, SMALL, within=self.path)
        except FileNotFoundError:
            raise UserError(f"{self.path} " + _NOT_A_RUN.format(name=path.name)) from None
        except (OSError, ValueError) as error:
            raise UserError(f"{path} cannot be read: {error}") from None
        if not isinstance(value, dict):
            raise UserError(f"{path} cannot be read: it does not hold an object")
        return value

    def read_spec(self) -> EnvSpec:
        return spec_from_json(self.read_json(self.env), str(self.env))


_LATER = ("masked", "action_parts", "action_start")  # fields of env.json that are there only if they are not usual


def spec_from_json(value: dict[str, Any], source: str) -> EnvSpec:
    """The contents of env.json as the shape of an environment."""
    try:
        tuples = ("frame_shape", "action_names", "action_parts", "action_start")
        spec = EnvSpec(**{**value, **{name: tuple(value[name]) for name in tuples if name in value}})
        _check_spec(spec)
        return spec
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{source} cannot be read: {error}") from None


def _check_spec(spec: EnvSpec) -> None:
    """ValueError for a shape that no environment has."""
    numbers = (*spec.frame_shape, spec.stack, spec.actions, spec.frames_per_step)
    plausible = all(type(number) is int and 1 <= number <= 10**6 for number in numbers)
    if not plausible or len(spec.frame_shape) not in (1, 3) or spec.stack > 1_000:
        raise ValueError(
            f"shapes and counts are {numbers}; accepted: integers from 1 to 1,000,000, a stack of at most 1,000"
        )
    if spec.family not in get_args(Family) or spec.frame_dtype not in ("uint8", "float32"):
        raise ValueError(f"its family is {spec.family!r} and its frames are {spec.frame_dtype!r}")
    own = (*spec.action_parts, *spec.action_start)
    if type(spec.masked) is not bool or any(type(number) is not int or abs(number) > 10**9 for number in own):
        raise ValueError(f"its own actions are {str(own)[:80]}, and whether it has masks {spec.masked!r}")
    if spec.action_parts and (min(spec.action_parts) < 1 or math.prod(spec.action_parts) != spec.actions):
        raise ValueError(f"its {spec.actions} actions are not the combinations of {str(spec.action_parts)[:80]}")
    if len(spec.action_start) not in (0, len(spec.action_parts) or 1):
        raise ValueError(f"its actions start at {str(spec.action_start)[:80]}")
    if not all(isinstance(text, str) for text in (spec.name, *spec.action_names)):
        raise ValueError("its names are not text")
    if math.prod(spec.obs_shape) > _LARGEST_OBSERVATION:
        raise ValueError(f"an observation of {spec.obs_shape} has more than {_LARGEST_OBSERVATION:,} numbers")


def free_name(path: Path) -> Path:
    """A name like `path` that is not taken: path-2, path-3, ..."""
    number = 2
    while kind_of(candidate := path.with_name(f"{path.name}-{number}")) is not None:
        number += 1
    return candidate
