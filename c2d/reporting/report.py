"""Compares your runs with published agents: as a report with figures and tables, or as text for the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from c2d import __version__
from c2d.envs.games import BENCHMARK, GAMES
from c2d.errors import unknown_name
from c2d.formatting import alphanumeric, plural, text_table
from c2d.reporting.analysis import (
    Alignment,
    Analysis,
    IntervalEstimate,
    ScoringOptions,
    align_atari,
    align_environment,
    gather,
)
from c2d.reporting.local_runs import (
    LocalRun,
    passport_differences,
    passport_spread,
    published_passport,
    read_local_runs,
    recorded_metrics,
)
from c2d.reporting.page import Report, Section, Table, format_estimate, game_title
from c2d.reporting.run_statistics import TITLES, beyond_chance, games_needed, seeds_needed, seeds_of_both
from c2d.reporting.scores import NOMINAL, REFERENCE_TABLES, Dataset, convention, frame_count, reference
from c2d.reporting.sections import PAPER_GAMES, SectionBuilder, SectionOptions, other_sections

_LENGTHS = (
    " Published C2D runs have 200 iterations of 1M frames, the others 199: the score at 200M is taken at the last "
    "iteration that all runs have, or with convention `figures` at the last of each run."
)
_MOST_GAMES = 12  # shown one by one


@dataclass(frozen=True)
class ReportRequest:
    """The options of `c2d report`."""

    runs: tuple[Path, ...] = ()
    published: Path | None = None
    agents: tuple[str, ...] = ()
    games: tuple[str, ...] = ()
    against: tuple[str, ...] = ()
    at: float | None = None
    convention: str = "table"
    references: str | None = None
    replications: int = 10_000
    seed: int = 0
    command: str = ""


def build_report(request: ReportRequest) -> Report:
    chosen = scoring_options(request.convention, request.references, request.replications, request.seed)
    wanted = tuple(map(known_game, request.games))
    own, run_notes = read_local_runs(request.runs) if request.runs else ([], [])
    dataset = gather(own, run_notes, request.published, request.agents)
    numbers: dict[str, Any] = {"settings": _settings(chosen)}
    facts = [f"Made by `{request.command}` (c2d {__version__})."]
    notes = list(dataset.notes)
    sections: list[Section] = []
    aligned = align_atari(dataset, chosen, request.at, notes)
    if aligned is not None:
        notes += rule_notes(own, dataset)
        analysis = aligned.analysis
        close = wanted or (analysis.games[:4] if own else PAPER_GAMES)
        options = SectionOptions(close, _rivals(request.against, dataset), agents_with_other_rules(own, dataset))
        builder = SectionBuilder(analysis, options)
        sections += builder.build()
        numbers |= {"frames_millions": analysis.frames, "games": analysis.games, **builder.numbers}
        facts.append(_fact(chosen, len(analysis.games), analysis.frames))
    sections += other_sections(dataset, chosen, numbers, notes)
    if own:
        sections.append(_recorded(own))
    return Report(_title(dataset), tuple(facts), tuple(dict.fromkeys(notes)), tuple(sections), numbers)


_SHOWN = 12  # pairs of agent and environment, of about 20 metrics each


def _written(value: float, form: str) -> str:
    return "–" if math.isnan(value) else format(value, form)


def _recorded(own: Sequence[LocalRun]) -> Section:
    """What the runs recorded besides scores."""
    rows = recorded_metrics(own)
    kinds = list(dict.fromkeys((row.agent, row.env) for row in rows))
    left = f" Of the first {_SHOWN} of {len(kinds)} pairs of both; recorded.csv has all." if len(kinds) > _SHOWN else ""
    table = Table(
        "recorded",
        "Recorded per iteration: means over an agent's runs on an environment, in their first and last iterations.",
        ("agent", "environment", "metric", "first iteration", "last iteration"),
        tuple(
            (row.agent, row.env, row.metric, *(_written(value, row.format) for value in (row.first, row.last)))
            for row in rows
            if (row.agent, row.env) in kinds[:_SHOWN]
        ),
        ("agent", "environment", "metric", "first", "last"),
        tuple((row.agent, row.env, row.metric, row.first, row.last) for row in rows),
    )
    text = f"Means over an agent's runs on an environment, in their first and last iterations.{left}"
    return Section("recorded", "Recorded per iteration", text, tables=(table,))


def scoring_options(name: str, references: str | None, replications: int, seed: int) -> ScoringOptions:
    chosen = convention(name)
    table = references or chosen.references
    reference("pong", table)  # rejects an unknown table
    return ScoringOptions(chosen, table, replications, seed)


def known_game(name: str) -> str:
    key = alphanumeric(name)
    if key not in GAMES:
        raise unknown_name("game", name, GAMES, f"one of {len(GAMES)} Atari games")
    return key


def rule_notes(own: Sequence[LocalRun], dataset: Dataset) -> list[str]:
    """Notes on rules that affect scores and differ between your runs and published agents."""
    agents_of: dict[str, list[str]] = {}
    for agent in dataset.published:
        theirs = published_passport(agent)
        for one in own:
            if one.run.key.game in GAMES and (gaps := passport_differences(one.passport, theirs)):
                text = f"{one.run.key.agent} was scored under other rules than {{}}: {'; '.join(gaps)}"
                if agent not in agents_of.setdefault(text, []):
                    agents_of[text].append(agent)
    return [text.replace("{}", ", ".join(agents), 1) + " (own | published)" for text, agents in agents_of.items()]


def agents_with_other_rules(own: Sequence[LocalRun], dataset: Dataset) -> tuple[str, ...]:
    """Published agents that were scored under other rules than one of your runs."""
    passports = [one.passport for one in own if one.run.key.game in GAMES]
    return tuple(
        agent
        for agent in dataset.published
        if any(passport_differences(passport, published_passport(agent)) for passport in passports)
    )


def _rivals(names: tuple[str, ...], dataset: Dataset) -> tuple[str, ...]:
    for name in names:
        if name not in dataset.agents:
            raise unknown_name("agent of --against", name, dataset.agents)
    return names


def _settings(chosen: ScoringOptions) -> dict[str, Any]:
    return {
        "convention": chosen.convention.name,
        "references": chosen.references,
        "replications": chosen.replications,
        "seed": chosen.seed,
    }


def _fact(chosen: ScoringOptions, games: int, frames: float) -> str:
    return (
        f"Compared on {plural(games, 'game')} at {frame_count(frames)} frames. Scores: convention "
        f"`{chosen.convention.name}`, {chosen.convention.words}; normalized by the reference scores "
        f"`{chosen.references}` (0: random play, 1: human tester; `--references` accepts "
        f"{', '.join(REFERENCE_TABLES)}).{_LENGTHS if frames >= NOMINAL else ''}"
    )


def _title(dataset: Dataset) -> str:
    if not dataset.own:
        return "Published agents on Atari"
    return f"{', '.join(dataset.own[:3])}{' and others' if len(dataset.own) > 3 else ''}"


# ---------------------------------------------------------------------------------------- text for the terminal


@dataclass(frozen=True)
class RunComparison:
    """Your runs against published agents, and against each other. `print` shows it as `c2d compare` does."""

    runs: int
    """How many were read."""
    agents: tuple[str, ...]
    """Names of your agents; runs that differ only in their seed are one."""
    text: str
    """The tables, with intervals and how many more seeds would settle it."""
    notes: tuple[str, ...]
    """What to know about it: what was skipped, unfinished, or played by other rules."""
    atari: Analysis | None
    """Aggregates and scores on Atari; None without runs there."""

    def __str__(self) -> str:
        return "\n".join([self.text, *(f"note: {note}" for note in self.notes)])


def compare_runs(request: ReportRequest) -> RunComparison:
    """Runs with the published agents on the same games and at the same frames."""
    scoring = scoring_options(request.convention, request.references, request.replications, request.seed)
    own, run_notes = read_local_runs(request.runs)
    dataset = gather(own, run_notes, request.published, request.agents)
    notes = [*dataset.notes, *mixed_rules_notes(own)]
    aligned, lines = align_atari(dataset, scoring, request.at, notes), list[str]()
    if aligned is not None:
        notes += rule_notes(own, dataset)
        lines = on_atari(aligned, agents_with_other_rules(own, dataset))
    lines += on_other_environments(dataset, scoring, notes)
    atari = None if aligned is None else aligned.analysis
    return RunComparison(len(own), tuple(dataset.own), "\n".join(lines), tuple(dict.fromkeys(notes)), atari)


def on_atari(aligned: Alignment, other_rules: Sequence[str] = ()) -> list[str]:
    """Your agents and published ones on the same games and frames; agents in `other_rules` get a star."""
    analysis = aligned.analysis
    starred = {agent: f"{agent} *" if agent in other_rules else agent for agent in analysis.agents}
    lines = [
        f"at {frame_count(analysis.frames)} frames on {_list([game_title(game) for game in analysis.games])}; "
        f"scores: {analysis.scoring.convention.words}, normalized by {analysis.scoring.references}",
        "",
        *text_table(
            [
                ["agent", "runs per game", *TITLES.values()],
                *(
                    [starred[a], _runs(analysis, a), *(format_estimate(estimates[name], 2) for name in TITLES)]
                    for a, estimates in analysis.aggregates.items()
                ),
            ]
        ),
        "human-normalized (0: random play, 1: human); 95 % stratified-bootstrap intervals if every game has two runs",
        *["* scored under other rules than your runs: see the notes"]
        * any(agent in other_rules for agent in analysis.agents),
        "",
    ]
    if len(analysis.games) <= _MOST_GAMES:
        lines += [*_raw(analysis), ""]
    return lines + _probabilities(analysis)


def on_other_environments(dataset: Dataset, scoring: ScoringOptions, notes: list[str]) -> list[str]:
    """Environments without published agents: your agents against each other."""
    lines = []
    alone = replace(dataset, agents=dataset.own)
    for game in dataset.other_games:
        analysis = align_environment(alone, game, scoring, notes)
        if analysis is None:
            continue
        averaged = f"scores averaged over the last {analysis.scoring.convention.window * 1e6:,.0f}"
        lines += [f"{game} at {analysis.frames * 1e6:,.0f} frames ({averaged}); there are no published agents", ""]
        lines += [*_raw(analysis), ""]
        lines += _probabilities(analysis)
    return lines


def mixed_rules_notes(own: Sequence[LocalRun]) -> list[str]:
    """Notes on rules in which your runs on one environment differ."""
    notes = []
    for game in dict.fromkeys(one.run.key.game for one in own):
        gaps = passport_spread((one.run.key.agent, one.passport) for one in own if one.run.key.game == game)
        notes += [f"runs on {game} do not all have the same rules. {gap}" for gap in gaps]
    return notes


def verdict(probability: IntervalEstimate, ours: int, theirs: int, games: int, both: bool = False) -> str:
    """Whether the comparison is settled, or what would settle it; `both`: more runs of either agent are possible."""
    low, high = probability.interval or (0.0, 1.0)
    if (low > 0.5 or high < 0.5) and beyond_chance(probability.point, ours, theirs, games):
        return "settled: better" if low > 0.5 else "settled: worse"
    because = "" if probability.interval is not None else "one run per game has no spread; "
    needed = seeds_of_both(probability.point, games) if both else seeds_needed(probability.point, theirs, games)
    if needed is not None:
        more = max(needed - ours, 1)
        of = " of both" if both else ""
        return f"open: {because}about {plural(more, 'more seed')} per game{of} at this effect (80 % power)"
    wanted = games_needed(probability.point, ours, theirs)
    if wanted is None:
        return f"open: {because}no effect is observed, so no number of seeds can be given"
    reason = f"open: {because}against {theirs} published runs 80 % power is out of reach at this effect"
    if wanted > len(BENCHMARK):
        return f"{reason}, with any number of your seeds and with all {len(BENCHMARK)} games"
    return f"{reason} with any number of your seeds; about {max(wanted, games + 1):,} games would give it"


def _probabilities(analysis: Analysis) -> list[str]:
    own = [agent for agent in analysis.agents if agent in analysis.dataset.own]
    others = [agent for agent in analysis.agents if agent not in own]
    pairs = [(a, b) for a in own for b in others]
    pairs += [(a, b) for place, a in enumerate(own) for b in own[place + 1 :]]
    rows = []
    for ours, theirs in pairs:
        probability = analysis.improvement(ours, theirs)
        counts = (_fewest(analysis, ours), _fewest(analysis, theirs))
        rows.append(
            [
                f"{ours} > {theirs}",
                format_estimate(probability, 2),
                verdict(probability, *counts, len(analysis.games), theirs in own),
            ]
        )
    if not rows:
        return []
    return [
        *text_table([["probability of improvement", "95 % interval", "verdict"], *rows], left=3),
        "how likely a run of the first scores higher than one of the second on one of these games; ties count as half",
        "",
    ]


def _raw(analysis: Analysis) -> list[str]:
    """Mean and standard deviation of raw scores, agent by game."""
    columns = {agent: analysis.raw(agent, analysis.frames) for agent in analysis.agents}
    rows = []
    for place, game in enumerate(analysis.games):
        cells = []
        for agent in analysis.agents:
            values = columns[agent][:, place]
            values = values[~np.isnan(values)]
            spread = f" ± {_short(values.std(ddof=1))}" if len(values) > 1 else ""
            cells.append(f"{_short(values.mean())}{spread}")
        rows.append([game_title(game), *cells])
    return [*text_table([["raw score", *analysis.agents], *rows]), "mean ± standard deviation over runs"]


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _runs(analysis: Analysis, agent: str) -> str:
    counts = (~np.isnan(analysis.scores(agent))).sum(0)
    return f"{counts.min()}" if counts.min() == counts.max() else f"{counts.min()} to {counts.max()}"


def _fewest(analysis: Analysis, agent: str) -> int:
    return int((~np.isnan(analysis.scores(agent))).sum(0).min())


def _list(names: Sequence[str]) -> str:
    return f"{len(names)} games" if len(names) > _MOST_GAMES else ", ".join(names)
