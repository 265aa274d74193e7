"""C2D: distributional reinforcement learning with conjugated discrete distributions.

    config = c2d.default_config("gym/CartPole-v1", seed=1)
    result = c2d.train(config)
    agent = c2d.load(result.run_dir.path)
    agent.act(obs), agent.distribution(obs)

Names are imported when first used: `import c2d` is quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.2.0.dev0"
__all__ = ["Config", "UserError", "default_config", "export", "load", "make", "train"]

if TYPE_CHECKING:
    from c2d.api import load, train
    from c2d.config import Config, default_config
    from c2d.envs.make import make
    from c2d.errors import UserError
    from c2d.evaluation.model_card import export

_HOMES = {
    "train": "c2d.api",
    "Config": "c2d.config",
    "default_config": "c2d.config",
    "make": "c2d.envs.make",
    "UserError": "c2d.errors",
    "load": "c2d.api",
    "export": "c2d.evaluation.model_card",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'c2d' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
