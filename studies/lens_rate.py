"""Painted frames per second of the lens in Chromium, and the cost of watching 200 runs.

    python studies/lens_rate.py --out docs/results/lens.md

The agent is hardly trained: a network of the paper's size after a few steps plays as fast as a trained one.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
from playwright.sync_api import Page
from serving import chromium, served

from c2d.api import train
from c2d.config import default_config
from c2d.training.passport import machine, versions


def make_runs(root: Path, game: str, copies: int) -> None:
    """One agent to play, and copies of a small run to fill the table."""
    config = default_config(game, iterations=1, run_dir=str(root / "atari"), tensorboard=False, threads=1)
    schedule = dataclasses.replace(
        config.recipe.schedule, steps_per_iteration=80, random_history=60, replay_capacity=500
    )
    train(dataclasses.replace(config, recipe=dataclasses.replace(config.recipe, schedule=schedule)), progress=False)
    for k in range(copies):
        target = root / "many" / f"run-{k:03d}"
        target.mkdir(parents=True)
        for name in ("config.json", "env.json", "episodes.csv", "passport.json", "summary.json"):
            shutil.copyfile(root / "atari" / name, target / name)
        header, record = (json.loads(line) for line in (root / "atari" / "records.jsonl").read_text().splitlines())
        lines = [
            header,
            *({**record, "iteration": i, "steps": 80 * (i + 1), "mean_score": float(i * k)} for i in range(200)),
        ]
        (target / "records.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wait_for(page: Page, expression: str) -> None:
    end = time.monotonic() + 120
    while not page.evaluate(expression):
        if time.monotonic() > end:
            raise SystemExit(f"timed out waiting for {expression}")
        page.wait_for_timeout(100)


def lens_rate(page: Page, url: str, speed: str, seconds: int, query: str) -> dict[str, float]:
    """Frames painted in each second; the page itself records the time of every painted frame."""
    page.goto(f"{url}/lens?{query}")
    wait_for(page, "globalThis.lens?.stage?.shown")
    page.select_option("#speed", speed)
    page.wait_for_timeout(3_000)
    start = page.evaluate("performance.now()")
    page.wait_for_timeout(1_000 * seconds + 200)
    times = np.array(page.evaluate("lens.times")) - start
    counts = np.histogram(times, bins=np.arange(0, 1_000 * seconds + 1, 1_000))[0]
    gaps = np.diff(times[(times >= 0) & (times <= 1_000 * seconds)])
    return {
        "p5": float(np.percentile(counts, 5)),
        "median": float(np.median(counts)),
        "lowest": float(counts.min()),
        "gap_p95": float(np.percentile(gaps, 95)),
        "seconds": seconds,
    }


def watch_cost(page: Page, url: str, pid: int, root: Path, seconds: int) -> dict[str, float]:
    """CPU time of the server while a page watches 200 runs, one of which grows; long tasks in the page."""
    page.goto(url)
    wait_for(page, "document.querySelectorAll('tbody tr').length > 200")
    page.evaluate("""() => {
      globalThis.long = [];
      const note = (list) => long.push(...list.getEntries().map((entry) => entry.duration));
      new PerformanceObserver(note).observe({ type: 'longtask' });
    }""")
    before = cpu_seconds(pid)
    grown = root / "many" / "run-000" / "records.jsonl"
    last = grown.read_text().splitlines()[-1]
    for _ in range(seconds):
        with open(grown, "a", encoding="utf-8") as file:
            file.write(last + "\n")
        page.wait_for_timeout(1_000)
    longest = page.evaluate("Math.max(0, ...long)")
    return {"server_cpu_share": (cpu_seconds(pid) - before) / seconds, "longest_task_ms": longest, "seconds": seconds}


def document(
    rates: dict[str, dict[str, float]], cost: dict[str, float], args: argparse.Namespace, load: list[float]
) -> str:
    facts = machine(threads=1)
    rows = [
        f"| {name} | {r['p5']:.1f} | {r['median']:.0f} | {r['lowest']:.0f} | {r['gap_p95']:.0f} |"
        for name, r in rates.items()
    ]
    quiet = load[0] <= 2.0  # later values include this program
    names = ("python", "c2d", "torch", "ale-py")
    return "\n".join(
        [
            "# The lens in a browser",
            "",
            f"Chromium (headless, no GPU) and the server on one machine; the agent of the paper's size on {args.game},",
            "its network on one thread. A frame counts when the page has painted it with its distributions. Figures:",
            f"the number of frames in each of {args.seconds} seconds, and the time between two frames.",
            "",
            "| what | 5th percentile, per s | median, per s | lowest second | 95 % of gaps below, ms |",
            "|---|---:|---:|---:|---:|",
            *rows,
            "",
            f"Watching: with {args.copies + 1} runs in the table, one of them growing every second, the server took "
            f"{100 * cost['server_cpu_share']:.1f} % of one core over {cost['seconds']:.0f} s;",
            f"the longest task in the page took {cost['longest_task_ms']:.0f} ms (0: none took more than 50 ms).",
            *([] if quiet else ["", "The machine was not idle: other work ran on it, and the figures are low."]),
            "",
            f"- Command: `python studies/lens_rate.py --seconds {args.seconds}`",
            f"- Machine: {facts['cpu']}, {facts['cores']} cores; load average before each part: "
            f"{', '.join(f'{value:.1f}' for value in load)}",
            f"- Versions: {', '.join(f'{name} {versions()[name]}' for name in names)}",
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--game", default="mspacman")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--copies", type=int, default=200)
    parser.add_argument("--out", type=Path, default=None)
    args = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="c2d-lens-"))
    make_runs(root, args.game, args.copies)
    rates: dict[str, dict[str, float]] = {}
    load: list[float] = []
    try:
        with served(root) as server, chromium() as browser:
            page = browser.new_page(viewport={"width": 1366, "height": 768})
            for name, speed, query in (
                ("one agent, 15 steps/s", "15", "run=atari"),
                ("one agent, 30 steps/s", "30", "run=atari"),
                ("one agent, fastest", "0", "run=atari"),
                ("two agents on one game, 15 steps/s", "15", "run=atari&run2=atari"),
            ):
                load.append(os.getloadavg()[0])
                rates[name] = lens_rate(page, server.url, speed, args.seconds, query)
                print(name, rates[name], flush=True)
            load.append(os.getloadavg()[0])
            cost = watch_cost(page, server.url, server.pid, root, min(args.seconds, 30))
            print(cost, flush=True)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    text = document(rates, cost, args, load)
    print(text)
    if args.out is not None:
        args.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
