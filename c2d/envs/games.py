"""The Atari games of the paper's table, with the scores of random play and of a human tester.

Scores: the no-op-start figures of the literature as listed in DQN Zoo's `atari_data.py`
(google-deepmind/dqn_zoo). Two entries differ between sources: rliable's notebook puts Video Pinball's random
score at 0 instead of 16256.9, and the paper's figures agree with a human score of -9.3 for Tennis, not -8.3.
Action counts are the sizes of the minimal action sets in the authors' runs. The actions themselves come from ale-py;
an empty cell means all 18. The paper's benchmark has 55 games. Defender and Surround have scores but do not belong to
it. Dopamine runs Air Raid, Carnival, Elevator Action, Journey Escape and Pooyan, which have no scores in that table.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from importlib import resources

from c2d.envs.protocols import AtariRules
from c2d.envs.spec import EnvSpec
from c2d.errors import unknown_name

# Names of the joystick's actions, in the emulator's numbering.
ACTIONS: tuple[str, ...] = (
    "NOOP", "FIRE", "UP", "RIGHT", "LEFT", "DOWN", "UPRIGHT", "UPLEFT", "DOWNRIGHT", "DOWNLEFT", "UPFIRE", "RIGHTFIRE",
    "LEFTFIRE", "DOWNFIRE", "UPRIGHTFIRE", "UPLEFTFIRE", "DOWNRIGHTFIRE", "DOWNLEFTFIRE",
)  # fmt: skip


@dataclass(frozen=True)
class Game:
    """One row of the table."""

    key: str  # lower case, no separators: "bankheist"
    rom: str  # file name in ale_py/roms without ".bin": "bank_heist"
    gym: str  # Gymnasium id is "ALE/<gym>-v5": "BankHeist"
    random: float | None  # mean score of uniformly random play
    human: float | None  # mean score of a human tester
    actions: int | None  # size of the minimal action set in the authors' runs
    in_55: bool  # belongs to the paper's benchmark
    minimal: tuple[str, ...]  # the actions that have an effect in this game
    legal: tuple[str, ...]  # the actions this game accepts: all 18, with one exception


def _number(cell: str) -> float | None:
    return float(cell) if cell else None


def _read_table() -> dict[str, Game]:
    text = resources.files("c2d.envs").joinpath("data/games.csv").read_text(encoding="utf-8")
    games = (
        Game(
            key=row["key"],
            rom=row["rom"],
            gym=row["gym"],
            random=_number(row["random"]),
            human=_number(row["human"]),
            actions=int(row["actions"]) if row["actions"] else None,
            in_55=row["in_55"] == "1",
            minimal=tuple(row["minimal"].split()) or ACTIONS,
            legal=tuple(row["legal"].split()) or ACTIONS,
        )
        for row in csv.DictReader(text.splitlines())
    )
    return {game.key: game for game in games}


GAMES: dict[str, Game] = _read_table()
BENCHMARK: tuple[str, ...] = tuple(key for key, game in GAMES.items() if game.in_55)


def game(key: str) -> Game:
    """The row for a key such as "bankheist"."""
    try:
        return GAMES[key]
    except KeyError:
        raise unknown_name("Atari game", key, GAMES, f"one of {len(GAMES)} games") from None


def atari_spec(key: str, rules: AtariRules) -> EnvSpec:
    """The spec of a game under these rules, from the table: no emulator is needed."""
    names = game(key).legal if rules.full_action_set else game(key).minimal
    return EnvSpec(
        name=f"atari/{key}",
        family="atari",
        frame_shape=(1, rules.frame_size, rules.frame_size),
        frame_dtype="uint8",
        stack=rules.stack,
        actions=len(names),
        frames_per_step=rules.action_repeat,
        action_names=names,
    )


def human_normalized(key: str, score: float) -> float | None:
    """(score - random) / (human - random): 0 is random play, 1 a human tester; None without published scores."""
    row = game(key)
    if row.random is None or row.human is None:
        return None
    return (score - row.random) / (row.human - row.random)
