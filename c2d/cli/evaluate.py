"""c2d evaluate RUN [options]"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from c2d.cli.settings import options
from c2d.errors import UserError
from c2d.formatting import printable

if TYPE_CHECKING:
    from c2d.evaluation.course import Course, Setup
    from c2d.evaluation.play import Watch
    from c2d.evaluation.statistics import Summary
    from c2d.evaluation.subject import Subject

DESCRIPTION = "Play whole games with a trained agent and report their scores; play by another criterion, check the \
predicted laws, or film a game."


@dataclass(frozen=True)
class Evaluate:
    """What is asked for."""

    run: tyro.conf.Positional[str] = ""
    """Run directory, as `c2d train` makes it."""
    games: int = 20
    """Whole games to play. All of them count, long or short."""
    epsilon: float | None = None
    """Probability of a random action. Default: the run's --schedule.epsilon-eval, 0.001 unless changed."""
    parallel: int = 8
    """Games played at once, with one call of the network for all of them."""
    seed: int = 0
    """Seed of the games and of the random actions."""
    cap_steps: int | None = None
    """End a game after this many agent steps, for environments without an end. Default: the run's --rules.cap-steps."""
    risk: str | None = None
    """Play the same games also by another criterion on the learned laws, and report what that gains and costs. One of
    cvar:0.1 (mean of the worst tenth of returns), entropic:-0.5 (log-mean-exp, careful below 0 and daring above),
    mean-std:1 (mean less one standard deviation), above:5 (probability of a return above 5); other numbers will do."""
    calibration: bool = False
    """Compare the predicted laws with the discounted returns that came: PIT histogram, CRPS, coverage of intervals."""
    plot: str | None = None
    """Picture of the calibration, FILE.svg, FILE.png or FILE.pdf. Default: beside the scores in the run directory."""
    video: str | None = None
    """Film the first game into FILE.mp4; with --risk the first game of that criterion."""
    video_seconds: float | None = None
    """Film no more than this many seconds of the game. Default: the whole game."""
    env: str | None = None
    """Environment to play instead of the run's. A class of your own, my_package.my_module:MyEnv, must be named here."""
    phi: str | None = None
    """A φ of your own that the run uses, my_package.my_module:my_phi, must be named here."""
    trust: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """A part of your own that the run uses, my_package.my_module:MyHead; can be given several times."""
    device: str = "cpu"
    """Where the network lives: cpu, cuda, cuda:1, ..."""
    threads: int | None = None
    """CPU threads for the network. Default: all cores."""


def main(arguments: Sequence[str]) -> None:
    chosen = options(Evaluate, list(arguments), "c2d evaluate", DESCRIPTION)
    _check(chosen)
    from c2d.cli.evaluate_extras import Extras
    from c2d.devices import prepare_torch
    from c2d.evaluation.course import Setup
    from c2d.evaluation.statistics import summarize
    from c2d.evaluation.subject import open_run
    from c2d.recipes.user_code import trust

    extras = Extras(chosen)
    prepare_torch(chosen.device, chosen.threads)
    for name in (*chosen.trust, chosen.phi or ""):
        trust(name)
    subject = open_run(chosen.run, chosen.env, chosen.device, chosen.cap_steps)
    epsilon = subject.config.recipe.schedule.epsilon_eval if chosen.epsilon is None else chosen.epsilon
    print(printable(headline(subject, chosen, epsilon)))
    if subject.trained_here() is False:
        print("note: the rules or the games' versions differ from those of training (see passport.json in the run)")
    if not subject.agent.finite():
        print("note: the network holds numbers that are not finite (training diverged): what it plays means nothing")
        extras.refuse_diverged()
    setup = Setup(chosen.games, epsilon, chosen.parallel, chosen.seed)
    began = time.perf_counter()
    course = extras.play(subject, setup)
    seconds = time.perf_counter() - began
    summary = summarize(course.scores)
    print("\n".join(lines(summary, subject.env)))
    record = {**extras.report(subject), "seconds": seconds}
    path = save(subject, setup, course, summary, record)
    extras.plot(subject, path)
    print(f"written to {path}")


