"""c2d evaluate RUN [options]"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from c2d.cli.settings import options
from c2d.errors import UserError
from c2d.formatting import printable
from c2d.plotting import can_draw, check_figure_path

if TYPE_CHECKING:
    from c2d.evaluation.calibration import Calibration, NetworkRow
    from c2d.evaluation.loaded_run import LoadedRun
    from c2d.evaluation.play import MakeEnv, PlayedGames, PlaySettings, Watch
    from c2d.evaluation.prediction_log import PredictionLog
    from c2d.evaluation.recalibration import Recalibration
    from c2d.evaluation.risk import Criterion
    from c2d.evaluation.statistics import Summary

DESCRIPTION = (
    "Play whole games with a trained agent and report the scores. Optionally play by another criterion, check the "
    "predicted return distributions, or record a video."
)


@dataclass(frozen=True)
class EvaluateOptions:
    """The options of `c2d evaluate`."""

    run: tyro.conf.Positional[str] = ""
    """Run directory written by `c2d train`."""
    games: int = 20
    """Number of whole games to play. All of them count, long or short."""
    epsilon: float | None = None
    """Probability of a random action; None: the run's --schedule.epsilon-eval, 0.001 unless changed."""
    parallel: int = 8
    """Games played in parallel, with one call of the network for all of them."""
    seed: int = 0
    """Seed of the games and of the random actions."""
    cap_steps: int | None = None
    """Cut games after this many agent steps, for environments without an end; None: the run's --rules.cap-steps."""
    risk: str | None = None
    """Also play the same games by another criterion, and report what it gains and costs: cvar:0.1 (mean of the worst
    tenth of returns), entropic:-0.5 (log-mean-exp, risk-averse below 0, risk-seeking above), mean-std:1 (mean minus one
    standard deviation), above:5 (probability of a return above 5), or another number for any of them."""
    calibration: bool = False
    """Compare predicted distributions with the discounted returns that followed: PIT histogram, CRPS, coverage."""
    nets: int = 1
    """With --calibration: average over the last networks that the run has kept (--checkpoint.keep-weights of c2d
    train), as a single one says little about its recipe; 1: only the newest."""
    recalibrate: int = 0
    """With --calibration: first play this many other games, fit a correction of the laws to them (offset and slope of
    the mean, factor on the spread), and report the calibration of corrected laws too; 0: do not."""
    plot: str | None = None
    """File for the figure of --calibration (.svg, .png or .pdf); None: next to the scores in the run directory."""
    video: str | None = None
    """Record the first game as FILE.mp4; with --risk, the first game played by that criterion."""
    video_seconds: float | None = None
    """Record at most this many seconds of the game; None: the whole game."""
    weights: str = "newest"
    """Which weights: newest; best, as c2d train --keep-best keeps them; or the training steps behind one that the run
    has kept (--checkpoint.keep-weights)."""
    env: str | None = None
    """Environment to play; None: the run's. Your own class, my_package.my_module:MyEnv, must be named here."""
    phi: str | None = None
    """Your own φ, my_package.my_module:my_phi, must be named here if the run uses it."""
    trust: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """Your own part, my_package.my_module:MyHead, must be named here if the run uses it; can be given several times."""
    device: str = "cpu"
    """Device of the network: cpu, cuda or cuda:1."""
    threads: int | None = None
    """CPU threads for the network. None: all cores, or 1 for a small network, as for c2d train."""


def main(arguments: Sequence[str]) -> None:
    chosen = options(EvaluateOptions, list(arguments), "c2d evaluate", DESCRIPTION)
    _check(chosen)
    import torch

    from c2d.agents.build import check_device, default_threads
    from c2d.evaluation.loaded_run import open_run
    from c2d.evaluation.play import PlaySettings
    from c2d.evaluation.record import write
    from c2d.evaluation.statistics import summarize
    from c2d.user_code import trust

    addons = EvaluationAddons(chosen)
    check_device(chosen.device)
    for name in (*chosen.trust, chosen.phi or ""):
        trust(name)
    subject = open_run(chosen.run, chosen.env, chosen.device, chosen.cap_steps, chosen.weights)
    torch.set_num_threads(chosen.threads or default_threads(subject.config.recipe, subject.agent.spec))
    epsilon = subject.config.recipe.schedule.epsilon_eval if chosen.epsilon is None else chosen.epsilon
    print(printable(headline(subject, chosen, epsilon)))
    if subject.trained_here() is False:
        print("note: rules or versions of the games differ from those of training (see passport.json in the run)")
    if not subject.agent.finite():
        print("note: the network has weights that are not finite (training diverged): its play is meaningless")
        addons.reject_diverged()
    setup = PlaySettings(chosen.games, epsilon, chosen.parallel, chosen.seed)
    began = time.perf_counter()
    if chosen.nets > 1:
        subject, course, record = addons.play_networks(subject.last_networks(chosen.nets, chosen.device), setup)
        summary = summarize(course.scores)
    else:
        course = addons.play(subject, setup)
        summary = summarize(course.scores)
        print("\n".join(summary_lines(summary, subject.env)))
        record = addons.report(subject)
    record["seconds"] = time.perf_counter() - began
    path = write(subject, setup, course, record)
    addons.plot(subject, path)
    print(f"written to {path}")


