"""Runs of a second; as a program, in a process of its own: `python short_runs.py SEED DIRECTORY ENV ...`."""

import sys
from dataclasses import replace

from c2d.api import train
from c2d.config import default_config
from c2d.recipes.part import Recurrent
from c2d.recipes.parts import Implicit
from c2d.recipes.rows import RECIPES


def _kind(recipe):
    return type(recipe.head), type(recipe.bootstrap), type(recipe.sampler), recipe.noisy, recipe.layer_norm


# Of rows with the same kinds of parts the first: for tests of what does not depend on their sizes and rates.
# Of those with memory one is enough.
UNLIKE = tuple(
    {
        _kind(recipe): name
        for name, recipe in reversed(RECIPES.items())
        if not isinstance(recipe.core, Recurrent) or name == "r2d2-c2d"
    }.values()
)


def short_config(env, path, seed=1, iterations=2, steps=120, recipe="c2d", **changes):
    config = default_config(
        env, recipe, seed=seed, iterations=iterations, run_dir=str(path), tensorboard=False, threads=1
    )
    schedule = replace(
        config.recipe.schedule,
        **{
            "steps_per_iteration": steps,
            "random_history": 60,
            "replay_capacity": 150,  # the ring comes round
            "batch_size": 4,
            "update_period": 8,
            "target_period": 50,
            "epsilon_decay_steps": 100,
            **changes,
        },
    )
    head = replace(config.recipe.head, hidden=16)
    if isinstance(head, Implicit):
        head = replace(head, atoms=8, target_atoms=8, policy_atoms=8)
    elif recipe == "c2d":
        head = replace(head, atoms=8, embedding=16)
    envs = min(config.recipe.envs, 4)  # of recipes with many
    core = config.recipe.core
    if isinstance(core, Recurrent):
        core = replace(core, hidden=16, sequence=8, burn_in=min(core.burn_in, 4), overlap=min(core.overlap, 4))
    return replace(config, recipe=replace(config.recipe, schedule=schedule, head=head, core=core, envs=envs))


def short_run(env, path, **changes):
    return train(short_config(env, path, **changes), progress=False)


if __name__ == "__main__":
    for name in sys.argv[3:]:
        short_run(name, f"{sys.argv[2]}/{name}", seed=int(sys.argv[1]))