def headline(subject: Subject, chosen: Evaluate, epsilon: float) -> str:
    """What is evaluated, in one line."""
    config, facts = subject.config, subject.passport
    trained = "training unknown"
    if subject.steps is not None:
        trained = f"trained for {subject.steps:,} steps (whole iterations: {subject.iterations})"
    env = subject.env if subject.env == config.env else f"{subject.env} (trained on {config.env})"
    return (
        f"{subject.run_dir.path} | recipe {config.recipe_name}, seed {config.seed} | {env} | {trained} | "
        f"protocol {facts['protocol']} [{facts['hash']}] | ε {epsilon:g} | {chosen.games} games, seed {chosen.seed}"
    )


def lines(summary: Summary, env: str) -> list[str]:
    """The report for people."""
    from c2d.envs.games import game, human_normalized

    spread = "–" if summary.std is None else f"{summary.std:.2f}"
    interval = "none from one game"
    if summary.interval is not None:
        interval = f"{summary.interval[0]:.2f} to {summary.interval[1]:.2f}"
    report = [
        f"mean      {summary.mean:.2f}   (95 % bootstrap interval of the mean: {interval})",
        f"median    {summary.median:.2f}",
        f"min, max  {summary.min:.2f}, {summary.max:.2f}",
        f"std       {spread}",
    ]
    family, _, key = env.partition("/")
    normalized = human_normalized(key, summary.mean) if family == "atari" else None
    if normalized is not None:
        row = game(key)
        report.append(
            f"human-normalized score of the mean: {normalized:.3f} "
            f"(0 is random play at {row.random:g}, 1 a human tester at {row.human:g})"
        )
    return report


def save(subject: Subject, setup: Setup, course: Course, summary: Summary, more: dict[str, Any]) -> Path:
    """A new file in the run directory; earlier ones are left alone."""
    import torch

    from c2d.files import make_directory, write_json
    from c2d.training.passport import machine, versions

    measured = {**machine(torch.get_num_threads()), "seconds": more.pop("seconds"), "time": time.time()}
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
        "summary": asdict(summary),
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
        raise UserError(f"the scores above could not be written to {directory}: {error.strerror}") from None
    return path


def _remove_leftovers(directory: Path) -> None:
    """What killed evaluations left half written: of processes that are gone, and an hour old (another machine's)."""
    from c2d.files import names_inside

    for name in names_inside(directory):
        half = re.fullmatch(r"\.evaluation-[0-9]{3,}\.json\.([0-9]+)\.tmp", name)
        path = directory / name
        if half and not Path(f"/proc/{half.group(1)}").exists() and time.time() - path.lstat().st_mtime > 3_600:
            path.unlink(missing_ok=True)


def _new_file(directory: Path) -> Path:
    """The first free number, taken at once, so that two evaluations never share a file."""
    number = 1
    while True:
        path = directory / f"evaluation-{number:03d}.json"
        try:
            path.touch(exist_ok=False)
            return path
        except FileExistsError:
            number += 1


@contextmanager
def progress(games: int) -> Iterator[Watch | None]:
    """A bar on a terminal; nothing elsewhere."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("playing", total=games)

        def watch(ended: int, steps: int) -> None:
            bar.update(task, completed=ended, description=f"{ended}/{games} games ended, {steps:,} steps")

        yield watch


def _check(chosen: Evaluate) -> None:
    """Before anything heavy is loaded."""
    if not chosen.run:
        raise UserError("which run? c2d evaluate RUN, a directory that `c2d train` made")
    for name, value in {"games": chosen.games, "parallel": chosen.parallel, "threads": chosen.threads}.items():
        if value is not None and value < 1:
            raise UserError(f"--{name} is {value}; accepted: at least 1")
    if chosen.seed < 0:
        raise UserError(f"--seed is {chosen.seed}; accepted: 0 or greater")
    if chosen.epsilon is not None and not 0.0 <= chosen.epsilon <= 1.0:
        raise UserError(f"--epsilon is {chosen.epsilon}; accepted: from 0 to 1")
