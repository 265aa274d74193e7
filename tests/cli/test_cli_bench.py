"""c2d bench: everything is measured, printed and written; errors are reported before anything is measured."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
from dataclasses import replace

import pytest
import torch

from c2d.bench import loop, measure
from c2d.bench.loop import BareEmulator, calibrate_machine
from c2d.bench.measure import default_threads, flops_of_update
from c2d.cli import bench
from c2d.cli.main import main
from c2d.config import default_config
from c2d.envs.protocols import AtariRules
from c2d.errors import UserError
from c2d.training.session import Session

TIMES = ("environment_ms", "emulate_ms", "act_ms", "store_ms", "sample_ms", "update_ms")


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """One measurement of a small environment: exit code, printed text, numbers."""
    file, text = tmp_path_factory.mktemp("bench") / "numbers.json", io.StringIO()
    with contextlib.redirect_stdout(text):
        code = main(f"bench --env toy/bimodal --seconds 0.2 --threads 1 --json {file}".split())
    return code, text.getvalue(), json.loads(file.read_text())


def test_measures_and_writes_the_numbers(measured):
    code, _, numbers = measured
    assert code == 0
    assert numbers["env"] == "toy/bimodal"
    assert numbers["recipe"] == "c2d"
    assert {"torch", "c2d", "python"} <= set(numbers["versions"])
    (entry,) = numbers["measurements"]
    assert entry["threads"] == 1
    for name in TIMES:
        assert 0.0 < entry[name]["q1"] <= entry[name]["median"] <= entry[name]["q3"], name
    assert len(entry["loop_steps_per_second"]) == 3
    assert entry["parameters"] > 1_000 and entry["gflop_per_update"] > 0
    assert min(entry["loop_steps_per_second"]) > 0.0
    assert entry["peak_memory_mb"] > 50.0
    for moment in ("calibration_before", "calibration_after"):
        assert min(numbers[moment]["gflops"].values()) > 0.0
        assert "bare_emulator_steps_per_second" not in numbers[moment]
    assert "share_of_bare_emulator" not in entry


def test_prints_what_ran_and_an_aligned_table(measured):
    _, text, numbers = measured
    first, titles, *body, note = text.splitlines()
    assert "toy/bimodal" in first
    assert f"torch {torch.__version__}" in first
    assert numbers["machine"]["cpu"] in first
    assert len({len(line) for line in (titles, *body)}) == 1  # right-aligned last column
    assert [line.split()[-1] for line in body if line.startswith("whole loop")] == [
        bench._three_digits(rate) for rate in numbers["measurements"][0]["loop_steps_per_second"]
    ]
    assert not any("emulator" in line for line in body)
    assert "quartiles" in note


def test_atari_is_compared_with_the_bare_emulator():
    bare = BareEmulator("breakout", AtariRules())
    assert calibrate_machine((1,), bare, 0.01)["bare_emulator_steps_per_second"] > 10.0
    result = loop.emulation(loop.loop_config("breakout"), bare, 0.05)
    assert 0.01 < result["share_of_bare_emulator"] < 10.0
    assert result["environment_ms"]["median"] > 0.01


def test_the_table_has_every_stage_the_emulator_and_the_machine():
    """Invented numbers, each of which must appear in its row."""
    spread = {"median": 1.25, "q1": 1.0, "q3": 2.0, "mean": 1.3}
    entry = {
        "threads": 1, "environment_ms": spread, "share_of_bare_emulator": 0.876, "emulate_ms": spread, "act_ms": spread,
        "store_ms": spread, "sample_ms": spread, "update_ms": spread, "loop_steps_per_second": [64.9, 70.0, 71.0],
        "peak_memory_mb": 377.4,
    }  # fmt: skip
    machine = {"gflops": {"1": 86.2, "2": 176.3}, "bare_emulator_steps_per_second": 2217.0}
    result = {"calibration_before": machine, "calibration_after": machine, "measurements": [entry]}
    table = {what.strip(): (unit, cells) for what, unit, cells in bench.table_rows(result)}
    assert table["matrix product 1024², before / after"] == ("GFLOPS", ["86.2 / 86.2"])
    assert table["with 2 threads"] == ("GFLOPS", ["176.3 / 176.3"])
    assert table["bare emulator, before / after"] == ("steps/s", ["2217 / 2217"])
    assert table["relative to the bare emulator"] == ("%", ["87.6"])
    for stage in ("environment alone", "in the loop: environment", "act and stack frames", "sample a batch", "update"):
        assert table[stage][1] == ["1.25 (1.00–2.00)"], stage
    assert table["store"] == ("µs/step", ["1250 (1000–2000)"])
    assert table["whole loop, window 1"] == ("steps/s", ["64.9"])
    assert table["peak memory so far, with a nearly empty replay"] == ("MB", ["377"])


def test_the_bare_emulator_repeats_every_action():
    bare = BareEmulator("breakout", AtariRules(sticky=0.0, action_repeat=3))
    bare.play([0] * 7)
    assert bare._ale.getFrameNumber() == 21


def test_the_loop_is_that_of_training_at_its_least_exploration():
    config = loop.loop_config("gym/CartPole-v1")
    session = Session(config)
    assert session.epsilon == config.recipe.schedule.epsilon_min
    assert config.recipe.schedule.replay_capacity == 100_000
    trained = default_config("gym/CartPole-v1").recipe.schedule
    assert config.recipe.schedule.update_period == trained.update_period
    assert config.recipe.schedule.batch_size == trained.batch_size
    assert not config.compress_replay and loop.loop_config("breakout").compress_replay


def test_clocks_count_every_call_and_leave_no_trace(monkeypatch):
    monkeypatch.setattr(loop, "HISTORY", 50)
    config = loop.loop_config("toy/sure")
    schedule = replace(config.recipe.schedule, update_period=2)
    session = Session(replace(config, recipe=replace(config.recipe, schedule=schedule)))
    session.fill_history()
    with loop._clocks(session) as spent:
        measured = loop.window(session, 0.0, least_updates=3)
    assert measured.steps == 6
    assert {name: len(times) for name, times in spent.items()} == {
        "emulate": 6, "act": 6, "stack": 6, "store": 6, "sample": 3, "update": 3,
    }  # fmt: skip
    session.advance()
    assert len(spent["emulate"]) == 6


def test_summary_in_milliseconds():
    result = loop.summary([0.001, 0.002, 0.003, 0.004, 0.010])
    assert result == pytest.approx({"median": 3.0, "q1": 2.0, "q3": 4.0, "mean": 4.0})


def test_default_threads_compare_and_use_all_cores(monkeypatch):
    counts = {}
    for cores in (1, 2, 8):
        monkeypatch.setattr("os.cpu_count", lambda cores=cores: cores)
        counts[cores] = default_threads()
    assert counts == {1: (1,), 2: (1, 2), 8: (1, 2, 8)}


@pytest.mark.parametrize("load, warned", [(0.1, False), (3.0, True)])
def test_warns_when_the_machine_is_busy(monkeypatch, capsys, load, warned):
    monkeypatch.setattr("c2d.bench.measure.load_average", lambda: load)
    monkeypatch.setattr("c2d.bench.measure.measure", lambda *_: {})
    monkeypatch.setattr(bench, "show", lambda _: None)
    bench.main(["--env", "toy/sure", "--threads", "1"])
    assert ("not idle" in capsys.readouterr().err) == warned


@pytest.mark.parametrize(
    "arguments, named",
    [
        (["--seconds", "0"], "--seconds"),
        (["--seconds", "nan"], "--seconds"),
        (["--seconds", "soon"], "seconds"),
        (["--threads", "0"], "--threads"),
        (["--threads", "1,two"], "--threads"),
        (["--threads", "100000"], "--threads"),
        (["--threads", ""], "--threads"),
        (["--env", "brakeout"], "breakout"),
        (["--recipe", "c3d"], "c2d"),
        (["--json", "/nowhere/at/all.json"], "/nowhere/at/all.json"),
        (["--speed", "1"], "--speed"),
        (["--device", "meta"], "--device"),
        (["--compile", "fast"], "compile"),
    ],
)
def test_bad_input_is_named_before_anything_is_measured(monkeypatch, arguments, named):
    monkeypatch.setattr("c2d.bench.measure.measure", lambda *_: pytest.fail("measured"))
    with pytest.raises(UserError) as caught:
        bench.main(arguments)
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


def test_all_recipes_one_line_each(capsys, monkeypatch, tmp_path):
    """The first is measured in a process of its own, as all are; the other in this one, which takes less time."""
    from c2d.recipes import rows as recipes

    in_a_process, words_of_processes = subprocess.run, []

    def once(words, input="", **how):
        if "c2d.bench.measure" not in words:
            return in_a_process(words, **how)
        words_of_processes.append(words)
        if len(words_of_processes) == 1:
            return in_a_process(words, input=input, **how)
        return subprocess.CompletedProcess(words, 0, json.dumps(measure._measure_recipe(json.loads(input))), "")

    monkeypatch.setattr(measure.subprocess, "run", once)
    monkeypatch.setattr(loop, "HISTORY", 100)
    monkeypatch.setattr(recipes, "RECIPES", {name: recipes.RECIPES[name] for name in ("c2d", "dqn")})
    file = tmp_path / "rows.json"
    words = [
        "bench",
        "--recipe",
        "all",
        "--env",
        "toy/sure",
        "--seconds",
        "0.05",
        "--threads",
        "1",
        "--json",
        str(file),
    ]
    assert main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("|")[1].strip() for line in lines if line.startswith("| ")] == ["recipe", "c2d", "dqn"]
    rows = json.loads(file.read_text())["rows"]
    assert words_of_processes[0] == words_of_processes[1] and len(words_of_processes) == 2
    assert rows[0]["gflop_per_update"] > 1.2 * rows[1]["gflop_per_update"] > 0


def test_padding_is_checked(capsys):
    assert main(["bench", "--recipe", "all", "--padding", "some"]) == 2
    assert '--padding is "some"; accepted: valid, same' in capsys.readouterr().err


def test_operations_are_counted_in_c_too():
    """Nature's encoder with 32 observations, forward twice and backward, by hand: 2 per product and sum."""
    config = loop.loop_config("breakout")
    schedule = replace(config.recipe.schedule, random_history=60, replay_capacity=100)
    session = Session(replace(config, recipe=replace(config.recipe, schedule=schedule)))
    session.fill_history()
    first, second, third, dense = 400 * 32 * 256, 81 * 64 * 512, 49 * 64 * 576, 3136 * 512
    heads = 512 * 128 + 128 * 512 + 1024 * 128
    products = 4 * (second + third + dense + heads) + 3 * first  # the first layer passes no gradient on
    assert flops_of_update(session) == 2 * 32 * products
    session.close()


