"""c2d bench [options]"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from c2d.cli.settings import options
from c2d.errors import UserError
from c2d.files import check_destination, write_json
from c2d.formatting import plural, text_table

TableRow = tuple[str, str, list[str]]  # what, unit, one cell per number of threads


@dataclass(frozen=True)
class BenchOptions:
    """The options of `c2d bench`."""

    env: str = "breakout"
    """Environment, as for c2d train: an Atari game, minatar/breakout, gym/CartPole-v1, ..."""
    recipe: str = "c2d"
    """Recipe to measure; all: every recipe, with the largest of --threads."""
    padding: str | None = None
    """With --recipe all: valid or same for the convolutions of every recipe; None: each recipe's own."""
    envs: int | None = None
    """Environments that play in lock-step, as for c2d train; None: as many as the recipe has."""
    seconds: float = 20.0
    """Length of each of the three windows in which the whole loop is measured."""
    threads: str | None = None
    """Numbers of CPU threads to measure with, such as 1,2; None: 1, 2 and all cores, with a GPU 1."""
    device: str = "cpu"
    """Where networks live: cpu, cuda, cuda:1, ..."""
    compile: Literal["off", "default", "reduce-overhead"] = "off"
    """Mode of torch.compile for updates, as for c2d train."""
    json: str | None = None
    """File for the results as JSON; None: no file."""


def main(arguments: Sequence[str]) -> None:
    chosen = options(
        BenchOptions,
        list(arguments),
        "c2d bench",
        "Measure speed and memory on this machine. Run nothing else meanwhile.",
    )
    if not 0.0 < chosen.seconds <= 3600.0:
        raise UserError(f"--seconds is {chosen.seconds}; accepted: above 0, at most 3600")
    file = None if chosen.json is None else Path(chosen.json)
    if file is not None:
        check_destination(file, "--json")
    from c2d.bench.loop import QUIET
    from c2d.bench.measure import default_threads, describe, estimated_seconds, measure

    threads = default_threads(chosen.device) if chosen.threads is None else _thread_counts(chosen.threads)
    if chosen.recipe == "all" and chosen.envs is not None:
        raise UserError("--envs is for one recipe; accepted: no --envs with --recipe all")
    if chosen.recipe == "all":
        _all_recipes(chosen, max(threads), file)
        return
    config, facts = describe(chosen.env, chosen.recipe, threads, chosen.device, chosen.compile, chosen.envs)
    print(headline(facts), flush=True)
    load = facts["load_average"]
    if load is not None and load > QUIET:
        print(
            f"warning: the machine is not idle (load average {load:.1f}); results will be low and will vary",
            file=sys.stderr,
        )
    print(f"measuring for about {estimated_seconds(len(threads), chosen.seconds):.0f} s ...", file=sys.stderr)
    result = {**facts, **measure(config, threads, chosen.seconds)}
    show(result)
    if file is not None:
        write_json(file, result)


def _all_recipes(chosen: BenchOptions, threads: int, file: Path | None) -> None:
    """One line per recipe."""
    from c2d.bench.measure import describe, measure_recipes
    from c2d.recipes.rows import RECIPES

    if chosen.padding not in (None, "valid", "same"):
        raise UserError(f'--padding is "{chosen.padding}"; accepted: valid, same')
    _, facts = describe(chosen.env, "c2d", (threads,), chosen.device, chosen.compile)
    print(headline({**facts, "recipe": "all"}), flush=True)
    titles = ("recipe", "weights", "whole loop, steps/s", "update, ms", "act, ms", "sample, ms", "memory, MB",
              "GFLOP/update", "GEMM")  # fmt: skip
    print(f"| {' | '.join(titles)} |\n" + "|---" * len(titles) + "|")
    measured = []
    how = (threads, chosen.seconds, chosen.device, chosen.compile)
    for row in measure_recipes(list(RECIPES), chosen.env, chosen.padding, *how):
        measured.append(row)
        cells = [row["recipe"], f"{row['parameters']:,}", ", ".join(map(_three_digits, row["steps_per_second"]))]
        cells += [f"{row[key]:.2f}" for key in ("update_ms", "act_ms", "sample_ms")]
        cells += [f"{row['peak_memory_mb']:.0f}", f"{row['gflop_per_update']:.2f}"]
        cells += [f"{100 * row['share_of_update_at_gemm_rate']:.0f} %"]
        print(f"| {' | '.join(cells)} |", flush=True)
    print(
        f"\n{threads} threads, padding {chosen.padding or 'of each recipe'}; two windows of {chosen.seconds:g} s each."
    )
    print("GEMM: the share of the update that its products and convolutions would take at the machine's rate of matrix")
    print("products; the rest is memory traffic, small operations and kernels below that rate.")
    if file is not None:
        write_json(file, {**facts, "rows": measured})


