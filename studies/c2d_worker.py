"""One of our recipes, trained on request, with `valid` padding on Atari. Same protocol as sb3_worker.py."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from typing import Any

import torch

from c2d.bench.loop import loop_config, peak_memory_mb, window
from c2d.recipes.parts import Nature
from c2d.training.passport import versions
from c2d.training.process import keep_memory
from c2d.training.session import Session

WARM_UP = 50  # updates before the first window


def say(**facts: Any) -> None:
    print(json.dumps({**facts, "peak_memory_mb": peak_memory_mb()}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipe")
    parser.add_argument("envs", type=int, nargs="?", default=1)
    parser.add_argument("--env", default="breakout")
    parser.add_argument("--overlap", action="store_true")
    parser.add_argument("--env-threads", type=int, default=0)
    chosen = parser.parse_args()
    keep_memory()
    config = loop_config(chosen.env, chosen.recipe, chosen.envs)
    recipe = replace(config.recipe, overlap=chosen.overlap)
    if isinstance(recipe.encoder, Nature):
        recipe = replace(recipe, encoder=replace(recipe.encoder, padding="valid"))
    session = Session(replace(config, recipe=recipe, env_threads=chosen.env_threads))
    session.fill_history()
    window(session, 0.0, least_updates=WARM_UP)
    say(versions=versions(), threads=torch.get_num_threads(), updates=session.learner.updates)
    for line in sys.stdin:
        updates, made = session.learner.updates, window(session, float(line))
        say(steps=made.steps, updates=session.learner.updates - updates, seconds=made.seconds)


if __name__ == "__main__":
    main()
