"""Tests run beside each other: one thread each, or two cores collapse under four threads."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _one_thread():
    yield
    torch.set_num_threads(1)
