"""The processes that studies/faults.py kills, starves and resumes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from c2d.config import Config
from c2d.errors import UserError
from c2d.training.observers import Observer
from c2d.training.run import run
from c2d.training.verification import digests


class Ended(NamedTuple):
    """How a process of a run ended."""

    code: int | None  # negative: by this signal
    digests: dict[str, str] | None
    notices: list[str]


class Witness(Observer):
    """Calls functions at given steps; collects notices and, at the end, the digests."""

    def __init__(self, at_step: dict[int, Callable[[], None]]) -> None:
        self.at_step = at_step
        self.notices: list[str] = []
        self.found: dict[str, str] | None = None

    def begin(self, run: Any) -> None:
        self.session = run._session

    def notice(self, run: Any, text: str, warning: bool) -> None:
        self.notices.append(f"warning: {text}" if warning else text)

    def step(self, run: Any, games: Any) -> None:
        if run.step in self.at_step:
            self.at_step[run.step]()

    def end(self, run: Any, summary: Any) -> None:
        self.found = digests(self.session)


def child(config: Config, answer: Any, fault: str, argument: int, kill_at: int | None) -> None:
    """Run until the end or the fault; send notices and digests."""
    ballast = Path(config.directory).parent / "ballast"
    at_step: dict[int, Callable[[], None]] = {}
    if fault == "stop":
        at_step[argument] = lambda: signal.raise_signal(signal.SIGTERM)
    elif fault == "fill the disk":
        at_step[argument], at_step[argument + 100] = lambda: fill(ballast), ballast.unlink
    elif fault == "kill at operation":
        kill_at_operation(argument)
    elif fault == "clock":
        clock = iter(range(10**9, 0, -3600))
        time.time = lambda: float(next(clock))
    if kill_at is not None:
        at_step[kill_at] = lambda: os.kill(os.getpid(), signal.SIGKILL)
    witness = Witness(at_step)
    try:
        run(config, [witness])
    except UserError as error:
        witness.notices.append(f"c2d: {error}")
    answer.send((witness.found, witness.notices))


def fill(path: Path) -> None:
    """Write until nothing more fits."""
    with open(path, "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass


def kill_at_operation(number: int) -> None:
    """SIGKILL at the number-th call that changes the disk, half of them just before it, half just after."""
    left = [number]

    def deadly(call: Callable[..., Any]) -> Callable[..., Any]:
        def inner(*arguments: Any, **options: Any) -> Any:
            left[0] -= 1
            if left[0] == 0 and number % 2:
                os.kill(os.getpid(), signal.SIGKILL)
            result = call(*arguments, **options)
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return inner

    for name in ("fsync", "replace", "rename", "mkdir", "rmdir", "unlink", "pwrite"):
        setattr(os, name, deadly(getattr(os, name)))


class Processes:
    """Processes that start with torch already loaded."""

    def __init__(self) -> None:
        os.environ["OMP_NUM_THREADS"] = "1"
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["c2d.training.run", "c2d.training.verification", "gymnasium", "ale_py"])

    def run(
        self,
        config: Config,
        fault: str = "",
        argument: int = 0,
        kill_at: int | None = None,
        kill_after: float | None = None,
    ) -> Ended:
        hear, say = self.context.Pipe(duplex=False)
        process = self.context.Process(target=child, args=(config, say, fault, argument, kill_at))
        process.start()
        say.close()
        if kill_after is not None:
            process.join(kill_after)
            process.kill()
        try:
            digests, notices = hear.recv()
        except EOFError:
            digests, notices = None, []
        process.join()
        return Ended(process.exitcode, digests, notices)
