"""C2D against Stable-Baselines3's DQN: agent steps per second of the whole training loop, taking turns.

    make bench-peers                                             # installs the peer, then measures
    python bench/against_sb3.py --out docs/results/speed.md      # measures and writes it down

Each side is a process of its own that warms up once and then trains in windows, C2D, SB3, C2D, SB3, ...;
while one works the other sleeps, and how much the sleeper used of a core is measured too. Use a quiet machine.
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
from typing import Any

from c2d.bench.calibration import QUIET, BareEmulator, calibrate, load_average
from c2d.envs.protocols import PROTOCOLS
from c2d.files import write_atomically, write_json
from c2d.training.passport import machine

HERE = Path(__file__).parent
PEERS = HERE.parent / ".venv-peers" / "bin" / "python"
WORKLOAD = (
    "Breakout, frame skip 4, sticky actions 0.25, 84x84 gray, 4 frames, batch 32, one update per 4 agent steps, "
    "target copy every 8,000 agent steps, replay capacity 100,000, ε 0.01. One agent step is 4 emulator frames. "
    "SB3: DQN with its Nature network and its Atari wrappers; C2D: recipe c2d. Emulation, acting, storing, "
    "sampling and updates are all included."
)


class Worker:
    """One side of the comparison."""

    def __init__(self, name: str, python: str, script: str, threads: int | None) -> None:
        environment = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}
        if threads is not None:
            environment["OMP_NUM_THREADS"] = str(threads)
        self.name = name
        self.process = subprocess.Popen(
            [python, str(HERE / script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.facts = self._hear()

    def train(self, seconds: float) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{seconds}\n")
        self.process.stdin.flush()
        return self._hear()

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

    def _hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"the {self.name} worker ended with exit code {self.process.wait()}; its message is above")
        answer: dict[str, Any] = json.loads(line)
        return answer


def turn(worker: Worker, idle: Worker, seconds: float) -> dict[str, Any]:
    """One window of one side; the other waits."""
    before = idle.cpu_seconds(), worker.cpu_seconds()
    result = worker.train(seconds)
    result["steps_per_second"] = result["steps"] / result["seconds"]
    # of the other side, which should sleep
    result["idle_cores"] = (idle.cpu_seconds() - before[0]) / result["seconds"]
    result["busy_cores"] = (worker.cpu_seconds() - before[1]) / result["seconds"]
    return result


def compare(peer_python: str, windows: int, seconds: float, threads: int | None) -> dict[str, Any]:
    calibrated = sorted({1, min(2, os.cpu_count() or 1)})
    bare = BareEmulator("breakout", PROTOCOLS["c2d-paper"])
    result: dict[str, Any] = {"time": time.time(), "machine": machine(threads or os.cpu_count() or 1)}
    result["load_average"] = load_average()
    result["calibration_before"] = calibrate(calibrated, bare)
    sides: list[Worker] = []
    turns: list[tuple[dict[str, Any], dict[str, Any]]] = []
    try:
        for name, python, script in (
            ("C2D", sys.executable, "c2d_worker.py"),
            ("SB3", peer_python, "sb3_worker.py"),
        ):
            print(f"{name} warms up ...", flush=True)
            sides.append(Worker(name, python, script, threads))
        ours, peer = sides
        for number in range(windows):
            turns.append((turn(ours, peer, seconds), turn(peer, ours, seconds)))
            rates = [side["steps_per_second"] for side in turns[-1]]
            print(f"window {number + 1}: C2D {rates[0]:.1f}, SB3 {rates[1]:.1f} steps/s", flush=True)
    finally:
        for side in sides:
            side.close()
    result["calibration_after"] = calibrate(calibrated, bare)
    result["c2d"] = {**ours.facts, "windows": [pair[0] for pair in turns]}
    result["sb3"] = {**peer.facts, "windows": [pair[1] for pair in turns]}
    result["ratios"] = [a["steps_per_second"] / b["steps_per_second"] for a, b in turns]
    result["median_ratio"] = median(result["ratios"])
    return result


def markdown(result: dict[str, Any], command: str) -> str:
    """The page a person reads."""
    where, sides = result["machine"], (result["c2d"], result["sb3"])
    seconds = [window["seconds"] for side in sides for window in side["windows"]]
    memory = [f"{side['windows'][-1]['peak_memory_mb']:.0f} MB" for side in sides]
    load = "unknown" if result["load_average"] is None else f"{result['load_average']:.2f}"
    paragraphs = [
        "# Speed against Stable-Baselines3",
        f"C2D makes **{result['median_ratio']:.2f} times** the agent steps per second of Stable-Baselines3's "
        f"DQN: median of {len(result['ratios'])} pairs of windows that took turns.",
        WORKLOAD,
        f"Command: `{command}`, {time.strftime('%d %B %Y', time.gmtime(result['time']))}. {where['cpu']}, "
        f"{where['cores']} cores, {where['system']}; load average at the start {load}.",
        _table_of_windows(result),
        f"Windows of {min(seconds):.1f} to {max(seconds):.1f} s with {sides[0]['threads']} (C2D) and "
        f"{sides[1]['threads']} (SB3) threads. Peak memory, replays partly filled: C2D {memory[0]}, SB3 {memory[1]}.",
        _table_of_calibration(result),
        *(
            f"{name}: {', '.join(f'{package} {number}' for package, number in side['versions'].items())}."
            for name, side in zip(("C2D", "SB3"), sides, strict=True)
        ),
    ]
    return "\n\n".join(paragraphs) + "\n"


def _table_of_windows(result: dict[str, Any]) -> str:
    ours, peer = result["c2d"]["windows"], result["sb3"]["windows"]
    lines = [
        "| window | C2D steps/s | SB3 steps/s | ratio | C2D updates | SB3 updates "
        "| cores busy (C2D, SB3) | cores used while waiting (C2D, SB3) |",
        "|---" * 8 + "|",
    ]
    for number, (a, b, ratio) in enumerate(zip(ours, peer, result["ratios"], strict=True), start=1):
        lines.append(
            f"| {number} | {a['steps_per_second']:.1f} | {b['steps_per_second']:.1f} | {ratio:.2f} "
            f"| {a['updates']} | {b['updates']} | {a['busy_cores']:.2f}, {b['busy_cores']:.2f} "
            f"| {b['idle_cores']:.3f}, {a['idle_cores']:.3f} |"
        )
    middle = [median(window["steps_per_second"] for window in side) for side in (ours, peer)]
    lines.append(f"| median | {middle[0]:.1f} | {middle[1]:.1f} | {result['median_ratio']:.2f} | | | | |")
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
    parser.add_argument("--peer-python", default=str(PEERS), help="Python with stable-baselines3 and ale-py")
    parser.add_argument("--windows", type=int, default=4, help="windows of each side")
    parser.add_argument("--seconds", type=float, default=30.0, help="length of a window")
    parser.add_argument("--threads", type=int, help="CPU threads of each side; default: what each takes by itself")
    parser.add_argument("--out", type=Path, help="Markdown file to write; the numbers go beside it as .json")
    chosen = parser.parse_args()
    if not Path(chosen.peer_python).is_file():
        parser.error(f"{chosen.peer_python} does not exist: make bench-peers installs it")
    if chosen.windows < 1 or chosen.seconds <= 0 or (chosen.threads is not None and chosen.threads < 1):
        parser.error("--windows, --seconds and --threads must be positive")
    if chosen.out is not None:
        chosen.out.parent.mkdir(parents=True, exist_ok=True)
    load = load_average()
    if load is not None and load > QUIET:
        print(
            f"the machine is not quiet (load average {load:.1f}): the ratio will not be trustworthy",
            file=sys.stderr,
        )
    result = compare(chosen.peer_python, chosen.windows, chosen.seconds, chosen.threads)
    page = markdown(result, " ".join(["python", *sys.argv]))
    print("\n" + page)
    if chosen.out is not None:
        write_atomically(chosen.out, page.encode())
        write_json(chosen.out.with_suffix(".json"), result)


if __name__ == "__main__":
    main()
