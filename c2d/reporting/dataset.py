"""All runs of a report, published and your own, and the score matrices that statistics are computed from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from c2d.envs.games import GAMES
from c2d.errors import UserError, did_you_mean
from c2d.reporting.local_runs import LocalRun
from c2d.reporting.published import bundled_runs, read_published
from c2d.reporting.scores import Convention, RunCurve, RunKey, normalize

PAPER_AGENTS = ("DQN", "C51", "QR-DQN", "IQN", "Rainbow", "C2D")  # the order of legends and tables


@dataclass(frozen=True)
class Dataset:
    """Runs by agent, game and seed."""

    runs: dict[RunKey, RunCurve]
    agents: tuple[str, ...]  # those to show: published ones first, then your own
    own: tuple[str, ...] = ()  # agents of your own runs
    notes: tuple[str, ...] = ()

    @property
    def published(self) -> tuple[str, ...]:
        return tuple(agent for agent in self.agents if agent not in self.own)

    @property
    def has_curves(self) -> bool:
        """Whether published curves were read, beyond the few bundled iterations."""
        return any(run.length > 10 for run in self.runs.values() if run.key.agent in self.published)

    @cached_property
    def _index(self) -> dict[tuple[str, str], list[RunCurve]]:
        found: dict[tuple[str, str], list[RunCurve]] = {}
        for key in sorted(self.runs):
            found.setdefault(key[:2], []).append(self.runs[key])
        return found

    def runs_of(self, agent: str, game: str) -> list[RunCurve]:
        """The runs of an agent on a game, ordered by seed."""
        return self._index.get((agent, game), [])

    def games_of(self, agent: str) -> tuple[str, ...]:
        found = {key.game for key in self.runs if key.agent == agent}
        return tuple(sorted(found, key=lambda game: (game not in GAMES, game)))

    @property
    def other_games(self) -> tuple[str, ...]:
        """Environments of your runs without published scores."""
        found = {game for agent in self.own for game in self.games_of(agent)}
        return tuple(sorted(game for game in found if game not in GAMES or GAMES[game].human is None))

    def matrix(self, agent: str, games: Sequence[str], score: Callable[[RunCurve], float]) -> NDArray[np.float64]:
        """[runs, games] of raw scores; NaN where a game has fewer runs or a run has no score."""
        columns = [[value for run in self.runs_of(agent, game) if (value := score(run)) == value] for game in games]
        rows = max((len(column) for column in columns), default=0)
        return np.array([column + [np.nan] * (rows - len(column)) for column in columns]).reshape(len(columns), rows).T

    def scores(
        self, agent: str, games: Sequence[str], frames: float, convention: Convention, references: str
    ) -> NDArray[np.float64]:
        """[runs, games] human-normalized."""
        raw = self.matrix(agent, games, lambda run: convention.score(run, frames))
        return normalize(raw, tuple(games), references)

    def smoothed(
        self, agent: str, games: Sequence[str], ends: NDArray[np.float64], window: float
    ) -> NDArray[np.float64]:
        """[ends, runs, games] of raw moving averages; NaN where a run has no score."""
        columns = [[run.smoothed(ends, window) for run in self.runs_of(agent, game)] for game in games]
        rows = max(map(len, columns), default=0)
        blank = np.full(len(ends), np.nan)
        return np.array([column + [blank] * (rows - len(column)) for column in columns]).transpose(2, 1, 0)

    def covered(self, agent: str, games: Iterable[str], frames: float, convention: Convention) -> tuple[str, ...]:
        """The games on which an agent has a score at that point."""
        return tuple(
            game
            for game in games
            if any((score := convention.score(run, frames)) == score for run in self.runs_of(agent, game))
        )


def gather(
    own: Sequence[LocalRun] = (),
    notes: Sequence[str] = (),
    published: Path | None = None,
    agents: Sequence[str] = (),
) -> Dataset:
    """The published agents, from the bundled table and from `published` if given, and your own runs."""
    runs = {run.key: run for run in bundled_runs()}
    all_notes = list(notes)
    if published is not None:
        read, more = read_published(published)
        all_notes += more
        for run in read:
            runs[run.key] = run.joined(runs[run.key]) if run.key in runs else run
    known = dict.fromkeys(key.agent for key in runs)
    for name in agents:
        if name not in known:
            raise UserError(
                f'unknown published agent "{name}"; accepted: {", ".join(known)}'
                + ("." if published else "; --published PATH may add others.")
                + did_you_mean(name, known)
            )
    shown = tuple(agents) or PAPER_AGENTS
    mine = tuple(sorted({one.run.key.agent for one in own}))
    runs = {key: run for key, run in runs.items() if key.agent in shown}
    runs |= {one.run.key: one.run for one in own}
    return Dataset(runs, shown + mine, mine, tuple(all_notes))


def human_games(games: Iterable[str]) -> tuple[str, ...]:
    """The games with reference scores, in the order of the table."""
    wanted = set(games)
    return tuple(key for key, row in GAMES.items() if key in wanted and row.human is not None)
