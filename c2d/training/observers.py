"""What watches a run: observers, the view that they have of it, and the log of its events."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from c2d.agents.agent import Agent
from c2d.config import Config
from c2d.envs.make import make
from c2d.envs.spec import Environment, EnvSpec
from c2d.errors import UserError
from c2d.runs.layout import RunDir
from c2d.training.session import Session
from c2d.types import FinishedGame
from c2d.user_code import cause_of

RECENT = 100  # games whose scores a view remembers


class RunView:
    """A run while it trains, as observers see it. It is read-only, except that an observer may stop the run."""

    def __init__(
        self,
        session: Session,
        run_dir: RunDir,
        header: dict[str, Any],
        scores: Sequence[float] = (),
        evaluations: Sequence[dict[str, Any]] = (),
        stop: threading.Event | None = None,
    ) -> None:
        self._session = session
        self.run_dir = run_dir
        """Paths of the run's files."""
        self.header = header
        """What ran, as the first line of the records: config, passport, versions, machine."""
        self.reason: str | None = None
        """Why an observer stopped the run; None if none has."""
        self.evaluations = list(evaluations)
        """Records of the evaluations so far, those before a resume included."""
        self._scores = deque(scores, RECENT)
        self._stop = threading.Event() if stop is None else stop
        self._say: Callable[[str, bool], None] = lambda text, warning: None
        self._record: Callable[[dict[str, Any]], None] = lambda record: None
        self._beat: Callable[[], None] = lambda: None

    @property
    def config(self) -> Config:
        """Every setting of the run."""
        return self._session.config

    @property
    def spec(self) -> EnvSpec:
        """The shapes of observations and actions."""
        return self._session.env.spec

    @property
    def step(self) -> int:
        """Agent steps of training so far, of all environments together."""
        return self._session.step

    @property
    def steps_made(self) -> int:
        """The same with the random steps before training."""
        return self._session.steps_made

    @property
    def random_steps_left(self) -> int:
        """How many random steps are still to be made before training; 0 if none are."""
        return max(self._session.schedule.random_history - self._session.history, 0) if self._session.filling else 0

    @property
    def frames(self) -> int:
        """Frames of the environment that the training steps so far stand for."""
        return self.step * self.spec.frames_per_step

    @property
    def iteration(self) -> int:
        """Iterations completed."""
        return self._session.iteration

    @property
    def updates(self) -> int:
        """Gradient steps made."""
        return self._session.learner.updates

    @property
    def epsilon(self) -> float:
        """The present probability of a random action."""
        return self._session.epsilon

    @property
    def scores(self) -> tuple[float, ...]:
        """Scores of the last whole training games, at most 100, those before a resume included."""
        return tuple(self._scores)

    @property
    def metrics(self) -> dict[str, Any]:
        """The metrics of the iteration so far, by the names that records have; None where there is no value."""
        session = self._session
        return {**session.tally.record(), **session.learner.online.diagnostics(), "epsilon": session.epsilon}

    @property
    def diagnostics(self) -> dict[str, float]:
        """What the network reports of itself, such as α."""
        return dict(self._session.learner.online.diagnostics())

    @property
    def agent(self) -> Agent:
        """The agent as it is now, to play or look into: it shares its weights with the run, and nothing random."""
        return Agent(self._session.learner.acting, self.config.recipe, self.spec)

    def make_env(self, seed: int) -> Environment:
        """A new environment as the run has, apart from those it trains on."""
        return make(self.config.env, self.config.rules, seed)

    @property
    def stopping(self) -> bool:
        """Whether the run is about to end, because an observer or a person asked for it."""
        return self.reason is not None or self._stop.is_set()

    def stop(self, reason: str) -> None:
        """End the run after this step, with everything saved. The first reason given is kept."""
        if self.reason is None:
            self.reason = " ".join(str(reason).split()) or "an observer asked for it"

    def notice(self, text: str, warning: bool = False) -> None:
        """Say something to whoever follows the run. Warnings also stay in the run's events."""
        self._say(text, warning)

    def record_evaluation(self, record: dict[str, Any]) -> None:
        """Keep a record of an evaluation with the run (`evaluations.jsonl`), and tell all observers."""
        self._record(record)

    def keep_alive(self) -> None:
        """Call it now and then in work that takes minutes: others see that the run is alive."""
        self._beat()


