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
from c2d.training.signals import stop_requests


def finished(run: PlannedRun) -> bool:
    """Whether the run has all its iterations."""
    try:
        summary = json.loads((run.config.directory / "summary.json").read_text())
        return bool(summary["state"] == "finished" and summary["iterations"] >= run.config.iterations)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def execute(runs: Sequence[PlannedRun], workers: int, tell: Callable[[str], None]) -> list[PlannedRun]:
    """Run what is not finished; returns those that failed. On Ctrl-C and SIGTERM the processes save themselves."""
    pool = _Pool(runs, tell)
    threads = [threading.Thread(target=pool.work) for _ in range(workers)]
    for thread in threads:
        thread.start()
    with stop_requests() as stop:
        while any(thread.is_alive() for thread in threads) and not stop.is_set():
            time.sleep(0.1)
        pool.stop()  # does nothing when all is done
        for thread in threads:
            thread.join()
        if stop.is_set():
            raise KeyboardInterrupt
    return pool.failed


class _Pool:
    """What the workers share."""

    def __init__(self, runs: Sequence[PlannedRun], tell: Callable[[str], None]) -> None:
        self.total, self.tell = len(runs), tell
        self.todo: Iterator[PlannedRun] = iter([run for run in runs if not finished(run)])
        self.done = sum(map(finished, runs))
        self.failed: list[PlannedRun] = []
        self._lock, self._stopped = threading.Lock(), False
        self._processes: set[subprocess.Popen[str]] = set()

    def work(self) -> None:
        """One run after the other."""
        while (run := self._next()) is not None:
            began = time.perf_counter()
            error = self._one(run)
            with self._lock:
                if error is None:
                    self.done += 1
                elif not self._stopped:
                    self.failed.append(run)
                took = f"{time.perf_counter() - began:.0f} s"
                self.tell(f"[{self.done}/{self.total}] {Path(str(run.config.run_dir)).name}: {error or took}")

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            for process in self._processes:
                process.terminate()

    def _next(self) -> PlannedRun | None:
        with self._lock:
            return None if self._stopped else next(self.todo, None)

    def _one(self, run: PlannedRun) -> str | None:
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
        with self._lock:
            self._processes.add(process)
        _, complaint = process.communicate(json.dumps(to_json(run.config)))
        with self._lock:
            self._processes.discard(process)
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
