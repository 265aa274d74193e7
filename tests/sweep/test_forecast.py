"""Time, memory and disk: estimated, and rejected if they are not available; the cost on GPUs."""

import itertools
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from c2d.agents.build import build_network, parameter_count
from c2d.errors import UserError
from c2d.formatting import duration, size
from c2d.sweep import forecast, run_sweep
from c2d.sweep.display import budget_line
from c2d.sweep.forecast import (
    Rates,
    _weights,
    check_disk,
    check_memory,
    cost_lines,
    estimate,
    free_disk,
    makespan,
    rate_table,
)
from c2d.sweep.options import SweepOptions
from c2d.sweep.plan import Plan, Variant, multiply
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
    assert estimate(run, Rates()).disk == pytest.approx(wanted, rel=0.3, abs=6e6)


def test_memory_grows_with_the_replay_and_covers_a_real_run(tmp_path):
    tiny, small, middle, large = (
        estimate(runs_of("breakout", **{"schedule.replay-capacity": n})[0], Rates())
        for n in (20_000, 120_000, 300_000, 10**6)
    )
    assert small.memory - tiny.memory == pytest.approx(100_000 * (84 * 84 + 16), rel=1e-3)  # uncompressed
    assert large.memory - middle.memory == pytest.approx(700_000 * (0.3 * 84 * 84 + 16), rel=1e-3)  # compressed
    assert 1.9e9 < large.memory < 3.5e9  # Ms. Pac-Man with 1M transitions was measured at 1.9 GB for the replay
    assert (
        estimate(runs_of("breakout", "iqn")[0], Rates()).memory
        > estimate(runs_of("breakout", "c51")[0], Rates()).memory
    )


@pytest.mark.parametrize("recipe", ["c2d", "c51", "iqn", "fqf", "rainbow-c2d-full"])
def test_weights_are_counted_right_for_every_number_of_actions(recipe):
    (run,) = runs_of("breakout", recipe)
    for actions in (4, 18):
        spec = replace(run.spec, actions=actions, action_names=())
        built = parameter_count(build_network(run.config.recipe, spec, torch.Generator()))
        assert _weights(run.config.recipe, spec) == built


def test_rates_as_stated_as_measured_and_from_the_table(tmp_path):
    run = runs_of("minatar/breakout", where=tmp_path)[0]
    rates = Rates()
    assert rates.for_run(run) == rate_table()["minatar", "c2d"][1] and "1 thread per run" in rates.source
    assert estimate(run, rates).seconds == run.config.steps / rates.for_run(run)
    assert Rates(50.0).for_run(run) == 50.0 and "as stated" in Rates(50.0).source
    assert Rates().for_run(runs_of("toy/sure")[0]) is None
    assert Rates().for_run(run._replace(config=replace(run.config, device="cuda"))) is None  # the table is for CPUs
    toy = multiply(tiny_plan(seeds=(1,)), tmp_path).runs[0]
    straight(toy.config, toy.config.directory)
    rates = Rates()
    rates.measure([toy])
    assert rates.for_run(toy) > 1.0 and "measured here" in rates.source


def test_too_much_memory_is_rejected_with_what_would_fit():
    run = runs_of("breakout")[0]
    needed = estimate(run, Rates())
    with pytest.raises(UserError, match=r"breakout-c2d-s1 may need 2\.. GB of memory, 1\.5 GB are available") as error:
        check_memory([run], [needed], int(1.5e9), None)
    capacity = int(str(error.value).partition("replay-capacity=")[2].split()[0])
    fits = estimate(runs_of("breakout", **{"schedule.replay-capacity": capacity})[0], Rates())
    assert 1.3e9 < fits.memory <= 1.5e9
    with pytest.raises(UserError, match="replay-capacity=") as error:  # now with uncompressed frames
        check_memory([run], [needed], int(0.7e9), None)
    capacity = int(str(error.value).partition("replay-capacity=")[2].split()[0])
    fits = estimate(runs_of("breakout", **{"schedule.replay-capacity": capacity})[0], Rates())
    assert 0.69e9 < fits.memory <= 0.7e9
    with pytest.raises(UserError, match="not even an empty replay would fit"):
        check_memory([run], [needed], 10**8, None)
    with pytest.raises(UserError, match=r"--workers is 4; accepted: at most 2"):
        check_memory([run] * 4, [needed] * 4, int(2.5 * needed.memory), 4)
    check_memory([run] * 4, [needed] * 4, int(2.5 * needed.memory), None)  # then two run at once


def test_a_plan_too_large_for_the_machine_is_not_started(tmp_path, monkeypatch):
    monkeypatch.setattr(run_sweep, "available_memory", lambda: 10**8)
    with pytest.raises(UserError, match="not even an empty replay would fit"):
        carry_out(tiny_plan(), tmp_path / "sweep")
    assert not (tmp_path / "sweep").exists()


