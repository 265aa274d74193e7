"""Whether watching slows a training run: the same run, alternately unwatched and watched.

    python studies/watched_training.py --out docs/results/watched.md

Watched: its page and the table of runs are open in Chromium, two pages that follow it live. The trainer has one thread,
so that the server and the browser have a core of their own. Keep the machine otherwise idle.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Browser
from serving import chromium, served

from c2d.training.passport import machine, versions

TRAIN = ["--threads", "1", "--tensorboard", "False", "--iterations", "100000", "--schedule.steps-per-iteration", "400"]


def speeds(records: Path, seconds: float) -> list[float]:
    """Steps per second of every iteration that began and ended within the next `seconds`."""
    known = len(records.read_text().splitlines())
    time.sleep(seconds)
    lines = [json.loads(line) for line in records.read_text().splitlines()[known:]]
    return [line["measured"]["steps_per_second"] for line in lines[1:]]  # the first began before


def wait_for_lines(records: Path, count: int) -> None:
    end = time.monotonic() + 120
    while not records.exists() or len(records.read_text().splitlines()) < count:
        if time.monotonic() > end:
            raise SystemExit(f"no records in {records}")
        time.sleep(0.2)


def measure(browser: Browser, url: str, run: Path, windows: int, seconds: float) -> dict[str, list[list[float]]]:
    found: dict[str, list[list[float]]] = {"unwatched": [], "watched": []}
    for _ in range(windows):
        found["unwatched"].append(speeds(run / "records.jsonl", seconds))
        context = browser.new_context(viewport={"width": 1366, "height": 768})
        for address in (url, f"{url}/run?run={run.name}"):
            context.new_page().goto(address)
        found["watched"].append(speeds(run / "records.jsonl", seconds))
        context.close()
    return found


def document(found: dict[str, list[list[float]]], args: argparse.Namespace, load: float) -> str:
    facts, names = machine(threads=1), ("python", "c2d", "torch")
    medians = {name: [statistics.median(window) for window in windows] for name, windows in found.items()}
    ratios = [two / one for one, two in zip(medians["unwatched"], medians["watched"], strict=True)]
    rows = [
        f"| {k + 1} | {one:.1f} | {two:.1f} | {ratio:.3f} |"
        for k, (one, two, ratio) in enumerate(zip(*medians.values(), ratios, strict=True))
    ]
    return "\n".join(
        [
            "# A run that is watched",
            "",
            f"One run of C2D on {args.env} with one thread, alternately unwatched and watched. Watched: its page and",
            f"the table of runs are open in Chromium on the same machine. Windows of {args.seconds:.0f} s; figures:",
            "medians of the steps per second of the window's iterations (400 steps each), as recorded by the run.",
            "",
            "| pair | unwatched, steps/s | watched, steps/s | ratio |",
            "|---:|---:|---:|---:|",
            *rows,
            "",
            f"Median ratio {statistics.median(ratios):.3f}; ratios of neighboring unwatched windows: "
            + ", ".join(f"{b / a:.3f}" for a, b in zip(medians["unwatched"], medians["unwatched"][1:], strict=False)),
            "",
            f"- Command: `python studies/watched_training.py --windows {args.windows} --seconds {args.seconds:.0f}`",
            f"- Machine: {facts['cpu']}, {facts['cores']} cores; load average at the start {load:.1f}",
            f"- Versions: {', '.join(f'{name} {versions()[name]}' for name in names)}",
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--env", default="minatar/breakout")
    parser.add_argument("--windows", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--out", type=Path, default=None)
    args = parser.parse_args()
    load, root = os.getloadavg()[0], Path(tempfile.mkdtemp(prefix="c2d-watched-"))
    run = root / "run"
    command = [sys.executable, "-m", "c2d.cli.main", "train", args.env, "--run-dir", str(run), *TRAIN]
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    trainer = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, **silent)
    try:
        with served(root) as server, chromium() as browser:
            wait_for_lines(run / "records.jsonl", 8)
            found = measure(browser, server.url, run, args.windows, args.seconds)
    finally:
        trainer.send_signal(signal.SIGINT)
        trainer.wait(30)
        shutil.rmtree(root, ignore_errors=True)
    text = document(found, args, load)
    print(text)
    if args.out is not None:
        args.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
