"""Runs of a second, for tests of what comes after training."""

from dataclasses import replace
from pathlib import Path

from c2d import default_config, train


def tiny_config(env: str, path: Path | str, steps: int = 40, iterations: int = 1):
    config = default_config(env, iterations=iterations, run_dir=str(path), tensorboard=False, threads=1)
    schedule = replace(
        config.recipe.schedule,
        steps_per_iteration=steps,
        random_history=40,
        replay_capacity=200,
        batch_size=4,
        update_period=8,
    )
    head = replace(config.recipe.head, atoms=4, hidden=8, embedding=8)
    return replace(config, recipe=replace(config.recipe, schedule=schedule, head=head))


def tiny_run(env: str, path: Path | str) -> Path:
    return train(tiny_config(env, path), progress=False).run_dir.path
