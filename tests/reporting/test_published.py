"""Against the published data themselves: make test-published."""

import csv
import json
import os
from pathlib import Path

import numpy as np
import pytest

from c2d.cli.main import main
from c2d.envs.games import BENCHMARK
from c2d.reporting.analysis import PAPER_AGENTS, gather
from c2d.reporting.published import bundled_runs, paper_figures, read_published
from c2d.reporting.run_statistics import AGGREGATES, intervals, iqm, profile
from c2d.reporting.scores import CONVENTIONS, RunKey, normalize

pytestmark = pytest.mark.published
ROOT = Path(__file__).parents[2]
THEIRS = {"QR-DQN": "Quantile"}  # our name of an agent -> theirs


@pytest.fixture(scope="module")
def where():
    return Path(os.environ["C2D_PUBLISHED"])


@pytest.fixture(scope="module")
def expected(where):
    return json.loads((where / "expected_aggregates.json").read_text())


@pytest.fixture(scope="module")
def curves(where):
    return gather(published=where)


@pytest.fixture(scope="module", params=["bundled", "curves"])
def dataset(request, where):
    return gather() if request.param == "bundled" else request.getfixturevalue("curves")


@pytest.mark.parametrize(("convention", "key"), [("table", "moving_average"), ("figures", "figure_convention")])
def test_aggregates(dataset, expected, convention, key):
    how = CONVENTIONS[convention]
    for agent in PAPER_AGENTS:
        scores = dataset.scores(agent, BENCHMARK, 200.0, how, how.references)
        spreads = intervals(scores, AGGREGATES, 20_000)
        for name, function in AGGREGATES.items():
            published_value = expected[key]["aggregates_200M"][THEIRS.get(agent, agent)][name]
            assert function(scores) == pytest.approx(published_value["point"], abs=1e-6), (agent, name)
            low, high = published_value["ci95"]
            assert spreads[name] == pytest.approx((low, high), abs=0.1 * (high - low)), (agent, name)


def test_iqm_at_points(dataset, expected):
    how = CONVENTIONS["table"]
    for agent in PAPER_AGENTS:
        for at, published_value in expected["moving_average"]["iqm_at_frames_millions"][
            THEIRS.get(agent, agent)
        ].items():
            scores = dataset.scores(agent, BENCHMARK, float(at), how, how.references)
            assert iqm(scores) == pytest.approx(published_value["point"], abs=1e-6)


@pytest.mark.parametrize(
    ("convention", "key"), [("table", "moving_average/performance_profile_200M"),
                            ("figures", "figure_convention/performance_profile_198")]
)  # fmt: skip
def test_profiles(dataset, expected, convention, key):
    part, name = key.split("/")
    how = CONVENTIONS[convention]
    for agent in PAPER_AGENTS:
        published_value = expected[part][name][THEIRS.get(agent, agent)]
        raw = dataset.matrix(agent, BENCHMARK, lambda run: run.score(199.0, how.window))
        scores = normalize(raw, BENCHMARK, how.references)
        points = profile(scores, np.array([float(tau) for tau in published_value]))
        np.testing.assert_allclose(points, [value["point"] for value in published_value.values()], atol=1e-6)


def test_curves_over_training(curves, expected):
    figure = expected["figure_convention"]
    ends = np.array(figure["curve_iterations"]) + 1.0
    for agent in PAPER_AGENTS:
        smoothed = normalize(curves.smoothed(agent, BENCHMARK, ends, 1.0), BENCHMARK, "paper-figures")
        for name in ("iqm", "mean", "median"):
            ours = [float(AGGREGATES[name](rows)) for rows in smoothed]
            np.testing.assert_allclose(ours, figure[f"{name}_curve"][THEIRS.get(agent, agent)], atol=1e-6)


def test_effect_of_video_pinball(dataset, expected):
    for agent in PAPER_AGENTS:
        scores = dataset.scores(agent, BENCHMARK, 200.0, CONVENTIONS["table"], "rliable")
        published_value = expected["sensitivity_mean_200M_videopinball_random_0"][THEIRS.get(agent, agent)]
        assert AGGREGATES["mean"](scores) == pytest.approx(published_value, abs=1e-6)


def test_own_table_is_the_published_one(where, curves, expected):
    ours = {run.key: run for run in bundled_runs()}
    names = {theirs: name for name, theirs in THEIRS.items()}
    rows = list(csv.DictReader((where / "published_scores.csv").open()))
    assert len(rows) == 4 * len(ours)
    for row in rows:
        run = ours[RunKey(names.get(row["agent"], row["agent"]), row["game"], int(row["seed"]))]
        at = 199.0 if row["frames_millions"] == "200" else float(row["frames_millions"])
        assert run.points[5.0, at] == float(row["score"])
    for key, run in ours.items():
        for (window, end), score in run.points.items():
            assert curves.runs[key].moving_averages(np.array([end]), window)[0] == pytest.approx(
                score, rel=2e-6, abs=1e-6
            )
    for name in ("aggregates", "iqm_curve", "mean_curve", "median_curve"):
        theirs = expected["official_figures"]["aggregates_200M" if name == "aggregates" else name]
        assert paper_figures()[name] == theirs


def test_samples_of_the_public_formats(where):
    runs, notes = read_published(where / "samples")
    found = {run.key: run for run in runs}
    assert {key.agent for key in found if key.game == "pong"} >= {"DQN", "C51", "QR-DQN", "IQN", "Rainbow"}
    assert all(run.length == 199 for key, run in found.items() if key.game == "pong")
    bowling = [found[RunKey("C2D", "bowling", seed)] for seed in (1, 2, 3)]
    assert [run.length for run in bowling] == [200, 200, 200]  # the JSON of seed 3 stops early, the CSV does not
    assert bowling[2].atom_ends.size == 200
    alone, notes = read_published(where / "samples/c2d_bowling.json")
    assert [run.length for run in alone] == [200, 200, 195]
    assert "C2D bowling seed 3 stops after 195M frames" in notes


def test_the_ledger_in_the_documentation_is_what_the_command_writes(where, tmp_path):
    out = tmp_path / "ledger.md"
    assert main(["ledger", "--published", str(where), "--out", str(out)]) == 0

    def lines(path):
        return [line for line in path.read_text().splitlines() if "version" not in line and "Written by" not in line]

    assert lines(out) == lines(ROOT / "docs/ledger.md")
    text = out.read_text()
    assert "**needs curves** |" not in text
    assert sorted(line.split(":")[0] for line in text.splitlines() if "**differs** |" in line) == [
        '| Table "Atari specific settings"',
        '| Table "C2D settings"',
    ]


def test_report_draws_everything(where, tmp_path):
    assert main(["report", "--published-only", "--published", str(where), "--out", str(tmp_path)]) == 0
    assert "Not drawn" not in (tmp_path / "report.html").read_text()
    names = {path.stem for path in (tmp_path / "figures").iterdir()}
    assert names == {"aggregates", "profile", "efficiency", "close-up", "improvement", "difference-1", "difference-2",
                     "difference-3", "curves", "supports"}  # fmt: skip