def test_stages_of_several_environments():
    session = Session(loop.loop_config("minatar/breakout", "c2d", envs=3))
    session.fill_history()
    found = loop.stages(session, 0.05)
    assert set(found) == {f"{stage}_ms" for stage in ("emulate", "act", "store", "sample", "update")}
    assert all(each["median"] > 0.0 for each in found.values()) and "step" not in vars(session.rollout.streams[2].env)
    session.close()


def test_a_gpu_is_waited_for_before_a_clock_is_read(monkeypatch):
    """Without one: the waits and the readings of the clock are noted in their order."""
    events, clock = [], loop.time.perf_counter
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: events.append(device))
    monkeypatch.setattr(loop.time, "perf_counter", lambda: (events.append("clock"), clock())[1])
    loop._clocked(lambda: events.append("work"), [], "cuda:0")()
    assert events == ["cuda:0", "clock", "work", "cuda:0", "clock"]
    del events[:]
    loop._clocked(lambda: events.append("work"), [], "cpu")()
    assert events == ["clock", "work", "clock"]
    monkeypatch.setattr(loop, "HISTORY", 50)
    session = Session(loop.loop_config("toy/sure"))
    session.fill_history()
    session.config = replace(session.config, device="cuda")
    session.advance = lambda: events.append("work")
    del events[:]
    monkeypatch.setattr(
        Session, "step", property(lambda self: events.count("work"), lambda self, _: None), raising=False
    )
    loop.window(session, 0.0)
    assert events[:2] == ["cuda", "clock"] and events[-2:] == ["cuda", "clock"] and "work" in events


