"""When a run is saved, and what happens if it cannot be.

Training continues, and saving is retried. At the end the process waits some minutes for room on the disk.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from c2d.agents.agent import Agent
from c2d.config import to_json
from c2d.files import Refused, write_json
from c2d.formatting import duration
from c2d.runs.checkpoints import Checkpoints
from c2d.runs.layout import RunDir
from c2d.runs.lock import Heartbeat
from c2d.runs.records import LineFile
from c2d.training.session import Session

_RETRY = 60.0  # seconds until a checkpoint that could not be written is retried
_PATIENCE = 600.0  # seconds that the end of a run waits for room
_PAUSE = 2.0  # seconds between attempts meanwhile


class Saver:
    """Writes checkpoints, lines, weights and the summary of one run. Errors of the disk become warnings."""

    def __init__(
        self,
        session: Session,
        run_dir: RunDir,
        checkpoints: Checkpoints,
        files: tuple[LineFile, ...],
        warn: Callable[[str], None],
        heartbeat: Heartbeat,
        just_saved: bool,
    ) -> None:
        self.session, self.run_dir, self.checkpoints, self.files = session, run_dir, checkpoints, files
        self._warn, self._heartbeat = warn, heartbeat
        self._wanted = session.config.checkpoint
        self._saved = just_saved  # whether the current step is in a checkpoint
        self._saved_steps, self._saved_time = session.steps_made, time.monotonic()
        self._retry_time: float | None = None
        self._failure: str | None = None  # why the last attempt failed
        self._ended: int | None = None  # step at the end of an iteration whose weights are still to be kept

    def checkpoint_if_due(self, seconds: float) -> None:
        """After a step. `seconds`: how long the iteration has taken."""
        self._saved = False
        now = time.monotonic()
        self._heartbeat.beat(now)
        wanted = self._wanted
        by_steps = wanted.every_steps and self.session.steps_made - self._saved_steps >= wanted.every_steps
        if not by_steps and not wanted.every_minutes:
            return
        if self._retry_time is not None:
            due = now >= self._retry_time
        else:
            due = bool(by_steps) or now - self._saved_time >= 60.0 * wanted.every_minutes
        if due:
            self.checkpoint(seconds)

    def finish(self, seconds: float, summary: dict[str, Any], stop: threading.Event) -> str:
        """Save the end of the run; returns what could not be saved, and why ("" if everything was).

        Waits for room until the deadline or a request to stop. The summary says that the run is finished, so it is
        written last.
        """
        failed = self._save_all(seconds, summary)
        if _may_pass(failed) and not stop.is_set():
            self._warn(
                f"{_listed(failed)}: not saved in {self.run_dir.path}; waiting up to {duration(_PATIENCE)} for room "
                "(Ctrl-C ends the wait)"
            )
        deadline = time.monotonic() + _PATIENCE
        while _may_pass(failed) and time.monotonic() < deadline and not stop.wait(_PAUSE):
            failed = self._save_all(seconds, summary)
        if failed:
            with suppress(OSError):
                error = f"NotSaved: {_listed(failed)}"
                write_json(self.run_dir.summary, {**summary, "state": "failed", "error": error})
        return _listed(failed)

    def _save_all(self, seconds: float, summary: dict[str, Any]) -> dict[str, OSError]:
        self._heartbeat.pause()
        failed: dict[str, OSError] = {}

        def attempt(what: str, save: Callable[[], object]) -> None:
            try:
                save()
            except OSError as error:
                failed[what] = error

        for file in self.files:
            attempt(file.path.name, file.flush)
        attempt("the weights", self._write_weights)
        attempt(f"the checkpoint at step {self.session.step:,}", lambda: self._write_checkpoint(seconds))
        if not failed:
            attempt("the summary", lambda: write_json(self.run_dir.summary, summary))
        return failed

    def checkpoint(self, seconds: float) -> None:
        """Save everything, unless the current step is saved already."""
        self._heartbeat.pause()
        try:
            self._write_checkpoint(seconds)
        except OSError as error:
            self._retry_time = time.monotonic() + _RETRY
            self._report(f"the checkpoint at step {self.session.step:,}", error)

    def _write_checkpoint(self, seconds: float) -> None:
        if self._saved or not self._wanted.keep:
            return
        copies = {file.path.name: file.content() for file in self.files}
        self.checkpoints.save(self.session, to_json(self.session.config), seconds, copies)
        self._saved, self._retry_time = True, None
        self._saved_steps, self._saved_time = self.session.steps_made, time.monotonic()
        if self._failure is not None:
            self._failure = None
            self._warn(f"saving works again: checkpoint at step {self.session.step:,}")

    def append(self, file: LineFile, line: str) -> None:
        file.append(line)
        if file.trouble is not None:
            self._report(f"lines of {file.path.name}", file.trouble)

    def weights(self, keep: bool = False) -> None:
        """Weights of a network that diverged do not replace earlier ones. `keep`: these also go into the series."""
        if keep and self._wanted.keep_weights:
            self._ended = self.session.step
        try:
            self._write_weights()
        except OSError as error:
            self._report("the weights", error)

    def _write_weights(self) -> None:
        session = self.session
        agent = Agent(session.learner.acting, session.config.recipe, session.env.spec)
        if not agent.finite() and self.run_dir.weights.exists():
            self._warn(f"the network diverged: {self.run_dir.weights.name} keeps the last finite weights")
            return
        data = agent.to_bytes()
        self.run_dir.write_weights(data)
        if self._ended == session.step:
            self.run_dir.keep_weights(session.step, data, self._wanted.keep_weights)
            self._ended = None

    def summary(self, summary: dict[str, Any]) -> None:
        try:
            write_json(self.run_dir.summary, summary)
        except OSError as error:
            self._report("the summary", error)

    def _report(self, what: str, error: OSError) -> None:
        """Warn, once per cause, that something is not being saved."""
        reason = error.strerror or str(error)
        if self._failure == reason:
            return
        self._failure = reason
        self._warn(
            f"{what} could not be saved in {self.run_dir.path}: {reason}; training continues, the last good checkpoint "
            "is kept, and saving is retried"
        )


def _may_pass(failed: dict[str, OSError]) -> bool:
    """Whether it is worth waiting: a full disk may get room again, a link in the way stays."""
    return any(not isinstance(error, Refused) for error in failed.values())


def _listed(failed: dict[str, OSError]) -> str:
    return "; ".join(f"{what} ({error.strerror or error})" for what, error in failed.items())
