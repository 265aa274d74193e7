"""Sweeps on a real Ray cluster of several nodes on this machine."""

import json
import os
import signal
import threading
import time

import pytest

from c2d.sweeping.status import lines, rows
from c2d.sweeping.directory import SweepDir
from c2d.sweeping.terms import Terms
from tests.sweeping.tiny_plans import carry_out, events, left_by, straight, tiny_plan


def raylet(node):
    return node.all_processes["raylet"][0].process.pid


def test_node_killed_in_mid_run(cluster, tmp_path):
    node = cluster.add(2)
    where = tmp_path / "sweep"
    plan = tiny_plan(seeds=(1, 2, 3, 4), iterations=8)
    def strike():
        t0 = time.time()
        while time.time() - t0 < 60:
            n = len(list(where.glob("*/checkpoints/*/manifest.json")))
            if n >= 4: break
            time.sleep(0.05)
        print("strike", time.time()-t0, n)
        os.kill(raylet(node), signal.SIGKILL)
        print(time.time())
    t = threading.Thread(target=strike); t.start()
    t0 = time.time()
    board, told = carry_out(plan, where, Terms(address=cluster.address, ship=True))
    print("took", time.time()-t0)
    t.join()
    print(told)
    for l in (where / "sweep-events.jsonl").read_text().splitlines(): print(l)
    print("\n".join(lines(SweepDir(where))))
