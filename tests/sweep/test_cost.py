"""The cost of a plan on paper."""

import math

from c2d.formatting import duration, size
from c2d.sweep.forecast import Rates, estimate
from c2d.sweep.plan import multiply
from tests.sweep.tiny_plans import tiny_plan


def test_time_memory_and_disk_of_equal_runs(tmp_path):
    runs = multiply(tiny_plan(seeds=range(20), iterations=18), tmp_path).runs
    needs = [estimate(run, Rates()) for run in runs]
    lines = cost_lines(runs, needs, rate=0.5)
    each = runs[0].config.steps / 0.5
    rows = {line.split(" | ")[0].strip("| "): line.strip("| ").split(" | ")[1:] for line in lines[5:]}
    assert rows["time at 0.5 steps/s, 1 run on a GPU"] == [duration(each * n) for n in (20, 3, 1)]
    assert rows["time at 0.5 steps/s, 4 runs on a GPU"] == [duration(each * math.ceil(20 / n)) for n in (4, 32, 256)]
    assert rows["memory of all nodes, 4 runs on a GPU"] == [size(needs[0].memory * n) for n in (4, 20, 20)]
    assert rows["disk with all replays"] == [size(20 * needs[0].disk)] * 3
    assert "72,000 agent steps" in lines[0] and "as stated" in lines[2]
    assert sum(line.startswith("| time at") for line in cost_lines(runs, needs, None)) == 4
