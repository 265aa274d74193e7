"""The games and frames on which own runs and published agents can be compared fairly: the same for all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from c2d.envs.games import BENCHMARK
from c2d.errors import UserError
from c2d.reporting.conventions import COMMON, NOMINAL, Convention
from c2d.reporting.curves import common_length
from c2d.reporting.field import Field, human_games
from c2d.reporting.study import TABLE_POINTS, Choice, Study

WHERE = (
    "Dopamine's curves are in baselines/atari/data of github.com/google/dopamine, C2D's in data of "
    "github.com/bjliaa/c2d: put copies in one directory and name it with --published (docs/reports.md)"
)


class NoScores(UserError):
    """The runs are too young to be compared."""


@dataclass(frozen=True)
class Match:
    """A fair comparison, and what had to be left out of it."""

    study: Study
    notes: tuple[str, ...]


def match(field: Field, choice: Choice, at: float | None = None) -> Match:
    """All published agents on the 55 games at 200M frames; with own runs, their games and frames only."""
    if not field.own:
        frames = NOMINAL if at is None else at
        return _study(field, choice, BENCHMARK, frames, field.agents, [])
    games = human_games(game for agent in field.own for game in field.games_of(agent))
    own = tuple(agent for agent in field.own if human_games(field.games_of(agent)))
    if not games:
        raise UserError("none of the runs is on an Atari game with random and human scores")
    frames = _frames(field, own, games) if at is None else at
    covered = {agent: field.covered(agent, games, frames, choice.convention) for agent in own}
    notes = [
        f"{agent} is left out: it has no score at {frames:g}M frames ({_reach(field, agent, games)})"
        for agent in own
        if not covered[agent]
    ]
    together, shared = _sharing({agent: found for agent, found in covered.items() if found}, games, notes)
    if not together:
        raise NoScores(f"no own run on Atari has a score at {frames:g}M frames: {'; '.join(notes)}")
    for agent in together:
        if lacking := [game for game in games if game not in covered[agent]]:
            notes.append(f"{agent} has no score at {frames:g}M frames on {_some(lacking)}")
    if len(shared) < len(games):
        notes.append(f"compared on the games that all own agents here share: {_some(shared)}")
    notes += _shorter(field, together, shared, frames, choice.convention)
    return _study(field, choice, shared, frames, (*field.published, *together), notes)


def match_atari(field: Field, choice: Choice, at: float | None, told: list[str]) -> Match | None:
    """As `match`; None if no run is on Atari, or if those there have no score yet and there are runs elsewhere."""
    if field.own and not human_games(game for agent in field.own for game in field.games_of(agent)):
        return None
    try:
        matched = match(field, choice, at)
    except NoScores as error:
        if not field.other_games:
            raise
        told.append(str(error))
        return None
    told += matched.notes
    return matched


def _sharing(
    covered: dict[str, tuple[str, ...]], games: Sequence[str], notes: list[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Agents that can be compared, and the games they share; whoever shares none with those before it is left out."""
    together: list[str] = []
    shared = set(games)
    for agent in sorted(covered, key=lambda agent: -len(covered[agent])):
        if common := shared & set(covered[agent]):
            together.append(agent)
            shared = common
        else:
            notes.append(f"{agent} is left out: it shares no game with {', '.join(together)}; report it apart")
    return tuple(agent for agent in covered if agent in together), tuple(game for game in games if game in shared)


def _reach(field: Field, agent: str, games: Sequence[str]) -> str:
    runs = [run for game in games for run in field.of(agent, game)]
    if not any(run.told for run in runs):
        return "no game of it has ended yet"
    return f"it has reached {max(run.length for run in runs):g}M"


def _study(
    field: Field, choice: Choice, games: Sequence[str], frames: float, agents: Sequence[str], notes: list[str]
) -> Match:
    """Agents that lack a game at that point cannot be compared there, and are named."""
    if at_nominal := frames >= COMMON:
        frames = NOMINAL
    told: list[str] = []
    absent: dict[int, list[str]] = {}  # games covered -> agents
    for agent in agents:
        covered = field.covered(agent, games, frames, choice.convention)
        if len(covered) == len(games):
            told.append(agent)
        else:
            absent.setdefault(len(covered), []).append(agent)
    for count, names in absent.items():
        source = "" if at_nominal or field.has_curves else f". {WHERE}"
        notes.append(
            f"left out at {frames:g}M frames, with scores for {count} of {len(games)} games there: "
            f"{', '.join(names)}{source}"
        )
    if not told:
        raise UserError(f"no agent has scores at {frames:g}M frames: {'; '.join(notes)}")
    return Match(Study(field, tuple(told), tuple(games), frames, choice), tuple(notes))


def _frames(field: Field, own: Sequence[str], games: Sequence[str]) -> float:
    """The frames that every finished run has reached, at which published scores are known too."""
    shortest = common_length([run for agent in own for game in games for run in field.of(agent, game)])
    if shortest >= COMMON:
        return NOMINAL
    if not field.has_curves and field.published:
        return max((point for point in TABLE_POINTS if point <= shortest), default=_whole(shortest))
    return _whole(shortest)


def _whole(frames: float) -> float:
    return float(math.floor(frames + 1e-9)) if frames >= 1 else frames


def _shorter(
    field: Field, own: Sequence[str], games: Sequence[str], frames: float, convention: Convention
) -> list[str]:
    """Own runs that do not reach the point of comparison."""
    return [
        f"{run.source} stops at {run.length:g}M frames and does not count at {frames:g}M"
        for agent in own
        for game in games
        for run in field.of(agent, game)
        if math.isnan(convention.score(run, frames))
    ]


def _some(games: Sequence[str]) -> str:
    return ", ".join(games) if len(games) <= 8 else f"{', '.join(games[:8])} and {len(games) - 8} more"
