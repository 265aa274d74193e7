"""Verdicts, sections and the page that keeps them, on synthetic records."""

import csv
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import permutation_test

from c2d.config import Config, to_json
from c2d.errors import UserError
from c2d.recipes.rows import RECIPES
from c2d.reporting.fingerprint import (
    compare_quantities,
    distance,
    joint_section,
    permutation_p,
    relative_gap,
    section,
    share_at_least_as_far,
    train_command,
    update_page,
    verdict,
)
from c2d.reporting.published import QUANTITIES, early_iterations
from c2d.runs.reader import read_run

FIGURES = dict(episodes=1110, mean_score=1.6, mean_loss=0.025, atom_min=-17.0, atom_max=23.0, gradient_norm_max=9.0)


def write_run(path: Path, env="atari/breakout", iterations=1, summary="finished", seed=4, **changes) -> Path:
    """A run directory as training leaves it, with made-up numbers."""
    path.mkdir()
    config = to_json(Config(env=env, iterations=iterations, seed=seed))
    header = {
        "kind": "run",
        "config": config,
        "passport": {"protocol": "c2d-paper", "hash": "0123456789ab"},
        "versions": {"python": "3.11.7", "torch": "2.0"},
        "measured": {"cpu": "a processor", "cores": 2, "threads": 1, "system": "any"},
    }
    lines = [header]
    for iteration in range(iterations):
        measured = {"seconds": 5_000.0, "steps_per_second": 50.0}
        record = {
            "kind": "iteration",
            "iteration": iteration,
            "steps": 250_000 * (iteration + 1),
            "measured": measured,
        }
        lines.append({**record, **FIGURES, **changes})
    (path / "records.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if summary is not None:
        unfinished = None if summary == "finished" else {"episodes": 3}
        steps = 250_000 * iterations + (unfinished is not None) * 1_234
        state = {
            "state": summary,
            "steps": steps,
            "iterations": iterations,
            "unfinished_iteration": unfinished,
        }
        (path / "summary.json").write_text(json.dumps(state))
    return path


def row_of(text: str, quantity: str, iteration: int = 0) -> list[str]:
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| ")]
    (row,) = [row for row in rows if row[:2] == [str(iteration), quantity]]
    return row


@pytest.mark.parametrize(
    ("ours", "seeds", "words"),
    [
        (2.0, (1.0, 2.5, 3.0), "inside the range of the seeds"),
        (1.0, (1.0, 2.5, 3.0), "inside the range of the seeds"),
        (3.3, (1.0, 2.5, 3.0), "outside: 10.0 % above the nearest seed"),
        (0.75, (3.0, 2.5, 1.0), "outside: 25.0 % below the nearest seed"),
        (-22.0, (-20.0, -10.0, -15.0), "outside: 10.0 % below the nearest seed"),
        (-9.0, (-20.0, -10.0, -15.0), "outside: 10.0 % above the nearest seed"),
        (0.5, (-2.0, -1.0, 0.0), "outside: 0.5 above the nearest seed"),
        (float("nan"), (1.0, 2.0, 3.0), "outside: NaN"),
    ],
)
def test_verdict(ours, seeds, words):
    assert verdict(ours, seeds) == words


def test_distance_is_in_standard_deviations_of_the_seeds():
    assert distance(5.0, (1.0, 2.0, 3.0)) == "+3.0"
    assert distance(1.5, (1.0, 2.0, 3.0)) == "-0.5"
    assert distance(1.0, (1.0, 1.0, 1.0)) == "0.0"
    assert distance(2.0, (1.0, 1.0, 1.0)) == "–"


def test_section_names_the_run_and_judges_each_number(tmp_path):
    text = section(read_run(write_run(tmp_path / "mine")))
    assert text.startswith("## breakout: mine\n")
    for fact in (
        "recipe c2d",
        "seed 4",
        "c2d-paper [0123456789ab]",
        "torch 2.0",
        "50.0 agent steps",
        "1 thread on a processor",
        f"--seed 4 --run-dir {tmp_path / 'mine'}`",
    ):
        assert fact in text
    assert row_of(text, "mean loss") == [
        "0", "mean loss", "0.025", "0.02691", "0.02183", "0.02508", "inside the range of the seeds", "+0.2",
        "88 %",
    ]  # fmt: skip
    assert row_of(text, "largest atom")[6] == "outside: 4.3 % above the nearest seed"
    assert row_of(text, "games ended")[2:7] == [
        "1,110",
        "1,127",
        "1,108",
        "1,295",
        "inside the range of the seeds",
    ]
    assert "Inside the range of the seeds: 4 of 6 values." in text
    assert "unfinished" not in text and "not ended" not in text


def test_joint_section(tmp_path):
    """Two runs: ten ways to split. Losses below all seeds, 0.02183 and more, are the most extreme; scores are not."""
    runs = [
        read_run(write_run(tmp_path / name, seed=seed, mean_loss=loss, mean_score=score))
        for name, seed, loss, score in (("a", 1, 0.02, None), ("b", 2, 0.01, 1.7))
    ]
    text = joint_section(runs)
    assert text.startswith("## breakout: a, b together\n")
    assert row_of(text, "mean loss")[2:] == ["0.01, 0.02", "0.02183, 0.02508, 0.02691", "0.015", "0.02461", "0.10"]
    assert row_of(text, "mean score")[2:5:2] == ["1.7", "1.7"]
    assert "the 10 ways to split the values of 2 runs and 3 seeds" in text and "smallest possible p is 0.1)" in text
    assert "of the 20 ways" in joint_section([*runs, runs[0]]) and "possible p is 0.1)" in joint_section(
        [*runs, runs[0]]
    )


def test_runs_in_all_states(tmp_path):
    assert "The run has not ended" in section(read_run(write_run(tmp_path / "going", summary=None)))
    stopped = section(read_run(write_run(tmp_path / "stopped", summary="interrupted")))
    assert "stopped on request in iteration 1, after 1,234 of its 250,000 steps" in stopped
    early = section(read_run(write_run(tmp_path / "early", iterations=0, summary="failed")))
    assert (
        "No iteration is complete yet" in early
        and "stopped by an error in iteration 0" in early
        and "| mean loss" not in early
    )
    long = read_run(write_run(tmp_path / "long", iterations=12))
    assert {one.iteration for one in compare_quantities(long)} == set(range(10))
    assert "Later iterations of this run are left out" in section(long)
    none = section(read_run(write_run(tmp_path / "none", mean_score=None, episodes=0)))
    assert row_of(none, "mean score")[6] == "no game ended"


def test_an_incomplete_last_line_is_ignored(tmp_path):
    path = write_run(tmp_path / "run", iterations=2, summary=None)
    file = path / "records.jsonl"
    file.write_text(file.read_text()[:-40])
    assert len(read_run(path).iterations) == 1


@pytest.mark.parametrize("damage", ["", "[]\n", '{"kind": "iteration"}\n', "{\n", '{"kind": "run"}\n'])
def test_damaged_records(tmp_path, damage):
    path = write_run(tmp_path / "run")
    (path / "records.jsonl").write_text(damage)
    with pytest.raises(UserError, match=r"records\.jsonl"):
        read_run(path)


def test_record_without_a_number(tmp_path):
    path = write_run(tmp_path / "run")
    file = path / "records.jsonl"
    file.write_text(file.read_text().replace('"mean_loss"', '"loss"'))
    with pytest.raises(UserError, match='line 2: "mean_loss" is missing'):
        read_run(path)


def test_games_without_published_numbers_are_rejected(tmp_path):
    with pytest.raises(UserError, match=r"minatar/breakout.*kungfumaster"):
        section(read_run(write_run(tmp_path / "a", env="minatar/breakout")))
    with pytest.raises(UserError, match=r"atari/alien.*kungfumaster"):
        section(read_run(write_run(tmp_path / "b", env="atari/alien")))


def test_command_names_what_differs_from_the_defaults():
    from dataclasses import replace

    from c2d.recipes.parts import Nature
    from c2d.recipes.recipe import Schedule

    usual = Config(env="atari/pong", iterations=1, threads=2)
    assert train_command(to_json(usual)) == "c2d train pong --recipe c2d --iterations 1 --seed 1"
    agent = replace(RECIPES["c2d"], encoder=Nature(norm="none"), schedule=Schedule(gamma=0.9))
    changed = replace(usual, recipe=agent, run_dir="a b", rules=replace(usual.rules, sticky=0.0))
    assert train_command(to_json(changed)) == (
        "c2d train pong --recipe c2d --iterations 1 --seed 1 --rules.sticky 0.0 --encoder.norm none "
        "--schedule.gamma 0.9 --run-dir 'a b'"
    )


def test_command_is_understood_by_train():
    from dataclasses import replace

    from c2d.cli.train import read
    from c2d.recipes.parts import Adam, PhiSpec

    agent = replace(RECIPES["c2d-channel"], phi=PhiSpec(kind="symlog"), optim=Adam(clip_norm=None))
    config = Config(env="atari/pong", recipe_name="c2d-channel", iterations=3, seed=7, recipe=agent)
    assert read(train_command(to_json(config)).split()[2:]) == config


def test_page_keeps_notes_and_other_sections():
    page = update_page(None, "# Title", {"a": "## a\nold", "b": "## b\nother"})
    page = page.replace(
        "<!-- notes -->\n<!-- /notes -->\n<!-- /section a -->",
        "<!-- notes -->\nBy hand.\n<!-- /notes -->\n<!-- /section a -->",
    )
    again = update_page(page + "A footer.\n", "# New title", {"a": "## a\nnew"})
    assert "By hand." in again and "## a\nnew" in again and "old" not in again
    assert "## b\nother" in again and "A footer." in again
    assert "# New title" in again and "# Title" not in again
    assert again.index("By hand.") < again.index("## b")
    assert update_page(again, "# New title", {"a": "## a\nnew"}) == again


@pytest.mark.parametrize(
    "page",
    [
        "# A page of mine\n",
        "<!-- intro -->\n",
        "<!-- intro -->\n<!-- /intro -->\n<!-- section a -->\n",
        "<!-- intro -->\n<!-- /intro -->\n<!-- section a -->\n<!-- notes -->mine\n<!-- /section a -->\n",
    ],
)
def test_a_page_that_would_lose_text_is_rejected(page):
    with pytest.raises(UserError, match="FILE is not updated"):
        update_page(page, "intro", {"a": "text"}, "FILE")


def test_reporting_imports_neither_torch_nor_the_emulator():
    code = (
        "import sys, pkgutil, importlib, c2d.reporting as r\n"
        "for m in pkgutil.iter_modules(r.__path__): importlib.import_module('c2d.reporting.' + m.name)\n"
        "import c2d.cli.reports\n"
        "from c2d.reporting.published import early_iterations; early_iterations()\n"
        "print([m for m in ('torch', 'ale_py', 'cv2') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_table_is_complete():
    table = early_iterations()
    assert len(table) == 8
    for iterations in table.values():
        assert set(iterations) == set(range(10))
        assert all(len(seeds) == 3 for cell in iterations.values() for seeds in cell.values())
    assert table["breakout"][0]["atom_min"] == (-19.965401, -16.161333, -20.881147)


@pytest.mark.published
def test_table_equals_the_published_data():
    names = dict(avg_return="mean_score", avg_loss="mean_loss", supp_min="atom_min", supp_max="atom_max",
                 norm_max="gradient_norm_max", episodes="episodes")  # fmt: skip
    rows = list(csv.DictReader((Path(os.environ["C2D_PUBLISHED"]) / "early_iterations.csv").read_text().splitlines()))
    assert len(rows) == 240
    for row in rows:
        cell = early_iterations()[row["game"]][int(row["iteration"])]
        for theirs, ours in names.items():
            assert cell[ours][int(row["seed"]) - 1] == float(row[theirs])


@pytest.mark.parametrize(
    ("value", "others", "wanted"),
    [
        (2.0, (1.0, 3.0), 0.0),
        (3.0, (1.0, 3.0), 0.0),
        (4.5, (3.0, 1.0), 0.5),
        (-9.0, (-20.0, -10.0), 0.1),
        (-25.0, (-20.0, -10.0), 0.25),
        (1.0, (-1.0, 0.0), math.inf),
        (math.nan, (1.0, 2.0), math.inf),
    ],
)
def test_gap(value, others, wanted):
    assert relative_gap(value, others) == pytest.approx(wanted)


def test_a_value_like_the_seeds_is_usual_and_one_far_from_all_is_not():
    for quantity in QUANTITIES:
        seeds = early_iterations()["kungfumaster"][0][quantity]
        assert share_at_least_as_far(quantity, 0, sorted(seeds)[1], seeds) == 1.0
        assert share_at_least_as_far(quantity, 0, 1e9, seeds) == 0.0


def test_share_as_far_by_hand():
    """Seeds 10, 20, 40 and a value of 50: 150 % above 10 and 20, 25 % above the two pairs with 40."""
    beyond = []
    for game in early_iterations().values():
        low, middle, high = sorted(game[3]["gradient_norm_max"])
        beyond += [(middle - low) / middle, 0.0, (high - middle) / middle]  # all are positive
    assert len(beyond) == 24
    shares = [sum(one >= limit for one in beyond) / 24 for limit in (1.5, 0.25, 0.25)]
    assert 0 < shares[0] < shares[1] < 1
    assert share_at_least_as_far("gradient_norm_max", 3, 50.0, (10.0, 20.0, 40.0)) == pytest.approx(sum(shares) / 3)


@pytest.mark.parametrize("sizes", [(3, 3), (2, 3), (5, 3)])
@pytest.mark.parametrize("ties", [False, True])
def test_permutation_test_is_scipys(sizes, ties):
    rng = np.random.default_rng(sum(sizes))
    for shift in (0.0, 1.0, 5.0):
        first, second = rng.normal(shift, 1, sizes[0]), rng.normal(0, 1, sizes[1])
        if ties:
            first, second = np.round(first), np.round(second)
        # the size of the difference, "greater": scipy's own "two-sided" doubles the smaller tail
        wanted = permutation_test((first, second), _differ, n_resamples=np.inf, alternative="greater", vectorized=False)
        assert permutation_p(first.tolist(), second.tolist()) == pytest.approx(wanted.pvalue)


def _differ(first, second):
    return abs(first.mean() - second.mean())


def test_values_that_are_not_finite_have_no_p():
    assert math.isnan(permutation_p([1.0, math.nan], [1.0, 2.0, 3.0]))
