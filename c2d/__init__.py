"""C2D: distributional reinforcement learning with conjugated discrete distributions.

    result = c2d.train("gym/CartPole-v1", seed=1)
    agent = c2d.load(result)
    agent.act(obs), agent.distribution(obs)

Names are imported when first used: `import c2d` is quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.2.0.dev0"

if TYPE_CHECKING:
    from c2d.agents.agent import Agent, Distribution
    from c2d.api import SweptRun, compare, evaluate, load, make, report, resume, run_sweep, train
    from c2d.bench.env_check import check_env
    from c2d.config import Config, configure, default_config
    from c2d.errors import UserError
    from c2d.evaluation.callbacks import KeepBest, PeriodicEvaluation, StopAfter, StopAtScore
    from c2d.evaluation.model_card import export
    from c2d.evaluation.record import Evaluation
    from c2d.reporting.report import RunComparison
    from c2d.training.loggers import CsvLog, Logger, MLflow, TensorBoard, WandB
    from c2d.training.observers import Observer, RunView
    from c2d.training.run import Result
    from c2d.types import FinishedGame

# Where each public name is; docs/api.md has them in this order.
_HOMES = {
    "train": "c2d.api",
    "resume": "c2d.api",
    "evaluate": "c2d.api",
    "load": "c2d.api",
    "check_env": "c2d.bench.env_check",
    "export": "c2d.evaluation.model_card",
    "make": "c2d.api",
    "compare": "c2d.api",
    "report": "c2d.api",
    "run_sweep": "c2d.api",
    "configure": "c2d.config",
    "default_config": "c2d.config",
    "Config": "c2d.config",
    "Result": "c2d.training.run",
    "Evaluation": "c2d.evaluation.record",
    "RunComparison": "c2d.reporting.report",
    "SweptRun": "c2d.api",
    "Agent": "c2d.agents.agent",
    "Distribution": "c2d.agents.agent",
    "Observer": "c2d.training.observers",
    "RunView": "c2d.training.observers",
    "FinishedGame": "c2d.types",
    "PeriodicEvaluation": "c2d.evaluation.callbacks",
    "KeepBest": "c2d.evaluation.callbacks",
    "StopAtScore": "c2d.evaluation.callbacks",
    "StopAfter": "c2d.evaluation.callbacks",
    "Logger": "c2d.training.loggers",
    "TensorBoard": "c2d.training.loggers",
    "CsvLog": "c2d.training.loggers",
    "WandB": "c2d.training.loggers",
    "MLflow": "c2d.training.loggers",
    "UserError": "c2d.errors",
}
__all__ = [
    "Agent",
    "Config",
    "CsvLog",
    "Distribution",
    "Evaluation",
    "FinishedGame",
    "KeepBest",
    "Logger",
    "MLflow",
    "Observer",
    "PeriodicEvaluation",
    "Result",
    "RunComparison",
    "RunView",
    "StopAfter",
    "StopAtScore",
    "SweptRun",
    "TensorBoard",
    "UserError",
    "WandB",
    "check_env",
    "compare",
    "configure",
    "default_config",
    "evaluate",
    "export",
    "load",
    "make",
    "report",
    "resume",
    "run_sweep",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'c2d' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
