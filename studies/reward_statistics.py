"""How frequent and how large rewards are under random play in the 55 games; writes c2d/reporting/data/rewards.csv.

python studies/reward_statistics.py --out c2d/reporting/data/rewards.csv
"""

from __future__ import annotations

import argparse
from pathlib import Path

import ale_py
import numpy as np
from ale_py.roms import get_rom_path

from c2d.envs.games import BENCHMARK, GAMES
from c2d.files import write_atomically

STEPS = 20_000  # agent steps per game, the length of the paper's random history
REPEAT, STICKY, CAP = 4, 0.25, 27_000


def measure(game: str) -> tuple[float, float]:
    """(share of steps with a reward, mean size of those rewards); rewards of the 4 repeated frames are summed."""
    emulator = ale_py.ALEInterface()
    emulator.setInt("random_seed", 0)
    emulator.setFloat("repeat_action_probability", STICKY)
    emulator.loadROM(get_rom_path(GAMES[game].rom))
    actions = emulator.getMinimalActionSet()
    rng = np.random.default_rng(0)
    rewards = np.zeros(STEPS)
    length = 0
    for step in range(STEPS):
        action = actions[rng.integers(len(actions))]
        for _ in range(REPEAT):
            rewards[step] += emulator.act(action)
            if emulator.game_over():
                break
        length += 1
        if emulator.game_over() or length == CAP:
            emulator.reset_game()
            length = 0
    some = rewards != 0
    return float(some.mean()), float(np.abs(rewards[some]).mean()) if some.any() else float("nan")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    chosen = parser.parse_args()
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    lines = [
        f"# Rewards under uniformly random play: {STEPS:,} steps of {REPEAT} frames, sticky actions {STICKY}, seed 0, "
        f"ale-py {ale_py.__version__}.",
        "# density: share of steps with a reward other than 0; magnitude: mean size of those; empty: none came.",
        "# Measured by studies/reward_statistics.py.",
        "game,density,magnitude",
    ]
    for game in BENCHMARK:
        density, magnitude = measure(game)
        lines.append(f"{game},{density:.6g},{'' if magnitude != magnitude else f'{magnitude:.6g}'}")
        print(lines[-1], flush=True)
    write_atomically(chosen.out, ("\n".join(lines) + "\n").encode())


if __name__ == "__main__":
    main()
