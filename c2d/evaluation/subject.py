"""The trained agent of a run directory together with the games it is to play."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from c2d.agents.agent import Agent
from c2d.config import Config, validate
from c2d.envs.make import make
from c2d.envs.names import require_trusted_env, resolve
from c2d.envs.spec import Environment
from c2d.errors import UserError
from c2d.files import kind_of
from c2d.training.passport import passport
from c2d.training.record import read_records
from c2d.training.rundir import RunDir, load


@dataclass(frozen=True)
class Subject:
    """What is evaluated."""

    run_dir: RunDir
    config: Config
    agent: Agent
    env: str  # canonical name of the environment to play, not always the one of training
    steps: int | None  # agent steps of training behind the weights, if the run tells
    iterations: int | None

    def make_env(self, seed: int) -> Environment:
        return make(self.env, self.config.rules, seed)

    @cached_property
    def passport(self) -> dict[str, Any]:
        """The rules as they are here and now."""
        env = self.make_env(0)
        try:
            return passport(self.config, env)
        finally:
            env.close()

    def trained_here(self) -> bool | None:
        """Whether training had the very same rules, versions of the games included; None if the run does not tell."""
        if kind_of(self.run_dir.passport) is None:
            return None
        return bool(self.run_dir.read_json(self.run_dir.passport).get("hash") == self.passport["hash"])


def open_run(path: str | Path, env: str | None = None, device: str = "cpu", cap_steps: int | None = None) -> Subject:
    """Read a run. A class of the user's own is imported only if `env` names it: never because a file does.

    `cap_steps` takes the place of the run's own.
    """
    run_dir = RunDir(path)
    if not run_dir.path.is_dir():
        raise UserError(f"{path} is not a run directory: it does not exist or is a file")
    config = _config(run_dir)
    if env is None:
        require_trusted_env(config.env, env)
    if cap_steps is not None:
        config = replace(config, rules=replace(config.rules, cap_steps=cap_steps))
    steps, iterations = _trained(run_dir)
    name = resolve(config.env if env is None else env).canonical
    return Subject(run_dir, config, load(path, device), name, steps, iterations)


def _config(run_dir: RunDir) -> Config:
    config = run_dir.read_config()
    try:
        validate(config)
    except (TypeError, AttributeError) as error:  # right names, values of a wrong kind
        raise UserError(f"config file {run_dir.config} cannot be used: {error}") from None
    return config


def _trained(run_dir: RunDir) -> tuple[int | None, int | None]:
    """Steps and whole iterations: from the summary of an ended run, else from its last record."""
    if kind_of(run_dir.summary) is not None:
        summary = run_dir.read_json(run_dir.summary)
        return _count(summary.get("steps")), _count(summary.get("iterations"))
    try:
        last = read_records(run_dir.records)[-1]
        return _count(last["steps"]), _count(last["iteration"] + 1)
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        return None, None


def _count(value: Any) -> int | None:
    return value if type(value) is int else None
