"""A run from beginning to end: iterations of the protocol, records, weights, observers."""

from __future__ import annotations

import dataclasses
import resource
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, Protocol

import torch

from c2d.agents.agent import Agent
from c2d.config import Config, to_json, validate
from c2d.errors import UserError
from c2d.training.files import write_json
from c2d.training.memory import keep_memory
from c2d.training.passport import machine, passport, versions
from c2d.training.record import MEASURED, RecordFile
from c2d.training.rundir import RunDir
from c2d.training.session import Session
from c2d.types import GameEnd


class Observer(Protocol):
    """Watches a run; none of its methods may alter it."""

    def begin(self, session: Session, run_dir: RunDir, header: dict[str, Any]) -> None: ...
    def stepped(self, session: Session, game: GameEnd | None) -> None: ...
    def iterated(self, record: dict[str, Any]) -> None: ...
    def end(self, summary: dict[str, Any]) -> None: ...


State = Literal["finished", "interrupted", "failed"]


class Result(NamedTuple):
    """What a finished (or interrupted) run leaves."""

    run_dir: RunDir
    state: State
    records: list[dict[str, Any]]  # one per completed iteration


def run(config: Config, observers: Sequence[Observer] = ()) -> Result:
    """Train. Ctrl-C and SIGTERM end the run after the current step, with everything saved."""
    validate(config)
    threads = _prepare_torch(config)
    session = Session(config)
    run_dir = RunDir.create(config.directory)
    facts = passport(config, session.env)
    run_dir.describe(config, session.env.spec, facts)
    header = {
        "kind": "run",
        "config": to_json(dataclasses.replace(config, run_dir=None)),  # where results lie is no part of them
        "passport": facts,
        "versions": versions(),
        MEASURED: {**machine(threads), "started": time.time()},
    }
    records: list[dict[str, Any]] = []
    state: State = "failed"
    failure: BaseException | None = None
    for observer in observers:
        observer.begin(session, run_dir, header)
    try:
        with RecordFile(run_dir.records) as file, EpisodeFile(run_dir) as episodes, _stop_requests() as stop:
            file.append(header)
            for record in _iterations(session, observers, episodes, stop):
                records.append(record)
                file.append(record)
                run_dir.save_weights(_agent(session))
                for observer in observers:
                    observer.iterated(record)
        state = "finished" if session.iteration == config.iterations else "interrupted"
    except BaseException as error:
        failure = error
        raise
    finally:  # a failing environment loses nothing that was learned
        run_dir.save_weights(_agent(session))
        summary = {
            "state": state,
            "steps": session.step,
            "iterations": session.iteration,
            "unfinished_iteration": session.tally.record() if session.tally.updates else None,
            "error": _one_line(failure),
        }
        write_json(run_dir.summary, summary)
        for observer in observers:
            observer.end(summary)
        session.close()
    return Result(run_dir, state, records)


def _iterations(
    session: Session, observers: Sequence[Observer], episodes: EpisodeFile, stop: threading.Event
) -> Iterator[dict[str, Any]]:
    """Yields the record of each iteration; returns early when asked to stop."""
    session.fill_history(stop.is_set)
    length = session.schedule.steps_per_iteration
    while session.iteration < session.config.iterations and not stop.is_set():
        began = time.perf_counter()
        for _ in range(length):
            game = session.advance()
            if game is not None:
                episodes.append(session, game)
            for observer in observers:
                observer.stepped(session, game)
            if stop.is_set():
                break
        if session.step < (session.iteration + 1) * length:
            return
        record = session.finish_iteration()
        seconds = time.perf_counter() - began
        record[MEASURED] = {
            "seconds": seconds,
            "steps_per_second": length / seconds,
            "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            "time": time.time(),
        }
        yield record


class EpisodeFile:
    """One line per finished game: iteration, training step at its end, raw score, length in agent steps."""

    def __init__(self, run_dir: RunDir) -> None:
        self._file = open(run_dir.episodes, "a", encoding="utf-8", buffering=1)  # whole lines, for those who follow
        self._file.write("iteration,step,score,length\n")

    def append(self, session: Session, game: GameEnd) -> None:
        self._file.write(f"{session.iteration},{session.step},{game.score!r},{game.steps}\n")

    def __enter__(self) -> EpisodeFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


@contextmanager
def _stop_requests() -> Iterator[threading.Event]:
    """An event set by SIGINT or SIGTERM. A second Ctrl-C ends at once."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def request(number: int, _: object) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, request) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _prepare_torch(config: Config) -> int:
    """Memory, threads and device; returns the number of threads in use."""
    keep_memory()
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    try:
        torch.empty(0, device=config.device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"--device {config.device} cannot be used here: {reason}") from None
    return torch.get_num_threads()


def _agent(session: Session) -> Agent:
    return Agent(session.learner.online, session.config.agent, session.env.spec)


def _one_line(error: BaseException | None) -> str | None:
    return None if error is None else f"{type(error).__name__}: {error}".splitlines()[0]
