"""Scores at a point: windows, the two conventions, reference tables, and the project's own table of scores."""

import math
import statistics

import numpy as np
import pytest

from c2d.envs.games import BENCHMARK
from c2d.errors import UserError
from c2d.reporting.analysis import PAPER_AGENTS, gather
from c2d.reporting.published import bundled_runs, paper_figures, paper_score_table, reward_statistics
from c2d.reporting.run_statistics import mean
from c2d.reporting.scores import CONVENTIONS, REFERENCE_TABLES, RunCurve, RunKey, convention, normalize, reference

KEY = RunKey("a", "pong", 1)


@pytest.fixture(scope="module")
def dataset():
    return gather()


def curve(values, step=1.0, **more):
    return RunCurve(KEY, ends=step * np.arange(1, len(values) + 1), values=np.array(values, dtype=float), **more)


def test_moving_average_against_a_loop():
    rng = np.random.default_rng(0)
    values = rng.normal(size=50)
    values[rng.integers(50, size=8)] = np.nan
    values[20:27] = np.nan
    run = curve(values)
    for window in (1.0, 5.0):
        for end in range(1, 60):
            inside = [values[i] for i in range(50) if end - window <= i < end and not math.isnan(values[i])]
            expected = statistics.fmean(inside) if inside and end <= 50 else math.nan
            assert run.score(float(end), window) == pytest.approx(expected, nan_ok=True)


def test_windows_count_frames_not_iterations():
    run = curve([1, 2, 3, 4, 5, 6], step=2.5)
    assert run.score(10.0, 5.0) == 3.5
    assert run.score(15.0, 5.0) == 5.5
    assert math.isnan(run.score(17.5, 5.0))


def test_conventions():
    dopamine, authors = curve(range(199)), curve(range(200))
    table, figures = CONVENTIONS["table"], CONVENTIONS["figures"]
    assert [table.score(authors, at) for at in (10.0, 50.0, 100.0, 200.0)] == [7, 47, 97, 196]
    assert table.score(dopamine, 200.0) == 196
    assert (figures.score(authors, 200.0), figures.score(dopamine, 200.0)) == (199, 198)
    assert (figures.score(authors, 199.0), figures.score(authors, 10.0)) == (198, 9)
    assert math.isnan(table.score(curve(range(195)), 200.0))  # truncated: missing, not zero
    with pytest.raises(UserError, match=r"tabel.*figures.*'table'"):
        convention("tabel")


def test_points_replace_the_curve_beyond_its_end():
    run = curve(range(20), points={(5.0, 199.0): 77.0, (5.0, 10.0): -1.0})
    assert CONVENTIONS["table"].score(run, 200.0) == 77.0
    assert CONVENTIONS["table"].score(run, 10.0) == 7.0
    assert curve(range(5)).joined(run).length == 20


def test_reference_tables_differ_in_two_entries():
    unlike = {
        (table, game)
        for table in REFERENCE_TABLES
        for game in BENCHMARK
        if reference(game, table) != reference(game, "dqn-zoo")
    }
    assert unlike == {("rliable", "videopinball"), ("paper-figures", "tennis")}
    assert reference("videopinball") == (16256.9, 17667.9) and reference("videopinball", "rliable")[0] == 0
    assert reference("tennis") == (-23.8, -8.3) and reference("tennis", "paper-figures")[1] == -9.3
    assert reference("airraid") is None
    with pytest.raises(UserError, match=r"unknown table.*dqn-zoo"):
        reference("pong", "mine")
    assert normalize(np.array([[-20.7, 14.6]]), ("pong", "pong")).round(6).tolist() == [[0, 1]]


def test_the_two_disagreements_move_the_mean(dataset):
    """The numbers in docs/reports.md."""
    how = CONVENTIONS["table"]
    means = {
        (agent, table): float(mean(dataset.scores(agent, BENCHMARK, 200.0, how, table)))
        for agent in ("C2D", "IQN")
        for table in REFERENCE_TABLES
    }
    assert means["C2D", "dqn-zoo"] == pytest.approx(9.366618, abs=1e-6)
    assert means["C2D", "rliable"] == pytest.approx(5.520452, abs=1e-6)
    assert means["IQN", "rliable"] == pytest.approx(4.155932, abs=1e-6)
    assert 0 < means["IQN", "paper-figures"] - means["IQN", "dqn-zoo"] < 0.01


def test_own_tables_are_complete(dataset):
    assert len(bundled_runs()) == 55 * (3 + 5 * 5)
    for agent in PAPER_AGENTS:
        assert dataset.games_of(agent) == BENCHMARK
        seeds = 3 if agent == "C2D" else 5
        for at in (10.0, 50.0, 100.0, 150.0, 200.0):
            scores = dataset.scores(agent, BENCHMARK, at, CONVENTIONS["table"], "dqn-zoo")
            assert scores.shape == (seeds, 55) and np.isfinite(scores).all()
    assert tuple(paper_score_table()) == BENCHMARK and tuple(reward_statistics()) == BENCHMARK
    assert set(paper_figures()["aggregates"]) == {"DQN", "C51", "IQN", "Rainbow", "C2D"}
    assert not dataset.has_curves


def test_agents_are_chosen_by_name():
    assert gather(agents=("IQN", "C2D")).agents == ("IQN", "C2D")
    with pytest.raises(UserError, match=r'unknown published agent "Rainbw".*Rainbow'):
        gather(agents=("Rainbw",))


def test_missing_cells_are_empty_not_zero(dataset):
    games = ("pong", "boxing")
    runs = {
        RunKey("x", "pong", 1): curve([1.0]),
        RunKey("x", "pong", 2): curve([3.0]),
        RunKey("x", "boxing", 1): curve([5.0]),
    }
    from c2d.reporting.scores import Dataset

    small = Dataset(runs, ("x",))
    np.testing.assert_array_equal(small.matrix("x", games, lambda run: run.score(1.0, 5.0)), [[1, 5], [3, np.nan]])
    smoothed = small.smoothed("x", games, np.array([1.0, 2.0]), 5.0)
    np.testing.assert_array_equal(smoothed[0], [[1, 5], [3, np.nan]])
    assert np.isnan(smoothed[1]).all()