def test_a_gpu_has_rows_of_its_own():
    spread = {"median": 1.25, "q1": 1.0, "q3": 2.0, "mean": 1.3}
    times = {name: spread for name in TIMES}
    entry = {"threads": 1, **times, "loop_steps_per_second": [1.0], "peak_memory_mb": 1.0, "device_memory_mb": 512.3}
    machine = {"gflops": {"1": 86.2}, "device_gflops": 12345.6}
    result = {"calibration_before": machine, "calibration_after": machine, "measurements": [entry]}
    table = {what.strip(): (unit, cells) for what, unit, cells in bench.table_rows(result)}
    assert table["matrix product 4096² on the GPU, before / after"] == ("GFLOPS", ["12346 / 12346"])
    assert table["peak memory of tensors on the GPU"] == ("MB", ["512"])
    where = {"cpu": "C", "cores": 2, "system": "S", "device": "cuda", "gpu": "G", "cuda": "12.6"}
    facts = {"env": "e", "recipe": "r", "versions": {}, "machine": where, "compile": "default"}
    assert bench.headline(facts).startswith("c2d bench --env e --recipe r --device cuda --compile default |")
    assert bench.headline(facts).endswith("S, G, CUDA 12.6")


def test_a_recipe_of_many_environments_is_measured_with_them():
    """A window ends after whole update periods, not after as many rounds as a period has steps."""
    session = Session(loop.loop_config("gym/CartPole-v1", "btr"))
    assert len(session.rollout.streams) == 8
    session.fill_history()
    before = session.step
    loop.window(session, 0.0)
    assert session.step - before == 8 and session.learner.updates == 2
    session.close()
