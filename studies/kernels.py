"""What the operations in c2d/native save: training with them and with their twins, by turns in one process.

python studies/kernels.py --out docs/results/kernels.md      # 5 minutes on a quiet machine
"""

from __future__ import annotations

import argparse
import random
import time
from pathlib import Path
from statistics import median

import numpy as np
import torch

from c2d import native
from c2d.bench.loop import load_average, loop_config
from c2d.files import write_atomically
from c2d.native import operations
from c2d.training.passport import machine, versions
from c2d.training.process import keep_memory
from c2d.training.session import Session

RECIPES = ("c2d", "c51")  # c51 has no normalization
OPERATIONS = {"column_norm": "supports_column_norm", "dense": "supports_dense"}  # and what switches them off
WARM_UP = 200  # agent steps
SETTLE, TURN = 2, 8  # updates that are not counted after a switch, and updates that are
SUPPORTS = {name: getattr(operations, condition) for name, condition in OPERATIONS.items()}


def switch(on: frozenset[str]) -> None:
    """Use these operations, and the twins of the others."""
    for name, condition in OPERATIONS.items():
        setattr(operations, condition, SUPPORTS[name] if name in on else (lambda *_: False))


def measure(recipe: str, threads: int, rounds: int) -> dict[str, list[float]]:
    """CPU milliseconds per update with its agent steps, for each way, round by round."""
    torch.set_num_threads(threads)
    everything = frozenset(name for name in OPERATIONS if recipe == "c2d" or name != "column_norm")
    ways = {"all": everything, "none": frozenset()}
    for name in sorted(everything):
        ways[f"without {name}"], ways[f"only {name}"] = everything - {name}, frozenset({name})
    session = Session(loop_config("breakout", recipe))
    session.fill_history()
    for _ in range(WARM_UP):
        session.advance()
    spent: dict[str, list[float]] = {way: [] for way in ways}
    shuffle = random.Random(0).shuffle
    for _ in range(rounds):
        order = list(ways)
        shuffle(order)
        for way in order:
            switch(ways[way])
            _updates(session, SETTLE)
            began = time.process_time()
            _updates(session, TURN)
            spent[way].append(1e3 * (time.process_time() - began) / TURN)
    switch(everything)
    session.close()
    return spent


def _updates(session: Session, count: int) -> None:
    for _ in range(count * session.schedule.update_period):
        session.advance()


def _longer(slow: list[float], fast: list[float]) -> str:
    """By how much, pair by pair."""
    ratios = 100 * (np.array(slow) / np.array(fast) - 1)
    low, middle, high = np.percentile(ratios, (25, 50, 75))
    return f"{middle:.1f} % ({low:.1f} to {high:.1f})"


def page(rounds: int, threads_tried: list[int], command: str) -> str:
    lines = [
        "# What the operations in `c2d/native` save",
        "",
        "`column_norm` is compiled at installation where GCC is there; `dense` is a convolution of oneDNN, used with",
        "AVX-512. Their twins in plain PyTorch do the same otherwise, and with `C2D_KERNELS=off`. All ways took turns",
        "in one process, on the whole training loop: emulation, acting, sampling and learning on Breakout.",
        "",
        "| recipe, threads | CPU ms per update with its 4 steps: all, none | operation | off alone: longer by | "
        "on alone: none is longer by |",
        "|---|---|---|---|---|",
    ]
    for recipe in RECIPES:
        for threads in threads_tried:
            spent = measure(recipe, threads, rounds)
            both = f"{median(spent['all']):.1f}, {median(spent['none']):.1f}"
            for name in OPERATIONS:
                if f"only {name}" in spent:
                    alone = _longer(spent[f"without {name}"], spent["all"])
                    lines.append(
                        f"| {recipe}, {threads} | {both} | {name} | {alone} | "
                        f"{_longer(spent['none'], spent[f'only {name}'])} |"
                    )
            lines.append(f"| {recipe}, {threads} | {both} | all | {_longer(spent['none'], spent['all'])} | |")
    where = machine(max(threads_tried))
    used = ", ".join(f"{name} {version}" for name, version in versions().items() if name != "kernels")
    lines += [
        "",
        "What was measured and not kept is in [kernels-removed.md](kernels-removed.md).",
        "",
        f"Medians with quartiles; `{command}`, {time.strftime('%d %B %Y')}. {where['cpu']}, {where['cores']} cores, "
        f"load {load_average():.1f}, {where['system']}; {used}.",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, help="write the page there")
    parser.add_argument("--rounds", type=int, default=40, help="turns of each way, per recipe and number of threads")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="numbers of threads to try")
    options = parser.parse_args()
    if not native.AVAILABLE:
        raise SystemExit("nothing is compiled here: install a C compiler, then make clean setup")
    keep_memory()
    print(f"load average {load_average():.2f}", flush=True)
    out = f" --out {options.out}" if options.out else ""
    threads = " ".join(map(str, options.threads))
    command = f"python studies/kernels.py --rounds {options.rounds} --threads {threads}{out}"
    text = page(options.rounds, options.threads, command)
    print(text)
    if options.out:
        write_atomically(options.out, text.encode())


if __name__ == "__main__":
    main()
