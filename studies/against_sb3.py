"""Our recipes against Stable-Baselines3: agent steps per second of the whole training loop, in turns.

    make bench-peers                                                        # installs the peers, then measures
    python studies/against_sb3.py --out docs/results/speed-against-sb3.md     # measures and writes the page

A contest is one of our recipes and its peer, alone on the machine. With `--envs 8` ours plays 8 games at once, and the
peer takes part twice: with one environment and with 8. Each has its own process, which warms up once. Then they train
in turns, one window each, so that compared windows are close in time. While one trains, the others sleep, and their
CPU use is measured too. Keep the machine otherwise idle.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from c2d.bench.loop import QUIET, BareEmulator, calibrate_machine, load_average
from c2d.envs.protocols import PROTOCOLS
from c2d.files import write_atomically, write_json
from c2d.training.passport import machine

HERE = Path(__file__).parent
PEERS = HERE.parent / ".venv-peers" / "bin" / "python"
WORKLOAD = (
    "Breakout, frame skip 4, sticky actions 0.25, 84x84 gray, 4 frames, batch 32, one update per 4 agent steps, "
    "target copy every 8,000 agent steps, replay capacity 100,000 (ours compressed, as in training), ε 0.01, `valid` "
    "padding. One agent step is 4 emulator frames. SB3: its Nature network and its Atari wrappers. Emulation, acting, "
    "storing, sampling and updates are all included. `c2d` trains a larger network than DQN: batch normalization, "
    "and a return distribution of 32 atoms for each action. Threads wait for each other as PyTorch lets them by "
    "default, on both sides; those of the command `c2d` sleep sooner ([threads](threads.md))."
)


class Side(NamedTuple):
    """One side of a contest."""

    name: str
    script: str
    row: str  # our recipe, or the peer's algorithm
    envs: int = 1
    options: tuple[str, ...] = ()  # of the script

    @property
    def peer(self) -> bool:
        return self.script == "sb3_worker.py"


DQN, QR_DQN = Side("SB3 DQN", "sb3_worker.py", "DQN"), Side("SB3 QR-DQN", "sb3_worker.py", "QRDQN")
PEER = {"c2d": DQN, "dqn-adam": DQN, "c51": DQN, "qr-dqn": QR_DQN}  # our recipe -> its peer


class Worker:
    """The process of one side."""

    def __init__(self, side: Side, python: str, threads: int | None) -> None:
        environment = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}
        if threads is not None:
            environment["OMP_NUM_THREADS"] = str(threads)
        self.name = side.name
        self.process = subprocess.Popen(
            [python, str(HERE / side.script), side.row, str(side.envs), *side.options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.facts = self._receive()

    def train(self, seconds: float) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{seconds}\n")
        self.process.stdin.flush()
        return self._receive()

    def cpu_seconds(self) -> float:
        """Processor time used since its start, by all its threads."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # user and system

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _receive(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"the {self.name} worker ended with exit code {self.process.wait()}; its message is above")
        answer: dict[str, Any] = json.loads(line)
        return answer


def turn(worker: Worker, idle: list[Worker], seconds: float) -> dict[str, Any]:
    """One window of one side; the others wait."""
    before = worker.cpu_seconds(), sum(other.cpu_seconds() for other in idle)
    result = worker.train(seconds)
    result["steps_per_second"] = result["steps"] / result["seconds"]
    result["busy_cores"] = (worker.cpu_seconds() - before[0]) / result["seconds"]
    result["idle_cores"] = (sum(other.cpu_seconds() for other in idle) - before[1]) / result["seconds"]
    return result


def sides_of(recipe: str, envs: int) -> list[Side]:
    """Ours, then its peer with one environment, then with as many as ours."""
    peer = PEER[recipe]
    if envs == 1:
        return [Side(recipe, "c2d_worker.py", recipe), peer]
    ours = Side(f"{recipe}, {envs} environments", "c2d_worker.py", recipe, envs, ("--env-threads", "2"))
    return [ours, peer, peer._replace(name=f"{peer.name}, {envs} environments", envs=envs)]


