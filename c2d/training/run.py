"""A run from start to end: iterations, records, checkpoints, weights, observers."""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Literal, NamedTuple

import torch

from c2d.agents.build import available_cores, check_device, default_threads, threads_restored
from c2d.config import Config, to_json, validate, with_usual_habits
from c2d.envs.make import spec_of
from c2d.envs.trial import why_not_exact
from c2d.errors import NotSaved, UserError
from c2d.files import kind_of, read_end
from c2d.runs.checkpoints import Checkpoint, Checkpoints
from c2d.runs.layout import RunDir, episodes_header
from c2d.runs.lock import Heartbeat, InUse, locked
from c2d.runs.reader import has_records, last_game_step, last_games, read_evaluations
from c2d.runs.records import MEASURED, IterationRecord, LineFile, Measured, RunHeader, line_of
from c2d.training import reward_unit
from c2d.training.observers import RECENT, EventLog, Observer, ObserverFailed, ObserverList, RunView
from c2d.training.passport import machine, not_reproducible, passport, versions
from c2d.training.process import check_space, stop_requests, watchdog
from c2d.training.resume import (
    config_of,
    continue_from,
    reject_differences,
    threads_before,
    why_inexact,
    with_its_masks,
)
from c2d.training.saving import Saver
from c2d.training.session import Session
from c2d.types import FinishedGame

State = Literal["finished", "interrupted", "failed"]


class Result(NamedTuple):
    """What a finished (or interrupted) run leaves. It stands for its directory wherever one is taken."""

    run_dir: RunDir  # paths of its files; `run_dir.path` is the directory
    state: State  # finished or interrupted
    records: list[dict[str, Any]]  # one per completed iteration
    reason: str | None = None  # why an observer stopped it

    def __fspath__(self) -> str:
        return str(self.run_dir.path)


def run(config: Config, observers: Sequence[Observer] = (), stop: threading.Event | None = None) -> Result:
    """Train, or resume the run that is in the directory.

    Ctrl-C, SIGTERM, an event `stop` that is set, and observers end it with everything saved.
    """
    watching = ObserverList([*observers, EventLog()])
    validate(config)
    check_device(config.device)
    run_dir = RunDir.open(config.directory)
    run_dir.reject_links()
    with _held(run_dir) as heartbeat, threads_restored():
        return _Run(config, run_dir, watching, heartbeat).finish(stop)


@contextmanager
def _held(run_dir: RunDir) -> Iterator[Heartbeat]:
    """The run's lock. A directory that cannot be locked is not left behind."""
    try:
        with locked(run_dir.lock) as heartbeat:
            yield heartbeat
    except InUse:
        raise
    except UserError:
        run_dir.abandon()
        raise


