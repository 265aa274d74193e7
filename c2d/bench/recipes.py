"""Every recipe in turn, each in a process of its own: speed of the whole loop, update, memory.

As a program (`python -m c2d.bench.recipes`) it is one such process.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from c2d.errors import UserError
from c2d.recipes.parts import Nature

if TYPE_CHECKING:
    from c2d.training.session import Session

_STAGES = 4.0  # seconds for the stages, before the windows


def measure_rows(
    names: Sequence[str], env: str, padding: str | None, threads: int, seconds: float
) -> Iterator[dict[str, Any]]:
    """One dictionary per recipe."""
    for name in names:
        request = {"recipe": name, "env": env, "padding": padding, "threads": threads, "seconds": seconds}
        done = subprocess.run(
            [sys.executable, "-m", "c2d.bench.recipes"], input=json.dumps(request), capture_output=True, text=True
        )
        if done.returncode != 0:
            raise UserError(f"measuring {name} failed: {(done.stderr.strip() or 'no message').splitlines()[-1]}")
        yield json.loads(done.stdout)


def flops_of_update(session: Session) -> int:
    """Of products and convolutions in one update, which is made."""
    from torch.utils.flop_counter import FlopCounterMode

    from c2d.nets import native

    batch = session.replay.sample(session.schedule.batch_size, session.sampling)
    available, native.AVAILABLE = native.AVAILABLE, False  # the counter sees PyTorch's operations only
    try:
        with FlopCounterMode(display=False) as counter:
            session.learner.update(batch)
    finally:
        native.AVAILABLE = available
    flops: int = counter.get_total_flops()
    return flops


def _measure(request: dict[str, Any]) -> dict[str, Any]:
    import torch

    from c2d.agents.build import parameter_count
    from c2d.bench.calibration import gflops
    from c2d.bench.loop import loop_config, peak_memory_mb, stages, window
    from c2d.training.process import keep_memory
    from c2d.training.session import Session

    keep_memory()
    torch.set_num_threads(request["threads"])
    config = loop_config(request["env"], request["recipe"])
    encoder = config.recipe.encoder
    if request["padding"] is not None and isinstance(encoder, Nature):
        config = replace(config, recipe=replace(config.recipe, encoder=replace(encoder, padding=request["padding"])))
    session = Session(config)
    session.fill_history()
    window(session, 0.0, least_updates=5)  # the first updates choose their kernels
    inside = stages(session, min(_STAGES, request["seconds"]))
    rates = [window(session, request["seconds"]).steps_per_second for _ in range(2)]
    rate = gflops(request["threads"], min(0.7, request["seconds"]))
    gflop = flops_of_update(session) / 1e9
    return {
        **request,
        "gflop_per_update": gflop,
        "gflops": rate,
        "share_of_update_at_gemm_rate": gflop / rate * 1e3 / inside["update_ms"]["median"],
        "steps_per_second": rates,
        "update_ms": inside["update_ms"]["median"],
        "act_ms": inside["act_ms"]["median"],
        "sample_ms": inside["sample_ms"]["median"],
        "peak_memory_mb": peak_memory_mb(),
        "parameters": parameter_count(session.learner.online),
    }


if __name__ == "__main__":
    print(json.dumps(_measure(json.loads(sys.stdin.read()))))
