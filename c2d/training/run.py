"""A run from beginning to end: iterations of the protocol, records, checkpoints, weights, observers."""

from __future__ import annotations

import dataclasses
import json
import resource
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

from c2d.agents.agent import Agent
from c2d.config import Checkpointing, Config, to_json, validate
from c2d.devices import prepare_torch
from c2d.errors import UserError
from c2d.files import write_json
from c2d.training.checkpoint import Checkpoint, Checkpoints
from c2d.training.disk import check_space
from c2d.training.lock import locked
from c2d.training.memory import keep_memory
from c2d.training.passport import machine, passport, versions
from c2d.training.record import MEASURED, LineFile, line_of
from c2d.training.resume import config_of, continue_from, refuse_differences, why_inexact
from c2d.training.rundir import RunDir
from c2d.training.session import Session
from c2d.types import GameEnd

_RETRY = 60.0  # seconds until a checkpoint that could not be written is tried again


class Observer:
    """Watches a run; none of its methods may alter it. Override what you need."""

    def begin(self, session: Session, run_dir: RunDir, header: dict[str, Any]) -> None: ...
    def notice(self, text: str, warning: bool = False) -> None: ...
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
    """Train, or go on with the run that is in the directory. Ctrl-C and SIGTERM end it with everything saved."""
    validate(config)
    keep_memory()
    threads = prepare_torch(config.device, config.threads)
    run_dir = RunDir.open(config.directory)
    with locked(run_dir.lock):
        return _Run(config, run_dir, observers, threads).finish()


