"""Ways to step eight Atari emulators: one after another, in threads, in processes, and in two libraries written in C++.

    python studies/emulators.py --envpool /tmp/envpool/bin/python --out docs/results/emulators.md      # 3 minutes

Random actions in Breakout. Ours are `c2d.envs.make.make` with the paper's rules, frames preprocessed; the libraries are
set up as alike as they can be. Each way runs in a process of its own, bound to one core or to two; windows take turns.
`--envpool` names the Python of an environment with EnvPool (`pip install envpool`), which the package does not need.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

ENVS, WORKERS = 8, 2
GAME, FRAME = "breakout", (84, 84)
WAYS = {
    "sequential": "one after another",
    "threads": f"{WORKERS} threads (`ThreadPoolExecutor`)",
    "pipes": f"{WORKERS} processes, everything through pipes",
    "shared": f"{WORKERS} processes, frames in shared memory",
    "ale": "`ale_py.vector_env.AtariVectorEnv`",
    "envpool": "EnvPool",
}
UPDATE = 24.0  # milliseconds of an update, for the share in a training loop
PERIOD = 4  # agent steps per update
Round = Callable[[np.ndarray], Any]  # actions [ENVS] -> one agent step of every environment


# ------------------------------------------------------------------------------------------------ ways to step, ours


def _games(seeds: range) -> list[Any]:
    from c2d.envs.make import make

    games = [make(GAME, None, seed) for seed in seeds]
    for game in games:
        game.reset()
    return games


def sequential() -> Round:
    games = _games(range(ENVS))
    return lambda actions: [game.step(int(action)) for game, action in zip(games, actions, strict=True)]


def threads() -> Round:
    from concurrent.futures import ThreadPoolExecutor

    games, pool, share = _games(range(ENVS)), ThreadPoolExecutor(WORKERS), ENVS // WORKERS

    def part(first: int, actions: np.ndarray) -> list[Any]:
        return [games[place].step(int(actions[place])) for place in range(first, first + share)]

    return lambda actions: list(pool.map(lambda first: part(first, actions), range(0, ENVS, share)))


def _serve(pipe: Any, first: int, memory: Any) -> None:
    """A process with its share of the games. With `memory` [ENVS, H, W], frames go there instead of the pipe."""
    games = _games(range(first, first + ENVS // WORKERS))
    frames = None if memory is None else np.frombuffer(memory, np.uint8).reshape(ENVS, *FRAME)
    pipe.send("ready")
    while (actions := pipe.recv()) is not None:
        steps = [game.step(int(action)) for game, action in zip(games, actions, strict=True)]
        if frames is not None:
            for place, step in enumerate(steps):
                frames[first + place] = step.frame[0]
            steps = [step._replace(frame=None) for step in steps]
        pipe.send(steps)


def processes(shared: bool) -> Round:
    import multiprocessing

    context, share = multiprocessing.get_context("spawn"), ENVS // WORKERS
    memory = context.RawArray("B", ENVS * FRAME[0] * FRAME[1]) if shared else None
    pipes = []
    for first in range(0, ENVS, share):
        ours, theirs = context.Pipe()
        context.Process(target=_serve, args=(theirs, first, memory), daemon=True).start()
        pipes.append(ours)
    for pipe in pipes:
        assert pipe.recv() == "ready"

    def step(actions: np.ndarray) -> list[Any]:
        for number, pipe in enumerate(pipes):
            pipe.send(actions[number * share : (number + 1) * share])
        return [pipe.recv() for pipe in pipes]

    return step


# ---------------------------------------------------------------------------------------------------- the libraries


def ale() -> Round:
    from ale_py.vector_env import AtariVectorEnv

    games = AtariVectorEnv(
        GAME,
        ENVS,
        num_threads=len(os.sched_getaffinity(0)),
        repeat_action_probability=0.25,
        stack_num=1,
        noop_max=0,
        reward_clipping=False,
        use_fire_reset=False,
    )
    games.reset(seed=1)
    return lambda actions: games.step(actions)


def envpool() -> Round:
    import envpool as library  # type: ignore[import-not-found]

    games: Any = library.make_gymnasium(
        "Breakout-v5",
        num_envs=ENVS,
        num_threads=len(os.sched_getaffinity(0)),
        repeat_action_probability=0.25,
        stack_num=1,
        noop_max=1,
        reward_clip=False,
        use_fire_reset=False,
    )
    games.reset()
    return lambda actions: games.step(actions.astype(np.int32))


# ------------------------------------------------------------------------------------------------------- measuring


def build(way: str) -> Round:
    plain: dict[str, Callable[[], Round]] = {
        "sequential": sequential,
        "threads": threads,
        "pipes": lambda: processes(shared=False),
        "shared": lambda: processes(shared=True),
        "ale": ale,
        "envpool": envpool,
    }
    return plain[way]()


def work(way: str, cores: int) -> None:
    """A process that steps by one way for as long as it is asked to, then says how far it came."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    step, rng = build(way), np.random.default_rng(1)
    for line in sys.stdin:
        end, began, rounds = time.perf_counter() + float(line), time.perf_counter(), 0
        while rounds == 0 or time.perf_counter() < end:
            step(rng.integers(4, size=ENVS))
            rounds += 1
        print(json.dumps(ENVS * rounds / (time.perf_counter() - began)), flush=True)


