"""n-step folding at terminals and truncations, with rewards that show which ones were counted."""

from __future__ import annotations

import numpy as np
import pytest

from c2d.replay.ring import fold

GAMMA = 0.5
REWARDS = [1.0, 10.0, 100.0]


def fold_one(terminal: list[int], taken: list[int], rewards: list[float] = REWARDS) -> tuple[float, float, int]:
    folded = fold(
        np.array([rewards], dtype=np.float32),
        np.array([terminal], dtype=bool),
        np.array([taken], dtype=bool),
        GAMMA,
    )
    return folded.reward.item(), folded.discount.item(), folded.steps.item()


@pytest.mark.parametrize(
    ("terminal", "taken", "expected"),
    [
        pytest.param([0, 0, 0], [1, 1, 1], (31.0, 0.125, 3), id="nothing ends"),
        pytest.param([0, 0, 1], [1, 1, 1], (31.0, 0.0, 3), id="terminal third"),
        pytest.param([0, 1, 0], [1, 1, 1], (6.0, 0.0, 2), id="terminal second"),
        pytest.param([1, 0, 0], [1, 1, 1], (1.0, 0.0, 1), id="terminal first"),
        pytest.param([0, 0, 0], [1, 1, 0], (6.0, 0.25, 2), id="cut before third"),
        pytest.param([0, 0, 0], [1, 0, 1], (1.0, 0.5, 1), id="cut before second, next episode behind it"),
        pytest.param([0, 1, 0], [1, 0, 1], (1.0, 0.5, 1), id="a terminal beyond the cut is not ours"),
        pytest.param([1, 0, 1], [1, 1, 1], (1.0, 0.0, 1), id="a second terminal beyond the first"),
        pytest.param([1, 0, 0], [1, 0, 0], (1.0, 0.0, 1), id="terminal, then an episode without actions"),
    ],
)
def test_fold(terminal: list[int], taken: list[int], expected: tuple[float, float, int]) -> None:
    assert fold_one(terminal, taken) == expected


def test_one_step() -> None:
    assert fold_one([0], [1], [7.0]) == (7.0, 0.5, 1)
    assert fold_one([1], [1], [7.0]) == (7.0, 0.0, 1)


def test_what_lies_beyond_the_stop_is_not_read() -> None:
    assert fold_one([0, 1, 0], [1, 1, 1], [1.0, 10.0, float("nan")]) == (6.0, 0.0, 2)


def test_rows_are_independent() -> None:
    rng = np.random.default_rng(3)
    reward = rng.normal(size=(50, 4))
    terminal, taken = rng.random((50, 4)) < 0.2, rng.random((50, 4)) < 0.8
    taken[:, 0] = True
    together = fold(reward, terminal, taken, 0.9)
    for row in range(50):
        alone = fold(reward[row : row + 1], terminal[row : row + 1], taken[row : row + 1], 0.9)
        np.testing.assert_allclose(together.reward[row], alone.reward[0], rtol=1e-12)
        assert together.discount[row] == alone.discount[0]
        assert together.steps[row] == alone.steps[0]
