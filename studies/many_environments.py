"""How the speed of training grows with the number of environments.

    python studies/many_environments.py --out docs/results/many-environments.md

Every setting has a process of its own, which warms up once; then all train in turns, one window each, so that compared
windows are close in time. Keep the machine otherwise idle.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from against_sb3 import Side, Worker, turn

from c2d.bench.loop import load_average
from c2d.files import write_atomically, write_json
from c2d.training.passport import machine

COUNTS = (1, 2, 4, 8, 16, 64)


def ours(name: str, recipe: str, envs: int, *options: str) -> Side:
    return Side(name, "c2d_worker.py", recipe, envs, options)


def contests() -> dict[str, tuple[int, list[Side]]]:
    """Title -> threads of PyTorch, and the settings that take turns."""
    found: dict[str, tuple[int, list[Side]]] = {}
    for recipe in ("c2d", "c51"):
        sides = [ours(f"{n}", recipe, n, "--env-threads", "2" if n > 1 else "0") for n in COUNTS]
        found[f"Breakout, {recipe}, two threads"] = (2, sides)
    for threads, title in ((1, "one thread"), (2, "two threads")):
        sides = [
            ours("no threads for environments", "c2d", 8, "--env-threads", "0"),
            ours("two threads", "c2d", 8, "--env-threads", "2"),
            ours("overlap, one thread", "c2d", 8, "--overlap", "--env-threads", "1"),
        ]
        found[f"Breakout, c2d, 8 environments, {title}"] = (threads, sides)
    for env in ("minatar/breakout", "gym/CartPole-v1"):
        found[f"{env}, c2d, one thread"] = (1, [ours(f"{envs}", "c2d", envs, "--env", env) for envs in (1, 8)])
    return found


def measure(threads: int, sides: list[Side], windows: int, seconds: float) -> dict[str, Any]:
    workers: list[Worker] = []
    made: list[list[dict[str, Any]]] = [[] for _ in sides]
    try:
        for side in sides:
            workers.append(Worker(side, sys.executable, threads))
        for _ in range(windows):
            for each, worker in zip(made, workers, strict=True):
                each.append(turn(worker, [other for other in workers if other is not worker], seconds))
    finally:
        for worker in workers:
            worker.close()
    return {side.name: each for side, each in zip(sides, made, strict=True)}


def table(found: dict[str, Any]) -> str:
    lines = [
        "| environments | median, steps/s | ratio to the first | every window | peak memory, MB |",
        "|---|---|---|---|---|",
    ]
    rates = {name: [window["steps_per_second"] for window in windows] for name, windows in found.items()}
    first = next(iter(rates.values()))
    for name, each in rates.items():
        ratio = median(a / b for a, b in zip(each, first, strict=True))
        memory = found[name][-1]["peak_memory_mb"]
        windows = ", ".join(f"{rate:.0f}" for rate in each)
        lines.append(f"| {name} | {median(each):.0f} | {ratio:.2f} | {windows} | {memory:.0f} |")
    return "\n".join(lines)


def draw(results: dict[str, Any], path: Path) -> None:
    """Speed over the number of environments."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 3.6), layout="constrained")
    for title, found in results.items():
        if set(found) != {str(count) for count in COUNTS}:
            continue
        rates = [[window["steps_per_second"] for window in found[str(count)]] for count in COUNTS]
        axes.plot(COUNTS, [median(each) for each in rates], marker="o", label=title)
        axes.fill_between(COUNTS, [min(each) for each in rates], [max(each) for each in rates], alpha=0.2)
    axes.set(xscale="log", xticks=COUNTS, xticklabels=COUNTS, xlabel="environments", ylabel="agent steps per second")
    axes.set_ylim(bottom=0)
    axes.minorticks_off()
    axes.legend(frameon=False)
    axes.grid(alpha=0.3)
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--windows", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--out", type=Path, help="Markdown file; numbers and the figure go beside it")
    chosen = parser.parse_args()
    where, load, results = machine(2), load_average(), {}
    for title, (threads, sides) in contests().items():
        print(f"\n{title}", flush=True)
        results[title] = measure(threads, sides, chosen.windows, chosen.seconds)
        print(table(results[title]), flush=True)
    command = " ".join(["python", *sys.argv])
    text = "\n\n".join(
        [
            "# Many environments: speed",
            "Agent steps per second of the whole training loop, all environments together. One update of 32 per 4 "
            "agent steps, however many environments there are (MinAtar and CartPole: their own batch and period). "
            f"Command: `{command}`, {time.strftime('%d %B %Y')}; {where['cpu']}, {where['cores']} cores; "
            f"load average at the start {load}. Windows of {chosen.seconds:g} s in turns. The ratio is the median over "
            "rounds. Several games of Breakout step in two threads. Threads of PyTorch wait for each other as they do "
            "by default; those of the command `c2d` sleep sooner ([threads](threads.md)).",
            *([f"![Speed over the number of environments]({chosen.out.stem}.svg)"] if chosen.out else []),
            *(f"## {title}\n\n{table(found)}" for title, found in results.items()),
        ]
    )
    if chosen.out is not None:
        write_atomically(chosen.out, (text + "\n").encode())
        write_json(chosen.out.with_suffix(".json"), results)
        draw(results, chosen.out.with_suffix(".svg"))


if __name__ == "__main__":
    main()
