"""Time, memory and disk: predicted, and refused if they are not there."""

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from c2d.agents.build import build_network, parameter_count
from c2d.errors import UserError
from c2d.formatting import duration, size
from c2d.sweep import forecast, sweep
from c2d.sweep.forecast import Rates, _weights, check_disk, check_memory, free_disk, makespan, need, rate_table
from c2d.sweep.plan import Plan, multiply
from c2d.sweep.show import budget_line
from c2d.sweep.terms import Terms, seconds
from c2d.sweep.variants import Variant
from c2d.training.process import predicted_bytes
from c2d.training.session import Session
from tests.sweep.tiny_plans import TINY, carry_out, straight, tiny_plan


def runs_of(env, recipe="c2d", seeds=(1,), where=Path("runs"), **settings):
    return multiply(Plan("p", (Variant(recipe, recipe),), (env,), seeds, settings=settings), where).runs


def test_makespan_against_all_assignments():
    """Never better than the best assignment, and at most twice as long; and exact by hand."""
    times = [3.0, 1.0, 4.0, 1.0, 5.0, 2.0]
    best = min(
        max(sum(t for t, place in zip(times, places, strict=True) if place == k) for k in range(2))
        for places in itertools.product(range(2), repeat=len(times))
    )
    assert best <= makespan(times, 2) <= 2 * best
    assert makespan(times, 1) == sum(times) and makespan(times, 6) == 5.0
    assert makespan([2.0, 2.0, 3.0], 2) == 5.0 and makespan([], 3) == 0.0


@pytest.mark.parametrize(("env", "recipe"), [("minatar/breakout", "c2d"), ("toy/sure", "dqn"), ("breakout", "c51")])
def test_disk_is_what_the_run_itself_predicts(env, recipe, tmp_path):
    run = runs_of(env, recipe, where=tmp_path, **{"schedule.replay-capacity": 25_000})[0]
    session = Session(replace(run.config, iterations=1))
    try:
        wanted = predicted_bytes(session)
    finally:
        session.close()
    assert need(run, Rates()).disk == pytest.approx(wanted, rel=0.3, abs=6e6)


def test_memory_grows_with_the_replay_and_covers_a_real_run(tmp_path):
    tiny, small, middle, large = (
        need(runs_of("breakout", **{"schedule.replay-capacity": n})[0], Rates())
        for n in (20_000, 120_000, 300_000, 10**6)
    )
    assert small.memory - tiny.memory == pytest.approx(100_000 * (84 * 84 + 16), rel=1e-3)  # as they are
    assert large.memory - middle.memory == pytest.approx(700_000 * (0.3 * 84 * 84 + 16), rel=1e-3)  # compressed
    assert 1.9e9 < large.memory < 3.5e9  # Ms. Pac-Man with 1M transitions was measured at 1.9 GB for the replay
    assert need(runs_of("breakout", "iqn")[0], Rates()).memory > need(runs_of("breakout", "c51")[0], Rates()).memory


@pytest.mark.parametrize("recipe", ["c2d", "c51", "iqn", "fqf", "rainbow-c2d-full"])
def test_weights_are_counted_right_for_every_number_of_actions(recipe):
    (run,) = runs_of("breakout", recipe)
    for actions in (4, 18):
        spec = replace(run.spec, actions=actions, action_names=())
        built = parameter_count(build_network(run.config.recipe, spec, torch.Generator()))
        assert _weights(run.config.recipe, spec) == built


def test_rates_stated_measured_and_of_the_table(tmp_path):
    run = runs_of("minatar/breakout", where=tmp_path)[0]
    rates = Rates()
    assert rates.of(run) == rate_table()["minatar", "c2d"][1] and "runs with 1 thread" in rates.source
    assert need(run, rates).seconds == run.config.steps / rates.of(run)
    assert Rates(50.0).of(run) == 50.0 and "as stated" in Rates(50.0).source
    assert Rates().of(runs_of("toy/sure")[0]) is None
    assert Rates().of(run._replace(config=replace(run.config, device="cuda"))) is None  # the table is of a CPU
    toy = multiply(tiny_plan(seeds=(1,)), tmp_path).runs[0]
    straight(toy.config, toy.config.directory)
    rates = Rates()
    rates.measure([toy])
    assert rates.of(toy) > 1.0 and "measured here" in rates.source


