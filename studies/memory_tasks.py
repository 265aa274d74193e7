"""Tasks that need a memory, played by agents with and without one.

    .venv/bin/python studies/memory_tasks.py --steps 16000 --seeds 1 --out docs/results/memory.md

Trains each recipe from scratch at its own scale for these environments, with all settings as they are; then the agent
plays 20 whole games at ε 0.001.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

import c2d
from c2d.config import default_config
from c2d.envs.make import make
from c2d.evaluation.play import evaluate
from c2d.files import write_atomically
from c2d.recipes.part import Recurrent
from c2d.training.passport import machine, versions

TASKS = {
    "toy/recall": "A cue, and 20 steps later the question which it was. The best score is 1; guessing is worth 0.",
    "toy/masked-cartpole": "CartPole of which only position and angle are seen. The best score is 500.",
}
HEADER = (
    "| recipe | memory | seed | mean of 20 games | least | updates | CPU seconds |\n|---|---|---:|---:|---:|---:|---:|"
)


def measure(env: str, recipe: str, seed: int, steps: int) -> str:
    config = default_config(env, recipe, seed=seed, iterations=1, threads=1, tensorboard=False)
    schedule = replace(config.recipe.schedule, steps_per_iteration=steps)
    config = replace(config, recipe=replace(config.recipe, schedule=schedule))
    with tempfile.TemporaryDirectory() as where:
        begun = time.process_time()
        result = c2d.train(replace(config, run_dir=f"{where}/run"), progress=False)
        seconds = time.process_time() - begun
        agent = c2d.load(result.run_dir.path)
        ends = evaluate(agent, lambda game: make(env, config.rules, game), 20, 0.001, 20, seed=seed)
    scores = [end.score for end in ends]
    core = f"LSTM {config.recipe.core.hidden}" if isinstance(config.recipe.core, Recurrent) else "none"
    updates = steps // schedule.update_period
    cells = [f"`{recipe}`", core, seed, f"{np.mean(scores):.2f}", f"{min(scores):g}", f"{updates:,}", f"{seconds:.0f}"]
    print(env, *cells, flush=True)
    return f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=16_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--recipes", nargs="+", default=["c2d", "r2d2-c2d"])
    parser.add_argument("--out", type=Path, required=True)
    chosen = parser.parse_args()
    parts = [
        "# Tasks that need a memory\n\n"
        f"Each run was trained from scratch for {chosen.steps:,} steps on one thread, with all settings as they are\n"
        "at the scale of the environment; then the agent played 20 whole games at ε 0.001."
    ]
    for env, about in TASKS.items():
        rows = [measure(env, recipe, seed, chosen.steps) for recipe in chosen.recipes for seed in chosen.seeds]
        parts.append(f"## {env}\n\n{about}\n\n" + "\n".join([HEADER, *rows]))
    listed = ", ".join(f"{name} {version}" for name, version in versions().items())
    here = machine(threads=1)
    command = shlex.join(["python", *sys.argv])
    parts.append(f"- Command: `{command}`\n- Versions: {listed}\n- Machine: {here['cpu']}, {here['cores']} cores")
    write_atomically(chosen.out, "\n\n".join(parts).encode() + b"\n")


if __name__ == "__main__":
    main()
