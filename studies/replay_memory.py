"""The cost of a full replay buffer: resident memory, bytes per transition, µs per add, ms per batch of 32.

    python studies/replay_memory.py --transitions 1000000 --game breakout --compress
    python studies/replay_memory.py --transitions 1000000 --game breakout --raw

Random play is recorded once and then stored repeatedly, with its episodes in a new order each time and every frame
compressed again, until the ring is full and has wrapped around by 30 %. Late screens of a good player may compress less
well than those of random play; use `--game` to try a game with busier screens.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from statistics import median

import numpy as np
import torch

from c2d.envs.make import make
from c2d.envs.spec import EnvSpec
from c2d.replay.buffer import Replay
from c2d.types import ResetFrame, Step

Episode = tuple[ResetFrame, list[tuple[int, Step]]]


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def record(game: str, steps: int, seed: int) -> tuple[EnvSpec, list[Episode]]:
    """Episodes of uniformly random play, without the incomplete last one."""
    environment = make(game if "/" in game else f"atari/{game}", None, seed=seed)
    rng = np.random.default_rng(seed)
    opening, run = own(environment.reset()), []
    episodes: list[Episode] = []
    for _ in range(steps):
        action = int(rng.integers(environment.spec.actions))
        step = environment.step(action)
        run.append((action, step._replace(frame=step.frame.copy())))
        if step.reset is not None:
            episodes.append((opening, run))
            opening, run = own(step.reset), []
    environment.close()
    return environment.spec, episodes


def own(opening: ResetFrame) -> ResetFrame:
    return opening._replace(frame=opening.frame.copy())


def fill(replay: Replay, episodes: list[Episode], adds: int, rng: np.random.Generator) -> float:
    """Store `adds` transitions in shuffled episodes; seconds per `add`."""
    done, seconds = 0, 0.0
    order = rng.permutation(len(episodes))
    replay.begin(episodes[order[0]][0])
    while done < adds:
        following = rng.permutation(len(episodes))
        for current, upcoming in zip(order, np.append(order[1:], following[0]), strict=True):
            opening = episodes[upcoming][0]
            steps = [(a, s if s.reset is None else s._replace(reset=opening)) for a, s in episodes[current][1]]
            began = time.perf_counter()
            for action, step in steps:
                replay.add(action, step)
            seconds += time.perf_counter() - began
            done += len(steps)
            if done >= adds:
                break
        order = following
    return seconds / done


def sampling_seconds(replay: Replay, batches: int = 1000) -> float:
    rng, times = np.random.default_rng(0), []
    for _ in range(batches):
        began = time.perf_counter()
        replay.sample(32, rng)
        times.append(time.perf_counter() - began)
    return median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transitions", type=int, default=1_000_000, help="capacity of the buffer")
    parser.add_argument("--recorded", type=int, default=50_000, help="distinct agent steps played first")
    parser.add_argument("--game", default="breakout", help="name of an environment; Atari unless it has a prefix")
    parser.add_argument("--compress", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--raw", dest="compress", action="store_false", help="same as --no-compress")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    torch.set_num_threads(1)

    spec, episodes = record(chosen.game, chosen.recorded, chosen.seed)
    rng, before = np.random.default_rng(chosen.seed), resident_bytes()
    replay = Replay(spec, chosen.transitions, compress=chosen.compress)
    print(f"{spec.name}, {'compressed' if chosen.compress else 'raw'}, capacity {chosen.transitions:,}")
    for label, share in (("full", 1.0), ("wrapped by 30 %", 0.3)):
        per_add = fill(replay, episodes, int(share * chosen.transitions), rng)
        grown = resident_bytes() - before
        print(
            f"{label:>16}: {grown / 1e9:.3f} GB resident, {grown / len(replay):.0f} bytes per transition "
            f"({replay.bytes_used / len(replay):.0f} accounted), {len(replay):,} sampleable, "
            f"add {1e6 * per_add:.1f} µs, sample(32) {1e3 * sampling_seconds(replay):.2f} ms"
        )


if __name__ == "__main__":
    main()
