"""What a checkpoint costs with a full replay, and how long loading it takes.

    python studies/checkpoint_cost.py --out docs/results/checkpoints.md

Random play is stored repeatedly until the replay is full; the network is that of the paper.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from c2d.bench.loop import window
from c2d.config import Config, default_config
from c2d.files import write_atomically
from c2d.runs.checkpoints import Checkpoints
from c2d.training.passport import machine
from c2d.training.session import Session
from c2d.types import ResetFrame, Step

RECORDED = 50_000  # steps of random play
NEW = 10_000  # steps between two checkpoints
FILES = {"records.jsonl": b"{}\n", "episodes.csv": b"\n"}


def record(session: Session, steps: int) -> tuple[ResetFrame, list[tuple[int, Step]]]:
    rng, opening, played = np.random.default_rng(1), session.env.reset(), []
    for action in rng.integers(session.env.spec.actions, size=steps).tolist():
        played.append((action, session.env.step(action)))
    return opening, played


def resident_mb() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 1e6


def peak_mb() -> float:
    """Peak memory of this program; getrusage would include that of the parent process."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024 / 1e6


def measure(config: Config, where: Path) -> dict[str, Any]:
    session = Session(config)
    opening, played = record(session, min(RECORDED, config.recipe.schedule.replay_capacity))
    session.replay.begin(opening)
    checkpoints = Checkpoints(where)
    while session.replay.head < config.recipe.schedule.replay_capacity:
        for action, step in played:
            session.replay.add(action, step)
        session.step = session.replay.head
    session.history = session.schedule.random_history
    session.rollout.streams[0].stack.reset(opening)
    first = checkpoints.save(session, None, 0.0, FILES)
    saves = []
    for _ in range(5):
        for action, step in played[:NEW]:
            session.replay.add(action, step)
        session.step += NEW
        saves.append(checkpoints.save(session, None, 0.0, FILES))
    speed = window(session, 20.0).steps_per_second
    on_disk = sum(path.stat().st_size for path in where.rglob("*") if path.is_file()) / 1e6
    session.close()
    again = [sys.executable, __file__, "--load", str(where), "--env", config.env]
    again += ["--transitions", str(config.recipe.schedule.replay_capacity)]
    loaded = json.loads(subprocess.run(again, check=True, capture_output=True, text=True).stdout)
    return {"first": first, "saves": saves, "speed": speed, "disk_mb": on_disk, **loaded}


def load(config: Config, where: Path) -> dict[str, float]:
    """In a process of its own, for its memory."""
    session = Session(config)
    before, began = resident_mb(), time.perf_counter()
    checkpoints = Checkpoints(where)
    checkpoints.restore(checkpoints.read(next(checkpoints.newest_first())), session)
    return {
        "load_seconds": time.perf_counter() - began,
        "transitions": len(session.replay),
        "replay_mb": session.replay.bytes_used / 1e6,
        "before_mb": before,
        "after_mb": resident_mb(),
        "peak_mb": peak_mb(),
    }


def page(config: Config, found: dict[str, Any], command: str) -> str:
    saves = found["saves"]
    worst = max(save.seconds for save in saves)
    wanted, where = config.checkpoint, machine(torch.get_num_threads())
    overhead = worst / NEW * found["speed"]  # seconds for saving per second of training
    lines = [
        "# What checkpoints cost",
        "",
        f"{config.env}, recipe {config.recipe_name}, {found['transitions']:,} transitions in the replay. Command: "
        f"`{command}`, {time.strftime('%d %B %Y', time.gmtime())}. {where['cpu']}, {where['threads']} threads.",
        "",
        "| | |",
        "|---|---|",
        f"| first checkpoint, the whole replay | {found['first'].seconds:.1f} s, {found['first'].bytes / 1e6:.0f} MB |",
        f"| after {NEW:,} new steps, five times, s | {', '.join(f'{save.seconds:.2f}' for save in saves)} |",
        f"| written by each, MB | {', '.join(f'{save.bytes / 1e6:.0f}' for save in saves)} |",
        f"| on disk altogether ({wanted.keep} checkpoints kept) | {found['disk_mb']:.0f} MB |",
        f"| loading it into a new session | {found['load_seconds']:.1f} s |",
        f"| memory before loading, after it, and at most, MB | {found['before_mb']:.0f}, {found['after_mb']:.0f}, "
        f"{found['peak_mb']:.0f} (the replay itself: {found['replay_mb']:.0f}) |",
        f"| training speed between checkpoints | {found['speed']:.1f} steps/s |",
        "",
        f"A checkpoint every {NEW:,} steps takes {100 * overhead:.2f} % of the time in the worst of these cases; "
        f"by default one comes every {wanted.every_steps:,} steps or {wanted.every_minutes:g} minutes, "
        "which is less often.",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="breakout", help="Atari game")
    parser.add_argument("--transitions", type=int, default=1_000_000, help="capacity of the replay, filled")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads")
    parser.add_argument("--load", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help="Markdown file to write")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    config = default_config(chosen.env)
    schedule = replace(config.recipe.schedule, replay_capacity=chosen.transitions)
    config = replace(config, recipe=replace(config.recipe, schedule=schedule))
    if chosen.load is not None:
        print(json.dumps(load(config, chosen.load)))
        return
    where = Path(tempfile.mkdtemp(prefix="c2d-checkpoints-", dir="."))
    try:
        text = page(config, measure(config, where), " ".join(["python", *sys.argv]))
    finally:
        shutil.rmtree(where)
    print(text)
    if chosen.out is not None:
        write_atomically(chosen.out, text.encode())


if __name__ == "__main__":
    main()
