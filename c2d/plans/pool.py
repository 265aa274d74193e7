"""A small pool of processes on this machine: one run each, one torch thread per run.

A run that is finished is left alone, one that was stopped goes on from its checkpoint: the same command again
continues a plan, or enlarges it. As a program (`python -m c2d.plans.pool`) it is one such process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from c2d.config import from_json, to_json
from c2d.plans.plan import PlannedRun


def finished(run: PlannedRun) -> bool:
    """Whether the run has all its iterations."""
    try:
        summary = json.loads((run.config.directory / "summary.json").read_text())
        return bool(summary["state"] == "finished" and summary["iterations"] >= run.config.iterations)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def execute(runs: Sequence[PlannedRun], workers: int, tell: Callable[[str], None]) -> list[PlannedRun]:
    """Run what is not finished; returns those that failed. Ctrl-C stops the processes, which save themselves."""
    todo: Iterator[PlannedRun] = iter([run for run in runs if not finished(run)])
    failed: list[PlannedRun] = []
    lock, stopped = threading.Lock(), threading.Event()
    processes: set[subprocess.Popen[str]] = set()
    done = sum(map(finished, runs))

    def work() -> None:
        nonlocal done
        while not stopped.is_set():
            with lock:
                run = next(todo, None)
            if run is None:
                return
            began = time.perf_counter()
            error = _one(run, processes, lock)
            with lock:
                done += error is None
                if error is not None and not stopped.is_set():
                    failed.append(run)
                took = f"{time.perf_counter() - began:.0f} s"
                tell(f"[{done}/{len(runs)}] {Path(str(run.config.run_dir)).name}: {error or took}")

    threads = [threading.Thread(target=work) for _ in range(workers)]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            while thread.is_alive():
                thread.join(0.2)
    except KeyboardInterrupt:
        stopped.set()
        for process in list(processes):
            process.terminate()
        for thread in threads:
            thread.join()
        raise
    return failed


def _one(run: PlannedRun, processes: set[subprocess.Popen[str]], lock: threading.Lock) -> str | None:
    """One process to its end; the last line of its complaint if it failed."""
    process = subprocess.Popen(
        [sys.executable, "-m", "c2d.plans.pool"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        start_new_session=True,  # Ctrl-C reaches this process only, which then stops the others
    )
    with lock:
        processes.add(process)
    _, complaint = process.communicate(json.dumps(to_json(run.config)))
    with lock:
        processes.discard(process)
    if process.returncode == 0 and finished(run):
        return None
    lines = complaint.strip().splitlines()
    return lines[-1] if lines else f"exit code {process.returncode}"


def _main() -> int:
    from c2d.errors import UserError
    from c2d.training.run import run

    try:
        run(from_json(json.loads(sys.stdin.read())))
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(_main())
