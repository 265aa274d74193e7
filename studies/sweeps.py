"""The cost of sweeps: throughput, Ray's overhead, time to the first step, recovery after faults, the paper's study.

python studies/sweeps.py --out docs/results/sweeps.md
python studies/sweeps.py --seconds 2 --repeats 1 --out /tmp/sweeps.md      # a quick test
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # all of Ray on 127.0.0.1
os.environ.setdefault("RAY_worker_niceness", "0")  # as in sweeps

from sweep_meters import ENV, LONG_WARM, RECIPE, Window, in_processes, on_ray, runs_of

from c2d.cluster.ray_connection import connected
from c2d.files import write_atomically
from c2d.sweep.directory import SweepDir
from c2d.sweep.display import RunProgress, SweepProgress
from c2d.sweep.forecast import Rates, cost_lines, estimate
from c2d.sweep.launch import Launcher
from c2d.sweep.options import SweepOptions
from c2d.sweep.plan import builtin_plan, multiply
from c2d.training.passport import machine

QUIET = 1.5  # load average below which the machine counts as idle

# ------------------------------------------------------------------------------------------------ from the command


def first_step(words: list[str], where: Path) -> float:
    """Seconds from a command to the header of its first record, which is written just before the first step."""
    began = time.monotonic()
    process = subprocess.Popen([sys.executable, "-m", "c2d.cli.main", *words], stdout=subprocess.DEVNULL)
    while not list(where.rglob("records.jsonl")):
        time.sleep(0.02)
        if process.poll() is not None:
            raise SystemExit(f"{' '.join(words)} ended early")
    took = time.monotonic() - began
    process.terminate()
    process.wait()
    return took


def first_steps(repeats: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {"c2d train": [], "c2d sweep": []}
    for _ in range(repeats):
        for command, times in found.items():
            with tempfile.TemporaryDirectory() as place:
                where = Path(place) / "x"
                words = ["train", ENV, "--threads", "1", "--run-dir", str(where / "run")]
                if command == "c2d sweep":
                    words = ["sweep", "--recipes", RECIPE, "--envs", ENV, "--seeds", "1", "--out", str(where)]
                times.append(first_step(words, where))
    return found


# ------------------------------------------------------------------------------------------------------- recovery


@contextmanager
def cluster() -> Iterator[dict[str, int]]:
    """A head without CPUs and two nodes with one CPU each: their addresses, and the process ids of their raylets."""
    import ray
    from ray.cluster_utils import Cluster

    room = {"object_store_memory": 80 << 20, "include_dashboard": False}
    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "node_ip_address": "127.0.0.1", **room})
    raylets = {}
    try:
        for address in ("127.0.0.2", "127.0.0.3"):
            node = nodes.add_node(num_cpus=1, memory=4 << 30, node_ip_address=address, **room)
            raylets[address] = int(node.all_processes["raylet"][0].process.pid)
        ray.init(address=nodes.address, log_to_driver=False, logging_level="ERROR")
        yield raylets
    finally:
        ray.shutdown()
        nodes.shutdown()


def recovery(raylets: dict[str, int], victim: str) -> tuple[float, float]:
    """Seconds from the death of a run's node, or of its process, until it is noticed and until the run continues."""
    with tempfile.TemporaryDirectory() as place:
        sweep = SweepDir(Path(place) / "sweep")
        sweep.create()
        run = runs_of(1, 1, sweep.path, **{"checkpoint.every-steps": 200})[0]
        path = run.config.directory
        board, stop, struck = SweepProgress([RunProgress(run)], Rates()), threading.Event(), [0.0]

        def show(_: SweepProgress) -> None:
            if not struck[0] and list(path.glob("checkpoints/[0-9]*/manifest.json")):
                process = int((path / "lock").read_text().split()[1])
                struck[0] = time.time()
                os.kill(process if victim == "process" else raylets[board.entries[0].where], signal.SIGKILL)
            if struck[0] and resumed(path):
                stop.set()

        Launcher(board, {run.name: estimate(run, Rates())}, sweep, SweepOptions(), show).run(stop)
        lines = [json.loads(line) for line in sweep.events.read_text().splitlines()]
        known = next(line["time"] for line in lines if line["event"] == "lost")
        return known - struck[0], (resumed(path) or 0.0) - struck[0]


def resumed(run: Path) -> float | None:
    """The time at which a run resumed from a checkpoint."""
    try:
        lines = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    except (OSError, ValueError):
        return None
    return next((float(line["time"]) for line in lines if line["event"] == "resumed"), None)


