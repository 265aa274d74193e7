"""One of our recipes, trained on request with `valid` padding. It speaks the same protocol as sb3_worker.py."""

from __future__ import annotations

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
    keep_memory()
    config = loop_config("breakout", sys.argv[1])
    assert isinstance(config.recipe.encoder, Nature)
    encoder = replace(config.recipe.encoder, padding="valid")
    session = Session(replace(config, recipe=replace(config.recipe, encoder=encoder)))
    session.fill_history()
    window(session, 0.0, least_updates=WARM_UP)
    say(versions=versions(), threads=torch.get_num_threads(), updates=session.learner.updates)
    for line in sys.stdin:
        updates, made = session.learner.updates, window(session, float(line))
        say(steps=made.steps, updates=session.learner.updates - updates, seconds=made.seconds)


if __name__ == "__main__":
    main()
