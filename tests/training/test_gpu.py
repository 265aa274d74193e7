"""Training on a CUDA device, and by the compiler. docs/gpu.md says how to report what these tests find."""

import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from c2d.agents.learner import fetch
from c2d.recipes.rows import RECIPES
from c2d.runs.checkpoints import Checkpoints
from c2d.training.run import run
from c2d.training.session import Session
from tests.agents.test_learner import flat
from tests.training.short_runs import UNLIKE, short_config

GPU = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch finds no CUDA device")]
COMPILER = pytest.mark.skipif(
    not any(map(shutil.which, ("g++", "clang++"))), reason="torch.compile needs a C++ compiler on the CPU"
)
ENVS = ("toy/sure", "minatar/breakout")
FILES = {"records.jsonl": b'{"versions": {}}', "episodes.csv": b""}  # of a checkpoint


def on(device, config, **changes):
    return replace(config, device=device, **changes)


def three_updates(config, device="cpu", compile="off"):
    """What three updates on the same batches report, fetched at once, and the weights after them."""
    session = Session(on(device, config, compile=compile))
    data = Session(config)
    data.fill_history()
    draw = np.random.default_rng(0)
    made = fetch([session.learner.update(data.replay.sample(4, draw, device)) for _ in range(3)])
    return made, flat(session.learner.online).cpu()


def assert_alike(one, two, rtol):
    for mine, other in zip(one[0], two[0], strict=True):
        assert mine.loss == pytest.approx(other.loss, rel=rtol)
        np.testing.assert_allclose(mine.priority, other.priority, rtol=rtol, atol=1e-5)
        assert mine.metrics == pytest.approx(other.metrics, rel=rtol)
    torch.testing.assert_close(one[1], two[1], rtol=rtol, atol=1e-5)


# ------------------------------------------------------------------------------------------------------ on a device


@pytest.mark.parametrize("env", ENVS)
@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("device", [pytest.param("cuda", marks=GPU)])
def test_every_row_trains(device, recipe, env, tmp_path):
    result = run(on(device, short_config(env, tmp_path / "run", recipe=recipe, iterations=1)))
    assert result.state == "finished" and result.records[0]["updates"] == 15


@pytest.mark.parametrize("env", ENVS)
@pytest.mark.parametrize("recipe", [n for n, row in RECIPES.items() if not row.noisy and "iqn" not in n])
@pytest.mark.parametrize("device", [pytest.param("cuda", marks=GPU)])
def test_updates_agree_with_those_of_the_cpu(device, recipe, env):
    """Rows that draw noise or fractions are left out: generators of a GPU give other numbers."""
    config = short_config(env, "unused", recipe=recipe)
    assert_alike(three_updates(config), three_updates(config, device), rtol=1e-2)  # convolutions are in TF32 there


@pytest.mark.parametrize("env", ENVS)
@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("device", [pytest.param("cuda", marks=GPU)])
def test_updates_do_not_wait_for_the_device(device, recipe, env):
    """By PyTorch's own detector. The first update may: libraries are loaded."""
    session = Session(on(device, short_config(env, "unused", recipe=recipe)))
    session.fill_history()
    session.learner.update(session.replay.sample(8, session.sampling, device))
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(2):
            session.learner.update(session.replay.sample(8, session.sampling, device))
        session.learner.synchronize()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    session.close()


@pytest.mark.parametrize("device", [pytest.param("cuda", marks=GPU), "cpu"])
def test_a_resumed_session_goes_on_alike(device, tmp_path):
    """Networks, optimizers and generators of the device survive a checkpoint."""
    config = on(device, short_config("toy/sure", tmp_path / "run", recipe="rainbow-c2d", update_period=4))
    ends = []
    for stop in (None, 30):
        (tmp_path / str(stop)).mkdir()
        session, checkpoints = Session(config), Checkpoints(tmp_path / str(stop))
        session.fill_history()
        for step in range(60):
            if step == stop:
                checkpoints.save(session, {}, 0.0, FILES)
                session = Session(config)
                checkpoints.restore(checkpoints.read(next(checkpoints.newest_first()), session), session)
            session.advance()
        ends.append((flat(session.learner.online).cpu(), session.tally.record()))
    rtol, atol = (0.0, 0.0) if device == "cpu" else (1e-4, 1e-6)
    torch.testing.assert_close(ends[0][0], ends[1][0], rtol=rtol, atol=atol)
    assert ends[0][1]["updates"] == ends[1][1]["updates"] == 15


