"""A run from beginning to end: iterations of the protocol, records, checkpoints, weights, observers."""

from __future__ import annotations

import dataclasses
import resource
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Literal, NamedTuple

from c2d.config import Checkpointing, Config, to_json, validate
from c2d.devices import prepare_torch
from c2d.envs.trial import why_not_exact
from c2d.errors import NotSaved, UserError
from c2d.files import kind_of, read_end
from c2d.training.checkpoint import Checkpoint, Checkpoints
from c2d.training.disk import check_space
from c2d.training.lock import InUse, locked
from c2d.training.observer import EventLog, Observer, ObserverList
from c2d.training.passport import machine, passport, versions
from c2d.training.record import MEASURED, LineFile, line_of
from c2d.training.resume import config_of, continue_from, refuse_differences, why_inexact
from c2d.training.rundir import RunDir
from c2d.training.saving import Saver
from c2d.training.session import Session
from c2d.training.signals import stop_requests

_EPISODES = "iteration,step,score,length\n"  # of each whole game: when it ended, raw score, length in agent steps

State = Literal["finished", "interrupted", "failed"]


class Result(NamedTuple):
    """What a finished (or interrupted) run leaves."""

    run_dir: RunDir
    state: State
    records: list[dict[str, Any]]  # one per completed iteration


def run(config: Config, observers: Sequence[Observer] = (), stop: threading.Event | None = None) -> Result:
    """Train, or go on with the run that is in the directory.

    Ctrl-C, SIGTERM, and whoever sets `stop`, end it with everything saved.
    """
    validate(config)
    threads = prepare_torch(config.device, config.threads)
    run_dir = RunDir.open(config.directory)
    run_dir.refuse_links()
    with _held(run_dir):
        return _Run(config, run_dir, ObserverList([*observers, EventLog()]), threads).finish(stop)


@contextmanager
def _held(run_dir: RunDir) -> Iterator[None]:
    """The run's lock; a directory that could not even be locked is not left behind."""
    try:
        with locked(run_dir.lock):
            yield
    except InUse:
        raise
    except UserError:
        run_dir.abandon()
        raise