class _Run:
    """One process's part of a run."""

    def __init__(self, config: Config, run_dir: RunDir, observers: Sequence[Observer], threads: int) -> None:
        self.config, self.run_dir, self.observers = config, run_dir, observers
        self._notices: list[tuple[str, bool]] = []
        self._begun = False
        self.checkpoints = Checkpoints(run_dir.path, config.checkpoint.keep)
        resuming = run_dir.config.exists() or any(True for _ in self.checkpoints.newest_first())
        if resuming:
            refuse_differences(run_dir, config_of(run_dir, self._warn), config)
        try:
            self.session, found = continue_from(self.checkpoints, lambda: Session(config), self._warn)
            check_space(self.session, run_dir.path)
        except BaseException:
            run_dir.abandon()
            raise
        self.header = self._describe(threads)
        if found is not None:
            self._take_over(found)
        elif resuming:
            self._say("this run has no checkpoint yet: it begins again")
        episodes = "iteration,step,score,length\n" if found is None else found.files["episodes.csv"].decode()
        self.records = [] if found is None else _records(found)
        lines = "".join(map(line_of, [self.header, *self.records]))
        self.record_file, self.episode_file = LineFile(run_dir.records, lines), LineFile(run_dir.episodes, episodes)
        self._iteration_began = time.perf_counter() - (0.0 if found is None else float(found.state["seconds"]))
        self._saved_at = (
            (self.session.history + self.session.step, time.monotonic()) if found else (0, time.monotonic())
        )
        self._saved = found is not None  # whether the present moment is in a checkpoint
        self._refused: str | None = None

    def finish(self) -> Result:
        """Advance to the end, or to a request to stop."""
        self._begin()
        state: State = "failed"
        failure: BaseException | None = None
        try:
            with _stop_requests() as stop:
                for record in self._iterations(stop):
                    self.records.append(record)
                    self.record_file.append(line_of(record))
                    self._tell_trouble()
                    self._save_weights()
                    for observer in self.observers:
                        observer.iterated(record)
                done = self.session.iteration >= self.config.iterations
                state = "finished" if done else "interrupted"
                self._checkpoint()
        except BaseException as error:
            failure = error
            raise
        finally:  # a failing environment loses nothing that was learned
            self._close(state, failure)
        return Result(self.run_dir, state, self.records)

    def _iterations(self, stop: threading.Event) -> Iterator[dict[str, Any]]:
        """Yields the record of each iteration; returns early when asked to stop."""
        session, length = self.session, self.session.schedule.steps_per_iteration
        while session.filling and not stop.is_set():
            session.fill()
            self._checkpoint_if_due()
        while session.iteration < self.config.iterations and not stop.is_set():
            end = (session.iteration + 1) * length
            while session.step < end and not stop.is_set():
                game = session.advance()
                if game is not None:
                    self.episode_file.append(f"{session.iteration},{session.step},{game.score!r},{game.steps}\n")
                for observer in self.observers:
                    observer.stepped(session, game)
                self._checkpoint_if_due()
            if session.step < end:
                return
            record = session.finish_iteration()
            self._saved = False
            seconds = time.perf_counter() - self._iteration_began
            self._iteration_began = time.perf_counter()
            record[MEASURED] = {
                "seconds": seconds,
                "steps_per_second": length / seconds,
                "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
                "time": time.time(),
            }
            yield record

    # --------------------------------------------------------------- checkpoints

    def _checkpoint_if_due(self) -> None:
        self._saved = False
        wanted, (step, moment) = self.config.checkpoint, self._saved_at
        steps = self.session.history + self.session.step - step
        if (wanted.every_steps and steps >= wanted.every_steps) or (
            wanted.every_minutes and time.monotonic() - moment >= 60.0 * wanted.every_minutes
        ):
            self._checkpoint()

    def _checkpoint(self) -> None:
        """Save everything, unless this very moment is saved; what cannot be saved is told and tried again."""
        if self._saved or not self.config.checkpoint.keep:
            return
        now = self.session.history + self.session.step
        try:
            files = {file.path.name: file.content() for file in (self.record_file, self.episode_file)}
            seconds = time.perf_counter() - self._iteration_began
            self.checkpoints.save(self.session, {"config": to_json(self.config), "seconds": seconds}, files)
        except OSError as error:
            wanted = self.config.checkpoint
            later = (wanted.every_minutes or float("inf")) * 60.0 - _RETRY
            self._saved_at = (now - max(wanted.every_steps - 1000, 0), time.monotonic() - max(later, 0.0))
            self._refuse(f"checkpoint at step {self.session.step:,}", error)
            return
        self._saved, self._saved_at = True, (now, time.monotonic())
        if self._refused is not None:
            self._refused = None
            self._warn(f"saving works again: checkpoint at step {self.session.step:,}")

    def _refuse(self, what: str, error: OSError) -> None:
        """Tell, once per cause, that something is not being saved."""
        reason = f"{error.strerror or error}"
        if self._refused != reason:
            self._refused = reason
            self._warn(
                f"{what} could not be saved in {self.run_dir.path}: {reason}; training goes on, "
                "the last good checkpoint is kept, and saving is tried again"
            )

    def _tell_trouble(self) -> None:
        for file in (self.record_file, self.episode_file):
            if file.trouble is not None:
                self._refuse(f"lines of {file.path.name}", file.trouble)

    def _save_weights(self) -> None:
        try:
            self.run_dir.save_weights(Agent(self.session.learner.online, self.config.agent, self.session.env.spec))
        except OSError as error:
            self._refuse("weights", error)

    # ------------------------------------------------------------ beginning and end

    def _describe(self, threads: int) -> dict[str, Any]:
        """Write what the run is; returns the first line of its records."""
        config = self.config
        facts = passport(config, self.session.env)
        self.run_dir.describe(config, self.session.env.spec, facts)
        # where results lie and how often they are saved is no part of them
        same = dataclasses.replace(config, run_dir=None, checkpoint=Checkpointing())
        return {
            "kind": "run",
            "config": to_json(same),
            "passport": facts,
            "versions": versions(),
            MEASURED: {**machine(threads), "started": time.time(), "checkpoint": to_json(config.checkpoint)},
        }

    def _take_over(self, checkpoint: Checkpoint) -> None:
        """Say what is resumed; the first record stays the one of the beginning, but for its settings."""
        session, now = self.session, self.header
        before = json.loads(checkpoint.files["records.jsonl"].decode().partition("\n")[0])
        unlike = why_inexact(before, now["versions"], now[MEASURED])
        self.header = {**before, "config": now["config"], "passport": now["passport"]}
        exact = f"exactness is not promised here: {', '.join(unlike)}" if unlike else "exact"
        made = f"step {session.step:,}" + (f" ({session.history:,} random steps)" if session.filling else "")
        redo = _last_known_step(self.run_dir, session.step)
        again = f"; steps {session.step:,} to {redo:,} or later are made again" if redo > session.step else ""
        self._say(f"resumed from the checkpoint at {made}: {exact}{again}")
        event = {"event": "resumed", "step": session.step, "history": session.history, "unlike": unlike}
        self.run_dir.log_event({**event, "time": time.time(), "versions": now["versions"], **now[MEASURED]})

    def _begin(self) -> None:
        for observer in self.observers:
            observer.begin(self.session, self.run_dir, self.header)
        self._begun = True
        for text, warning in self._notices:
            self._tell(text, warning)

    def _close(self, state: State, failure: BaseException | None) -> None:
        session = self.session
        self._save_weights()
        summary = {
            "state": state,
            "steps": session.step,
            "iterations": session.iteration,
            "unfinished_iteration": session.tally.record() if session.tally.updates else None,
            "error": None if failure is None else f"{type(failure).__name__}: {failure}".splitlines()[0],
        }
        try:
            write_json(self.run_dir.summary, summary)
        except OSError as error:
            self._refuse("summary", error)
        for observer in self.observers:
            observer.end(summary)
        self.record_file.close()
        self.episode_file.close()
        session.close()

    def _say(self, text: str) -> None:
        self._tell(text, warning=False)

    def _warn(self, text: str) -> None:
        self._tell(text, warning=True)

    def _tell(self, text: str, warning: bool) -> None:
        if not self._begun:
            self._notices.append((text, warning))
            return
        for observer in self.observers:
            observer.notice(text, warning)


def _records(checkpoint: Checkpoint) -> list[dict[str, Any]]:
    return [json.loads(line) for line in checkpoint.files["records.jsonl"].decode().splitlines()[1:]]


def _last_known_step(run_dir: RunDir, default: int) -> int:
    """How far the stopped process is known to have come: its last finished game, or its summary."""
    try:
        summary = run_dir.read_json(run_dir.summary)["steps"] if run_dir.summary.is_file() else 0
        return max(int(run_dir.episodes.read_text().rstrip("\n").rpartition("\n")[2].split(",")[1]), int(summary))
    except (OSError, ValueError, IndexError, KeyError, TypeError, UserError):
        return default


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