def headline(subject: LoadedRun, chosen: EvaluateOptions, epsilon: float) -> str:
    """What is evaluated, on one line."""
    config, facts = subject.config, subject.passport
    trained = "training unknown"
    if subject.steps is not None:
        trained = f"trained for {subject.steps:,} steps (complete iterations: {subject.iterations})"
    env = subject.env if subject.env == config.env else f"{subject.env} (trained on {config.env})"
    return (
        f"{subject.run_dir.path} | recipe {config.recipe_name}, seed {config.seed} | {env} | {trained} | "
        f"protocol {facts['protocol']} [{facts['hash']}] | ε {epsilon:g} | {chosen.games} games, seed {chosen.seed}"
    )


def summary_lines(summary: Summary, env: str) -> list[str]:
    """Text for the terminal."""
    from c2d.envs.games import game, human_normalized

    spread = "–" if summary.std is None else f"{summary.std:.2f}"
    interval = "none with one game"
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
            f"(0: random play at {row.random:g}, 1: a human tester at {row.human:g})"
        )
    return report


_LINE = 30.0  # seconds between lines when there is no terminal


@contextmanager
def progress(games: int) -> Iterator[Watch]:
    """A progress bar on a terminal; elsewhere a line now and then, as in training."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        said = time.monotonic()

        def say(ended: int, steps: int) -> None:
            nonlocal said
            if ended < games and time.monotonic() - said >= _LINE:
                said = time.monotonic()
                print(f"{ended}/{games} games ended, {steps:,} steps", file=sys.stderr, flush=True)

        yield say
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("playing", total=games)

        def watch(ended: int, steps: int) -> None:
            bar.update(task, completed=ended, description=f"{ended}/{games} games ended, {steps:,} steps")

        yield watch


def _check(chosen: EvaluateOptions) -> None:
    """Reject bad options before anything heavy is loaded."""
    if not chosen.run:
        raise UserError("no run given; accepted: c2d evaluate RUN, a directory written by `c2d train`")
    counts = {name: getattr(chosen, name) for name in ("games", "parallel", "threads", "nets")}
    for name, value in counts.items():
        if value is not None and value < 1:
            raise UserError(f"--{name} is {value}; accepted: at least 1")
    if chosen.seed < 0:
        raise UserError(f"--seed is {chosen.seed}; accepted: 0 or greater")
    if chosen.epsilon is not None and not 0.0 <= chosen.epsilon <= 1.0:
        raise UserError(f"--epsilon is {chosen.epsilon}; accepted: from 0 to 1")
    _check_calibration(chosen)


def _check_calibration(chosen: EvaluateOptions) -> None:
    if chosen.recalibrate < 0 or chosen.recalibrate == 1:
        raise UserError(f"--recalibrate is {chosen.recalibrate}; accepted: 0, or at least 2 games")
    if chosen.recalibrate and not chosen.calibration:
        raise UserError("--recalibrate is given without --calibration, which shows what it gains; accepted: both")
    if chosen.nets > 1:
        if not chosen.calibration:
            raise UserError("--nets is given without --calibration, which it averages; accepted: both")
        if chosen.weights != "newest":
            raise UserError(f"--weights is given with --nets {chosen.nets}; accepted: only one of them")
        for name in ("risk", "video", "plot"):
            if getattr(chosen, name) is not None:
                raise UserError(f"--{name} is given with --nets {chosen.nets}; accepted: only one of them")


# ------------------------------------------------------------------------- another criterion, calibration, video


class EvaluationAddons:
    """What the command line requests beyond scores. The constructor rejects bad requests before any game is played."""

    def __init__(self, chosen: EvaluateOptions) -> None:
        from c2d.evaluation.risk import criterion
        from c2d.evaluation.video import Video, check_video

        self.risk = None if chosen.risk is None else criterion(chosen.risk)
        if self.risk is not None and chosen.games < 2:
            raise UserError(
                f"--games is {chosen.games}; accepted: at least 2 with --risk, which compares the spread of scores"
            )
        self.recalibrate = chosen.recalibrate
        self.calibration, self.figure = chosen.calibration, None if chosen.plot is None else Path(chosen.plot)
        if self.figure is not None:
            if not chosen.calibration:
                raise UserError("--plot is given without --calibration, whose figure it is; accepted: both")
            check_figure_path(self.figure, "--plot")
        if chosen.video_seconds is not None and chosen.video is None:
            raise UserError("--video-seconds is given without --video, which it limits; accepted: both")
        if chosen.video_seconds is not None and not chosen.video_seconds > 0:
            raise UserError(f"--video-seconds is {chosen.video_seconds:g}; accepted: above 0")
        self.video = None
        if chosen.video is not None:
            check_video(Path(chosen.video))
            self.video = Video(Path(chosen.video), chosen.video_seconds)
            os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # environments that draw with SDL need no display here
        self._epsilon = 0.0
        self._result: Calibration | None = None
        self._courses: list[PlayedGames] = []
        self._correction: Recalibration | None = None

    def play(self, subject: LoadedRun, setup: PlaySettings) -> PlayedGames:
        """Play by the mean, and also by the criterion if one is given. Returns the games played by the mean."""
        from c2d.evaluation.prediction_log import PredictionLog
        from c2d.evaluation.risk import MEAN

        self._epsilon = setup.epsilon
        recipe = subject.config.recipe
        rival = self._rival(subject)

        def new_log() -> PredictionLog:
            return PredictionLog(recipe.schedule.gamma, recipe.clip_reward, subject.config.rules.truncation)

        log = new_log() if self.calibration else None
        try:
            if self.recalibrate:
                self._correction = self._fit(self._course(subject, self._others(setup), MEAN, MEAN, new_log(), False))
            self._courses = [self._course(subject, setup, MEAN, rival, log, recorded=rival == MEAN)]
            if rival != MEAN:
                self._courses.append(self._course(subject, setup, rival, MEAN, None, recorded=True))
        finally:
            if self.video is not None:
                self.video.abandon()  # does nothing after finish
        return self._courses[0]

    def _others(self, setup: PlaySettings) -> PlaySettings:
        """Games of seeds that no evaluation with this seed plays."""
        from c2d.seeding import integer

        return replace(setup, games=self.recalibrate, seed=integer(setup.seed, "recalibration"))

    def _fit(self, course: PlayedGames) -> Recalibration | None:
        """None if too few steps count, which the calibration explains."""
        from c2d.evaluation.recalibration import fit

        assert course.log is not None
        sample = course.log.sample()
        return fit(sample) if len(set(sample.game.tolist())) > 1 else None

    def play_networks(
        self, subjects: list[LoadedRun], setup: PlaySettings
    ) -> tuple[LoadedRun, PlayedGames, dict[str, Any]]:
        """Play and calibrate each network, print the table; returns the newest, its games, and the record."""
        from c2d.evaluation.calibration import network_lines, network_row, over_networks

        rows: list[NetworkRow] = []
        corrected: list[NetworkRow] = []
        played: list[dict[str, Any]] = []
        result: Calibration | None = None
        for subject in subjects:
            if not subject.agent.finite():
                self.reject_diverged()
            course = self.play(subject, setup)
            result = _calibration(course, noted=bool(rows))
            rows.append(network_row(f"{subject.steps:,}", course.scores, result))
            played.append({"steps": subject.steps, "scores": course.scores, **asdict(rows[-1])})
            if self._correction is not None and result is not None:
                corrected.append(network_row(rows[-1].name, course.scores, self._corrected(course)))
                played[-1] |= {"recalibration": asdict(self._correction), "recalibrated": asdict(corrected[-1])}
        self._say_what_is_predicted(subjects[-1])
        print("\n".join(network_lines(rows, setup.games)))
        statistics = {row.name: asdict(row) for row in over_networks(rows)}
        if corrected:
            print(f"laws of each corrected by what came of {self.recalibrate} other games:")
            print("\n".join(network_lines(corrected, setup.games)[1:]))
            statistics |= {f"recalibrated {row.name}": asdict(row) for row in over_networks(corrected)}
        calibration = None if result is None else asdict(result)
        return subjects[-1], course, {"calibration": calibration, "nets": {"each": played, **statistics}}

    def _rival(self, subject: LoadedRun) -> Criterion:
        from c2d.evaluation.risk import MEAN
        from c2d.recipes.parts import Scalar

        if self.risk is None:
            return MEAN
        if self.risk == MEAN:
            print("note: agents play by the mean anyway; there is nothing to compare")
            return MEAN
        if isinstance(subject.config.recipe.head, Scalar):
            print(f"note: recipe {subject.config.recipe_name} has one atom, where {self.risk} chooses as the mean does")
            return MEAN
        return self.risk

    def _course(
        self,
        subject: LoadedRun,
        setup: PlaySettings,
        by: Criterion,
        rival: Criterion,
        log: PredictionLog | None,
        recorded: bool,
    ) -> PlayedGames:
        from c2d.evaluation.play import play

        make_env: MakeEnv = subject.make_env
        if recorded and self.video is not None:
            make_env = self.video.record_first(make_env)
        with progress(setup.games) as watch:
            return play(subject.agent, make_env, setup, by, rival, log, watch)

    def report(self, subject: LoadedRun) -> dict[str, Any]:
        """Print the results, and return them for the record."""
        from c2d.evaluation.risk import tradeoff, tradeoff_lines

        record: dict[str, Any] = {}
        if len(self._courses) > 1 or self.calibration:
            self._say_what_is_predicted(subject)
        if len(self._courses) > 1:
            result = tradeoff(self._courses[0], self._courses[1])
            print("\n".join(tradeoff_lines(result)))
            record["risk"] = result.to_json(self._courses[1])
        if self.calibration:
            record["calibration"] = self._calibrate()
        if self._correction is not None and self._result is not None:
            from c2d.evaluation.calibration import calibration_lines

            corrected = self._corrected(self._courses[0])
            print(f"laws corrected by what came of {self.recalibrate} other games: {self._correction.line()}")
            print("\n".join(calibration_lines(corrected)))
            record["recalibration"] = {**asdict(self._correction), "games": self.recalibrate}
            record["recalibrated"] = asdict(corrected)
        if self.video is not None:
            video = self.video
            length = f"{video.frames / video.rate:.1f} s at {video.rate:g} frames per second"
            print(f"video: {video.path}, {length}, a game with score {video.score:g}")
            record["video"] = {"path": str(video.path), "pictures": video.frames, "rate": video.rate}
        return record

    def _say_what_is_predicted(self, subject: LoadedRun) -> None:
        print(subject.prediction)
        if self._epsilon > 0.01:
            print(f"note: predictions assume greedy play, but these games had random actions, ε {self._epsilon:g}")

    def _calibrate(self) -> dict[str, Any] | None:
        from c2d.evaluation.calibration import calibration_lines

        self._result = _calibration(self._courses[0])
        if self._result is None:
            return None
        print("\n".join(calibration_lines(self._result)))
        return asdict(self._result)

    def _corrected(self, course: PlayedGames) -> Calibration:
        from c2d.evaluation.calibration import calibrate

        assert course.log is not None and self._correction is not None
        return calibrate(self._correction.sample(course.log.sample()))

    def reject_diverged(self) -> None:
        """Any network plays for a score, but only finite weights give return distributions."""
        if self.calibration or self.risk is not None:
            raise UserError("--calibration and --risk need finite predictions, and this network's are not")

    def plot(self, subject: LoadedRun, path: Path) -> None:
        """Write the figure of the calibration, next to the scores at `path` unless --plot names a file."""
        if self._result is None:
            return
        from c2d.evaluation.calibration import calibration_figure

        if self.figure is None and not can_draw():
            print("no figure of the calibration: it needs matplotlib, pip install 'c2d[report]'")
            return
        figure = self.figure or path.with_suffix(".svg")
        title = f"{subject.config.recipe_name} on {subject.env}"
        calibration_figure(self._result, figure, title)
        print(f"figure: {figure}")


def _calibration(course: PlayedGames, noted: bool = False) -> Calibration | None:
    """Prints why there is none, or what to know about it, unless that was `noted` before."""
    from c2d.evaluation.calibration import calibrate

    log = course.log
    assert log is not None
    sample, note = log.sample(), None
    if not len(sample.realized):
        note = (
            f"calibration: none. A game was cut after {sample.cut_after:,} steps, but returns reach further "
            f"(γ {log.gamma:g}): raise --rules.cap-steps of the run, or its environment's limit"
        )
    elif sample.returns.shape[-1] == 1:
        note = "note: one atom has no spread: its intervals cover nothing, and its CRPS is |error|"
    if note is not None and not noted:
        print(note)
    return calibrate(sample) if len(sample.realized) else None
