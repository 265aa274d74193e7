"""Training, and reading a trained agent back, from Python."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

from c2d.agents.agent import Agent
from c2d.config import Config, default_config, from_json, to_json, with_fields
from c2d.errors import UserError
from c2d.files import kind_of
from c2d.recipes.part import SLOTS, part_name
from c2d.runs.layout import RunDir
from c2d.training.observers import Observer, TensorBoard
from c2d.training.progress import ProgressDisplay
from c2d.training.run import Result, run
from c2d.user_code import trust


def train(config: Config | str | Callable[..., Any], progress: bool = True, **settings: Any) -> Result:
    """Train as `c2d train` does. An environment, "minatar/breakout" or a class, stands for its default config.

    `settings` are fields of the config, such as `seed=2`; of an environment, also arguments of `default_config`.
    Parts of your own in the recipe may be classes of any module: passing them is naming them.
    """
    given = with_fields(config, settings) if isinstance(config, Config) else default_config(config, **settings)
    checked = _checked(given)
    observers: list[Observer] = [ProgressDisplay()] if progress else []
    wanted = checked.tensorboard
    if wanted or (wanted is None and find_spec("tensorboard") is not None):
        observers.append(TensorBoard())
    return run(checked, observers)


def load(run: str | os.PathLike[str], device: str = "cpu") -> Agent:
    """The trained agent of a run directory. Weights are safetensors: reading them runs no code."""
    directory = RunDir(run)
    config = directory.read_config()
    spec = directory.read_spec()
    if kind_of(directory.weights) is None:
        raise UserError(f"{directory.path} holds no weights yet: they are written at the end of each iteration")
    return Agent.from_file(directory.weights, directory.path, config.recipe, spec, device)


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
