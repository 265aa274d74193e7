"""The directory of a run: its files, how it is made, and how an agent is read back from it."""

from __future__ import annotations

import json
import math
import os
import re
import shlex
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

from c2d.agents.agent import Agent
from c2d.config import Config, read_config, to_json
from c2d.envs.spec import EnvSpec, Family
from c2d.errors import UserError
from c2d.files import (
    SMALL,
    append_line,
    kind_of,
    leftover,
    make_directory,
    read_file,
    read_json,
    remove_leftovers,
    write_atomically,
    write_json,
)

_NOT_A_RUN = "is not a run directory: it has no {name} (give the directory that `c2d train` made)"
_EPISODES = 1 << 28  # bytes of episodes.csv
_LARGEST_OBSERVATION = 10**7  # numbers


class RunDir:
    """Paths and their contents. Nothing read here is executed."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.config = self.path / "config.json"
        self.passport = self.path / "passport.json"
        self.env = self.path / "env.json"
        self.records = self.path / "records.jsonl"
        self.episodes = self.path / "episodes.csv"
        self.weights = self.path / "weights.safetensors"
        self.summary = self.path / "summary.json"
        self.tensorboard = self.path / "tensorboard"
        self.checkpoints = self.path / "checkpoints"
        self.replay = self.path / "replay"
        self.evaluations = self.path / "evaluations"
        self.events = self.path / "events.jsonl"
        self.lock = self.path / "lock"
        self.log = self.path / "log.txt"
        self._made: list[Path] = []  # directories that `open` made, the innermost first

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
                    f"{path} exists already, holds no run, and is not overwritten; "
                    f"train into a new directory with --run-dir {free_name(path)}"
                )
            run_dir._made = [directory for directory in (path, *path.parents) if not directory.exists()]
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"run directory {path} cannot be made: {error.strerror}; choose another with --run-dir"
            ) from None
        return run_dir

    def command(self, verb: str, env: str) -> str:
        """What to type for this run; a class of the user's own must be named again, or it is not imported."""
        own = env.removeprefix("gym/")
        return shlex.join(["c2d", verb, str(self.path), *(["--env", own] if ":" in own else [])])

    def foreign(self, name: str) -> bool:
        """Whether a name in a directory that is to become a run's was not left by one that never began."""
        return name not in (self.lock.name, self.log.name) and not re.fullmatch(leftover(self._names), name)

    def holds_run(self) -> bool:
        return kind_of(self.config) == "file" or kind_of(self.checkpoints) == "directory"

    def refuse_links(self) -> None:
        """Nothing is written to a run one of whose parts is a link, and so lies elsewhere, or is a pipe or a device."""
        directories = (self.checkpoints, self.replay, self.tensorboard, self.evaluations)
        for path in (*self._files, self.lock, self.log, self.events, *directories):
            wanted, found = "directory" if path in directories else "file", kind_of(path)
            if found not in (None, wanted):
                what = {"link": "a symbolic link", "other": "a pipe or a device"}.get(found, f"a {found}")
                raise UserError(
                    f"{path} is {what}, where a run has a {wanted}: nothing inside a run directory may lead elsewhere; "
                    "to keep a run on another disk, move the whole directory there"
                )

    @property
    def _files(self) -> tuple[Path, ...]:
        """Those that are replaced as a whole."""
        return (self.config, self.passport, self.env, self.records, self.episodes, self.weights, self.summary)

    def remove_half_written(self) -> None:
        """What killed processes left of the run's files. The lock is held."""
        remove_leftovers(self.path, self._names)

    @property
    def _names(self) -> str:
        return "|".join(re.escape(path.name) for path in self._files)

    def abandon(self) -> None:
        """Undo `open` of a directory in which no run came to be."""
        if not self.holds_run():
            if kind_of(self.lock) == "file":
                self.lock.unlink(missing_ok=True)
            with suppress(OSError):
                for directory in self._made:
                    directory.rmdir()

    def set_aside(self) -> Path | None:
        """Move what a run has recorded out of the way of one that begins again; None if there is nothing."""
        try:
            iterations = read_file(self.records, _EPISODES, within=self.path).count(b'"kind": "iteration"')
        except OSError:
            iterations = 0
        if not iterations:
            return None
        aside = free_name(self.path / "before")
        make_directory(aside)
        for file in (self.records, self.episodes, self.weights, self.summary):
            if kind_of(file) == "file":
                file.rename(aside / file.name)
        return aside

    def log_event(self, event: dict[str, Any]) -> None:
        """What happened to the run that is no result of it."""
        with suppress(OSError):
            append_line(self.events, json.dumps(event, ensure_ascii=False) + "\n")

    def describe(self, config: Config, spec: EnvSpec, passport: dict[str, Any]) -> None:
        """Write what the run is, before it begins."""
        write_json(self.config, to_json(config))
        write_json(self.passport, passport)
        write_json(self.env, {**vars(spec), "frame_shape": list(spec.frame_shape)})

    def save_weights(self, agent: Agent) -> None:
        write_atomically(self.weights, agent.to_bytes())

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


def spec_from_json(value: dict[str, Any], source: str) -> EnvSpec:
    """The contents of env.json as the shape of an environment."""
    try:
        shape, names = tuple(value["frame_shape"]), tuple(value.get("action_names", ()))
        spec = EnvSpec(**{**value, "frame_shape": shape, "action_names": names})
        _check_spec(spec)
        return spec
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{source} cannot be read: {error}") from None


def _check_spec(spec: EnvSpec) -> None:
    """ValueError for a shape that no environment has."""
    numbers = (*spec.frame_shape, spec.stack, spec.actions, spec.frames_per_step)
    whole = all(type(number) is int and 1 <= number <= 10**6 for number in numbers)
    if not whole or len(spec.frame_shape) not in (1, 3) or spec.stack > 1_000:
        raise ValueError(
            f"shapes and counts are {numbers}; accepted: whole numbers from 1 to 1,000,000, a stack of at most 1,000"
        )
    if spec.family not in get_args(Family) or spec.frame_dtype not in ("uint8", "float32"):
        raise ValueError(f"its family is {spec.family!r} and its frames are {spec.frame_dtype!r}")
    if not all(isinstance(text, str) for text in (spec.name, *spec.action_names)):
        raise ValueError("its names are not text")
    if math.prod(spec.obs_shape) > _LARGEST_OBSERVATION:
        raise ValueError(f"an observation of {spec.obs_shape} has more than {_LARGEST_OBSERVATION:,} numbers")


def free_name(path: Path) -> Path:
    """A name like `path` that nothing has: path-2, path-3, ..."""
    number = 2
    while kind_of(candidate := path.with_name(f"{path.name}-{number}")) is not None:
        number += 1
    return candidate


def load(run: str | os.PathLike[str], device: str = "cpu") -> Agent:
    """The trained agent of a run directory. Weights are safetensors: reading them runs no code."""
    directory = RunDir(run)
    config = directory.read_config()
    spec = directory.read_spec()
    if kind_of(directory.weights) is None:
        raise UserError(f"{directory.path} holds no weights yet: they are written at the end of each iteration")
    return Agent.from_file(directory.weights, directory.path, config.recipe, spec, device)