def contest(
    recipe: str, envs: int, peer_python: str, windows: int, seconds: float, threads: int | None
) -> dict[str, Any]:
    """One of our recipes and its peer, in turns."""
    sides = sides_of(recipe, envs)
    workers: list[Worker] = []
    turns: list[list[dict[str, Any]]] = [[] for _ in sides]
    try:
        for side in sides:
            print(f"{side.name} warms up ...", flush=True)
            workers.append(Worker(side, peer_python if side.peer else sys.executable, threads))
        for number in range(windows):
            for made, worker in zip(turns, workers, strict=True):
                made.append(turn(worker, [other for other in workers if other is not worker], seconds))
            rates = ", ".join(
                f"{w.name} {made[-1]['steps_per_second']:.1f}" for w, made in zip(workers, turns, strict=True)
            )
            print(f"round {number + 1}: {rates} steps/s", flush=True)
    finally:
        for worker in workers:
            worker.close()
    return {
        "sides": {w.name: {**w.facts, "windows": made} for w, made in zip(workers, turns, strict=True)},
        "ratios": {
            f"{sides[0].name} / {side.name}": [
                a["steps_per_second"] / b["steps_per_second"] for a, b in zip(turns[0], made, strict=True)
            ]
            for side, made in zip(sides[1:], turns[1:], strict=True)
        },
    }


def measure(
    recipes: list[str], envs: int, peer_python: str, windows: int, seconds: float, threads: int | None
) -> dict[str, Any]:
    """One contest after the other, with a calibration of the machine before and after."""
    calibrated = sorted({1, min(2, os.cpu_count() or 1)})
    bare = BareEmulator("breakout", PROTOCOLS["c2d-paper"])
    result: dict[str, Any] = {"time": time.time(), "machine": machine(threads or os.cpu_count() or 1)}
    result["load_average"] = load_average()
    result["calibration_before"] = calibrate_machine(calibrated, bare)
    result["contests"] = {
        f"{recipe} / {PEER[recipe].name}": contest(recipe, envs, peer_python, windows, seconds, threads)
        for recipe in recipes
    }
    result["calibration_after"] = calibrate_machine(calibrated, bare)
    return result


def markdown(result: dict[str, Any], command: str) -> str:
    """The page with the results."""
    where = result["machine"]
    sides = [item for each in result["contests"].values() for item in each["sides"].items()]
    made = [window for _, side in sides for window in side["windows"]]
    seconds, busy = ([window[name] for window in made] for name in ("seconds", "busy_cores"))
    threads = sorted({side["threads"] for _, side in sides})
    known = {"SB3" if name.startswith("SB3") else "C2D": side["versions"] for name, side in sides}.items()
    load = "unknown" if result["load_average"] is None else f"{result['load_average']:.2f}"
    paragraphs = [
        "# Speed against Stable-Baselines3",
        _table_of_ratios(result),
        WORKLOAD,
        f"Command: `{command}`, {time.strftime('%d %B %Y', time.gmtime(result['time']))}. {where['cpu']}, "
        f"{where['cores']} cores, {where['system']}; load average at the start {load}. Agent steps per second:",
        *map(_table_of_windows, result["contests"].values()),
        f"Windows of {min(seconds):.1f} to {max(seconds):.1f} s with {' or '.join(map(str, threads))} threads, in "
        f"turns: a row of a table from left to right, then the next. The side that trained kept {min(busy):.2f} to "
        f"{max(busy):.2f} cores busy, the one that waited at most "
        f"{max(window['idle_cores'] for window in made):.3f}.",
        _table_of_calibration(result),
        *(
            f"{who}: {', '.join(f'{package} {number}' for package, number in versions.items())}."
            for who, versions in known
        ),
    ]
    return "\n\n".join(paragraphs) + "\n"