class _Run:
    """The part of a run that one process makes."""

    def __init__(self, config: Config, run_dir: RunDir, observers: ObserverList, heartbeat: Heartbeat) -> None:
        self.config, self.run_dir, self.observers, self._heartbeat = config, run_dir, observers, heartbeat
        checkpoints = Checkpoints(run_dir.path, config.checkpoint.keep)
        resuming = run_dir.holds_run()
        run_dir.remove_half_written()
        checkpoints.remove_half_written()
        try:
            if resuming:
                before = with_its_masks(run_dir, config_of(run_dir, observers.warn))
                if (config := with_its_masks(run_dir, config)).rules != self.config.rules:
                    observers.notice(
                        "this run was begun without action masks, and continues without those there are now"
                    )
                self.config = config
                reject_differences(run_dir, before, config)
            threads = _threads(config, checkpoints)
            torch.set_num_threads(threads)
            self.session, checkpoint = continue_from(checkpoints, lambda: Session(config), observers.warn)
            if self.session.remote is not None:
                self.session.remote.connect()
            check_space(self.session, run_dir.path)
        except BaseException:
            run_dir.abandon()
            if (session := getattr(self, "session", None)) is not None:
                session.close()
            raise
        try:
            self._open(threads, checkpoint, resuming, checkpoints)
        except OSError as error:
            self.session.close()
            raise UserError(f"{run_dir.path} cannot be written: {error.strerror or error}") from None

    def _open(self, threads: int, checkpoint: Checkpoint | None, resuming: bool, checkpoints: Checkpoints) -> None:
        """Write the run's own files: as they were at the checkpoint, or empty ones."""
        run_dir, observers = self.run_dir, self.observers
        header = self._describe(threads)
        self.header = header.to_json()
        self.records: list[dict[str, Any]] = []
        episodes, points, seconds = episodes_header(self.config.streams), "", 0.0
        if checkpoint is not None:
            self._take_over(checkpoint, header)
            episodes, points, seconds = checkpoint.episodes, checkpoint.points, checkpoint.seconds
        elif resuming:
            kept = ""
            if has_records(run_dir.path) or kind_of(run_dir.weights) == "file":  # no records: an exported agent
                kept = f"; what it had recorded is kept in {run_dir.set_aside()}"
            checkpoints.adopt(None)
            observers.notice(f"this run has no usable checkpoint: it starts from scratch{kept}")
        run_dir.forget_weights(self.session.step)
        lines = "".join(map(line_of, [self.header, *self.records]))
        self.record_file, self.episode_file = LineFile(run_dir.records, lines), LineFile(run_dir.episodes, episodes)
        self.point_file = LineFile(run_dir.points, points)
        self.evaluations = read_evaluations(run_dir.path, self.session.step)
        self.evaluation_file: LineFile | None = None
        if kind_of(run_dir.evaluated) is not None:
            self.evaluation_file = LineFile(run_dir.evaluated, "".join(map(line_of, self.evaluations)))
        self.saver = Saver(
            self.session,
            run_dir,
            checkpoints,
            (self.record_file, self.episode_file, self.point_file),
            observers.warn,
            self._heartbeat,
            just_saved=checkpoint is not None,
        )
        self._started = time.perf_counter() - seconds  # of the iteration

    def finish(self, stop: threading.Event | None) -> Result:
        """Train to the end, or until a request to stop."""
        stop = threading.Event() if stop is None else stop
        view = self.view = self._view(stop)
        try:
            self.session.stop = stop
            self.observers.begin(view)
            with stop_requests(stop), watchdog(self.session, self.observers.warn):
                for record in self._iterations():
                    self.records.append(record)
                    self.saver.append(self.record_file, line_of(record))
                    self.saver.weights(keep=True)
                    self.observers.tell("iteration", record)
                state: State = "finished" if self.session.iteration >= self.config.iterations else "interrupted"
                summary = self._summary(state)
                unsaved = self.saver.finish(self._seconds(), summary, stop)
        except BaseException as error:
            self._save_what_is_sound(error)
            self.saver.weights()
            summary = self._summary("failed", _first_line(error))
            self.saver.summary(summary)
            with suppress(ObserverFailed):  # the first failure is the one to report
                self._close(summary)
            raise
        if unsaved:
            self._close({**summary, "state": "failed", "unsaved": unsaved})
            raise NotSaved(self._not_saved(state, unsaved))
        self._close(summary)
        return Result(self.run_dir, state, self.records, summary.get("reason"))

    def _view(self, stop: threading.Event) -> RunView:
        """What observers see, and what they may do."""
        scores = [game.score for game in last_games(read_end(self.run_dir.episodes, 1 << 14, within=self.run_dir.path))]
        view = RunView(self.session, self.run_dir, self.header, scores[-RECENT:], self.evaluations, stop)
        view._say, view._beat = self.observers.notice, self._heartbeat.beat
        view._record = lambda record: self.observers.once_begun(lambda: self._keep_evaluation(record))
        if self.observers.listen("update"):
            self.session.heard = []
        return view

    def _keep_evaluation(self, record: dict[str, Any]) -> None:
        """Its time is not the iteration's."""
        self._started += record[MEASURED]["seconds"]
        self.view.evaluations.append(record)
        if self.evaluation_file is None:
            self.evaluation_file = LineFile(self.run_dir.evaluated, "")
        self.saver.append(self.evaluation_file, line_of(record))
        self.observers.tell("evaluation", record)

    def _not_saved(self, state: State, unsaved: str) -> str:
        command = self.run_dir.command("resume", self.config)
        kept = "then" if self.config.checkpoint.keep else "it takes no checkpoints, so it cannot be resumed:"
        return (
            f"{self.run_dir.path}: training is {state} at step {self.session.step:,}, but could not be saved: "
            f"{unsaved}. What was saved before is kept: make room, {kept} {command}"
        )

    def _save_what_is_sound(self, failure: BaseException) -> None:
        """If the environment fails, or whoever reads the output is gone, nothing that was learned is lost."""
        usual = isinstance(failure, Exception | SystemExit)  # not a second Ctrl-C, which may come anywhere
        if usual and self.session.sound and self.session.steps_made:
            with suppress(Exception):  # the first failure is the one to report
                self.saver.checkpoint(self._seconds())

    def _iterations(self) -> Iterator[dict[str, Any]]:
        """Yields the record of each iteration; returns early when asked to stop."""
        session, saver, length = self.session, self.saver, self.session.schedule.steps_per_iteration
        view = self.view
        while session.filling and not view.stopping:
            session.fill()
            self._pass_on_notices()
            saver.checkpoint_if_due(self._seconds())
        while session.iteration < self.config.iterations and not view.stopping:
            end = (session.iteration + 1) * length
            while session.step < end and not view.stopping:
                games, point = session.advance(), session.point()
                for game in games:
                    env = f",{game.env}" if session.config.streams > 1 else ""
                    line = f"{session.iteration},{session.step},{game.score!r},{game.steps}{env}\n"
                    saver.append(self.episode_file, line)
                self._tell(games, point)
                if session.step < end:  # the end of an iteration is saved with its record
                    saver.checkpoint_if_due(self._seconds())
            if session.step < end:
                return
            seconds = self._seconds()
            measured = None if session.remote is None else session.remote.measured()
            self._started += seconds
            yield _measured(session.finish_iteration(), length, seconds, measured).to_json()
            self._pass_on_notices()
            saver.checkpoint_if_due(self._seconds())

    def _pass_on_notices(self) -> None:
        """What the session has to say, to the observers."""
        for text, warning in self.session.notices:
            self.observers.notice(text, warning)
        self.session.notices.clear()

    def _tell(self, games: list[FinishedGame], point: IterationRecord | None) -> None:
        """What happened in a round, to the observers. Files have it before: a run that an observer ends here too."""
        session, line = self.session, None
        if point is not None:
            steps = session.step - session.iteration * session.schedule.steps_per_iteration
            line = _measured(point, steps, self._seconds()).to_point()
            self.saver.append(self.point_file, line_of(line))
        heard, session.heard = session.heard, None if session.heard is None else []
        self.view._scores.extend(game.score for game in games)
        self._pass_on_notices()
        for update in heard or ():
            self.observers.tell("update", {"loss": update.loss, **update.metrics})
        for game in games:
            self.observers.tell("game", game)
        if line is not None:
            self.observers.tell("point", line)
        self.observers.tell("step", games)

    def _seconds(self) -> float:
        return time.perf_counter() - self._started

    # ------------------------------------------------------------ start and end

    def _describe(self, threads: int) -> RunHeader:
        """Write what the run is; returns the first line of its records."""
        config = self.config
        facts = passport(config, self.session.env)
        self.run_dir.describe(config, self.session.env.spec, facts)
        return RunHeader(
            config=to_json(with_usual_habits(config)),
            passport=facts,
            versions=versions(),
            resume=not_reproducible(config) or why_not_exact(self.session.env.spec.name, config.rules),
            measured={
                **machine(threads),
                "device": config.device,
                "compile": config.compile,
                "started": time.time(),
                "checkpoint": to_json(config.checkpoint),
            },
        )

    def _take_over(self, checkpoint: Checkpoint, header: RunHeader) -> None:
        """Report what is resumed. The header stays the one of the start, except for the settings."""
        session = self.session
        before, *self.records = checkpoint.records
        unlike = why_inexact(before, header)
        self.header = {**before, **{name: self.header[name] for name in ("config", "passport", "resume")}}
        if session.mismatch:
            exact = "not exact, a new game begins"
        else:
            exact = f"exactness is not promised here: {', '.join(unlike)}" if unlike else header.resume or "exact"
        step = f"step {session.step:,}" + (f" ({session.history:,} random steps)" if session.filling else "")
        last = _last_known_step(self.run_dir, session.step)
        repeated = f"; steps {session.step:,} to {last:,} or later are repeated" if last > session.step else ""
        self.observers.notice(f"resumed from the checkpoint at {step}: {exact}{repeated}")
        if unit := reward_unit.known(session.learner):
            self.observers.notice(unit)
        if session.iteration >= self.config.iterations:
            self.observers.notice("nothing is left to do: raise --iterations to train further")
        event = {"event": "resumed", "step": session.step, "history": session.history, "unlike": unlike}
        self.run_dir.log_event({**event, "time": time.time(), "versions": header.versions, **header.measured})

    def _summary(self, state: State, error: str | None = None) -> dict[str, Any]:
        session = self.session
        reason = self.view.reason if state == "interrupted" else None
        return {
            "state": state,
            **({} if reason is None else {"reason": reason}),
            "steps": session.step,
            "iterations": session.iteration,
            "unfinished_iteration": session.tally.record() if session.tally.updates else None,
            "error": error,
        }

    def _close(self, summary: dict[str, Any]) -> None:
        try:
            self.observers.end(summary)
        finally:
            for file in (self.record_file, self.episode_file, self.point_file, self.evaluation_file):
                if file is not None:
                    file.close()
            self.session.close()


