"""Compares your runs with published agents, as text for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from c2d.envs.games import BENCHMARK
from c2d.formatting import plural, text_table
from c2d.reporting.analysis import Alignment, Analysis, IntervalEstimate, ScoringOptions, align_environment
from c2d.reporting.local_runs import LocalRun, passport_spread
from c2d.reporting.page import format_estimate, game_title
from c2d.reporting.run_statistics import TITLES, beyond_chance, games_needed, seeds_needed, seeds_of_both
from c2d.reporting.scores import Dataset

_MOST_GAMES = 12  # shown one by one


def on_atari(aligned: Alignment, other_rules: Sequence[str] = ()) -> list[str]:
    """Your agents and published ones on the same games and frames; agents in `other_rules` get a star."""
    analysis = aligned.analysis
    starred = {agent: f"{agent} *" if agent in other_rules else agent for agent in analysis.agents}
    lines = [
        f"at {analysis.frames:g}M frames on {_list([game_title(game) for game in analysis.games])}; "
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
