"""The scores of random play and of a human tester, by which game scores are normalized: three named tables.

Public tables agree but for two entries. `dqn-zoo` is the table of DQN Zoo (google-deepmind/dqn_zoo,
`atari_data.py`, commit 45061f4), used throughout the project. `rliable` has 0 for random play of Video Pinball, as
the notebook of google-research/rliable. `paper-figures` has -9.3 for the human tester of Tennis, with which, and only
with which, every point of the paper's figures agrees.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from c2d.envs.games import GAMES
from c2d.errors import UserError, did_you_mean

DEFAULT = "dqn-zoo"
_DIFFERENCES: dict[str, dict[str, tuple[float, float]]] = {  # table -> game -> (random, human)
    "dqn-zoo": {},
    "rliable": {"videopinball": (0.0, 17667.9)},
    "paper-figures": {"tennis": (-23.8, -9.3)},
}
TABLES = tuple(_DIFFERENCES)


def reference(game: str, table: str = DEFAULT) -> tuple[float, float] | None:
    """(random, human) of a game; None if the tables have no scores for it."""
    if table not in _DIFFERENCES:
        raise UserError(
            f'unknown table of reference scores "{table}".{did_you_mean(table, TABLES)} Tables: {", ".join(TABLES)}'
        )
    if game in _DIFFERENCES[table]:
        return _DIFFERENCES[table][game]
    row = GAMES.get(game)
    return None if row is None or row.random is None or row.human is None else (row.random, row.human)


def normalize(scores: NDArray[np.float64], games: tuple[str, ...], table: str = DEFAULT) -> NDArray[np.float64]:
    """(score - random) / (human - random): [..., games] raw to [..., games] human-normalized."""
    pairs = [reference(game, table) for game in games]
    if None in pairs:
        raise UserError(f"no random and human scores are published for {games[pairs.index(None)]}")
    random, human = np.array(pairs, dtype=np.float64).T
    return np.asarray((scores - random) / (human - random))
