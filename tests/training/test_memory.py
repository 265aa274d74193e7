"""Memory that large tensors use again and again stays with the process, in large pages."""

import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

LOOK = """
import resource, sys, torch
from pathlib import Path
from c2d.training.process import keep_memory
torch.set_num_threads(1)

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for size in (3, 5, 2, 31, 4) * 20:
        torch.zeros(size << 18)  # megabytes, freed at once
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def large_pages():
    heap = Path("/proc/self/smaps").read_text().partition("[heap]")[2]
    return " hg" in heap.partition("VmFlags:")[2].partition("\\n")[0]

def report():
    faults()
    print("\\n", faults(), large_pages())

assert not large_pages()
"""
BY_COMMAND = (
    LOOK
    + """
from c2d.cli.main import main
assert main(["train", "toy/sure", "--run-dir", sys.argv[1], "--iterations", "1", "--tensorboard", "False",
             "--schedule.steps-per-iteration", "30", "--schedule.random-history", "20", "--threads", "1"]) == 0
report()
"""
)
FROM_PYTHON = (
    LOOK
    + """
import c2d
from tests.training.short_runs import short_config
assert c2d.train(short_config("toy/sure", sys.argv[1], iterations=1, steps=30), progress=False).state == "finished"
report()
assert keep_memory() and keep_memory(); report()
"""
)

pytestmark = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="arranges glibc only; elsewhere nothing is done"
)


def reports(script, path):
    """Page faults, and whether pages are large."""
    words = [sys.executable, "-c", script, str(path / "run")]
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    return [
        (int(faults), large == "True")
        for faults, large in (
            line.split() for line in done.stdout.splitlines() if re.match(r" \d+ (True|False)$", line)
        )
    ]


def test_few_page_faults_and_large_pages_by_the_command(tmp_path):
    [(faults, large)] = reports(BY_COMMAND, tmp_path)
    assert faults < 50 and large  # 900 MB in 4 kB pages would be 230,000


def test_training_from_python_leaves_the_callers_memory_alone_until_it_is_arranged(tmp_path):
    (_, before), (faults, large) = reports(FROM_PYTHON, tmp_path)
    assert not before
    assert faults < 50 and large
