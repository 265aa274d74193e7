"""Run directories written by hand, in the form that training writes."""

import copy
import json
from functools import cache
from pathlib import Path

from c2d.config import default_config, to_json


@cache
def _default() -> dict:
    return to_json(default_config("gym/CartPole-v1", seed=3, iterations=4))


def config(**changes) -> dict:
    """The JSON form of a run on CartPole: 4 iterations of 100 steps."""
    value = copy.deepcopy(_default())
    value["recipe"]["schedule"]["steps_per_iteration"] = 100
    return {**value, **changes}


def record(iteration: int, score: float | None = 1.0, **changes) -> dict:
    steps = 100 * (iteration + 1)
    value = {"kind": "iteration", "iteration": iteration, "steps": steps, "frames": steps,
             "episodes": 5, "mean_score": score, "mean_loss": 0.5, "atom_min": -1.0, "atom_max": 2.0,
             "gradient_norm_max": 3.0, "updates": 25, "alpha": 50.0, "epsilon": 0.1,
             "measured": {"seconds": 36.0, "steps_per_second": 20.0, "peak_memory_mb": 300.0, "time": 1e9}}  # fmt: skip
    return {**value, **changes}


def point(iteration: int, steps: int, score: float | None = 1.0, seconds: float = 18.0) -> dict:
    """Between the records above."""
    measured = {"seconds": seconds, "steps_per_second": 20.0, "peak_memory_mb": 300.0, "time": 1e9}
    return record(iteration, score, kind="point", steps=steps, frames=steps, updates=5, measured=measured)


def append(path: Path, *records: dict, file: str = "records.jsonl") -> None:
    with open(path / file, "a", encoding="utf-8") as file:
        file.writelines(json.dumps(one) + "\n" for one in records)


def make_run(path: Path, iterations: int = 2, state: str | None = "interrupted", **changes) -> Path:
    """`state` None: no summary, as while running or after kill -9."""
    path.mkdir(parents=True)
    settings = config(**changes)
    (path / "config.json").write_text(json.dumps(settings))
    (path / "env.json").write_text(json.dumps({"frames_per_step": 1}))
    (path / "episodes.csv").write_text(
        "iteration,step,score,length\n" + "".join(f"0,{k},{k}.5,7\n" for k in range(1, 6))
    )
    (path / "lock").write_text("process 1 on somewhere\n")
    header = {"kind": "run", "config": settings, "passport": {}, "versions": {}, "measured": {"started": 1e9}}
    append(path, header, *(record(k, float(k)) for k in range(iterations)))
    if state is not None:
        summary = {
            "state": state,
            "steps": 100 * iterations,
            "iterations": iterations,
            "error": "it broke" if state == "failed" else None,
        }
        (path / "summary.json").write_text(json.dumps(summary))
    return path
