"""The sections of a report on Atari games: the paper's figures and table, and what goes beyond them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from c2d.drawing import drawing
from c2d.reporting import measures
from c2d.reporting.conventions import CHECKPOINTS, COMMON, NOMINAL
from c2d.reporting.figures import panels, summary
from c2d.reporting.figures.style import files
from c2d.reporting.matching import WHERE
from c2d.reporting.page import Section
from c2d.reporting.study import Band, Estimate, Study

PAPER_GAMES = ("centipede", "demonattack", "doubledunk", "tennis")  # images/strongweak.svg of github.com/bjliaa/c2d
SMOOTHING = 5.0  # millions of frames, of learning curves with either convention, as in the paper
_BAND = "Bands are pointwise 95 % intervals of a stratified bootstrap over runs."


@dataclass(frozen=True)
class Wishes:
    """What the user may choose about the sections."""

    games: tuple[str, ...] = PAPER_GAMES  # of the close-up
    against: tuple[str, ...] = ()  # rivals of the bars of difference
    unlike: tuple[str, ...] = ()  # published agents scored under rules other than the own runs'


class Sections:
    """Builds the sections of one study, and collects their numbers."""

    def __init__(self, study: Study, wishes: Wishes) -> None:
        self.study, self.wishes = study, wishes
        self.numbers: dict[str, Any] = {}
        self.titles = {game: measures.game_title(game) for game in study.games}
        own = [agent for agent in study.agents if agent in study.field.own]
        self.subjects = own or [agent for agent in ("C2D",) if agent in study.agents]
        lengths = [run.length for agent in own for game in study.games for run in study.field.of(agent, game)]
        self.last = min(max(lengths), NOMINAL) if lengths else COMMON

    def build(self) -> list[Section]:
        with drawing():
            return [
                self._aggregates(),
                self._profile(),
                self._efficiency(),
                *self._close_up(),
                *self._improvement(),
                *self._differences(),
                self._ranks(),
                *self._scores(),
                self._curves(),
                self._supports(),
            ]

    # ------------------------------------------------------------------------------------------------ the paper's

    def _aggregates(self) -> Section:
        study = self.study
        self.numbers["aggregates"] = {
            agent: {name: measures.plain(estimate) for name, estimate in found.items()}
            for agent, found in study.aggregates.items()
        }
        lone = [agent for agent, found in study.aggregates.items() if found["iqm"].interval is None]
        without = f" No interval: {', '.join(lone)} (a game has one run only)." if lone else ""
        return Section(
            "aggregates",
            f"Aggregate metrics at {study.frames:g}M frames",
            f"Human-normalized scores over {_games(len(study.games))} at {study.frames:g}M frames. Bars are 95 % "
            "intervals of "
            f"a stratified bootstrap over runs ({study.choice.replications:,} replications); the line is the estimate. "
            f"Optimality gap: how far scores stay below human ones on average, less is better.{without}",
            files(summary.aggregates(study)),
            (measures.aggregate_table(study), measures.overview(study, self.wishes.unlike)),
        )

    def _profile(self) -> Section:
        study = self.study
        progress = study.progress["iqm"]
        self.numbers["profile"] = {agent: _band(band) for agent, band in study.profiles.items()}
        self.numbers["iqm_over_training"] = {agent: _band(band) for agent, band in progress.items()}
        return Section(
            "profile",
            "Performance profile, and IQM over training",
            f"Left: fraction of runs whose human-normalized score at {study.frames:g}M frames exceeds τ; at τ = "
            "1, of those "
            f"better than the human tester. Right: interquartile mean over training. {_BAND}{self._sparse()}",
            files(summary.profile_and_progress(study, progress)),
            missing=self._lacking(progress),
        )

    def _efficiency(self) -> Section:
        study = self.study
        progress = {name: study.progress[name] for name in ("mean", "median")}
        for name, found in progress.items():
            self.numbers[f"{name}_over_training"] = {agent: _band(band) for agent, band in found.items()}
        return Section(
            "efficiency",
            "Sample efficiency: mean and median",
            f"Mean and median over {_games(len(study.games))} of human-normalized scores over training. "
            f"{_BAND}{self._sparse()}",
            files(summary.efficiency(study, progress)),
            missing=self._lacking(progress["mean"]),
        )

    def _close_up(self) -> Iterator[Section]:
        games = tuple(game for game in self.wishes.games if game in self.study.games) or self.study.games[:4]
        if set(games) != set(self.study.games):  # else the section of all games shows them
            yield self._panels("close-up", f"{_games(len(games)).capitalize()} in detail", games)

    def _curves(self) -> Section:
        return self._panels("curves", f"Learning curves: {_games(len(self.study.games))}", self.study.games)

    def _panels(self, name: str, title: str, games: Sequence[str]) -> Section:
        agents = self._with_curves(games)
        absent = [agent for agent in self.study.agents if agent not in agents]
        if not agents:
            return Section(name, title, "", missing=f"Not drawn: there are no curves of these games here. {WHERE}.")
        figure = panels.learning_curves(self.study.field, agents, games, self.last, SMOOTHING, self.titles)
        return Section(
            name,
            title,
            f"Mean training score of whole games, moving averages over {SMOOTHING:g}M frames. Lines are means over "
            "seeds, bands the range from the lowest to the highest seed.",
            files(figure),
            missing=f"Without curves of {', '.join(absent)}: only tables of these are here. {WHERE}." if absent else "",
        )

    def _supports(self) -> Section:
        field, games = self.study.field, self.study.games
        agents = [a for a in self.study.agents if any(run.atom_ends.size for g in games for run in field.of(a, g))]
        agents = [a for a in agents if a == "C2D" or a in field.own]
        name, title = "supports", "Evolution of the maximal support"
        shown = [g for g in games if any(run.atom_ends.size for a in agents for run in field.of(a, g))]
        if not shown or (not field.own and not field.has_curves):
            missing = (
                "Not drawn: it needs the smallest and largest atom of every iteration, which are in data/supplementary "
                "of github.com/bjliaa/c2d, or in supports.csv.gz: name the directory with --published "
                "(docs/reports.md)."
            )
            return Section(name, title, "", missing=missing)
        return Section(
            name,
            title,
            "Largest and smallest atom predicted for a sampled action in any training batch of an iteration, in "
            "φ-space; "
            "means over seeds. It bounds from below what the support ±α must reach.",
            files(panels.supports(field, agents, shown, self.last, self.titles)),
        )

    def _scores(self) -> Iterator[Section]:
        study = self.study
        points = tuple(at for at in CHECKPOINTS if min(at, COMMON) <= self.last) or (study.frames,)
        if study.frames not in points and study.frames < points[-1]:
            points = tuple(sorted({*points, study.frames}))
        tables = tuple(
            measures.score_table(study, agent, points, "scores" if agent == "C2D" else f"scores-{place}")
            for place, agent in enumerate(study.agents)
        )
        first = [table for table, agent in zip(tables, study.agents, strict=True) if agent in self.subjects]
        yield Section(
            "scores",
            f"Scores{' of ' * bool(self.subjects)}{', '.join(self.subjects)} over training",
            f"Raw scores: mean over seeds and one standard deviation (n − 1), {study.choice.convention.words}. "
            "The same table of every agent is in `tables/scores*.csv`.",
            tables=tuple(first),
        )
        yield Section(
            "scores-others", "Scores of the other agents", "As above.", tables=tuple(set_aside(tables, first))
        )

    # ------------------------------------------------------------------------------------------------ beyond it

    def pairs(self) -> list[tuple[str, str]]:
        agents = self.study.agents
        found = [(one, other) for one in self.subjects for other in agents if other not in self.subjects]
        return found + [(a, b) for place, a in enumerate(self.subjects) for b in self.subjects[place + 1 :]]

    def _improvement(self) -> Iterator[Section]:
        rows: list[tuple[str, str, Estimate]] = [(a, b, self.study.improvement(a, b)) for a, b in self.pairs()]
        if not rows:
            return
        self.numbers["probability_of_improvement"] = [
            {"first": a, "second": b, **measures.plain(estimate)} for a, b, estimate in rows
        ]
        yield Section(
            "improvement",
            "Probability of improvement",
            "How likely a run of the first agent scores more than one of the second on a game drawn at random; a "
            "tie counts "
            "half. Bars are 95 % intervals.",
            files(summary.improvement(rows, self.study.agents)),
            (measures.improvement_table(rows),),
        )

    def _differences(self) -> Iterator[Section]:
        rivals = self.wishes.against or (("C2D", "IQN") if self.study.field.own else ("IQN", "Rainbow", "C51"))
        found: dict[str, Any] = {}
        for ours in self.subjects:
            for theirs in rivals:
                if theirs in self.study.agents and theirs != ours:
                    gaps = self.study.differences(ours, theirs)
                    found[f"{ours} - {theirs}"] = {game: measures.plain(gap) for game, gap in gaps.items()}
                    name = f"difference-{len(found)}"
                    yield Section(
                        name,
                        f"{ours} minus {theirs}, game by game",
                        f"Difference of mean human-normalized scores at {self.study.frames:g}M frames, colored by "
                        "who is ahead; thin lines are 95 % intervals. Linear scale up to ±1, logarithmic beyond.",
                        files(summary.differences(gaps, ours, theirs, self.titles)),
                        (measures.difference_table(gaps, ours, theirs, name),),
                    )
        self.numbers["differences"] = found

    def _ranks(self) -> Section:
        table = measures.rank_table(self.study)
        self.numbers["ranks"] = {agent: {"mean": self.study.mean_rank(agent)} for agent in self.study.agents}
        return Section("ranks", "Ranks", table.caption, tables=(table,))

    # ------------------------------------------------------------------------------------------------ what is missing

    def _with_curves(self, games: Sequence[str]) -> list[str]:
        field = self.study.field
        return [
            a for a in self.study.agents if any(run.length >= self.last * 0.9 for g in games for run in field.of(a, g))
        ]

    def _sparse(self) -> str:
        known = self.study.field.has_curves or not self.study.field.published
        return "" if known else " Points are those of the project's table; whole curves need --published."

    def _lacking(self, progress: dict[str, Band]) -> str:
        absent = [agent for agent in self.study.agents if agent not in progress]
        lone = all(len(band.at) < 2 for band in progress.values())
        if absent:
            return f"Progress over training lacks {', '.join(absent)}. {WHERE}."
        return "One point is no course: the runs are too short for one." if lone else ""


def set_aside(tables: Sequence[Any], first: Sequence[Any]) -> list[Any]:
    return [table for table in tables if table not in first]


def _games(count: int) -> str:
    return "one game" if count == 1 else f"{count} games"


def _band(band: Band) -> dict[str, Any]:
    found: dict[str, Any] = {"at": np.asarray(band.at).tolist(), "line": band.line.tolist()}
    if band.low is not None and band.high is not None:
        found |= {"low": band.low.tolist(), "high": band.high.tolist()}
    return found
