"""The image of training in the README: the live display of a real run, as SVG.

.venv/bin/python studies/progress_picture.py --out docs/pictures/training.svg
"""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from c2d.config import default_config
from c2d.training.observers import RunView
from c2d.training.progress import ProgressDisplay
from c2d.training.run import run
from c2d.types import FinishedGame


class Photographer(ProgressDisplay):
    """The display on a terminal in memory; keeps the printed lines and one live image."""

    def begin(self, run: RunView) -> None:
        self.kept: list[Any] = []
        live_print = self.console.print

        def keep(*things: Any, **options: Any) -> None:
            self.kept += [thing for thing in things if isinstance(thing, str)]
            live_print(*things, **options)

        self.console.print = keep  # type: ignore[method-assign]
        super().begin(run)

    def step(self, run: RunView, games: Sequence[FinishedGame]) -> None:
        super().step(run, games)
        if run.step == run.config.steps - run.config.recipe.schedule.steps_per_iteration // 3:
            self.kept.append(self._table(run))
            raise KeyboardInterrupt  # the image is complete


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--env", default="minatar/breakout")
    parser.add_argument("--iterations", type=int, default=4)
    options = parser.parse_args()
    memory = Console(force_terminal=True, width=118, file=io.StringIO(), highlight=False)
    photographer = Photographer(memory)
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(KeyboardInterrupt):
        overrides: dict[str, Any] = {"run_dir": f"{folder}/run", "threads": 1, "tensorboard": False}
        run(default_config(options.env, iterations=options.iterations, **overrides), [photographer])
    film = Console(record=True, force_terminal=True, width=118, file=io.StringIO(), highlight=False)
    picture = photographer.kept.index(next(thing for thing in photographer.kept if not isinstance(thing, str)))
    for thing in photographer.kept[: picture + 1]:
        if isinstance(thing, str):
            film.print(thing.replace(folder, "runs"), markup=False)
        else:
            film.print(thing)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    svg = film.export_svg(title=f"c2d train {options.env} --iterations {options.iterations}")
    options.out.write_text(re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL))  # no fonts from the network


if __name__ == "__main__":
    main()