def _measured(
    record: IterationRecord, steps: int, seconds: float, more: Mapping[str, Any] | None = None
) -> IterationRecord:
    record.measured = Measured(
        seconds=seconds,
        steps_per_second=steps / seconds,
        peak_memory_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        time=time.time(),
        **(more or {}),
    )
    return record


def _first_line(error: BaseException) -> str:
    """What went wrong, and in which environment, in one line."""
    where = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
    return (f"{type(error).__name__}: {error}".splitlines() or [""])[0] + where


def _threads(config: Config, checkpoints: Checkpoints) -> int:
    """Those that the user names; or those of the run's start, for exactness, if there are cores for them."""
    if config.threads is not None:
        return config.threads
    before = threads_before(checkpoints)
    if before is not None and 1 <= before <= available_cores():
        return before
    return default_threads(config.recipe, spec_of(config.env, config.rules))


def _last_known_step(run_dir: RunDir, default: int) -> int:
    """How far the stopped process is known to have come: by its last game, or its summary."""
    try:
        summary = run_dir.read_json(run_dir.summary)["steps"] if kind_of(run_dir.summary) == "file" else 0
        return max(last_game_step(read_end(run_dir.episodes, 4_096, within=run_dir.path)), int(summary))
    except (OSError, ValueError, KeyError, TypeError, OverflowError, UserError):
        return default