def _table_of_ratios(result: dict[str, Any]) -> str:
    lines = ["| ratio of agent steps per second | median | every round |", "|---|---|---|"]
    for name, ratios in (item for each in result["contests"].values() for item in each["ratios"].items()):
        lines.append(f"| {name} | **{median(ratios):.2f}** | {', '.join(f'{ratio:.2f}' for ratio in ratios)} |")
    return "\n".join(lines)


def _table_of_windows(found: dict[str, Any]) -> str:
    sides = found["sides"]
    lines = [f"| round | {' | '.join(sides)} |", "|---" * (len(sides) + 1) + "|"]
    rates = [[window["steps_per_second"] for window in side["windows"]] for side in sides.values()]
    for number, row in enumerate(zip(*rates, strict=True), start=1):
        lines.append(f"| {number} | {' | '.join(f'{rate:.1f}' for rate in row)} |")
    lines.append(f"| median | {' | '.join(f'{median(side):.1f}' for side in rates)} |")
    memory = " | ".join(f"{side['windows'][-1]['peak_memory_mb']:.0f}" for side in sides.values())
    lines.append(f"| peak memory, MB (replays partly filled) | {memory} |")
    return "\n".join(lines)


def _table_of_calibration(result: dict[str, Any]) -> str:
    counts = list(result["calibration_before"]["gflops"])
    titles = " | ".join(f"GFLOPS, {n} thread{'s' if n != '1' else ''}" for n in counts)
    lines = [
        f"| calibration | {titles} | bare emulator, steps/s |",
        "|---" * (len(counts) + 2) + "|",
    ]
    for moment in ("before", "after"):
        speed = result[f"calibration_{moment}"]
        products = " | ".join(f"{speed['gflops'][n]:.1f}" for n in counts)
        lines.append(f"| {moment} | {products} | {speed['bare_emulator_steps_per_second']:.0f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--peer-python", default=str(PEERS), help="Python with stable-baselines3, sb3-contrib and ale-py"
    )
    parser.add_argument("--recipes", nargs="+", default=list(PEER), choices=list(PEER), help="our recipes to compare")
    parser.add_argument("--envs", type=int, default=1, help="environments of ours, and of a second run of the peer")
    parser.add_argument("--windows", type=int, default=4, help="rounds: windows of each side")
    parser.add_argument("--seconds", type=float, default=30.0, help="length of a window")
    parser.add_argument("--threads", type=int, help="CPU threads of each side; default: what each side uses by default")
    parser.add_argument(
        "--out", type=Path, help="Markdown file to write; the numbers go into a .json file of the same name"
    )
    chosen = parser.parse_args()
    if not Path(chosen.peer_python).is_file():
        parser.error(f"{chosen.peer_python} does not exist: make bench-peers installs it")
    if chosen.envs not in (1, 4, 8, 16):
        parser.error("--envs must be 1, 4, 8 or 16: the peer makes whole updates after each round")
    if chosen.windows < 1 or chosen.seconds <= 0 or (chosen.threads is not None and chosen.threads < 1):
        parser.error("--windows, --seconds and --threads must be positive")
    if chosen.out is not None:
        chosen.out.parent.mkdir(parents=True, exist_ok=True)
    load = load_average()
    if load is not None and load > QUIET:
        print(
            f"the machine is not idle (load average {load:.1f}): the ratios will not be reliable",
            file=sys.stderr,
        )
    result = measure(chosen.recipes, chosen.envs, chosen.peer_python, chosen.windows, chosen.seconds, chosen.threads)
    page = markdown(result, " ".join(["python", *sys.argv]))
    print("\n" + page)
    if chosen.out is not None:
        write_atomically(chosen.out, page.encode())
        write_json(chosen.out.with_suffix(".json"), result)


if __name__ == "__main__":
    main()
