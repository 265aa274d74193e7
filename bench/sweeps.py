"""What sweeps cost: throughput, Ray's overhead, time to the first step, recovery after faults, and the paper's study.

python bench/sweeps.py --seconds 15 --out docs/results/sweeps.md
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
from dataclasses import replace
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # all of Ray on 127.0.0.1

from c2d.config import to_json
from c2d.files import write_atomically
from c2d.sweep.board import Board, Entry
from c2d.sweep.directory import SweepDir
from c2d.sweep.forecast import Rates, makespan, need
from c2d.sweep.launch import Launcher, connected
from c2d.sweep.plan import Plan, PlannedRun, multiply
from c2d.sweep.shipped import shipped_plan
from c2d.sweep.terms import Terms
from c2d.sweep.variants import Variant
from c2d.sweep.words import duration, size
from c2d.training.passport import machine

ENV, RECIPE = "minatar/breakout", "c2d"
SETTINGS = {"schedule.random-history": 100, "checkpoint.every-steps": 0}
WARM = 200  # steps after which a run counts as under way


def runs_of(count: int, threads: int, where: Path, **settings: int) -> list[PlannedRun]:
    plan = Plan("bench", (Variant(RECIPE, RECIPE),), (ENV,), tuple(range(1, count + 1)), iterations=1_000,
                settings={**SETTINGS, **settings})  # fmt: skip
    return multiply(plan, where, threads).runs


class Meter:
    """Total steps over time; the rate over a window that begins when every run is under way."""

    def __init__(self, count: int, seconds: float) -> None:
        self.count, self.seconds = count, seconds
        self.first: tuple[float, list[int], float] | None = None
        self.rate = self.ray_share = 0.0

    def see(self, steps: list[int], own_cpu: float = 0.0) -> bool:
        """Whether the window is over."""
        now = time.monotonic()
        if self.rate:
            return True
        if len(steps) < self.count or min(steps) < WARM:
            return False
        if self.first is None:
            self.first = (now, steps, own_cpu)
        elapsed = now - self.first[0]
        if elapsed < self.seconds:
            return False
        self.rate = (sum(steps) - sum(self.first[1])) / elapsed
        self.ray_share = (own_cpu - self.first[2]) / elapsed
        print(f"{self.count} at once: {self.rate:.0f} steps/s", file=sys.stderr, flush=True)
        return True


def on_ray(count: int, threads: int, seconds: float) -> Meter:
    meter = Meter(count, seconds)
    with tempfile.TemporaryDirectory() as place:
        sweep = SweepDir(Path(place) / "sweep")
        sweep.make()
        runs = runs_of(count, threads, sweep.path)
        board = Board([Entry(run) for run in runs], Rates())
        stop = threading.Event()

        def show(_: Board) -> None:
            if meter.see([entry.steps for entry in board.of("running")], cpu_of_ray()):
                stop.set()

        needs = {run.name: need(run, Rates()) for run in runs}
        Launcher(board, needs, sweep, Terms(threads=threads, workers=count), show).go(stop)
    return meter


def cpu_of_ray() -> float:
    """Seconds of CPU that this process and Ray's own processes have taken, actors left out."""
    ticks, total = os.sysconf("SC_CLK_TCK"), 0.0
    for pid in [os.getpid(), *below(os.getpid())]:
        try:
            if "_Actor" in Path(f"/proc/{pid}/cmdline").read_text():
                continue
            words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += (int(words[11]) + int(words[12])) / ticks
    return total


def below(pid: int) -> list[int]:
    try:
        children = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return children + [other for child in children for other in below(child)]


def in_processes(count: int, threads: int, seconds: float) -> Meter:
    meter = Meter(count, seconds)
    with tempfile.TemporaryDirectory() as place:
        steps: dict[int, int] = {}
        processes = []
        for number, run in enumerate(runs_of(count, threads, Path(place))):
            process = subprocess.Popen([sys.executable, "bench/sweep_process.py"], text=True, stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE)  # fmt: skip
            assert process.stdin is not None
            process.stdin.write(json.dumps(to_json(run.config)) + "\n")
            process.stdin.flush()
            threading.Thread(target=_listen, args=(process, number, steps), daemon=True).start()
            processes.append(process)
        while not meter.see(list(steps.values())):
            time.sleep(0.05)
        for process in processes:
            process.terminate()
            process.wait()
    return meter