class Observer:
    """Watches a run. Derive from it, override what you need, and pass it as `c2d.train(config, callbacks=[...])`.

    Observers are called in the thread that trains, in the order in which they were given. They may not alter the run,
    but each may end it: `run.stop("the reason")`. If one raises, the run is saved and ends with an error that names it.
    """

    def begin(self, run: RunView) -> None:
        """Training is about to start or to continue: `run.step` is 0 or where it was."""

    def update(self, run: RunView, diagnostics: Mapping[str, float]) -> None:
        """After a gradient step: `loss`, `gradient_norm`, `atom_min`, `atom_max`, now and then more of the batch."""

    def game(self, run: RunView, game: FinishedGame) -> None:
        """A training game is over: `game.score`, `game.steps`, and `game.env`, the environment that played it."""

    def point(self, run: RunView, record: Mapping[str, Any]) -> None:
        """Up to 50 times in an iteration: the metrics since the point before, a line of `points.jsonl`."""

    def step(self, run: RunView, games: Sequence[FinishedGame]) -> None:
        """After one step of every environment, and the updates due with it. `games`: those that ended in it."""

    def evaluation(self, run: RunView, record: Mapping[str, Any]) -> None:
        """After an evaluation while training: `steps`, `games`, `mean_score`, `scores` and more."""

    def iteration(self, run: RunView, record: Mapping[str, Any]) -> None:
        """An iteration is complete and recorded: its metrics, a line of `records.jsonl`."""

    def notice(self, run: RunView, text: str, warning: bool) -> None:
        """Something that people should know about the run. It may come from another thread."""

    def end(self, run: RunView, summary: Mapping[str, Any]) -> None:
        """The run ends, however it does: `state` is finished, interrupted or failed, `reason` or `error` says why."""


EVENTS = ("begin", "update", "game", "point", "step", "evaluation", "iteration", "notice", "end")


class ObserverFailed(UserError):
    """An observer raised."""


class ObserverList:
    """Several observers as one. Notices from before `begin` are passed on after it."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        for observer in observers:
            if not isinstance(observer, Observer):
                what = "a class" if isinstance(observer, type) else f"an object of type {type(observer).__name__}"
                raise UserError(
                    f"a callback is {what}; accepted: instances of c2d.Observer or of classes derived of it"
                )
        self.observers = tuple(observers)
        self._overriding = {event: [each for each in observers if _overrides(each, event)] for event in EVENTS}
        self._early: list[Callable[[], None]] = []  # what is to be told once all have begun
        self._ready = False
        self._run: RunView | None = None
        self._begun: list[Observer] = []
        self._failed: ObserverFailed | None = None  # in another thread
        self._thread = threading.get_ident()

    def listen(self, event: str) -> bool:
        """Whether any observer wants this event."""
        return bool(self._overriding[event])

    def begin(self, run: RunView) -> None:
        self._run = run
        for observer in self.observers:
            self._call(observer, "begin")
            self._begun.append(observer)
        self._ready = True
        for say in self._early:
            say()

    def once_begun(self, say: Callable[[], None]) -> None:
        """Now, or as soon as all observers have begun."""
        if self._ready:
            say()
        else:
            self._early.append(say)

    def tell(self, event: str, *what: Any) -> None:
        """Pass an event on to all observers."""
        if self._failed is not None:
            raise self._failed
        for observer in self._overriding[event]:
            self._call(observer, event, *what)

    def notice(self, text: str, warning: bool = False) -> None:
        self.once_begun(lambda: self._notice(text, warning))

    def _notice(self, text: str, warning: bool) -> None:
        if threading.get_ident() == self._thread:
            self.tell("notice", text, warning)
            return
        try:
            self.tell("notice", text, warning)
        except ObserverFailed as error:
            self._failed = error  # the run's own thread raises it

    def warn(self, text: str) -> None:
        self.notice(text, warning=True)

    def end(self, summary: dict[str, Any]) -> None:
        """Every observer that has begun ends, even if another one raises, which is raised afterward."""
        failed: ObserverFailed | None = None
        for observer in self._begun:
            try:
                self._call(observer, "end", summary)
            except ObserverFailed as error:
                failed = failed or error
        if failed is not None:
            raise failed

    def _call(self, observer: Observer, event: str, *what: Any) -> None:
        assert self._run is not None
        try:
            getattr(type(observer), event)(observer, self._run, *what)  # an attribute of that name is in nobody's way
        except (ObserverFailed, BrokenPipeError):  # of an event within this one; the reader of the output is gone
            raise
        except Exception as error:
            name, step = type(observer).__name__, self._run.step
            why = str(error) if isinstance(error, UserError) else cause_of(error)
            raise ObserverFailed(f"callback {name} failed in {event}() at step {step:,}: {why}") from error


def _overrides(observer: Observer, event: str) -> bool:
    return getattr(type(observer), event) is not getattr(Observer, event)


class EventLog(Observer):
    """Keeps warnings in the run's events.jsonl, so that they can be read when the terminal is gone."""

    def notice(self, run: RunView, text: str, warning: bool) -> None:
        if warning:
            run.run_dir.log_event({"event": "warning", "text": text, "time": time.time()})
