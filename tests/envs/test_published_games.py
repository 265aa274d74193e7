"""The project's table of games against the published one (make test-published)."""

import csv
import os
from pathlib import Path

import pytest

from c2d.envs.games import BENCHMARK, GAMES


@pytest.mark.published
def test_every_figure_is_the_published_one():
    path = Path(os.environ["C2D_PUBLISHED"]) / "atari_reference_scores.csv"
    with open(path, newline="") as file:
        rows = {row["game"]: row for row in csv.DictReader(file)}
    assert set(rows) == set(GAMES)
    for key, row in rows.items():
        game = GAMES[key]
        assert game.random == (float(row["random"]) if row["random"] else None), key
        assert game.human == (float(row["human"]) if row["human"] else None), key
        assert game.rom == row["rom"], key
    assert {key for key, row in rows.items() if row["in_c2d_55"] == "1"} == set(BENCHMARK)
