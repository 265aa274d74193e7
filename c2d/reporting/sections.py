"""The sections of a report.

On Atari: the paper's figures and table, and more. On environments without published agents or human scores: raw
scores, your agents against each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from c2d.plotting import drawing
from c2d.reporting import report_figures
from c2d.reporting.analysis import (
    CURVE_SOURCES,
    Analysis,
    Band,
    IntervalEstimate,
    ScoringOptions,
    align_environment,
    smoothing_window,
)
from c2d.reporting.page import (
    Section,
    Table,
    aggregate_table,
    difference_table,
    estimate_json,
    game_title,
    improvement_table,
    overview,
    rank_table,
    score_table,
)
from c2d.reporting.published import mean_curves
from c2d.reporting.report_figures import files
from c2d.reporting.scores import CHECKPOINTS, COMMON, NOMINAL, Dataset, frame_count

PAPER_GAMES = ("centipede", "demonattack", "doubledunk", "tennis")  # images/strongweak.svg of github.com/bjliaa/c2d
# in one line: how to get what the package has no permission to contain
CURVES = "`git clone --depth 1 https://github.com/bjliaa/c2d`, then `--published c2d/data` (docs/reports.md)"
SMOOTHING = 5.0  # millions of frames: learning curves are smoothed as in the paper, whatever the convention
_BAND = "Bands are pointwise 95 % intervals (stratified bootstrap over runs)."


@dataclass(frozen=True)
class SectionOptions:
    """What the user can choose."""

    games: tuple[str, ...] = PAPER_GAMES  # shown in detail
    against: tuple[str, ...] = ()  # agents for the differences per game
    other_rules: tuple[str, ...] = ()  # published agents scored under rules that differ from your runs'


class SectionBuilder:
    """Builds the sections of one analysis and collects their numbers."""

    def __init__(self, analysis: Analysis, options: SectionOptions) -> None:
        self.analysis, self.options = analysis, options
        self.numbers: dict[str, Any] = {}
        self.titles = {game: game_title(game) for game in analysis.games}
        own = [agent for agent in analysis.agents if agent in analysis.dataset.own]
        self.subjects = own or [agent for agent in ("C2D",) if agent in analysis.agents]
        dataset = analysis.dataset
        lengths = [run.length for agent in own for game in analysis.games for run in dataset.runs_of(agent, game)]
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

    # -------------------------------------------------------------------------------------- figures of the paper

    def _aggregates(self) -> Section:
        analysis = self.analysis
        self.numbers["aggregates"] = {
            agent: {name: estimate_json(estimate) for name, estimate in estimates.items()}
            for agent, estimates in analysis.aggregates.items()
        }
        lone = [agent for agent, estimates in analysis.aggregates.items() if estimates["iqm"].interval is None]
        without = f" No interval: {', '.join(lone)} (a game has only one run)." if lone else ""
        return Section(
            "aggregates",
            f"Aggregate metrics at {frame_count(analysis.frames)} frames",
            f"Human-normalized scores over {_games(len(analysis.games))} at {frame_count(analysis.frames)} frames. "
            "Bars are 95 % intervals (stratified bootstrap over runs, "
            f"{analysis.scoring.replications:,} replications); "
            f"lines are estimates. Optimality gap: mean shortfall below the human score; lower is better.{without}",
            files(report_figures.aggregates(analysis)),
            (aggregate_table(analysis), overview(analysis, self.options.other_rules)),
        )

    def _profile(self) -> Section:
        analysis = self.analysis
        progress = analysis.progress["iqm"]
        self.numbers["profile"] = {agent: _band(band) for agent, band in analysis.profiles.items()}
        self.numbers["iqm_over_training"] = {agent: _band(band) for agent, band in progress.items()}
        return Section(
            "profile",
            "Performance profile, and IQM over training",
            f"Left: fraction of runs whose human-normalized score at {frame_count(analysis.frames)} frames exceeds τ "
            f"(τ = 1: the human tester). Right: interquartile mean over training. {_BAND}{self._sparse()}",
            files(report_figures.profile_and_progress(analysis, progress)),
            missing=self._lacking(progress),
        )

    def _efficiency(self) -> Section:
        analysis = self.analysis
        progress = {name: analysis.progress[name] for name in ("mean", "median")}
        for name, bands in progress.items():
            self.numbers[f"{name}_over_training"] = {agent: _band(band) for agent, band in bands.items()}
        return Section(
            "efficiency",
            "Sample efficiency: mean and median",
            f"Mean and median of human-normalized scores over {_games(len(analysis.games))}, during training. "
            f"{_BAND}{self._sparse()}",
            files(report_figures.efficiency(analysis, progress)),
            missing=self._lacking(progress["mean"]),
        )

    def _close_up(self) -> Iterator[Section]:
        games = tuple(game for game in self.options.games if game in self.analysis.games) or self.analysis.games[:4]
        if set(games) != set(self.analysis.games):  # otherwise the section of all games shows them
            yield self._panels("close-up", f"{_games(len(games)).capitalize()} in detail", games)

    def _curves(self) -> Section:
        return self._panels("curves", f"Learning curves: {_games(len(self.analysis.games))}", self.analysis.games)

    def _panels(self, name: str, title: str, games: Sequence[str]) -> Section:
        whole, known = self._with_curves(games), self.analysis.agents
        means = {key: run for key, run in mean_curves().items() if key[0] in known and key[0] not in whole}
        averaged = [agent for agent in known if any((agent, game) in means for game in games)]
        pointed = [agent for agent in known if agent not in whole + averaged and self._has_points(agent, games)]
        agents = [agent for agent in known if agent in whole + averaged + pointed]
        absent = [agent for agent in known if agent not in agents]
        if not agents:
            return Section(name, title, "", missing=f"Not drawn: there are no curves of these games. {CURVE_SOURCES}.")
        figure = report_figures.learning_curves(
            self.analysis.dataset, agents, games, self.last, SMOOTHING, self.titles, means=means, pointed=pointed
        )
        lacks = [f"No curves of {', '.join(absent)}: only their tables are available."] if absent else []
        lacks += [f"{', '.join(averaged)}: bundled means over five seeds, without bands."] if averaged else []
        lacks += [f"{', '.join(pointed)}: bundled scores at a few points, with the range of seeds."] if pointed else []
        return Section(
            name,
            title,
            f"Mean score of complete training episodes, moving averages over {SMOOTHING:g}M frames. Lines are means "
            "over seeds, bands the range from the lowest to the highest seed.",
            files(figure),
            missing=" ".join([*lacks, f"For all curves: {CURVES}."]) if lacks else "",
        )

    def _supports(self) -> Section:
        dataset, games = self.analysis.dataset, self.analysis.games
        agents = [
            a for a in self.analysis.agents if any(run.atom_ends.size for g in games for run in dataset.runs_of(a, g))
        ]
        agents = [a for a in agents if a == "C2D" or a in dataset.own]
        name, title = "supports", "Evolution of the maximal support"
        shown = [g for g in games if any(run.atom_ends.size for a in agents for run in dataset.runs_of(a, g))]
        if not shown or (not dataset.own and not dataset.has_curves):
            missing = (
                "Not drawn: it needs the smallest and largest atom of every iteration, which their authors have "
                f"published without a license: {CURVES}."
            )
            return Section(name, title, "", missing=missing)
        return Section(
            name,
            title,
            "Largest and smallest atom predicted for a sampled action in any training batch of an iteration, in "
            "φ-space; means over seeds. They are a lower bound on the support ±α.",
            files(report_figures.supports(dataset, agents, shown, self.last, self.titles)),
        )

    def _scores(self) -> Iterator[Section]:
        analysis = self.analysis
        points = tuple(at for at in CHECKPOINTS if min(at, COMMON) <= self.last) or (analysis.frames,)
        if analysis.frames not in points and analysis.frames < points[-1]:
            points = tuple(sorted({*points, analysis.frames}))
        score_tables = tuple(
            score_table(analysis, agent, points, "scores" if agent == "C2D" else f"scores-{place}")
            for place, agent in enumerate(analysis.agents)
        )
        first = [table for table, agent in zip(score_tables, analysis.agents, strict=True) if agent in self.subjects]
        yield Section(
            "scores",
            f"Scores{' of ' * bool(self.subjects)}{', '.join(self.subjects)} over training",
            f"Raw scores: mean over seeds and one standard deviation (n − 1), {analysis.scoring.convention.words}. "
            "The tables of all agents are in `tables/scores*.csv`.",
            tables=tuple(first),
        )
        others = tuple(table for table in score_tables if table not in first)
        yield Section("scores-others", "Scores of the other agents", "As above.", tables=others)

    # ------------------------------------------------------------------------------------------------ beyond the paper

    def pairs(self) -> list[tuple[str, str]]:
        agents = self.analysis.agents
        rivals = [(one, other) for one in self.subjects for other in agents if other not in self.subjects]
        return rivals + [(a, b) for place, a in enumerate(self.subjects) for b in self.subjects[place + 1 :]]

    def _improvement(self) -> Iterator[Section]:
        rows: list[tuple[str, str, IntervalEstimate]] = [
            (a, b, self.analysis.improvement(a, b)) for a, b in self.pairs()
        ]
        if not rows:
            return
        self.numbers["probability_of_improvement"] = [
            {"first": a, "second": b, **estimate_json(estimate)} for a, b, estimate in rows
        ]
        yield Section(
            "improvement",
            "Probability of improvement",
            "Probability that a run of the first agent scores higher than a run of the second on a game drawn at "
            "random; a tie counts as half. Bars are 95 % intervals.",
            files(report_figures.improvement(rows, self.analysis.agents)),
            (improvement_table(rows),),
        )

    def _differences(self) -> Iterator[Section]:
        rivals = self.options.against or (("C2D", "IQN") if self.analysis.dataset.own else ("IQN", "Rainbow", "C51"))
        differences: dict[str, Any] = {}
        for ours in self.subjects:
            for theirs in rivals:
                if theirs in self.analysis.agents and theirs != ours:
                    gaps = self.analysis.differences(ours, theirs)
                    differences[f"{ours} - {theirs}"] = {game: estimate_json(gap) for game, gap in gaps.items()}
                    name = f"difference-{len(differences)}"
                    yield Section(
                        name,
                        f"{ours} minus {theirs}, game by game",
                        f"Difference of mean human-normalized scores at {frame_count(self.analysis.frames)} frames, "
                        "colored by who is ahead; thin lines are 95 % intervals. Linear scale up to ±1, "
                        "logarithmic beyond.",
                        files(report_figures.differences(gaps, ours, theirs, self.titles)),
                        (difference_table(gaps, ours, theirs, name),),
                    )
        self.numbers["differences"] = differences

    def _ranks(self) -> Section:
        table = rank_table(self.analysis)
        self.numbers["ranks"] = {agent: {"mean": self.analysis.mean_rank(agent)} for agent in self.analysis.agents}
        return Section("ranks", "Ranks", table.caption, tables=(table,))

    # ------------------------------------------------------------------------------------------------ missing parts

    def _with_curves(self, games: Sequence[str]) -> list[str]:
        dataset = self.analysis.dataset
        return [
            a
            for a in self.analysis.agents
            if any(run.length >= self.last * 0.9 for g in games for run in dataset.runs_of(a, g))
        ]

    def _has_points(self, agent: str, games: Sequence[str]) -> bool:
        runs = [run for game in games for run in self.analysis.dataset.runs_of(agent, game)]
        return any(width == SMOOTHING and end <= self.last + 1e-6 for run in runs for width, end in run.points)

    def _sparse(self) -> str:
        known = self.analysis.dataset.has_curves or not self.analysis.dataset.published
        return "" if known else " Points come from the bundled table; complete curves need --published."

    def _lacking(self, progress: dict[str, Band]) -> str:
        absent = [agent for agent in self.analysis.agents if agent not in progress]
        lone = all(len(band.at) < 2 for band in progress.values())
        if absent:
            return f"Progress over training is missing for {', '.join(absent)}. {CURVE_SOURCES}."
        return "The runs are too short for a curve: there is only one point." if lone else ""


def _games(count: int) -> str:
    return "one game" if count == 1 else f"{count} games"


def _band(band: Band) -> dict[str, Any]:
    record: dict[str, Any] = {"at": np.asarray(band.at).tolist(), "line": band.line.tolist()}
    if band.low is not None and band.high is not None:
        record |= {"low": band.low.tolist(), "high": band.high.tolist()}
    return record


# ----------------------------------------------------------------------------------------- other environments


def other_sections(
    dataset: Dataset, scoring: ScoringOptions, numbers: dict[str, Any], notes: list[str]
) -> list[Section]:
    """Learning curves of all your agents, then scores on each environment."""
    games = dataset.other_games
    if not games:
        return []
    runs = {key: run for key, run in dataset.runs.items() if key.agent in dataset.own}
    own = replace(dataset, runs=runs, agents=dataset.own)
    agents = tuple(agent for agent in dataset.own if set(own.games_of(agent)) & set(games))
    longest = max(run.length for agent in agents for game in games for run in own.runs_of(agent, game))
    windows = {game: _curve_window(own, game, scoring) for game in games}
    with drawing():
        sections = [_curves(own, agents, games, longest, windows)]
        for number, game in enumerate(games, 1):
            analysis = align_environment(own, game, scoring, notes)
            sections += [] if analysis is None else [_environment(analysis, game, number, numbers, windows[game])]
    return sections


def _curve_window(dataset: Dataset, game: str, scoring: ScoringOptions) -> float:
    """A twentieth of the longest run on an environment, at least one iteration of each."""
    longest = max(run.length for agent in dataset.agents for run in dataset.runs_of(agent, game))
    return smoothing_window(dataset, (game,), min(scoring.convention.window, longest / 20))


def _curves(
    dataset: Dataset, agents: Sequence[str], games: Sequence[str], last: float, windows: dict[str, float]
) -> Section:
    figure = report_figures.learning_curves(dataset, agents, games, last, windows, {}, own_ends=True)
    alike = len(set(windows.values())) == 1
    over = [f"{window * 1e6:,.0f} frames{'' if alike else f' ({game})'}" for game, window in windows.items()]
    return Section(
        "curves-elsewhere",
        "Learning curves on other environments",
        f"Mean score of complete training episodes, moving averages over {', '.join(dict.fromkeys(over))}. Lines are "
        "means over seeds, bands the range from the lowest to the highest seed; each panel ends with its longest run. "
        "There are no published agents here.",
        files(figure),
    )


def _environment(analysis: Analysis, game: str, number: int, numbers: dict[str, Any], of_curves: float) -> Section:
    """Your agents on one environment, at the frames that all runs have reached. `of_curves`: their window."""
    rows, data = [], []
    for agent in analysis.agents:
        values = analysis.raw(agent, analysis.frames)[:, 0]
        spread = float(values.std(ddof=1)) if len(values) > 1 else None
        rows.append((agent, f"{values.mean():.2f}", "–" if spread is None else f"{spread:.2f}", str(len(values))))
        data.append((agent, float(values.mean()), spread, len(values)))
    where = f"{game} at {analysis.frames * 1e6:,.0f} frames"
    window = analysis.scoring.convention.window
    unlike = f", which the curves average over {of_curves * 1e6:,.0f}" if not math.isclose(window, of_curves) else ""
    table = Table(
        f"scores-elsewhere-{number}",
        f"Raw scores on {where}, averaged over the last {window * 1e6:,.0f}{unlike}: mean and standard deviation "
        "(n − 1) over seeds.",
        ("agent", "mean", "std", "seeds"),
        tuple(rows),
        ("agent", "mean", "std", "seeds"),
        tuple(data),
    )
    pairs = [
        (one, other, analysis.improvement(one, other))
        for place, one in enumerate(analysis.agents)
        for other in analysis.agents[place + 1 :]
    ]
    numbers.setdefault("elsewhere", {})[game] = {
        "frames": round(analysis.frames * 1e6),
        "scores": {row[0]: {"mean": row[1], "std": row[2], "seeds": row[3]} for row in data},
        "probability_of_improvement": [{"first": a, "second": b, **estimate_json(p)} for a, b, p in pairs],
    }
    caption = table.caption
    if pairs:
        caption = (
            f"{caption} The figure shows the probability that a run of the first agent scores higher than a run of the "
            "second; bars are 95 % intervals. With one seed each there is no interval: the figure shows only which run "
            "is ahead."
        )
    figure = files(report_figures.improvement(pairs, analysis.agents)) if pairs else {}
    return Section(f"elsewhere-{number}", f"Scores on {where}", caption, figure, (table,), _left_out(analysis, game))


def _left_out(analysis: Analysis, game: str) -> str:
    """Your agents that have runs on an environment, but are not in its table."""
    dataset = analysis.dataset
    absent = {agent: dataset.runs_of(agent, game) for agent in dataset.own if agent not in analysis.agents}
    named = [f"{agent} ({max(run.length for run in runs) * 1e6:,.0f} frames)" for agent, runs in absent.items() if runs]
    return f"Without a score at this point: {', '.join(named)}. `--at` chooses another." if named else ""
