"""Training from Python."""

from __future__ import annotations

from c2d.config import Config, default_config
from c2d.training.observer import Observer
from c2d.training.progress import ProgressDisplay
from c2d.training.run import Result, run
from c2d.training.tensorboard import TensorBoard


def train(config: Config | str, progress: bool = True) -> Result:
    """Train as `c2d train` does. A name such as "minatar/breakout" stands for its default config."""
    if isinstance(config, str):
        config = default_config(config)
    observers: list[Observer] = [ProgressDisplay()] if progress else []
    if config.tensorboard:
        observers.append(TensorBoard())
    return run(config, observers)