def headline(facts: dict[str, Any]) -> str:
    """What is measured, on one line."""
    where, names = (
        facts["machine"],
        ", ".join(f"{name} {number}" for name, number in facts["versions"].items()),
    )
    device = "" if where["device"] == "cpu" else f" --device {where['device']}"
    how = "" if facts["compile"] == "off" else f" --compile {facts['compile']}"
    how += f" --envs {facts['envs']}" if facts.get("envs", 1) > 1 else ""
    gpu = f", {where['gpu']}, CUDA {where['cuda']}" if "gpu" in where else ""
    return (
        f"c2d bench --env {facts['env']} --recipe {facts['recipe']}{device}{how} | {names} | "
        f"{where['cpu']}, {where['cores']} cores, {where['system']}{gpu}"
    )


def table_rows(result: dict[str, Any]) -> list[TableRow]:
    """The rows of the table."""
    before, after = result["calibration_before"], result["calibration_after"]
    measured = result["measurements"]
    table: list[TableRow] = []

    def add(what: str, unit: str, cells: list[str]) -> None:
        table.append((what, unit, cells))

    counts = [str(entry["threads"]) for entry in measured]
    products = {n: f"{before['gflops'][n]:.1f} / {after['gflops'][n]:.1f}" for n in before["gflops"]}
    add("matrix product 1024², before / after", "GFLOPS", [products[n] for n in counts])
    for n in products.keys() - counts:  # for comparison with other machines
        add(f"  with {plural(int(n), 'thread')}", "GFLOPS", [products[n]] * len(counts))
    if "device_gflops" in before:
        on_gpu = f"{before['device_gflops']:.0f} / {after['device_gflops']:.0f}"
        add("matrix product 4096² on the GPU, before / after", "GFLOPS", [on_gpu] * len(counts))
    if "bare_emulator_steps_per_second" in before:
        bare = (calibration["bare_emulator_steps_per_second"] for calibration in (before, after))
        add(
            "bare emulator, before / after",
            "steps/s",
            [" / ".join(f"{rate:.0f}" for rate in bare)] * len(counts),
        )
    add("environment alone", "ms/step", [_spread(entry["environment_ms"]) for entry in measured])
    if "share_of_bare_emulator" in measured[0]:
        shares = [f"{100 * entry['share_of_bare_emulator']:.1f}" for entry in measured]
        add("  relative to the bare emulator", "%", shares)
    for what, key, unit, scale in (
        ("in the loop: environment", "emulate_ms", "ms/step", 1.0),
        ("  act and stack frames", "act_ms", "ms/step", 1.0),
        ("  store", "store_ms", "µs/step", 1e3),
        ("  sample a batch", "sample_ms", "ms", 1.0),
        ("  update", "update_ms", "ms", 1.0),
    ):
        add(what, unit, [_spread(entry[key], scale) for entry in measured])
    if "gflop_per_update" in measured[0]:
        add("weights", "", [f"{entry['parameters']:,}" for entry in measured])
        add(
            "products and convolutions of an update",
            "GFLOP",
            [f"{entry['gflop_per_update']:.2f}" for entry in measured],
        )
    for number in range(len(measured[0]["loop_steps_per_second"])):
        rates = [_three_digits(entry["loop_steps_per_second"][number]) for entry in measured]
        add(f"whole loop, window {number + 1}", "steps/s", rates)
    add(
        "peak memory so far, with a nearly empty replay", "MB", [f"{entry['peak_memory_mb']:.0f}" for entry in measured]
    )
    if measured[0].get("device_memory_mb") is not None:
        add("peak memory of tensors on the GPU", "MB", [f"{entry['device_memory_mb']:.0f}" for entry in measured])
    return table


def show(result: dict[str, Any]) -> None:
    """Print a framed table on a terminal, aligned text elsewhere."""
    counts = [entry["threads"] for entry in result["measurements"]]
    titles = ["", "unit", *(plural(count, "thread") for count in counts)]
    body = [[what, unit, *cells] for what, unit, cells in table_rows(result)]
    note = "median (quartiles); one step is one decision of the agent"
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Table

        table = Table(caption=note)
        for place, title in enumerate(titles):
            table.add_column(title, justify="left" if place < 2 else "right", overflow="fold")
        for cells in body:
            table.add_row(*cells)
        Console().print(table)
        return
    print("\n".join(text_table([titles, *body], left=2)))
    print(note)


def _spread(times: dict[str, float], scale: float = 1.0) -> str:
    median, low, high = (_three_digits(scale * times[key]) for key in ("median", "q1", "q3"))
    return f"{median} ({low}–{high})"


def _three_digits(value: float) -> str:
    """At least three significant digits, never an exponent."""
    return f"{value:.{max(0, 2 - math.floor(math.log10(value)))}f}" if value > 0 else "0"


def _thread_counts(text: str) -> tuple[int, ...]:
    cores = os.cpu_count() or 1
    try:
        counts = tuple(dict.fromkeys(int(word) for word in text.split(",")))
    except ValueError:
        counts = (0,)
    if not all(1 <= count <= cores for count in counts):
        raise UserError(
            f'--threads is "{text}"; accepted: numbers from 1 to {cores} (the cores of this machine), as in 1,2'
        )
    return counts
