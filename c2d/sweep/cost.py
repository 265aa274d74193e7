"""What a plan would cost on GPUs that are not here, at stated rates."""

from __future__ import annotations

from collections.abc import Sequence

from c2d.formatting import duration, plural, size
from c2d.sweep.forecast import Need, makespan
from c2d.sweep.plan import PlannedRun

_GPUS = (1, 8, 64)
_PACKED = 4  # runs that share a GPU, with --gpus-per-run 0.25
_ASSUMED = (120.0, 300.0)  # agent steps per second of one run
_WHY = (
    "Rates of one run are assumed: 120 steps/s as a user of Dopamine reports of a cloud GPU (30 to 40 minutes for "
    "250,000 steps: google/dopamine#179), 300 steps/s as a user reports of an RTX 2080 SUPER (Kaixhin/Rainbow#71). "
    "--rate states another."
)


def cost_lines(runs: Sequence[PlannedRun], needs: Sequence[Need], rate: float | None) -> list[str]:
    """A table in Markdown: time, memory and disk on 1, 8 and 64 GPUs."""
    steps = sum(run.config.steps for run in runs)
    largest = max(needs, key=lambda need: need.memory)
    most = max(need.disk for need in needs)
    lines = [
        f"{plural(len(runs), 'run')}, {steps:,} agent steps. A run takes up to {size(largest.memory)} of memory; a "
        f"finished one up to {size(most)} on disk with its replay, {size(max(n.disk_without_replay for n in needs))} "
        "without.",
        "",
        _WHY if rate is None else f"Rate of one run: {rate:g} steps/s, as stated.",
        f"Each of {_PACKED} runs on one GPU is assumed to keep that rate.",
        "",
        f"| | {' | '.join(plural(gpus, 'GPU') for gpus in _GPUS)} |",
        "|---" * (len(_GPUS) + 1) + "|",
    ]
    for each in _ASSUMED if rate is None else (rate,):
        for packed in (1, _PACKED):
            times = [run.config.steps / each for run in runs]
            cells = [duration(makespan(times, gpus * packed)) for gpus in _GPUS]
            lines.append(_row(f"time at {each:g} steps/s, {plural(packed, 'run')} on a GPU", cells))
    at_once = [min(gpus * _PACKED, len(runs)) for gpus in _GPUS]
    without = sum(need.disk_without_replay for need in needs)
    lines += [
        _row(f"memory of all nodes, {_PACKED} runs on a GPU", [size(largest.memory * count) for count in at_once]),
        _row("disk with `--keep-replay False`", [size(without + most * count) for count in at_once]),
        _row("disk with all replays", [size(sum(need.disk for need in needs))] * len(_GPUS)),
    ]
    return lines


def _row(name: str, cells: Sequence[str]) -> str:
    return f"| {name} | {' | '.join(cells)} |"
