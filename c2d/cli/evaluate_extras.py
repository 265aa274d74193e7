"""What `c2d evaluate` does beside scores: another criterion, calibration, a film."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from c2d.errors import UserError
from c2d.evaluation import calibration, calibration_report, tradeoff
from c2d.evaluation.play import MakeEnv, PlayedGames, PlaySettings, play
from c2d.evaluation.prediction_log import PredictionLog
from c2d.evaluation.risk import MEAN, Criterion, criterion
from c2d.evaluation.video import Film, check_video
from c2d.plotting import can_draw, check_picture
from c2d.recipes.parts import Munchausen, Scalar

if TYPE_CHECKING:
    from c2d.cli.evaluate import Evaluate
    from c2d.evaluation.subject import Subject


class Extras:
    """Asked for on the command line; refused here, before anything is played, if they cannot be had."""

    def __init__(self, chosen: Evaluate) -> None:
        self.risk = None if chosen.risk is None else criterion(chosen.risk)
        if self.risk is not None and chosen.games < 2:
            raise UserError("--risk compares the spread of scores: give --games 2 or more")
        self.calibration, self.picture = chosen.calibration, None if chosen.plot is None else Path(chosen.plot)
        if self.picture is not None:
            if not chosen.calibration:
                raise UserError("--plot is the picture of --calibration, which is not asked for")
            check_picture(self.picture, "--plot")
        if chosen.video_seconds is not None and chosen.video is None:
            raise UserError("--video-seconds limits --video, which is not asked for")
        if chosen.video_seconds is not None and not chosen.video_seconds > 0:
            raise UserError(f"--video-seconds is {chosen.video_seconds:g}; accepted: above 0")
        self.film = None
        if chosen.video is not None:
            check_video(Path(chosen.video))
            self.film = Film(Path(chosen.video), chosen.video_seconds)
            os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # environments that draw with SDL need no screen here
        self._epsilon = 0.0
        self._found: calibration.Calibration | None = None
        self._courses: list[PlayedGames] = []

    def play(self, subject: Subject, setup: PlaySettings) -> PlayedGames:
        """The games by the mean, and by the criterion if there is another. Returns the former."""
        self._epsilon = setup.epsilon
        recipe = subject.config.recipe
        rival = self._rival(subject)
        log = None
        if self.calibration:
            log = PredictionLog(recipe.schedule.gamma, recipe.clip_reward, subject.config.rules.truncation)
        try:
            self._courses = [self._course(subject, setup, MEAN, rival, log, filmed=rival == MEAN)]
            if rival != MEAN:
                self._courses.append(self._course(subject, setup, rival, MEAN, None, filmed=True))
        finally:
            if self.film is not None:
                self.film.abandon()  # unless it was finished
        return self._courses[0]

    def _rival(self, subject: Subject) -> Criterion:
        if self.risk is None:
            return MEAN
        if self.risk == MEAN:
            print("note: by the mean agents play anyway; there is nothing to compare")
            return MEAN
        if isinstance(subject.config.recipe.head, Scalar):
            print(f"note: recipe {subject.config.recipe_name} has one atom, where {self.risk} chooses as the mean does")
            return MEAN
        return self.risk

    def _course(
        self,
        subject: Subject,
        setup: PlaySettings,
        by: Criterion,
        rival: Criterion,
        log: PredictionLog | None,
        filmed: bool,
    ) -> PlayedGames:
        from c2d.cli.evaluate import progress

        make_env: MakeEnv = subject.make_env
        if filmed and self.film is not None:
            make_env = self.film.of_first(make_env)
        with progress(setup.games) as watch:
            return play(subject.agent, make_env, setup, by, rival, log, watch)

    def report(self, subject: Subject) -> dict[str, Any]:
        """Prints what was found, and returns it for the record."""
        record: dict[str, Any] = {}
        if len(self._courses) > 1 or self.calibration:
            print(_of_what(subject))
            if self._epsilon > 0.01:
                print(f"note: the laws assume greedy play, and these games had random actions, ε {self._epsilon:g}")
        if len(self._courses) > 1:
            found = tradeoff.compare(self._courses[0], self._courses[1])
            print("\n".join(tradeoff.lines(found)))
            record["risk"] = found.to_json(self._courses[1])
        if self.calibration:
            record["calibration"] = self._calibrate()
        if self.film is not None:
            film = self.film
            ended = f"a game of score {film.score:g}"
            print(f"filmed: {film.path}, {film.pictures / film.rate:.1f} s at {film.rate:g} pictures a second, {ended}")
            record["video"] = {"path": str(film.path), "pictures": film.pictures, "rate": film.rate}
        return record

    def _calibrate(self) -> dict[str, Any] | None:
        log = self._courses[0].log
        assert log is not None
        sample = log.sample()
        if not len(sample.realized):
            print(
                f"calibration: none. A game was cut after {sample.cut_after:,} steps, and returns look further ahead "
                f"(γ {log.gamma:g}): raise --rules.cap-steps of the run or its environment's limit"
            )
            return None
        if sample.returns.shape[-1] == 1:
            print("note: one atom is a point without spread: its intervals can cover nothing, its CRPS is |error|")
        self._found = calibration.calibrate(sample)
        print("\n".join(calibration_report.lines(self._found)))
        return asdict(self._found)

    def refuse_diverged(self) -> None:
        """Scores can be had of any network, laws only of one that has numbers."""
        if self.calibration or self.risk is not None:
            raise UserError("--calibration and --risk need predicted laws, and this network's are not finite")

    def plot(self, subject: Subject, path: Path) -> None:
        """The picture of the calibration, beside the scores at `path` unless it has a name of its own."""
        if self._found is None:
            return
        if self.picture is None and not can_draw():
            print("no picture of the calibration: it needs matplotlib, pip install 'c2d[report]'")
            return
        picture = self.picture or path.with_suffix(".svg")
        title = f"{subject.config.recipe_name} on {subject.env}"
        calibration_report.plot(self._found, picture, title)
        print(f"picture: {picture}")


def _of_what(subject: Subject) -> str:
    """What the laws are of."""
    recipe = subject.config.recipe
    clipped = "" if recipe.clip_reward is None else f" clipped to ±{recipe.clip_reward:g}"
    text = (
        f"laws are of the discounted return (γ {recipe.schedule.gamma:g}) in real rewards{clipped}, "
        "of an action followed by greedy play by the mean"
    )
    if getattr(subject.config.rules, "life_loss_ends_episode", False):
        text += ", to the end of a life"
    if isinstance(recipe.bootstrap, Munchausen):
        text += "; those of Munchausen agents also hold its bonus for likely actions"
    return text
