"""Measures runs on Ray and in plain processes: steps, and the CPU time that all processes need for them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from c2d.config import to_json
from c2d.sweep.directory import SweepDir
from c2d.sweep.display import RunProgress, SweepProgress
from c2d.sweep.forecast import Rates, estimate
from c2d.sweep.launch import Launcher
from c2d.sweep.options import SweepOptions
from c2d.sweep.plan import Plan, PlannedRun, Variant, multiply

ENV, RECIPE = "minatar/breakout", "c2d"
SETTINGS = {"schedule.random-history": 100, "checkpoint.every-steps": 0}
WARM = 101  # steps after which a run has started to learn
LONG_WARM = 3_000  # steps after which the startup of Ray is over, too


def runs_of(count: int, threads: int, where: Path, **settings: int) -> list[PlannedRun]:
    plan = Plan("bench", (Variant(RECIPE, RECIPE),), (ENV,), tuple(range(1, count + 1)), iterations=1_000,
                settings={**SETTINGS, **settings})  # fmt: skip
    return multiply(plan, where, threads).runs


class Window(NamedTuple):
    """What was measured between two moments."""

    rate: float  # steps per second of all runs together
    cpu: float  # milliseconds of CPU time per step, of all processes
    overhead: float  # share of the CPU time that is not the runs' own


class Meter:
    """Watches runs; the window begins when every run has started to learn."""

    def __init__(self, count: int, seconds: float, warm: int) -> None:
        self.count, self.seconds, self.warm = count, seconds, warm
        self.window: Window | None = None
        self._first: tuple[float, float, float, list[tuple[float, int]]] | None = None

    def see(self, news: list[tuple[float, int]], taken: Callable[[], tuple[float, float]]) -> bool:
        """Whether the window is over. `news`: for each run, the time of its last message and its steps at that time.

        `taken`: CPU seconds of all processes, and those of the runs among them. It is called only twice, because the
        call itself takes time.
        """
        if self.window is not None:
            return True
        now = time.monotonic()
        if self._first is None:
            if len(news) == self.count and min(steps for _, steps in news) >= self.warm:
                self._first = (now, *taken(), news)
            return False
        began, cpu_before, of_runs_before, before = self._first
        if now - began < self.seconds:
            return False
        if any(t1 == t0 for (t0, _), (t1, _) in zip(before, news, strict=True)):
            return False  # some run has not reported yet
        rate = sum((s1 - s0) / (t1 - t0) for (t0, s0), (t1, s1) in zip(before, news, strict=True))
        cpu, of_runs = taken()
        total = cpu - cpu_before
        overhead = 1.0 - (of_runs - of_runs_before) / total
        self.window = Window(rate, 1e3 * total / (rate * (now - began)), overhead)
        print(f"{self.count} at once: {rate:.0f} steps/s, {self.window.cpu:.2f} ms of CPU a step", file=sys.stderr)
        return True


def on_ray(count: int, threads: int, seconds: float, warm: int = WARM) -> Window:
    """Measure on Ray, which must be connected. Its own processes and this one are counted."""
    meter = Meter(count, seconds, warm)
    with tempfile.TemporaryDirectory() as place:
        sweep = SweepDir(Path(place) / "sweep")
        sweep.create()
        runs = runs_of(count, threads, sweep.path)
        board, stop = SweepProgress([RunProgress(run) for run in runs], Rates()), threading.Event()

        def show(_: SweepProgress) -> None:
            news = [entry.last_report for entry in board.with_state("running") if entry.last_report is not None]
            if meter.see(news, lambda: (cpu_of([os.getpid(), *below([os.getpid()])]), cpu_of(_pids(runs)))):
                stop.set()

        needs = {run.name: estimate(run, Rates()) for run in runs}
        Launcher(board, needs, sweep, SweepOptions(threads=threads, workers=count), show).run(stop)
    assert meter.window is not None, "the runs ended before the window did"
    return meter.window


def in_processes(count: int, threads: int, seconds: float, warm: int = WARM) -> Window:
    """The same runs, each in a plain process."""
    meter = Meter(count, seconds, warm)
    with tempfile.TemporaryDirectory() as place:
        news: dict[int, tuple[float, int]] = {}
        processes = []
        for number, run in enumerate(runs_of(count, threads, Path(place))):
            process = subprocess.Popen([sys.executable, "studies/sweep_process.py"], text=True, stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE)  # fmt: skip
            assert process.stdin is not None
            process.stdin.write(json.dumps(to_json(run.config)) + "\n")
            process.stdin.flush()
            threading.Thread(target=_listen, args=(process, number, news), daemon=True).start()
            processes.append(process)
        pids = [process.pid for process in processes]
        while not meter.see(
            [news[number] for number in sorted(news)], lambda: (cpu_of([*pids, *below(pids)]), cpu_of(pids))
        ):
            time.sleep(0.1)
        for process in processes:
            process.terminate()
            process.wait()
    assert meter.window is not None
    return meter.window


def _pids(runs: list[PlannedRun]) -> list[int]:
    """Process ids of the active runs, from their locks."""
    locks = [run.config.directory / "lock" for run in runs]
    return [int(lock.read_text().split()[1]) for lock in locks if lock.exists() and len(lock.read_text().split()) > 1]


def _listen(process: subprocess.Popen[str], number: int, news: dict[int, tuple[float, int]]) -> None:
    for line in process.stdout or ():
        news[number] = (time.monotonic(), int(line))


def cpu_of(pids: list[int]) -> float:
    """CPU seconds of these processes."""
    ticks, total = os.sysconf("SC_CLK_TCK"), 0.0
    for pid in pids:
        try:
            words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += (int(words[11]) + int(words[12])) / ticks
    return total


def below(pids: list[int]) -> list[int]:
    """Descendants of these processes."""
    found: list[int] = []
    for pid in pids:
        try:
            tasks = list(Path(f"/proc/{pid}/task").iterdir())
            words = [word for task in tasks for word in (task / "children").read_text().split()]
        except OSError:
            continue
        found += map(int, words)
    return found + below(found) if found else []