def _listen(process: subprocess.Popen[str], number: int, steps: dict[int, int]) -> None:
    for line in process.stdout or ():
        steps[number] = int(line)


# ------------------------------------------------------------------------------------------------ from the command


def first_step(words: list[str], where: Path) -> float:
    """Seconds from a command to the header of its first record, which is written just before the first step."""
    began = time.monotonic()
    process = subprocess.Popen([sys.executable, "-m", "c2d.cli.main", *words], stdout=subprocess.DEVNULL)
    while not list(where.rglob("records.jsonl")):
        time.sleep(0.005)
        if process.poll() is not None:
            raise SystemExit(f"{' '.join(words)} ended early")
    took = time.monotonic() - began
    process.send_signal(signal.SIGINT)
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
    """A head without room and two nodes with one place each: their addresses, and the process ids of their raylets."""
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


def recovery(raylets: dict[str, int], victim: str) -> dict[str, float]:
    """Seconds from the death of a run's node, or of its process, until that is known and until the run goes on."""
    with tempfile.TemporaryDirectory() as place:
        sweep = SweepDir(Path(place) / "sweep")
        sweep.make()
        run = runs_of(1, 1, sweep.path, **{"checkpoint.every-steps": 200})[0]
        board, stop, struck = Board([Entry(run)], Rates()), threading.Event(), [0.0]
        events = run.config.directory / "events.jsonl"

        def show(_: Board) -> None:
            if not struck[0] and list(run.config.directory.glob("checkpoints/[0-9]*/manifest.json")):
                process = int((run.config.directory / "lock").read_text().split()[1])
                struck[0] = time.time()
                os.kill(process if victim == "process" else raylets[board.entries[0].where], signal.SIGKILL)
            if struck[0] and events.is_file():
                stop.set()

        Launcher(board, {run.name: need(run, Rates())}, sweep, Terms(), show).go(stop)
        lines = [json.loads(line) for line in sweep.events.read_text().splitlines()]
        known = next(line["time"] for line in lines if line["event"] == "lost")
        resumed = json.loads(events.read_text().splitlines()[0])["time"]
    return {"noticed": known - struck[0], "goes on": resumed - struck[0]}


# ------------------------------------------------------------------------------------------------- the paper's study


def paper_costs() -> list[str]:
    """`paper` at stated rates of one run on a GPU; runs that share a GPU are assumed to keep that rate."""
    runs = multiply(replace(shipped_plan("paper"), protocol=None), Path("runs/paper")).runs
    needs = [need(run, Rates()) for run in runs]
    memory = max(n.memory for n in needs)
    steps = sum(run.config.steps for run in runs)
    lines = [
        f"{len(runs)} runs, {steps:,} agent steps. A run takes up to {size(memory)} of memory; a finished one "
        f"{size(max(n.disk for n in needs))} on disk with its replay, {size(needs[0].disk_without_replay)} without.",
        "",
        "Rates are stated, not measured, since there is no GPU here. 120 steps/s is what one agent of "
        "Dopamine makes on a cloud GPU (30 to 40 minutes for 1M frames of 4 to a step: google/dopamine#179); "
        "500 steps/s is a guess at a faster program. Runs that share a GPU are assumed to keep their rate. "
        "Your own: `c2d sweep paper --dry-run --rate N`.",
        "",
        "| rate of one run | runs on a GPU | 1 GPU | 8 GPUs | 64 GPUs |",
        "|---|---|---|---|---|",
    ]
    for rate, shared in ((120, 1), (120, 4), (500, 1), (500, 4)):
        times = [run.config.steps / rate for run in runs]
        cells = [duration(makespan(times, gpus * shared)) for gpus in (1, 8, 64)]
        lines.append(f"| {rate} steps/s | {shared} | {' | '.join(cells)} |")
    memories = [size(memory * gpus * 4) for gpus in (1, 8, 64)]
    lines.append(f"| memory, all nodes, 4 runs on a GPU | | {' | '.join(memories)} |")
    drop = [
        size(sum(n.disk_without_replay for n in needs) + 4 * gpus * max(n.disk for n in needs)) for gpus in (1, 8, 64)
    ]
    lines.append(f"| disk, `--keep-replay False` | | {' | '.join(drop)} |")
    lines.append(f"| disk, replays kept | | {' | '.join([size(sum(n.disk for n in needs))] * 3)} |")
    return lines


