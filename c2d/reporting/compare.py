"""Where own runs stand: a comparison in words, for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from c2d.envs.games import BENCHMARK
from c2d.reporting.aggregate import TITLES
from c2d.reporting.elsewhere import study_of
from c2d.reporting.field import Field
from c2d.reporting.matching import Match
from c2d.reporting.measures import game_title, said
from c2d.reporting.own import OwnRun
from c2d.reporting.passports import spread
from c2d.reporting.power import beyond_chance, games_needed, seeds_needed, seeds_of_both
from c2d.reporting.study import Choice, Estimate, Study

_MOST_GAMES = 12  # shown one by one


def on_atari(match: Match, unlike: Sequence[str] = ()) -> list[str]:
    """Own agents and published ones at the same games and frames; `unlike` ones get a star."""
    study = match.study
    starred = {agent: f"{agent} *" if agent in unlike else agent for agent in study.agents}
    lines = [
        f"at {study.frames:g}M frames on {_list([game_title(game) for game in study.games])}; "
        f"scores: {study.choice.convention.words}, normalized by {study.choice.references}",
        "",
        *_grid(
            ["agent", "runs per game", *TITLES.values()],
            [
                [starred[a], _runs(study, a), *(said(study.aggregates[a][name], 2) for name in TITLES)]
                for a in study.agents
            ],
        ),
        "human-normalized (0 random play, 1 human), 95 % stratified-bootstrap intervals where every game has two runs",
        *["* scored under other rules than the own runs: see the notes"]
        * any(agent in unlike for agent in study.agents),
        "",
    ]
    if len(study.games) <= _MOST_GAMES:
        lines += [*_raw(study), ""]
    return lines + _chances(study)


def elsewhere(field: Field, choice: Choice, told: list[str]) -> list[str]:
    """Environments without published agents: own agents against each other."""
    lines = []
    alone = replace(field, agents=field.own)
    for game in field.other_games:
        study = study_of(alone, game, choice, told)
        if study is None:
            continue
        averaged = f"scores averaged over the last {study.choice.convention.window * 1e6:,.0f}"
        lines += [f"{game} at {study.frames * 1e6:,.0f} frames ({averaged}); no agents are published for it", ""]
        lines += [*_raw(study), ""]
        lines += _chances(study)
    return lines


def unlike_rules(own: Sequence[OwnRun]) -> list[str]:
    """Rules in which own runs on one environment differ."""
    found = []
    for game in dict.fromkeys(one.run.key.game for one in own):
        gaps = spread((one.run.key.agent, one.passport) for one in own if one.run.key.game == game)
        found += [f"runs on {game} were not all made under the same rules. {gap}" for gap in gaps]
    return found


def verdict(chance: Estimate, ours: int, theirs: int, games: int, both: bool = False) -> str:
    """Whether it is settled, else what would settle it; `both`: the other agent can be run again too."""
    low, high = chance.interval or (0.0, 1.0)
    if (low > 0.5 or high < 0.5) and beyond_chance(chance.point, ours, theirs, games):
        return "settled: better" if low > 0.5 else "settled: worse"
    because = "" if chance.interval is not None else "one run per game shows no spread; "
    needed = seeds_of_both(chance.point, games) if both else seeds_needed(chance.point, theirs, games)
    if needed is not None:
        more = max(needed - ours, 1)
        of = " of both" if both else ""
        return f"open: {because}about {more:,} more seed{'s' * (more > 1)} per game{of} at this effect (power 80 %)"
    wanted = games_needed(chance.point, ours, theirs)
    if wanted is None:
        return f"open: {because}no effect is seen, so no number of seeds can be named"
    told = f"open: {because}against {theirs} published runs a power of 80 % is out of reach at this effect"
    if wanted > len(BENCHMARK):
        return f"{told}, whatever the number of own seeds, and with all {len(BENCHMARK)} games too"
    return f"{told} with own seeds alone; about {max(wanted, games + 1):,} games would give it"


def _chances(study: Study) -> list[str]:
    own = [agent for agent in study.agents if agent in study.field.own]
    others = [agent for agent in study.agents if agent not in own]
    pairs = [(a, b) for a in own for b in others]
    pairs += [(a, b) for place, a in enumerate(own) for b in own[place + 1 :]]
    rows = []
    for ours, theirs in pairs:
        chance = study.improvement(ours, theirs)
        counts = (_fewest(study, ours), _fewest(study, theirs))
        rows.append([f"{ours} > {theirs}", said(chance, 2), verdict(chance, *counts, len(study.games), theirs in own)])
    if not rows:
        return []
    return [
        *_grid(["probability of improvement", "95 % interval", "verdict"], rows, left=3),
        "how likely a run of the first scores more than one of the second on one of these games; a tie counts half",
        "",
    ]


def _raw(study: Study) -> list[str]:
    """Mean and standard deviation of raw scores, agent by game."""
    columns = {agent: study.raw(agent, study.frames) for agent in study.agents}
    rows = []
    for place, game in enumerate(study.games):
        cells = []
        for agent in study.agents:
            values = columns[agent][:, place]
            values = values[~np.isnan(values)]
            spread = f" ± {_short(values.std(ddof=1))}" if len(values) > 1 else ""
            cells.append(f"{_short(values.mean())}{spread}")
        rows.append([game_title(game), *cells])
    return [*_grid(["raw score", *study.agents], rows), "mean ± standard deviation over runs"]


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _runs(study: Study, agent: str) -> str:
    counts = (~np.isnan(study.scores(agent))).sum(0)
    return f"{counts.min()}" if counts.min() == counts.max() else f"{counts.min()} to {counts.max()}"


def _fewest(study: Study, agent: str) -> int:
    return int((~np.isnan(study.scores(agent))).sum(0).min())


def _list(names: Sequence[str]) -> str:
    return f"{len(names)} games" if len(names) > _MOST_GAMES else ", ".join(names)


def _grid(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> list[str]:
    """Columns under each other; the first `left` to the left."""
    widths = [max(len(row[place]) for row in (header, *rows)) for place in range(len(header))]
    return [
        "  ".join(
            cell.ljust(width) if place < left else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (header, *rows)
    ]
