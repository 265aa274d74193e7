"""The trained agent of a run directory, with the environment it is to play in."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from c2d.agents.agent import Agent
from c2d.config import Config, validate
from c2d.envs.make import make
from c2d.envs.names import require_trusted_env, resolve
from c2d.envs.protocols import GymRules, as_begun
from c2d.envs.spec import Environment
from c2d.errors import UserError
from c2d.files import kind_of, load_json, read_file
from c2d.recipes.parts import Munchausen
from c2d.runs.layout import RunDir
from c2d.runs.reader import read_iterations
from c2d.training.passport import passport


def load(run: str | os.PathLike[str], device: str = "cpu", weights: str | int = "newest") -> Agent:
    """The trained agent of a run directory. Weights are safetensors: reading them runs no code.

    `weights`: "newest", "best" (--keep-best), or the training steps behind one that the run kept.
    """
    directory = RunDir(run)
    config = directory.read_config()
    spec = directory.read_spec()
    file = weights_file(directory, weights)
    return Agent.from_file(file, directory.path, config.recipe, spec, device)


def weights_file(run_dir: RunDir, weights: str | int = "newest") -> Path:
    """The file with these weights; UserError with what there is if it does not exist."""
    kept = run_dir.kept_weights()
    if weights in ("newest", "best"):
        file = run_dir.weights if weights == "newest" else run_dir.best
        if kind_of(file) is None:
            missing = "weights yet: they are written at the end of each iteration"
            if weights == "best":
                missing = "best weights: c2d train --eval-every N --keep-best keeps them"
            raise UserError(f"{run_dir.path} holds no {missing}")
        return file
    if not str(weights).isdigit() or int(weights) not in kept:
        steps = "".join(f", {step}" for step in kept)
        raise UserError(f'--weights is "{weights}"; accepted: newest, best{steps}')
    return kept[int(weights)]


def _steps_behind(run_dir: RunDir, weights: str | int) -> int | None:
    """Training steps behind the best weights, as their file says, or behind those of the series."""
    if weights != "best":
        return int(weights)
    try:
        data = read_file(run_dir.best, 1 << 34, within=run_dir.path)
        header = load_json(data[8 : 8 + int.from_bytes(data[:8], "little")])
        return int(header["__metadata__"]["steps"])
    except (OSError, ValueError, LookupError, TypeError):
        return None


@dataclass(frozen=True)
class LoadedRun:
    """What is evaluated: an agent, its run, and the environment."""

    run_dir: RunDir
    config: Config
    agent: Agent
    env: str  # canonical name of the environment to play, not always the one of training
    steps: int | None  # agent steps of training behind the weights, if the run recorded them
    iterations: int | None

    def make_env(self, seed: int) -> Environment:
        return make(self.env, self.config.rules, seed)

    @cached_property
    def passport(self) -> dict[str, Any]:
        """The rules as they are in this installation."""
        env = self.make_env(0)
        try:
            return passport(self.config, env)
        finally:
            env.close()

    @property
    def prediction(self) -> str:
        """What the distributions predict, in one sentence."""
        recipe = self.config.recipe
        clipped = "" if recipe.clip_reward is None else f" clipped to ±{recipe.clip_reward:g}"
        text = (
            f"predictions are of the discounted return (γ {recipe.schedule.gamma:g}) in real rewards{clipped}, "
            "of an action followed by play that is greedy for the mean"
        )
        if getattr(self.config.rules, "life_loss_ends_episode", False):
            text += ", until the end of a life"
        if isinstance(recipe.bootstrap, Munchausen):
            text += "; those of Munchausen agents include its bonus for likely actions"
        return text

    def last_networks(self, count: int, device: str = "cpu") -> list[LoadedRun]:
        """The same run with each of the last networks that it kept, the oldest first."""
        kept = self.run_dir.kept_weights()
        if len(kept) < count:
            accepted = f"1 to {len(kept)}, as many as the run has kept" if len(kept) > 1 else "1, the newest"
            raise UserError(
                f"--nets is {count}; accepted: {accepted} (--checkpoint.keep-weights {count} of c2d train keeps more)"
            )
        length, found = self.config.recipe.schedule.steps_per_iteration, []
        for steps, path in list(kept.items())[-count:]:
            agent = Agent.from_file(path, self.run_dir.path, self.config.recipe, self.agent.spec, device)
            found.append(replace(self, agent=agent, steps=steps, iterations=steps // length))
        return found

    def trained_here(self) -> bool | None:
        """Whether training had the same rules, versions of the games included; None if the run does not say."""
        if kind_of(self.run_dir.passport) is None:
            return None
        return bool(self.run_dir.read_json(self.run_dir.passport).get("hash") == self.passport["hash"])


def open_run(
    path: str | os.PathLike[str],
    env: str | None = None,
    device: str = "cpu",
    cap_steps: int | None = None,
    weights: str | int = "newest",
) -> LoadedRun:
    """Read a run. A class of the user's own is imported only if `env` names it: never because a file does.

    `cap_steps` replaces the run's own, `weights` are those of `load`.
    """
    run_dir = _directory(path)
    config = _config(run_dir)
    if env is None:
        require_trusted_env(config.env, env, rules=config.rules)
    if cap_steps is not None:
        config = replace(config, rules=replace(config.rules, cap_steps=cap_steps))
    agent = load(path, device, weights)
    steps, iterations = _behind(run_dir, config, weights)
    name = resolve(config.env if env is None else env).canonical
    if name != config.env and isinstance(config.rules, GymRules):  # they are arguments of the other one
        config = replace(config, rules=replace(config.rules, env_kwargs=()))
    if name == config.env:
        config = replace(config, rules=as_begun(config.rules, agent.spec.masked))
    return LoadedRun(run_dir, config, agent, name, steps, iterations)


def open_for_reading(path: str | os.PathLike[str], weights: str | int = "newest") -> LoadedRun:
    """Read a run whose environment is not to be played, and so is neither imported nor installed."""
    run_dir = _directory(path)
    config = _config(run_dir)
    agent = load(path, weights=weights)
    return LoadedRun(run_dir, config, agent, config.env, *_behind(run_dir, config, weights))


def _behind(run_dir: RunDir, config: Config, weights: str | int) -> tuple[int | None, int | None]:
    """Steps and iterations of training behind these weights."""
    if weights == "newest":
        return _trained(run_dir)
    steps = _steps_behind(run_dir, weights)
    return steps, None if steps is None else steps // config.recipe.schedule.steps_per_iteration


def _directory(path: str | os.PathLike[str]) -> RunDir:
    run_dir = RunDir(path)
    if not run_dir.path.is_dir():
        raise UserError(f"{path} is not a run directory: it does not exist or is a file")
    return run_dir


def _config(run_dir: RunDir) -> Config:
    config = run_dir.read_config()
    try:
        validate(config)
    except (TypeError, AttributeError) as error:  # right names, values of a wrong type
        raise UserError(f"config file {run_dir.config} cannot be used: {error}") from None
    return config


def _trained(run_dir: RunDir) -> tuple[int | None, int | None]:
    """Steps and whole iterations: by the summary of a run that has ended, else by its last record."""
    if kind_of(run_dir.summary) is not None:
        summary = run_dir.read_json(run_dir.summary)
        return _count(summary.get("steps")), _count(summary.get("iterations"))
    records = read_iterations(run_dir.path)
    if not records:
        return None, None
    return _count(records[-1]["steps"]), _count(records[-1]["iteration"] + 1)


def _count(value: Any) -> int | None:
    return value if type(value) is int else None