class _Run:
    """One process's part of a run."""

    def __init__(self, config: Config, run_dir: RunDir, audience: ObserverList, threads: int) -> None:
        self.config, self.run_dir, self.audience = config, run_dir, audience
        checkpoints = Checkpoints(run_dir.path, config.checkpoint.keep)
        resuming = run_dir.holds_run()
        run_dir.remove_half_written()
        checkpoints.remove_half_written()
        try:
            if resuming:
                refuse_differences(run_dir, config_of(run_dir, audience.warn), config)
            self.session, found = continue_from(checkpoints, lambda: Session(config), audience.warn)
            check_space(self.session, run_dir.path)
        except BaseException:
            run_dir.abandon()
            raise
        try:
            self._open(threads, found, resuming, checkpoints)
        except OSError as error:
            self.session.close()
            raise UserError(f"{run_dir.path} cannot be written: {error.strerror or error}") from None

    def _open(self, threads: int, found: Checkpoint | None, resuming: bool, checkpoints: Checkpoints) -> None:
        """Write the run's own files as they were at the checkpoint, or anew."""
        run_dir, audience = self.run_dir, self.audience
        self.header = self._describe(threads)
        self.records: list[dict[str, Any]] = []
        episodes, seconds = _EPISODES, 0.0
        if found is not None:
            self._take_over(found)
            episodes, seconds = found.episodes, float(found.state["seconds"])
        elif resuming:
            aside = run_dir.set_aside()
            checkpoints.adopt(None)
            kept = "" if aside is None else f"; what it had recorded is kept in {aside}"
            audience.notice(f"this run has no checkpoint that can be used: it begins again{kept}")
        lines = "".join(map(line_of, [self.header, *self.records]))
        self.record_file, self.episode_file = LineFile(run_dir.records, lines), LineFile(run_dir.episodes, episodes)
        files = (self.record_file, self.episode_file)
        self.saver = Saver(self.session, run_dir, checkpoints, files, audience.warn, just_saved=found is not None)
        self._began = time.perf_counter() - seconds  # of the iteration

    def finish(self, stop: threading.Event | None) -> Result:
        """Advance to the end, or to a request to stop."""
        self.audience.begin(self.session, self.run_dir, self.header)
        try:
            with stop_requests(stop) as stop:
                for record in self._iterations(stop):
                    self.records.append(record)
                    self.saver.append(self.record_file, line_of(record))
                    self.saver.weights()
                    self.audience.iterated(record)
                state: State = "finished" if self.session.iteration >= self.config.iterations else "interrupted"
                summary = self._summary(state)
                unsaved = self.saver.finish(self._seconds(), summary, stop)
        except BaseException as error:
            self._save_what_is_sound(error)
            self.saver.weights()
            summary = self._summary("failed", f"{type(error).__name__}: {error}".splitlines()[0])
            self.saver.summary(summary)
            self._close(summary)
            raise
        if unsaved:
            self._close({**summary, "state": "failed", "unsaved": unsaved})
            raise NotSaved(self._words(state, unsaved))
        self._close(summary)
        return Result(self.run_dir, state, self.records)

    def _words(self, state: State, unsaved: str) -> str:
        again = self.run_dir.command("resume", self.config.env)
        kept = "then" if self.config.checkpoint.keep else "it takes no checkpoints, so it cannot be resumed:"
        return (
            f"{self.run_dir.path}: training is {state} at step {self.session.step:,}, but could not be saved: "
            f"{unsaved}. What was saved before is kept: make room, {kept} {again}"
        )

    def _save_what_is_sound(self, failure: BaseException) -> None:
        """A failing environment, or a reader of the output who left, loses nothing that was learned."""
        usual = isinstance(failure, Exception | SystemExit)  # not a second Ctrl-C, which may come anywhere
        if usual and self.session.sound and self.session.steps_made:
            with suppress(Exception):  # the first failure is the one to tell
                self.saver.checkpoint(self._seconds())

    def _iterations(self, stop: threading.Event) -> Iterator[dict[str, Any]]:
        """Yields the record of each iteration; returns early when asked to stop."""
        session, saver, length = self.session, self.saver, self.session.schedule.steps_per_iteration
        while session.filling and not stop.is_set():
            session.fill()
            saver.checkpoint_if_due(self._seconds())
        while session.iteration < self.config.iterations and not stop.is_set():
            end = (session.iteration + 1) * length
            while session.step < end and not stop.is_set():
                game = session.advance()
                if game is not None:
                    line = f"{session.iteration},{session.step},{game.score!r},{game.steps}\n"
                    saver.append(self.episode_file, line)
                self.audience.stepped(session, game)
                if session.step < end:  # the end of an iteration is saved with its record
                    saver.checkpoint_if_due(self._seconds())
            if session.step < end:
                return
            yield self._measured(session.finish_iteration(), length)
            saver.checkpoint_if_due(self._seconds())

    def _measured(self, record: dict[str, Any], steps: int) -> dict[str, Any]:
        seconds = self._seconds()
        self._began = time.perf_counter()
        record[MEASURED] = {
            "seconds": seconds,
            "steps_per_second": steps / seconds,
            "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            "time": time.time(),
        }
        return record

    def _seconds(self) -> float:
        return time.perf_counter() - self._began

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
            "resume": why_not_exact(self.session.env.spec.name, config.rules),
            MEASURED: {**machine(threads), "started": time.time(), "checkpoint": to_json(config.checkpoint)},
        }

    def _take_over(self, checkpoint: Checkpoint) -> None:
        """Say what is resumed; the first record stays the one of the beginning, but for its settings."""
        session, now = self.session, self.header
        before, *self.records = checkpoint.records
        unlike = why_inexact(before, now["versions"], now[MEASURED])
        self.header = {**before, **{name: now[name] for name in ("config", "passport", "resume")}}
        if session.mismatch:
            exact = "not exact, a new game begins"
        else:
            exact = f"exactness is not promised here: {', '.join(unlike)}" if unlike else now["resume"] or "exact"
        made = f"step {session.step:,}" + (f" ({session.history:,} random steps)" if session.filling else "")
        redo = _last_known_step(self.run_dir, session.step)
        again = f"; steps {session.step:,} to {redo:,} or later are made again" if redo > session.step else ""
        self.audience.notice(f"resumed from the checkpoint at {made}: {exact}{again}")
        if session.iteration >= self.config.iterations:
            self.audience.notice("nothing is left to do: raise --iterations to train on")
        event = {"event": "resumed", "step": session.step, "history": session.history, "unlike": unlike}
        self.run_dir.log_event({**event, "time": time.time(), "versions": now["versions"], **now[MEASURED]})

    def _summary(self, state: State, error: str | None = None) -> dict[str, Any]:
        session = self.session
        return {
            "state": state,
            "steps": session.step,
            "iterations": session.iteration,
            "unfinished_iteration": session.tally.record() if session.tally.updates else None,
            "error": error,
        }

    def _close(self, summary: dict[str, Any]) -> None:
        self.audience.end(summary)
        self.record_file.close()
        self.episode_file.close()
        self.session.close()


def _last_known_step(run_dir: RunDir, default: int) -> int:
    """How far the stopped process is known to have come: its last finished game, or its summary."""
    try:
        summary = run_dir.read_json(run_dir.summary)["steps"] if kind_of(run_dir.summary) == "file" else 0
        last = read_end(run_dir.episodes, 200, within=run_dir.path).decode().rstrip("\n").rpartition("\n")[2]
        return max(int(last.split(",")[1]), int(summary))
    except (OSError, ValueError, IndexError, KeyError, TypeError, OverflowError, UserError):
        return default
