"""Training with one thread and with two, alone and beside programs that take whole cores; before and after `c2d` bounds
how long waiting threads of OpenMP try before they sleep.

    python studies/threads.py --out docs/results/threads.md      # 5 minutes on an otherwise idle machine

Processes with the ways of running take turns; every window is printed. What takes a core is `while True: pass` in
another session, as of another user or terminal.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import torch

from c2d.agents.build import WORTH_DIVIDING, default_threads, network_bytes
from c2d.bench.loop import load_average, loop_config, window
from c2d.cli.main import SPINS
from c2d.config import Config
from c2d.envs.make import spec_of
from c2d.files import write_atomically
from c2d.recipes.parts import Mlp
from c2d.training.passport import machine, versions
from c2d.training.process import keep_memory
from c2d.training.session import Session

TASKS = ("breakout c51", "breakout c2d", "minatar/breakout c2d", "gym/CartPole-v1 c2d")
WIDTHS = (256, 384, 512, 768, 1024)  # of two layers of an MLP on CartPole, to see from which size two threads pay
LOADS = (0, 1, 2)  # programs that take a core each
UNBOUNDED: dict[str, str] = {}
BOUNDED = {"GOMP_SPINCOUNT": SPINS}
WAYS: dict[str, tuple[int, dict[str, str]]] = {
    "1 thread": (1, UNBOUNDED),
    "2 threads, before": (2, UNBOUNDED),
    "2 threads, after": (2, BOUNDED),
}
WARM_UP = 0.7  # seconds


@dataclass(frozen=True)
class Turn:
    """One window of one process."""

    steps: int
    seconds: float
    cpu: float  # seconds of processor time, of all threads

    @property
    def rate(self) -> float:
        return self.steps / self.seconds


class Trainer:
    """A process that trains on request, and sleeps in between."""

    def __init__(self, task: str, threads: int, variables: dict[str, str]) -> None:
        environment = {name: text for name, text in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))}
        command = [sys.executable, __file__, "--train", task, str(threads)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**environment, **variables}
        )
        self.threads = threads

    def turn(self, seconds: float) -> Turn:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{seconds}\n")
        self._process.stdin.flush()
        return Turn(*json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        self._process.communicate()


def config_of(task: str) -> Config:
    """ENV RECIPE, or ENV RECIPE WIDTH for two layers of that width."""
    env, recipe, *width = task.split()
    config = loop_config(env, recipe)
    if width:
        encoder = Mlp(widths=(int(width[0]),) * 2)
        config = replace(config, recipe=replace(config.recipe, encoder=encoder))
    return config


def train(task: str, threads: int) -> None:
    """The process of a Trainer."""
    keep_memory()
    torch.set_num_threads(threads)
    session = Session(config_of(task))
    session.fill_history()
    window(session, WARM_UP, least_updates=8)
    for line in sys.stdin:
        began = time.process_time()
        made = window(session, float(line))
        print(json.dumps([made.steps, made.seconds, time.process_time() - began]), flush=True)


@contextmanager
def busy(cores: int) -> Iterator[None]:
    others = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True) for _ in range(cores)
    ]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def measure(task: str, ways: dict[str, tuple[int, dict[str, str]]], loads: tuple[int, ...], turns: int, seconds: float
            ) -> dict[tuple[str, int], list[Turn]]:  # fmt: skip
    trainers = {name: Trainer(task, *way) for name, way in ways.items()}
    found: dict[tuple[str, int], list[Turn]] = {(name, load): [] for name in ways for load in loads}
    for trainer in trainers.values():
        trainer.turn(0.0)  # it is ready
    for load in loads:
        with busy(load):
            time.sleep(0.2 * bool(load))
            for _ in range(turns):
                for name, trainer in trainers.items():
                    found[name, load].append(trainer.turn(seconds))
    for trainer in trainers.values():
        trainer.close()
    return found


def cell(turns: list[Turn]) -> str:
    """Median rate, every window, processor time per step."""
    rates = [turn.rate for turn in turns]
    cpu = 1e3 * sum(turn.cpu for turn in turns) / sum(turn.steps for turn in turns)
    return f"**{_digits(median(rates))}** ({', '.join(map(_digits, rates))}); {cpu:.2f} ms"


def _digits(rate: float) -> str:
    return f"{rate:.0f}" if rate >= 100 else f"{rate:.1f}"


def wait_seconds(variables: dict[str, str]) -> float:
    """Processor time that waiting takes after PyTorch has used two threads, until they sleep; median of many."""
    code = (
        "import time, torch; torch.set_num_threads(2); a = torch.rand(512, 512); spent = []\n"
        "for _ in range(25):\n"
        "    a.exp(); began = time.process_time(); time.sleep(0.03); spent.append(time.process_time() - began)\n"
        "print(sorted(spent)[12])"
    )
    environment = {name: text for name, text in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))}
    done = subprocess.run(
        [sys.executable, "-c", code], env={**environment, **variables}, capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def weights(config: Config) -> int:
    return network_bytes(config.recipe, spec_of(config.env, config.rules)) // 4


def page(turns: int, seconds: float, command: str, say: Any = print) -> str:
    os.environ.pop("OMP_NUM_THREADS", None)
    lines = [
        "# Threads",
        "",
        "Agent steps per second of the whole training loop: the median, every window in parentheses, and the",
        "milliseconds of processor time of a step. Windows of all ways took turns. “Before” is PyTorch's own way to",
        f"wait; “after” is that of the command `c2d`, `GOMP_SPINCOUNT={SPINS}`.",
        "",
        "| | cores taken by others | " + " | ".join(WAYS) + " |",
        "|---|---|" + "---|" * len(WAYS),
    ]
    torch_threads, began = torch.get_num_threads(), load_average()
    for task in TASKS:
        found = measure(task, WAYS, LOADS, turns, seconds)
        config = config_of(task)
        chosen = default_threads(config.recipe, spec_of(config.env, config.rules))
        for load in LOADS:
            title = f"{task}, {weights(config):,} weights; default {chosen} here" if load == 0 else ""
            lines.append(f"| {title} | {load} | " + " | ".join(cell(found[name, load]) for name in WAYS) + " |")
            say(lines[-1], flush=True)
    lines += [
        "",
        "The processor time that two threads spend waiting after they are done, before they sleep: "
        f"{1e6 * wait_seconds({'GOMP_SPINCOUNT': '0'}):.0f} µs if they sleep at once, "
        f"{1e6 * wait_seconds(BOUNDED):.0f} µs with `GOMP_SPINCOUNT={SPINS}`, "
        f"{1e6 * wait_seconds(UNBOUNDED):,.0f} µs by default.",
        "",
        f"The default is one thread for a network of fewer than {WORTH_DIVIDING:,} weights. C2D on CartPole with two",
        "layers of other widths, nothing else running:",
        "",
        "| width | weights | 1 thread | 2 threads, after | ratio |",
        "|---|---|---|---|---|",
    ]
    two = {name: WAYS[name] for name in ("1 thread", "2 threads, after")}
    for width in WIDTHS:
        task = f"gym/CartPole-v1 c2d {width}"
        found = measure(task, two, (0,), turns, seconds / 2)
        one, both = (found[name, 0] for name in two)
        ratio = median(b.rate / a.rate for a, b in zip(one, both, strict=True))
        lines.append(f"| {width} | {weights(config_of(task)):,} | {cell(one)} | {cell(both)} | {ratio:.2f} |")
        say(lines[-1], flush=True)
    where = machine(torch_threads)
    used = ", ".join(f"{name} {version}" for name, version in versions().items() if name != "kernels")
    lines += [
        "",
        f"`{command}`, {time.strftime('%d %B %Y', time.gmtime())}. {where['cpu']}, {where['cores']} cores, load "
        f"{began:.1f} at the start, {where['system']}; {used}.",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=3, help="windows of each way")
    parser.add_argument("--seconds", type=float, default=1.5, help="length of a window")
    parser.add_argument("--out", type=Path, help="Markdown file; what stands below its line `## Notes` is kept")
    parser.add_argument("--train", nargs=2, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.train:
        train(chosen.train[0], int(chosen.train[1]))
        return
    text = page(chosen.turns, chosen.seconds, " ".join(["python", *sys.argv]))
    if chosen.out is None:
        print(text)
        return
    old = chosen.out.read_text() if chosen.out.exists() else ""
    notes = old.partition("## Notes")[2]
    write_atomically(chosen.out, (text + ("\n## Notes" + notes if notes else "")).encode())


if __name__ == "__main__":
    main()
