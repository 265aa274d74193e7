"""Observers that evaluate a run while it trains, keep its best weights, and stop it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from c2d.config import Config
from c2d.errors import UserError
from c2d.evaluation.play import evaluate
from c2d.evaluation.statistics import summarize
from c2d.formatting import duration, seconds_of
from c2d.runs.records import MEASURED
from c2d.seeding import integer
from c2d.training.observers import Observer, RunView
from c2d.types import FinishedGame


class _Abandoned(Exception):
    """The run is to end, and does not wait for the rest of an evaluation."""


class PeriodicEvaluation(Observer):
    """Plays whole games every so many agent steps, in environments and with generators of their own.

    Training is the same with it as without. Each evaluation plays other games than the one before. Its record goes into
    `evaluations.jsonl`, and to the method `evaluation` of all observers.
    """

    def __init__(self, every: int, games: int = 10, epsilon: float | None = None, parallel: int = 8) -> None:
        """`every`: agent steps; `epsilon`: None for the run's --schedule.epsilon-eval; `parallel`: games at once."""
        for name, value in (("every", every), ("games", games), ("parallel", parallel)):
            if type(value) is not int or value < 1:
                raise UserError(f"{name} of PeriodicEvaluation is {value}; accepted: a whole number, at least 1")
        if epsilon is not None and not 0.0 <= epsilon <= 1.0:
            raise UserError(f"epsilon of PeriodicEvaluation is {epsilon}; accepted: from 0 to 1")
        self.every, self.games, self.epsilon, self.parallel = every, games, epsilon, parallel

    def begin(self, run: RunView) -> None:
        self._next = (run.step // self.every + 1) * self.every
        before = max((record["steps"] for record in run.evaluations), default=0)
        if before < run.step and run.step > 0 and run.step % self.every < run.config.streams:
            self._evaluate(run)  # it was due at the step where the run was stopped

    def step(self, run: RunView, games: Sequence[FinishedGame]) -> None:
        if run.step >= self._next:
            self._next = (run.step // self.every + 1) * self.every
            self._evaluate(run)

    def _evaluate(self, run: RunView) -> None:
        epsilon = run.config.recipe.schedule.epsilon_eval if self.epsilon is None else self.epsilon
        seed, began = integer(run.config.seed, f"evaluation after {run.step} steps"), time.perf_counter()

        def watch(ended: int, steps: int) -> None:
            run.keep_alive()
            if run.stopping:
                raise _Abandoned

        try:
            ends = evaluate(run.agent, run.make_env, self.games, epsilon, self.parallel, seed, watch)
        except _Abandoned:
            return
        scores = [end.score for end in ends]
        numbers = asdict(summarize(scores))
        record = {
            "kind": "evaluation",
            "steps": run.step,
            "frames": run.frames,
            "iteration": run.iteration,
            "games": len(scores),
            "epsilon": epsilon,
            **{f"{name}_score": numbers[name] for name in ("mean", "median", "min", "max")},
            "scores": scores,
            "lengths": [end.steps for end in ends],
            MEASURED: {"seconds": time.perf_counter() - began, "time": time.time()},
        }
        run.record_evaluation(record)


class KeepBest(Observer):
    """Keeps the weights whose evaluation scored best so far, in `weights-best.safetensors` of the run directory.

    It needs evaluations, as PeriodicEvaluation makes them. `c2d.load(run, weights="best")` reads the weights.
    """

    def begin(self, run: RunView) -> None:
        self._best = max((record["mean_score"] for record in run.evaluations), default=None)
        self._troubled = False

    def evaluation(self, run: RunView, record: Mapping[str, Any]) -> None:
        score, agent = float(record["mean_score"]), run.agent
        if (self._best is not None and score <= self._best) or not agent.finite():
            return
        self._best = score
        try:
            run.run_dir.write_best(agent.to_bytes({"steps": str(record["steps"])}))
        except OSError as error:
            if not self._troubled:
                run.notice(f"the best weights could not be saved: {error.strerror or error}", warning=True)
            self._troubled = True

    def end(self, run: RunView, summary: Mapping[str, Any]) -> None:
        if not run.evaluations and summary["state"] == "finished":
            run.notice(
                "no best weights are kept: no evaluation was made (--eval-every, PeriodicEvaluation)", warning=True
            )


class StopAtScore(Observer):
    """Stops a run whose mean score reaches a bound: over the last `games` training games, or of an evaluation.

    With `by="evaluation"` it needs evaluations, as PeriodicEvaluation makes them.
    """

    def __init__(self, score: float, games: int = 100, by: str = "training") -> None:
        if by not in ("training", "evaluation"):
            raise UserError(f'by of StopAtScore is "{by}"; accepted: training, evaluation')
        if not 1 <= games <= 100:
            raise UserError(f"games of StopAtScore is {games}; accepted: from 1 to 100")
        self.score, self.games, self.by = score, games, by

    def step(self, run: RunView, games: Sequence[FinishedGame]) -> None:
        if games and self.by == "training" and len(run.scores) >= self.games:
            mean = sum(run.scores[-self.games :]) / self.games
            if mean >= self.score:
                run.stop(f"score {mean:.4g} over the last {self.games} games reached {self.score:g}")

    def evaluation(self, run: RunView, record: Mapping[str, Any]) -> None:
        if self.by == "evaluation" and record["mean_score"] >= self.score:
            run.stop(f"score {record['mean_score']:.4g} in an evaluation reached {self.score:g}")


class StopAfter(Observer):
    """Stops a run after a time, in seconds or as "90min", "2h", "1h30min". A resumed run has that time again."""

    def __init__(self, time: float | str) -> None:
        self.seconds = seconds_of(time, "--stop-after") if isinstance(time, str) else float(time)
        if not self.seconds > 0:
            raise UserError(f"time of StopAfter is {time}; accepted: above 0 seconds")

    def begin(self, run: RunView) -> None:
        self._end = time.monotonic() + self.seconds

    def step(self, run: RunView, games: Sequence[FinishedGame]) -> None:
        if time.monotonic() >= self._end:
            run.stop(f"{duration(self.seconds)} are over")


def callbacks_of(config: Config) -> list[Observer]:
    """The observers that a config asks for: `--eval-every`, `--keep-best`, `--stop-at-score`, `--stop-after`."""
    wanted: list[Observer] = []
    if config.eval_every:
        wanted.append(PeriodicEvaluation(config.eval_every, config.eval_games))
    if config.keep_best:
        if not config.eval_every:
            raise UserError("--keep-best is given without --eval-every, whose scores decide; accepted: both")
        wanted.append(KeepBest())
    if config.stop_at_score is not None:
        wanted.append(StopAtScore(config.stop_at_score, by="evaluation" if config.eval_every else "training"))
    if config.stop_after is not None:
        wanted.append(StopAfter(config.stop_after))
    return wanted
