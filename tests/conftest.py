"""Tests run in parallel: one thread each, because four threads on two cores are slow."""

import os
import sys
from pathlib import Path

# Without files of bytecode each of our processes compiles the package, and pytest the tests: 10 seconds per worker.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
    sys.dont_write_bytecode = False
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["C2D_CONFIG_DIR"] = "/nonexistent"  # nobody's trusted modules
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # let Ray use 127.0.0.1
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ.setdefault("RAY_worker_niceness", "0")  # the tests that run in parallel wait for its processes

import pytest
import torch
from hypothesis import settings

from c2d import native
from c2d.recipes.part import PARTS
from c2d.user_code import TRUSTED

torch.set_num_threads(1)
settings.register_profile("same", derandomize=True, database=None, deadline=None)
settings.load_profile("same")


# The core, for `make test-fast`, below 30 seconds: mathematics, networks, replay, learner, names.
FAST = ("returns/", "replay/", "recipes/", "agents/", "native/", "nets/", "envs/test_names", "test_api.py",
        "theory/test_formulas")  # fmt: skip
SLOW = ("nets/test_tools.py", "nets/test_exported.py")  # compilers take their time


def pytest_collection_modifyitems(config, items):
    here = Path(__file__).parent
    for item in items:
        place = str(item.path.relative_to(here))
        if place.startswith(FAST) and place not in SLOW:
            item.add_marker("fast")
        if "C2D_PUBLISHED" not in os.environ and item.get_closest_marker("published"):
            item.add_marker(pytest.mark.skip(reason="C2D_PUBLISHED is not set to a directory of published data"))


@pytest.fixture
def own_modules(monkeypatch):
    """Modules that a test imports, and parts that they declare, are gone after it. Calling it forgets them at once."""
    for slot, parts in PARTS.items():
        monkeypatch.setitem(PARTS, slot, dict(parts))
    path = list(sys.path)

    def forget():
        for name in [
            name
            for name in sys.modules
            if name.rpartition(".")[2] in ("my_parts", "my_envs", "own_parts", "broken_parts")
        ]:
            del sys.modules[name]
        for parts in PARTS.values():
            for name in [name for name in parts if ":" in name]:
                del parts[name]
        TRUSTED.clear()

    forget()
    yield forget
    forget()
    sys.path[:] = path


@pytest.fixture(autouse=True)
def _one_thread():
    yield
    torch.set_num_threads(1)


@pytest.fixture(params=["native", "twins"])
def kernels(request, monkeypatch):
    """The same with the operations in c2d/native and with their twins in PyTorch."""
    if request.param == "native" and not native.AVAILABLE:
        pytest.skip("NO COMPILED CODE: make setup says why; it is not tested")
    monkeypatch.setattr(native, "AVAILABLE", request.param == "native")