def test_too_much_disk_is_rejected(tmp_path, monkeypatch):
    with pytest.raises(UserError, match=r"may need .* on disk, .* free; with --keep-replay False"):
        check_disk(tmp_path, 10**18, 10**15, free=10**17)
    check_disk(tmp_path, 10, 10, free=10)
    assert free_disk(tmp_path / "not" / "yet") > 10
    monkeypatch.setattr(forecast.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 10**6})())
    with pytest.raises(UserError, match="the plan may need"):
        carry_out(tiny_plan(), tmp_path / "sweep")
    assert not (tmp_path / "sweep").exists()


def test_budget_in_seeds_of_everything():
    runs = runs_of("minatar/breakout", seeds=(1, 2, 3), **TINY)
    estimates = {run.name: estimate(run, Rates(100.0)) for run in runs}
    one = estimates[runs[0].name].seconds
    assert "1 of 3 seeds of everything" in budget_line(runs, estimates, 1, 1.5 * one)
    assert "3 of 3 seeds" in budget_line(runs, estimates, 3, 1.5 * one)
    assert "not one seed of everything" in budget_line(runs, estimates, 1, 0.5 * one)


def test_durations_and_sizes_as_text():
    assert [duration(s) for s in (5, 61, 3_700, 100_000)] == ["5 s", "1 min", "1 h 1 min", "1 d 3 h"]
    assert [size(b) for b in (5e3, 2.5e6, 3e9, 4e12)] == ["5 kB", "2.5 MB", "3.0 GB", "4.0 TB"]


def test_capacity_of_nodes(monkeypatch):
    from c2d.sweep import launch

    nodes = [{"CPU": 8.0, "GPU": 2.0, "memory": 64e9}, {"CPU": 4.0, "memory": 6e9}]
    monkeypatch.setattr(launch, "living_nodes", lambda: nodes)
    assert launch.capacity(SweepOptions(), int(2e9)) == 8 + 3  # the second node has memory for three
    assert launch.capacity(SweepOptions(threads=3), int(2e9)) == 2 + 1
    assert (
        launch.capacity(SweepOptions(gpus=0.25), int(2e9)) == 8
        and launch.capacity(SweepOptions(gpus=1.0), int(2e9)) == 2
    )
    assert launch.capacity(SweepOptions(gpus=0.1), int(2e9)) == 8  # limited by cores
    assert launch.capacity(SweepOptions(workers=5), int(2e9)) == 5 and launch.capacity(SweepOptions(), int(1e12)) == 0
    assert launch.memory_of_largest_node() == 64e9


def test_cost_of_equal_runs_on_gpus(tmp_path):
    runs = multiply(tiny_plan(seeds=range(20), iterations=18), tmp_path).runs
    estimates = [estimate(run, Rates()) for run in runs]
    lines = cost_lines(runs, estimates, rate=0.5)
    each = runs[0].config.steps / 0.5
    rows = {line.split(" | ")[0].strip("| "): line.strip("| ").split(" | ")[1:] for line in lines[5:]}
    assert rows["time at 0.5 steps/s, 1 run on a GPU"] == [duration(each * n) for n in (20, 3, 1)]
    assert rows["time at 0.5 steps/s, 4 runs on a GPU"] == [duration(each * math.ceil(20 / n)) for n in (4, 32, 256)]
    assert rows["memory of all nodes, 4 runs on a GPU"] == [size(estimates[0].memory * n) for n in (4, 20, 20)]
    assert rows["disk with all replays"] == [size(20 * estimates[0].disk)] * 3
    assert "72,000 agent steps" in lines[0] and "as stated" in lines[2]
    assert sum(line.startswith("| time at") for line in cost_lines(runs, estimates, None)) == 4


def test_cost_of_runs_with_the_residual_encoder():
    """Each fills a GPU, at the rates that its authors report; its feature maps count as memory."""
    runs = runs_of("breakout", "btr", seeds=(1, 2))
    estimates = [estimate(run, Rates()) for run in runs]
    lines = cost_lines(runs, estimates, None)
    times = [line for line in lines if line.startswith("| time at")]
    assert len(times) == 2 and all("1 run on a GPU" in line for line in times)
    hours = [50e6 / rate / 3600 for rate in (1_208, 434)]
    assert [round(each, 1) for each in hours] == [11.5, 32.0]
    assert duration(2 * 50e6 / 1_208) in times[0] and "11.5 hours" in lines[2]
    wide = runs_of("breakout", "btr", **{"encoder": "nature"})[0]
    assert estimates[0].memory > estimate(wide, Rates()).memory + 0.5e9