# ----------------------------------------------------------------------------------------------------------- page


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=15.0, help="length of each window")
    parser.add_argument("--repeats", type=int, default=3, help="windows of each kind, in turns")
    parser.add_argument("--out", type=Path, help="Markdown file to write")
    chosen = parser.parse_args()
    load = [os.getloadavg()[0]]
    page = list(_throughput(chosen.seconds))
    load.append(os.getloadavg()[0])
    page += _overhead(chosen.seconds, chosen.repeats)
    page += _latency(chosen.repeats)
    load.append(os.getloadavg()[0])
    page += ["", "## The paper's study", "", *paper_costs(), ""]
    facts = machine(1)
    quiet = max(load[0], 0.0) < 0.7
    intro = [
        "# Sweeps",
        "",
        f"{ENV}, recipe {RECIPE}. Command: `python {' '.join(sys.argv)}`, {time.strftime('%d %B %Y', time.gmtime())}, "
        f"{facts['cpu']}, {facts['cores']} cores. Load averages before, between and after: "
        f"{', '.join(f'{value:.1f}' for value in load)}"
        + (" (the first is from before the measurements: the machine was quiet)." if quiet else
           ". **The machine was not quiet**: others worked on it, so these figures are good for their order of "
           "magnitude only."),
        "",
    ]  # fmt: skip
    text = "\n".join([*intro, *page])
    print(text)
    if chosen.out is not None:
        write_atomically(chosen.out, text.encode())


def _throughput(seconds: float) -> Iterator[str]:
    yield "## Throughput"
    yield ""
    yield "Agent steps per second of all runs together."
    yield ""
    yield "| runs at once | 1 thread each | 2 threads each |"
    yield "|---|---|---|"
    with connected(Terms(workers=4, threads=2)):
        for count in (1, 2, 4):
            yield f"| {count} | {on_ray(count, 1, seconds).rate:.0f} | {on_ray(count, 2, seconds).rate:.0f} |"


def _overhead(seconds: float, repeats: int) -> list[str]:
    ray, plain = [], []
    with connected(Terms(workers=2)):
        for _ in range(repeats):
            plain.append(in_processes(2, 1, seconds))
            ray.append(on_ray(2, 1, seconds))
    rates = [[meter.rate for meter in meters] for meters in (plain, ray)]
    loss = 1.0 - statistics.median(rates[1]) / statistics.median(rates[0])
    share = statistics.median(meter.ray_share for meter in ray) / (os.cpu_count() or 1)
    return [
        "",
        "## Ray against plain processes",
        "",
        f"Two runs of one thread, {repeats} windows of {seconds:g} s each, in turns.",
        "",
        "| | steps/s of both together |",
        "|---|---|",
        f"| plain processes | {', '.join(f'{rate:.0f}' for rate in rates[0])} |",
        f"| on Ray | {', '.join(f'{rate:.0f}' for rate in rates[1])} |",
        "",
        f"By the medians Ray costs {100 * loss:.1f} %. Ray's own processes and the command took {100 * share:.2f} % of "
        "the machine's CPU time during its windows; this figure suffers less from what else runs.",
    ]


def _latency(repeats: int) -> list[str]:
    firsts = first_steps(repeats)
    lines = ["", "## From the command to the first step", "", "| | seconds |", "|---|---|"]
    lines += [f"| `{name}` | {', '.join(f'{t:.1f}' for t in times)} |" for name, times in firsts.items()]
    lines += ["", "## Recovery", ""]
    lines += [
        "One run on a cluster of nodes on this machine, Ray's default settings. Seconds from SIGKILL.",
        "",
    ]
    lines += ["| what died | noticed | the run goes on from its checkpoint |", "|---|---|---|"]
    with cluster() as raylets:
        for victim in ("process", "node"):
            took = recovery(raylets, victim)
            lines.append(f"| its {victim} | {took['noticed']:.1f} | {took['goes on']:.1f} |")
    return lines


if __name__ == "__main__":
    main()
