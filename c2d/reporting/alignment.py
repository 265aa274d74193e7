"""The games and frames at which agents can be compared fairly: the same for all of them.

Published agents are compared on the 55 games at 200M frames. With runs of your own, everything is compared on their
games and at the frames they have reached. Environments without published agents get raw scores, one at a time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from c2d.envs.games import BENCHMARK
from c2d.errors import UserError
from c2d.reporting.analysis import RAW, TABLE_POINTS, Analysis, ScoringOptions
from c2d.reporting.dataset import Dataset, human_games
from c2d.reporting.scores import COMMON, NOMINAL, Convention, common_length

CURVE_SOURCES = (
    "Dopamine's curves are in baselines/atari/data of github.com/google/dopamine, C2D's in data of "
    "github.com/bjliaa/c2d: copy them into one directory and pass it with --published (docs/reports.md)"
)


class NoScores(UserError):
    """The runs are too short to be compared."""


@dataclass(frozen=True)
class Alignment:
    """A fair comparison, and notes on what it leaves out."""

    analysis: Analysis
    notes: tuple[str, ...]


def align(dataset: Dataset, scoring: ScoringOptions, at: float | None = None) -> Alignment:
    """Published agents on the 55 games at 200M frames; with your own runs, on their games and frames only."""
    if not dataset.own:
        frames = NOMINAL if at is None else at
        return _aligned(dataset, scoring, BENCHMARK, frames, dataset.agents, [])
    games = human_games(game for agent in dataset.own for game in dataset.games_of(agent))
    own = tuple(agent for agent in dataset.own if human_games(dataset.games_of(agent)))
    if not games:
        raise UserError("no run is on an Atari game with random and human scores")
    frames = _frames(dataset, own, games) if at is None else at
    covered = {agent: dataset.covered(agent, games, frames, scoring.convention) for agent in own}
    notes = [
        f"{agent} is left out: it has no score at {frames:g}M frames ({_reach(dataset, agent, games)})"
        for agent in own
        if not covered[agent]
    ]
    together, shared = _sharing({agent: found for agent, found in covered.items() if found}, games, notes)
    if not together:
        raise NoScores(f"none of your Atari runs has a score at {frames:g}M frames: {'; '.join(notes)}")
    for agent in together:
        if lacking := [game for game in games if game not in covered[agent]]:
            notes.append(f"{agent} has no score at {frames:g}M frames on {_some(lacking)}")
    if len(shared) < len(games):
        notes.append(f"compared on the games that all of your agents share: {_some(shared)}")
    notes += _shorter(dataset, together, shared, frames, scoring.convention)
    return _aligned(dataset, scoring, shared, frames, (*dataset.published, *together), notes)


def align_atari(dataset: Dataset, scoring: ScoringOptions, at: float | None, notes: list[str]) -> Alignment | None:
    """Like `align`; None if no run is on Atari, or if only runs on other environments have scores."""
    if dataset.own and not human_games(game for agent in dataset.own for game in dataset.games_of(agent)):
        return None
    try:
        aligned = align(dataset, scoring, at)
    except NoScores as error:
        if not dataset.other_games:
            raise
        notes.append(str(error))
        return None
    notes += aligned.notes
    return aligned


def _sharing(
    covered: dict[str, tuple[str, ...]], games: Sequence[str], notes: list[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Agents that can be compared, and the games they share. An agent that shares none with the others is left out."""
    together: list[str] = []
    shared = set(games)
    for agent in sorted(covered, key=lambda agent: -len(covered[agent])):
        if common := shared & set(covered[agent]):
            together.append(agent)
            shared = common
        else:
            notes.append(f"{agent} is left out: it shares no game with {', '.join(together)}; report it separately")
    return tuple(agent for agent in covered if agent in together), tuple(game for game in games if game in shared)


def _reach(dataset: Dataset, agent: str, games: Sequence[str]) -> str:
    runs = [run for game in games for run in dataset.runs_of(agent, game)]
    if not any(run.has_scores for run in runs):
        return "none of its episodes has ended yet"
    return f"it has reached {max(run.length for run in runs):g}M"