def test_too_much_memory_is_refused_with_what_would_fit():
    run = runs_of("breakout")[0]
    needed = need(run, Rates())
    with pytest.raises(UserError, match=r"breakout-c2d-s1 may take 2\.. GB of memory and there are 1\.5 GB") as error:
        check_memory([run], [needed], int(1.5e9), None)
    capacity = int(str(error.value).partition("replay-capacity=")[2].split()[0])
    fits = need(runs_of("breakout", **{"schedule.replay-capacity": capacity})[0], Rates())
    assert 1.3e9 < fits.memory <= 1.5e9
    with pytest.raises(UserError, match="replay-capacity=") as error:  # now of frames that are not compressed
        check_memory([run], [needed], int(0.7e9), None)
    capacity = int(str(error.value).partition("replay-capacity=")[2].split()[0])
    fits = need(runs_of("breakout", **{"schedule.replay-capacity": capacity})[0], Rates())
    assert 0.69e9 < fits.memory <= 0.7e9
    with pytest.raises(UserError, match="not even an empty replay would fit"):
        check_memory([run], [needed], 10**8, None)
    with pytest.raises(UserError, match=r"--workers 4: .* 2 at once would fit"):
        check_memory([run] * 4, [needed] * 4, int(2.5 * needed.memory), 4)
    check_memory([run] * 4, [needed] * 4, int(2.5 * needed.memory), None)  # then two go on at once


def test_a_plan_too_large_for_the_machine_is_not_started(tmp_path, monkeypatch):
    monkeypatch.setattr(sweep, "available_memory", lambda: 10**8)
    with pytest.raises(UserError, match="not even an empty replay would fit"):
        carry_out(tiny_plan(), tmp_path / "sweep")
    assert not (tmp_path / "sweep").exists()


def test_too_much_disk_is_refused(tmp_path, monkeypatch):
    with pytest.raises(UserError, match=r"may take .* on disk and .* left; with --keep-replay False"):
        check_disk(tmp_path, 10**18, 10**15, free=10**17)
    check_disk(tmp_path, 10, 10, free=10)
    assert free_disk(tmp_path / "not" / "yet") > 10
    monkeypatch.setattr(forecast.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 10**6})())
    with pytest.raises(UserError, match="the plan may take"):
        carry_out(tiny_plan(), tmp_path / "sweep")
    assert not (tmp_path / "sweep").exists()


def test_budget_in_seeds_of_everything():
    runs = runs_of("minatar/breakout", seeds=(1, 2, 3), **TINY)
    needs = {run.name: need(run, Rates(100.0)) for run in runs}
    one = needs[runs[0].name].seconds
    assert "1 of 3 seeds of everything" in budget_line(runs, needs, 1, 1.5 * one)
    assert "3 of 3 seeds" in budget_line(runs, needs, 3, 1.5 * one)
    assert "not one seed of everything" in budget_line(runs, needs, 1, 0.5 * one)


def test_words():
    assert [duration(s) for s in (5, 61, 3_700, 100_000)] == ["5 s", "1 min", "1 h 1 min", "1 d 3 h"]
    assert [size(b) for b in (5e3, 2.5e6, 3e9, 4e12)] == ["5 kB", "2.5 MB", "3.0 GB", "4.0 TB"]
    assert [seconds(t) for t in ("90s", "30min", "6h", "2d", "1h30min")] == [90, 1_800, 21_600, 172_800, 5_400]


@pytest.mark.parametrize("text", ["6", "h", "-1h", "soon", "0s", "1.2.3h", ""])
def test_budgets_that_are_none(text):
    with pytest.raises(UserError, match="accepted: a time such as"):
        seconds(text)


@pytest.mark.parametrize("terms", [{"workers": 0}, {"threads": 0}, {"gpus": -1.0}, {"gpus": 1.5}, {"retries": -1}])
def test_terms_out_of_range(terms):
    with pytest.raises(UserError, match="accepted:"):
        Terms(**terms).check()


def test_room_on_nodes(monkeypatch):
    from c2d.sweep import launch

    nodes = [{"CPU": 8.0, "GPU": 2.0, "memory": 64e9}, {"CPU": 4.0, "memory": 6e9}]
    monkeypatch.setattr(launch, "_nodes", lambda: nodes)
    assert launch.room(Terms(), int(2e9)) == 8 + 3  # the second node's memory holds three
    assert launch.room(Terms(threads=3), int(2e9)) == 2 + 1
    assert launch.room(Terms(gpus=0.25), int(2e9)) == 8 and launch.room(Terms(gpus=1.0), int(2e9)) == 2
    assert launch.room(Terms(gpus=0.1), int(2e9)) == 8  # cores are the narrower
    assert launch.room(Terms(workers=5), int(2e9)) == 5 and launch.room(Terms(), int(1e12)) == 0
    assert launch.memory_of_largest_node() == 64e9
