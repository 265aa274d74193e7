"""When the extremes of a run occur: loss, atoms and gradient norm of every update.

    python studies/trace.py record trace.npy train kungfumaster --iterations 1 --seed 3    # any c2d command that trains
    python studies/trace.py show trace.npy --parts 5

Recording does not change the run.
"""

from __future__ import annotations

import argparse
import atexit
import io
import sys
from pathlib import Path

import numpy as np

from c2d.agents.learner import Learner
from c2d.cli.main import main as c2d
from c2d.files import write_atomically
from c2d.types import Batch, Update

COLUMNS = ("mean loss", "smallest atom", "largest atom", "largest gradient norm", "largest reward")


def record(out: Path, arguments: list[str]) -> int:
    rows: list[tuple[float, ...]] = []
    update = Learner.update

    def traced(self: Learner, batch: Batch) -> Update:
        made = update(self, batch)
        extremes = (float(made.metrics[name]) for name in ("atom_min", "atom_max", "gradient_norm"))
        rows.append((float(made.loss), *extremes, float(batch.reward.max())))
        return made

    def write() -> None:
        file = io.BytesIO()
        np.save(file, np.array(rows, np.float32))
        write_atomically(out, file.getvalue())

    Learner.update = traced  # type: ignore[method-assign]
    atexit.register(write)  # however the run ends
    return c2d(arguments)


def show(trace: Path, parts: int) -> None:
    print(f"| updates | {' | '.join(COLUMNS)} |\n|---|{'---:|' * len(COLUMNS)}")
    done = 0
    for part in np.array_split(np.load(trace), parts):
        loss, low, high, norm, reward = part.T
        figures = (loss.mean(), low.min(), high.max(), norm.max(), reward.max())
        print(f"| {done:,} to {done + len(part):,} | {' | '.join(f'{figure:.4g}' for figure in figures)} |")
        done += len(part)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="what", required=True)
    recording = commands.add_parser("record")
    recording.add_argument("out", type=Path)
    recording.add_argument("arguments", nargs=argparse.REMAINDER)
    showing = commands.add_parser("show")
    showing.add_argument("trace", type=Path)
    showing.add_argument("--parts", type=int, default=5)
    options = parser.parse_args()
    if options.what == "record":
        return record(options.out, options.arguments)
    show(options.trace, options.parts)
    return 0


if __name__ == "__main__":
    sys.exit(main())
