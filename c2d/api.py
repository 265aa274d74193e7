"""What the commands do, as functions."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from c2d.agents.agent import Agent
from c2d.config import Config, configure, from_json, to_json, with_settings
from c2d.envs.make import default_rules, with_arguments
from c2d.envs.make import make as make_environment
from c2d.envs.names import name_of, require_trusted_env, resolve
from c2d.envs.protocols import Rules
from c2d.envs.spec import Environment
from c2d.errors import UserError
from c2d.evaluation import loaded_run
from c2d.evaluation.callbacks import callbacks_of
from c2d.evaluation.play import PlaySettings, play
from c2d.evaluation.record import Evaluation, evaluation_of
from c2d.files import kind_of
from c2d.recipes.part import SLOTS, part_name
from c2d.runs.layout import RunDir
from c2d.training.loggers import loggers_of
from c2d.training.observers import Observer
from c2d.training.progress import ProgressDisplay
from c2d.training.resume import config_of, fork, reject_differences
from c2d.training.run import Result, run
from c2d.user_code import trust

Run = str | os.PathLike[str] | Result  # a run directory, or what training returned


def train(
    config: Config | str | Callable[..., Any],
    progress: bool = True,
    callbacks: Sequence[Observer] = (),
    **settings: Any,
) -> Result:
    """Train as `c2d train` does. An environment, "minatar/breakout" or a class, stands for its usual config.

    `callbacks` are observers of the run (`c2d.Observer`); `progress=False` prints nothing. `settings` are those of
    `c2d.configure`, such as `seed=2` or `head__atoms=32`. Parts of your own in the recipe may be classes of any module:
    passing them is naming them. A run directory that holds the run already is resumed.
    """
    given = with_settings(config, settings) if isinstance(config, Config) else configure(config, **settings)
    checked = _checked(given)
    observers: list[Observer] = [ProgressDisplay()] if progress else []
    return run(checked, [*observers, *callbacks_of(checked), *loggers_of(checked), *callbacks])


def resume(
    run: Run,
    progress: bool = True,
    callbacks: Sequence[Observer] = (),
    env: str | Callable[..., Any] | None = None,
    fork_to: str | os.PathLike[str] | None = None,
    **settings: Any,
) -> Result:
    """Resume a run from its last checkpoint as `c2d resume` does, for instance with `iterations=20`.

    `env`: your own environment again, as code is never imported because a file names it. `fork_to`: leave the run as it
    is, and continue in this new directory; then every setting may change.
    """
    source = RunDir(_path(run))
    before = config_of(source, _warn)
    require_trusted_env(before.env, None if env is None else name_of(env), rules=before.rules)
    config = _checked(with_settings(before, {**settings, "run_dir": str(fork_to or source.path)}))
    if fork_to is None:
        reject_differences(source, before, config)
    elif kind_of(Path(fork_to)) is not None:
        raise UserError(f"fork_to {fork_to} exists; accepted: a new directory")
    else:
        fork(source, RunDir(fork_to), config, _warn)
    return train(config, progress, callbacks)


def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=4)


def load(run: Run, device: str = "cpu", weights: str | int = "newest") -> Agent:
    """The trained agent of a run directory. Weights are safetensors: reading them runs no code.

    `weights`: "newest"; "best", those that `--keep-best` kept; or the training steps behind one that the run kept.
    """
    return loaded_run.load(_path(run), device, weights)


def evaluate(
    run: Run,
    games: int = 20,
    *,
    epsilon: float | None = None,
    parallel: int = 8,
    seed: int = 0,
    weights: str | int = "newest",
    env: str | Callable[..., Any] | None = None,
    cap_steps: int | None = None,
    device: str = "cpu",
    save: bool = True,
) -> Evaluation:
    """Play whole games with a trained agent as `c2d evaluate` does: the scores, and statistics of them.

    `epsilon`: None for the run's own; `parallel`: games at once; `env`: another environment, or your own again.
    `save`: also write the scores into the run directory.
    """
    subject = loaded_run.open_run(_path(run), None if env is None else name_of(env), device, cap_steps, weights)
    own = subject.config.recipe.schedule.epsilon_eval
    setup = PlaySettings(games, own if epsilon is None else epsilon, parallel, seed)
    return evaluation_of(subject, setup, play(subject.agent, subject.make_env, setup), save)


def make(
    env: str | Callable[..., Any],
    *old: Any,
    seed: int | None = None,
    rules: Rules | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    wrappers: Sequence[str | Callable[..., Any]] = (),
) -> Environment:
    """One environment in the form in which agents see it: `c2d.make("minatar/breakout", seed=1)`.

    `env` is a name, a class of your own, or a function that returns an environment; `env_kwargs` are its arguments,
    `wrappers` are put around it. `rules`: None for the usual ones, the paper's for Atari.
    """
    if old:
        warnings.warn(
            "c2d.make(env, rules, seed) is deprecated: c2d.make(env, seed=1)", DeprecationWarning, stacklevel=2
        )
        if len(old) > 2 or (len(old) == 2 and seed is not None):
            raise TypeError("make() takes an environment; everything else is named: c2d.make(env, seed=1)")
        rules, seed = old[0], old[1] if len(old) == 2 else seed
    name = resolve(name_of(env))
    names = [name_of(wrapper, "wrapper") for wrapper in wrappers]
    for wrapper in names:
        trust(wrapper)
    rules = with_arguments(name, default_rules(name) if rules is None else rules, env_kwargs or {}, names)
    return make_environment(name, rules, 0 if seed is None else seed)


def _path(run: Run) -> Path:
    return run.run_dir.path if isinstance(run, Result) else Path(run)


def _checked(config: Config) -> Config:
    """The same config; rejects values of the wrong type, as for a file or the command line."""
    if isinstance(config.run_dir, os.PathLike):
        config = replace(config, run_dir=os.fspath(config.run_dir))
    same: Config = from_json(to_json(config))
    for slot in SLOTS:
        trust(part_name(getattr(same.recipe, slot)))
    if same.recipe.phi.kind.partition(":")[0] in sys.modules:  # imported by the user
        trust(same.recipe.phi.kind)
    return same