# ----------------------------------------------------------------------------------------------------------- page


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=12.0, help="length of each window")
    parser.add_argument("--repeats", type=int, default=5, help="windows of each kind when Ray is compared, in turns")
    parser.add_argument("--out", type=Path, help="Markdown file to write")
    chosen = parser.parse_args()
    began, load = time.monotonic(), [os.getloadavg()[0]]
    page = ["", *_throughput(chosen.seconds)]
    load.append(os.getloadavg()[0])
    page += _overhead(chosen.seconds, chosen.repeats)
    load.append(os.getloadavg()[0])
    page += _latency(min(chosen.repeats, 3))
    page += ["", "## The paper's study", "", "`c2d sweep paper --cost`", "", *_paper(), ""]
    text = "\n".join([*_intro(load, time.monotonic() - began), *page])
    print(text)
    if chosen.out is not None:
        write_atomically(chosen.out, text.encode())


def _intro(load: list[float], took: float) -> list[str]:
    facts = machine(1)
    quiet = "The first is from before the measurements: the machine was idle."
    noisy = "**The machine was not idle**: other work ran on it, so only the order of magnitude is reliable."
    return [
        "# Sweeps",
        "",
        f"{ENV}, recipe {RECIPE}. Command: `python {' '.join(sys.argv)}`, {time.strftime('%d %B %Y', time.gmtime())}, "
        f"{facts['cpu']}, {facts['cores']} cores, {took / 60:.0f} minutes. Load averages before, between and after: "
        f"{', '.join(f'{value:.1f}' for value in load)}. " + (quiet if load[0] < QUIET else noisy),
    ]


def _throughput(seconds: float) -> Iterator[str]:
    yield "## Throughput"
    yield ""
    yield f"Agent steps per second of all runs together, in one window of {seconds:g} s each."
    yield ""
    yield "| runs at once | 1 thread each | 2 threads each |"
    yield "|---|---|---|"
    with connected(None, 8):
        for count in (1, 2, 4):
            yield f"| {count} | {on_ray(count, 1, seconds).rate:.0f} | {on_ray(count, 2, seconds).rate:.0f} |"


def _overhead(seconds: float, repeats: int) -> list[str]:
    plain: list[Window] = []
    ray: list[Window] = []
    for _ in range(repeats):
        plain.append(in_processes(2, 1, seconds, LONG_WARM))
        with connected(None, 2):  # Ray runs only while it is measured
            ray.append(on_ray(2, 1, seconds, LONG_WARM))
    slower = 1.0 - _median(ray, "rate") / _median(plain, "rate")
    dearer = _median(ray, "cpu") / _median(plain, "cpu") - 1.0
    return [
        "",
        "## Ray against plain processes",
        "",
        f"Two runs with one thread, {repeats} windows of {seconds:g} s each, in turns, each after {LONG_WARM:,} steps "
        "of every run, when Ray has started. CPU time is that of all processes: the runs, Ray's own and the command; "
        "other work on the machine affects it less than steps per second.",
        "",
        "| | steps/s of both together | median | CPU time of a step, ms | median |",
        "|---|---|---|---|---|",
        _windows("plain processes", plain),
        _windows("on Ray", ray),
        "",
        f"By the medians, runs on Ray made {abs(100 * slower):.1f} % {'fewer' if slower > 0 else 'more'} steps per "
        f"second and took {abs(100 * dearer):.1f} % {'more' if dearer > 0 else 'less'} CPU time for each; windows of "
        f"one kind differ from each other by up to {100 * _spread(plain):.0f} %. Measured directly: of all CPU time, "
        f"Ray's own processes and the command took {100 * _median(ray, 'overhead'):.1f} % (median), the runs the rest.",
    ]


def _windows(name: str, windows: list[Window]) -> str:
    rates, cpus = ", ".join(f"{w.rate:.0f}" for w in windows), ", ".join(f"{w.cpu:.2f}" for w in windows)
    return f"| {name} | {rates} | {_median(windows, 'rate'):.0f} | {cpus} | {_median(windows, 'cpu'):.2f} |"


def _spread(windows: list[Window]) -> float:
    rates = [window.rate for window in windows]
    return max(rates) / min(rates) - 1.0


def _median(windows: list[Window], name: str) -> float:
    return float(statistics.median(getattr(window, name) for window in windows))


def _latency(repeats: int) -> list[str]:
    lines = ["", "## From the command to the first step", "", "| | seconds |", "|---|---|"]
    for name, times in first_steps(repeats).items():
        lines.append(f"| `{name}` | {', '.join(f'{t:.1f}' for t in times)} |")
    lines += [
        "",
        "## Recovery",
        "",
        "One run on a cluster of nodes on this machine, Ray's default settings. Seconds from SIGKILL.",
        "",
        "| what died | noticed | the run continues from its checkpoint |",
        "|---|---|---|",
    ]
    with cluster() as raylets:
        for victim in ("process", "node"):
            noticed, continued = recovery(raylets, victim)
            lines.append(f"| its {victim} | {noticed:.1f} | {continued:.1f} |")
    return lines


def _paper() -> list[str]:
    runs = multiply(builtin_plan("paper"), Path("runs/paper")).runs
    return cost_lines(runs, [estimate(run, Rates()) for run in runs], None)


if __name__ == "__main__":
    main()
