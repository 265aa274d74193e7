"""What the loops in C save: training and emulation with them and without, taking turns in one process.

python bench/kernels.py --out docs/results/kernels.md      # 10 minutes on a quiet machine
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from statistics import median

import numpy as np

from c2d.bench.loop import emulation, loop_config
from c2d.bench.machine import BareEmulator, load_average
from c2d.envs import resize
from c2d.envs.games import BENCHMARK
from c2d.envs.names import resolve
from c2d.envs.protocols import AtariRules
from c2d.files import write_atomically
from c2d.nets import native
from c2d.training.memory import keep_memory
from c2d.training.passport import machine, versions
from c2d.training.session import Session

RECIPES = ("c2d", "c51", "dqn-adam")
# the last four are the cheapest to emulate, so that preprocessing weighs most
SHOWN = ("breakout", "pong", "spaceinvaders", "mspacman", "seaquest", "kungfumaster")
SHOWN += ("phoenix", "demonattack", "gopher", "stargunner")
WARM_UP = 200  # agent steps
TURN = 4  # updates; the first after a switch is not counted


def switch(on: bool) -> None:
    native.AVAILABLE = resize.NATIVE = on


def training(recipe: str, rounds: int) -> dict[bool, list[float]]:
    """Seconds of each update period, emulation and acting included."""
    switch(True)
    session = Session(loop_config("breakout", recipe))
    session.fill_history()
    for _ in range(WARM_UP):
        session.advance()
    took: dict[bool, list[float]] = {True: [], False: []}
    for number in range(2 * rounds):
        on = number % 2 == 0
        native.AVAILABLE = on
        for turn in range(TURN):
            began = time.perf_counter()
            for _ in range(session.schedule.update_period):
                session.advance()
            if turn:
                took[on].append(time.perf_counter() - began)
    session.close()
    return took


def shares(game: str, seconds: float, ways: tuple[bool, ...] = (True, False)) -> dict[bool, float]:
    """Share of the bare emulator's rate that is left with preprocessing."""
    config = loop_config(game)
    assert isinstance(config.rules, AtariRules)
    found = {}
    for on in ways:
        switch(on)
        bare = BareEmulator(resolve(config.env).key, config.rules)
        found[on] = emulation(config, bare, seconds)["share_of_bare_emulator"]
    return found


def page(rounds: int, seconds: float, command: str) -> str:
    lines = [
        "# What the loops in C save",
        "",
        "`kernels.c`, `dense.c` and `convolution.c` in `c2d/nets`, and `c2d/envs/screen.c`, are compiled at",
        "installation where GCC is there; PyTorch, the emulator and OpenCV do the same otherwise. Both ways",
        "took turns in one process. The first table is about those in `c2d/nets` alone, the second about `screen.c`.",
        "",
        "| training on Breakout: ms per update with its 4 agent steps | in C | without | faster by |",
        "|---|---|---|---|",
    ]
    for recipe in RECIPES:
        took = training(recipe, rounds)
        ours, others = (1e3 * np.array(took[on]) for on in (True, False))
        gain = median(others) / median(ours) - 1
        quartiles = [
            f"{median(x):.1f} ({np.percentile(x, 25):.1f} to {np.percentile(x, 75):.1f})" for x in (ours, others)
        ]
        lines.append(f"| {recipe} | {' | '.join(quartiles)} | {gain:.1%} |")
    lines += ["", "| share of the bare emulator's rate | in C | without |", "|---|---|---|"]
    for game in SHOWN:
        found = shares(game, seconds)
        lines.append(f"| {game} | {found[True]:.1%} | {found[False]:.1%} |")
    every = sorted((shares(game, seconds / 3, (True,))[True], game) for game in BENCHMARK)
    lowest = ", ".join(f"{game} {share:.1%}" for share, game in every[:5])
    lines += [
        "",
        f"In C over all {len(every)} games of the paper, in windows of a third of the length: "
        f"median {median(share for share, _ in every):.1%}; the lowest are {lowest}.",
    ]
    where = machine(threads=2)
    used = ", ".join(f"{name} {version}" for name, version in versions().items() if name != "kernels")
    lines += [
        "",
        f"Medians with quartiles; `{command}`, {time.strftime('%d %B %Y')}. {where['cpu']}, {where['cores']} cores, "
        f"{where['threads']} threads, {where['system']}; {used}.",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, help="write the page there")
    parser.add_argument("--rounds", type=int, default=150, help="turns of each way, per recipe")
    parser.add_argument("--seconds", type=float, default=6.0, help="of emulation per game and way")
    options = parser.parse_args()
    if not (native.AVAILABLE and resize.NATIVE):
        raise SystemExit("the loops in C are not there: install a C compiler, then make clean setup")
    keep_memory()
    print(f"load average {load_average():.2f}", flush=True)
    out = f" --out {options.out}" if options.out else ""
    text = page(options.rounds, options.seconds, f"python bench/kernels.py{out}")
    print(text)
    if options.out:
        write_atomically(options.out, text.encode())


if __name__ == "__main__":
    main()
