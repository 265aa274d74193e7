"""What an evaluation found, and its file in the run directory."""

from __future__ import annotations

import re
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from c2d.errors import UserError
from c2d.evaluation.loaded_run import LoadedRun
from c2d.evaluation.play import PlayedGames, PlaySettings
from c2d.evaluation.statistics import Summary, summarize
from c2d.files import make_directory, names_inside, write_json
from c2d.training.passport import machine, versions


@dataclass(frozen=True)
class Evaluation:
    """Whole games of a trained agent."""

    scores: tuple[float, ...]
    """Raw scores, in the order in which the games were begun."""
    lengths: tuple[int, ...]
    """Agent steps of each game."""
    returns: tuple[float, ...]
    """Discounted return from the start of each game."""
    summary: Summary
    """Mean, median, min, max, std, and a bootstrap interval of the mean."""
    env: str
    """The environment that was played."""
    epsilon: float
    """Probability of a random action."""
    seed: int
    """Seed of the games."""
    steps: int | None
    """Training steps behind the weights; None if the run does not say."""
    path: Path | None = None
    """The file with all of it in the run directory; None if it was not saved."""

    @property
    def mean(self) -> float:
        """The mean score."""
        return self.summary.mean


def evaluation_of(subject: LoadedRun, setup: PlaySettings, course: PlayedGames, save: bool = True) -> Evaluation:
    """The games of a run as a result, saved in the run directory."""
    lengths, returns = tuple(end.steps for end in course.ends), tuple(course.returns)
    summary, scores = summarize(course.scores), tuple(course.scores)
    found = Evaluation(scores, lengths, returns, summary, subject.env, setup.epsilon, setup.seed, subject.steps)
    return replace(found, path=write(subject, setup, course, {})) if save else found


def write(subject: LoadedRun, setup: PlaySettings, course: PlayedGames, more: dict[str, Any]) -> Path:
    """Write a new file in the run directory; earlier ones stay."""
    seconds = more.pop("seconds", course.seconds)
    measured = {**machine(torch.get_num_threads()), "seconds": seconds, "time": time.time()}
    record: dict[str, Any] = {
        "kind": "evaluation",
        "env": subject.env,
        "passport": subject.passport,
        "steps": subject.steps,
        "iterations": subject.iterations,
        "epsilon": setup.epsilon,
        "seed": setup.seed,
        "parallel": setup.parallel,
        "scores": course.scores,
        "lengths": [end.steps for end in course.ends],
        "returns": course.returns,
        "summary": asdict(summarize(course.scores)),
        **more,
        "versions": versions(),
        "measured": measured,
    }
    directory = subject.run_dir.evaluations
    try:
        make_directory(directory)
        _remove_leftovers(directory)
        path = _new_file(directory)
        write_json(path, record)
    except OSError as error:
        raise UserError(f"the scores could not be written to {directory}: {error.strerror}") from None
    return path


def _remove_leftovers(directory: Path) -> None:
    """Remove unfinished files of killed evaluations: the process is gone, and the file an hour old.

    The age protects evaluations that run on another machine.
    """
    for name in names_inside(directory):
        half = re.fullmatch(r"\.evaluation-[0-9]{3,}\.json\.([0-9]+)\.tmp", name)
        path = directory / name
        if half and not Path(f"/proc/{half.group(1)}").exists() and time.time() - path.lstat().st_mtime > 3_600:
            path.unlink(missing_ok=True)


def _new_file(directory: Path) -> Path:
    """The first free number, reserved at once, so that two evaluations never share a file."""
    number = 1
    while True:
        path = directory / f"evaluation-{number:03d}.json"
        try:
            path.touch(exist_ok=False)
            return path
        except FileExistsError:
            number += 1