def _aligned(
    dataset: Dataset,
    scoring: ScoringOptions,
    games: Sequence[str],
    frames: float,
    agents: Sequence[str],
    notes: list[str],
) -> Alignment:
    """Agents that lack a game at that point are left out and named in the notes."""
    if at_nominal := frames >= COMMON:
        frames = NOMINAL
    complete: list[str] = []
    absent: dict[int, list[str]] = {}  # games covered -> agents
    for agent in agents:
        covered = dataset.covered(agent, games, frames, scoring.convention)
        if len(covered) == len(games):
            complete.append(agent)
        else:
            absent.setdefault(len(covered), []).append(agent)
    for count, names in absent.items():
        source = "" if at_nominal or dataset.has_curves else f". {CURVE_SOURCES}"
        notes.append(
            f"left out at {frames:g}M frames, with scores on {count} of {len(games)} games: {', '.join(names)}{source}"
        )
    if not complete:
        raise UserError(f"no agent has scores at {frames:g}M frames: {'; '.join(notes)}")
    return Alignment(Analysis(dataset, tuple(complete), tuple(games), frames, scoring), tuple(notes))


def _frames(dataset: Dataset, own: Sequence[str], games: Sequence[str]) -> float:
    """The frames that every finished run has reached and at which published scores are known."""
    shortest = common_length([run for agent in own for game in games for run in dataset.runs_of(agent, game)])
    if shortest >= COMMON:
        return NOMINAL
    if not dataset.has_curves and dataset.published:
        return max((point for point in TABLE_POINTS if point <= shortest), default=_whole(shortest))
    return _whole(shortest)


def _whole(frames: float) -> float:
    return float(math.floor(frames + 1e-9)) if frames >= 1 else frames


def _shorter(
    dataset: Dataset, own: Sequence[str], games: Sequence[str], frames: float, convention: Convention
) -> list[str]:
    """Notes on your runs that do not reach the point of comparison."""
    return [
        f"{run.source} stops at {run.length:g}M frames and is not used at {frames:g}M"
        for agent in own
        for game in games
        for run in dataset.runs_of(agent, game)
        if math.isnan(convention.score(run, frames))
    ]


def _some(games: Sequence[str]) -> str:
    return ", ".join(games) if len(games) <= 8 else f"{', '.join(games[:8])} and {len(games) - 8} more"


# ----------------------------------------------------------------------------------------- other environments


def align_environment(dataset: Dataset, game: str, scoring: ScoringOptions, notes: list[str]) -> Analysis | None:
    """Your agents on one environment, at the frames that every finished run has reached; notes name shorter runs."""
    runs = [run for agent in dataset.own for run in dataset.runs_of(agent, game)]
    frames = common_length(runs)
    scoring = raw_scoring(dataset, game, frames, scoring)
    lacking = [run for run in runs if math.isnan(run.score(frames, scoring.convention.window))]
    for run in lacking:
        why = f"stops at {run.length * 1e6:,.0f} frames" if run.has_scores else "has no finished episode yet"
        notes.append(f"{run.source} {why} and is not used on {game} at {frames * 1e6:,.0f}")
    agents = tuple(agent for agent in dataset.own if any(run not in lacking for run in dataset.runs_of(agent, game)))
    return Analysis(dataset, agents, (game,), frames, scoring) if agents else None


def smoothing_window(dataset: Dataset, games: Sequence[str], window: float) -> float:
    """`window`, or the longest iteration if that is longer: a moving average needs one in its window."""
    runs = [run for agent in dataset.own for game in games for run in dataset.runs_of(agent, game)]
    return max(window, *(float(np.diff(run.ends, prepend=0.0).max()) for run in runs))


def raw_scoring(dataset: Dataset, game: str, frames: float, scoring: ScoringOptions) -> ScoringOptions:
    """Raw scores: the mean over the last fifth of training, or over the convention's window if that is shorter."""
    window = smoothing_window(dataset, (game,), min(scoring.convention.window, frames / 5))
    return replace(scoring, references=RAW, convention=replace(scoring.convention, window=window))
