"""The picture in the README: the live display of a real run, as SVG.

.venv/bin/python bench/progress_picture.py --out docs/pictures/training.svg
"""

from __future__ import annotations

import argparse
import dataclasses
import io
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console

from c2d.config import default_config
from c2d.training.progress import ProgressDisplay
from c2d.training.run import run
from c2d.training.session import Session
from c2d.types import GameEnd


class Photographer(ProgressDisplay):
    """The display on a terminal that exists only in memory; keeps the lines printed and the last live picture."""

    def stepped(self, session: Session, game: GameEnd | None) -> None:
        super().stepped(session, game)
        if session.step == session.config.steps - session.schedule.steps_per_iteration // 3:
            self.console.print(self._picture(session))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--env", default="minatar/breakout")
    parser.add_argument("--iterations", type=int, default=4)
    options = parser.parse_args()
    console = Console(record=True, force_terminal=True, width=118, file=io.StringIO(), highlight=False)
    with tempfile.TemporaryDirectory() as folder:
        overrides: dict[str, Any] = {"run_dir": f"{folder}/run", "threads": 1, "tensorboard": False}
        config = default_config(options.env, iterations=options.iterations, **overrides)
        run(dataclasses.replace(config), [Photographer(console)])
    svg = console.export_svg(title=f"c2d train {options.env} --iterations {options.iterations}")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(svg)


if __name__ == "__main__":
    main()
