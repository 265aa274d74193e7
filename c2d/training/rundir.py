"""The directory of a run: its files, how it is made, and how an agent is read back from it."""

from __future__ import annotations

import json
import os
import shlex
from contextlib import suppress
from pathlib import Path
from typing import Any

from c2d.agents.agent import Agent
from c2d.config import Config, read_config, to_json
from c2d.envs.spec import EnvSpec
from c2d.errors import UserError
from c2d.files import write_atomically, write_json

_NOT_A_RUN = "is no run directory: it has no {name} (give the directory that `c2d train` made)"


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
            if foreign and (not path.is_dir() or set(path.iterdir()) - run_dir.harmless):
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

    @property
    def harmless(self) -> set[Path]:
        """What may lie in a directory that is to become a run's: left by one that never began."""
        return {self.lock, self.log}

    def holds_run(self) -> bool:
        return self.config.is_file() or self.checkpoints.is_dir()

    def abandon(self) -> None:
        """Undo `open` of a directory in which no run came to be."""
        if not self.holds_run():
            self.lock.unlink(missing_ok=True)
            with suppress(OSError):
                for directory in self._made:
                    directory.rmdir()

    def set_aside(self) -> Path | None:
        """Move what a run has recorded out of the way of one that begins again; None if there is nothing."""
        try:
            iterations = self.records.read_text(encoding="utf-8").count('"kind": "iteration"')
        except (OSError, UnicodeDecodeError):
            iterations = 0
        if not iterations:
            return None
        aside = free_name(self.path / "before")
        aside.mkdir()
        for file in (self.records, self.episodes, self.weights, self.summary):
            if file.exists():
                file.rename(aside / file.name)
        return aside

    def log_event(self, event: dict[str, Any]) -> None:
        """What happened to the run that is no result of it."""
        with suppress(OSError), open(self.events, "a", encoding="utf-8") as file:
            file.write(json.dumps(event, ensure_ascii=False) + "\n")

    def describe(self, config: Config, spec: EnvSpec, passport: dict[str, Any]) -> None:
        """Write what the run is, before it begins."""
        write_json(self.config, to_json(config))
        write_json(self.passport, passport)
        write_json(self.env, {**vars(spec), "frame_shape": list(spec.frame_shape)})

    def save_weights(self, agent: Agent) -> None:
        write_atomically(self.weights, agent.to_bytes())

    def read_config(self) -> Config:
        if not self.config.is_file():
            raise UserError(f"{self.path} " + _NOT_A_RUN.format(name=self.config.name))
        return read_config(self.config)

    def read_json(self, path: Path) -> dict[str, Any]:
        try:
            value = json.loads(path.read_text())
        except FileNotFoundError:
            raise UserError(f"{self.path} " + _NOT_A_RUN.format(name=path.name)) from None
        except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise UserError(f"{path} cannot be read: {error}") from None
        if not isinstance(value, dict):
            raise UserError(f"{path} cannot be read: it does not hold an object")
        return value

    def read_spec(self) -> EnvSpec:
        return spec_from_json(self.read_json(self.env), str(self.env))


def spec_from_json(value: dict[str, Any], source: str) -> EnvSpec:
    """The contents of env.json as the shape of an environment."""
    try:
        shape = tuple(int(size) for size in value["frame_shape"])
        return EnvSpec(**{**value, "frame_shape": shape, "action_names": tuple(value.get("action_names", ()))})
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{source} cannot be read: {error}") from None


def free_name(path: Path) -> Path:
    """A name like `path` that nothing has: path-2, path-3, ..."""
    number = 2
    while (candidate := path.with_name(f"{path.name}-{number}")).exists():
        number += 1
    return candidate


def load(run: str | os.PathLike[str], device: str = "cpu") -> Agent:
    """The trained agent of a run directory. Weights are safetensors: reading them runs no code."""
    directory = RunDir(run)
    config = directory.read_config()
    spec = directory.read_spec()
    if not directory.weights.is_file():
        raise UserError(f"{directory.path} holds no weights yet: they are written at the end of each iteration")
    return Agent.from_bytes(directory.weights.read_bytes(), config.agent, spec, device, source=str(directory.weights))