# --------------------------------------------------------------------------------------------------- by the compiler


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
@pytest.mark.parametrize("recipe", ["c2d", "iqn", "rainbow-full"])
@pytest.mark.parametrize("device", [pytest.param("cuda", marks=GPU)])
def test_compiled_updates_on_a_gpu_agree_with_plain_ones(device, recipe, mode):
    """Three updates in one fetch: a replayed CUDA graph must not overwrite what the one before reported."""
    config = short_config("minatar/breakout", "unused", recipe=recipe)
    assert_alike(three_updates(config, device), three_updates(config, device, mode), rtol=1e-2)


# One row that draws nothing and one that does; the others by `make test-compiler`.
DRAWS = ("c2d", "rainbow-full")


@pytest.mark.parametrize(
    "recipe", [row if row in DRAWS else pytest.param(row, marks=pytest.mark.compiler) for row in UNLIKE]
)
def test_the_compiler_understands_every_row(recipe, monkeypatch):
    """Traced as for the code generator, which is left out: it takes a quarter of a minute for each."""
    config, compiler = short_config("toy/sure", "unused", recipe=recipe), torch.compile
    asked = []

    def traced(losses, mode, dynamic):
        asked.append((mode, dynamic))
        return compiler(losses, backend="aot_eager", dynamic=dynamic)

    monkeypatch.setattr(torch, "compile", traced)
    torch._dynamo.reset()
    assert_alike(three_updates(config), three_updates(config, compile="default"), rtol=1e-4)
    assert asked == [("default", False)]


def test_what_is_reported_is_no_memory_of_a_graph(monkeypatch):
    """A CUDA graph writes its results to the same place again, here a list that stands for it."""
    config, place = short_config("toy/sure", "unused"), []

    def replayed(losses, mode, dynamic):
        def call(batch, diagnosed):
            total, loss, priority, metrics = losses(batch, diagnosed)
            reported = [loss, priority, *metrics.values()]
            place[:] = place or [tensor.clone() for tensor in reported]
            kept = [there.copy_(tensor) for there, tensor in zip(place, reported, strict=True)]
            return total, kept[0], kept[1], dict(zip(metrics, kept[2:], strict=True))

        return call

    monkeypatch.setattr(torch, "compile", replayed)
    plain, as_graph = three_updates(config), three_updates(config, compile="reduce-overhead")
    assert len({update.loss for update in plain[0]}) == 3
    assert_alike(plain, as_graph, rtol=1e-6)


@COMPILER
@pytest.mark.compiler
@pytest.mark.parametrize("env", ENVS)
def test_a_compiled_run_agrees_with_a_plain_one(env, tmp_path):
    config = short_config(env, tmp_path / "run", iterations=1, steps=24)
    torch._dynamo.reset()
    assert_alike(three_updates(config), three_updates(config, compile="default"), rtol=1e-4)
    result = run(replace(config, compile="default"))
    assert result.state == "finished" and result.records[0]["updates"] == 3


def test_without_it_the_compiler_is_not_loaded(tmp_path):
    code = (
        "import sys; from tests.training.short_runs import short_run; "
        f"short_run('toy/sure', {str(tmp_path / 'run')!r}, iterations=1, steps=20); "
        "print('torch._dynamo' in sys.modules, 'torch._inductor' in sys.modules)"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.split() == ["False", "False"]
