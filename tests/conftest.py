"""Tests run in parallel: one thread each, because four threads on two cores are slow."""

import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # let Ray use 127.0.0.1
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ.setdefault("RAY_worker_niceness", "0")  # the tests that run in parallel wait for its processes

import pytest
import torch
from hypothesis import settings

from c2d.envs import resize
from c2d.nets import native

torch.set_num_threads(1)
settings.register_profile("same", derandomize=True, database=None, deadline=None)
settings.load_profile("same")


# Half a minute of the core for `make test-fast`: mathematics, networks, replay, learner, names.
FAST = ("returns/", "replay/", "agents/", "nets/", "envs/test_names", "test_api.py", "theory/test_formulas")


def pytest_collection_modifyitems(config, items):
    here = Path(__file__).parent
    for item in items:
        if str(item.path.relative_to(here)).startswith(FAST):
            item.add_marker("fast")
        if "C2D_PUBLISHED" not in os.environ and item.get_closest_marker("published"):
            item.add_marker(pytest.mark.skip(reason="C2D_PUBLISHED is not set to a directory of published data"))


@pytest.fixture(autouse=True)
def _one_thread():
    yield
    torch.set_num_threads(1)


@pytest.fixture(params=["C", "PyTorch"])
def kernels(request, monkeypatch):
    """The same with the loops in C and without them."""
    if request.param == "C" and not native.AVAILABLE:
        pytest.skip("NO LOOPS IN C: make setup says why; they are not tested")
    monkeypatch.setattr(native, "AVAILABLE", request.param == "C")


@pytest.fixture(params=["C", "Python"])
def screens(request, monkeypatch):
    """The same with screen.c and without it; which of them."""
    if request.param == "C" and not resize.NATIVE:
        pytest.skip("NO LOOPS IN C: make setup says why; they are not tested")
    monkeypatch.setattr(resize, "NATIVE", request.param == "C")
    return request.param