class Worker:
    def __init__(self, way: str, cores: int, python: str) -> None:
        command = [python, __file__, "--work", way, str(cores)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def rate(self, seconds: float) -> float:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{seconds}\n")
        self._process.stdin.flush()
        return float(json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        self._process.communicate()


def page(turns: int, seconds: float, python: str | None, command: str) -> str:
    from c2d.bench.loop import load_average
    from c2d.training.passport import machine, versions

    ways = [way for way in WAYS if way != "envpool" or python]
    began = load_average()
    rates: dict[tuple[str, int], list[float]] = {(way, cores): [] for way in ways for cores in (1, 2)}
    workers = {key: Worker(*key, python if python and key[0] == "envpool" else sys.executable) for key in rates}
    for worker in workers.values():
        worker.rate(0.3)
    for _ in range(turns):
        for key, worker in workers.items():
            rates[key].append(worker.rate(seconds))
    for worker in workers.values():
        worker.close()
    lines = [
        "# Emulators side by side",
        "",
        f"{ENVS} environments of Breakout with random actions: agent steps per second of all of them together, median",
        "and every window (by turns). An agent step is four emulated frames, the maximum of the last two, resized.",
        "",
        "| way | 1 core | 2 cores | share of a training loop, 2 cores |",
        "|---|---|---|---|",
    ]
    for way in ways:
        each = 1e3 / median(rates[way, 2])
        cells = [
            f"**{median(rates[way, cores]):,.0f}** ({', '.join(f'{rate:,.0f}' for rate in rates[way, cores])})"
            for cores in (1, 2)
        ]
        share = PERIOD * each / (UPDATE + PERIOD * each)
        lines.append(f"| {WAYS[way]} | {cells[0]} | {cells[1]} | {100 * share:.1f} % |")
    where = machine(2)
    lines += [
        "",
        f"The share is that of {PERIOD} agent steps beside one update of {UPDATE:g} ms, the rest of the loop left out.",
        "",
        f"`{command}`, {time.strftime('%d %B %Y', time.gmtime())}. {where['cpu']}, {where['cores']} cores, load "
        f"{began:.1f} at the start, {where['system']}; {', '.join(f'{k} {v}' for k, v in versions().items())}"
        f"{', EnvPool ' + _version(python) if python else ''}.",
    ]
    return "\n".join(lines) + "\n"


def _version(python: str) -> str:
    code = "from importlib.metadata import version; print(version('envpool'))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=4, help="windows of each way")
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a window")
    parser.add_argument("--envpool", help="Python of an environment with EnvPool; default: EnvPool is left out")
    parser.add_argument("--out", type=Path, help="Markdown file; what stands below its line `## Notes` is kept")
    parser.add_argument("--work", nargs=2, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.work:
        work(chosen.work[0], int(chosen.work[1]))
        return
    text = page(chosen.turns, chosen.seconds, chosen.envpool, " ".join(["python", *sys.argv]))
    if chosen.out is None:
        print(text)
        return
    from c2d.files import write_atomically

    notes = (chosen.out.read_text() if chosen.out.exists() else "").partition("## Notes")[2]
    write_atomically(chosen.out, (text + ("\n## Notes" + notes if notes else "")).encode())


if __name__ == "__main__":
    main()
