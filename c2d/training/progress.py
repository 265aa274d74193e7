"""Progress for people: a live display in a terminal, plain lines otherwise."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from html import escape
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.table import Table
from rich.text import Text

from c2d.config import changed_settings, options_of
from c2d.formatting import printable
from c2d.runs import records
from c2d.training.observers import Observer, RunView
from c2d.types import FinishedGame

_REFRESH = 0.25  # seconds between updates of the live display
_CELL = 1.0  # seconds between updates in a notebook
_LINE = 30.0  # seconds between lines when there is no terminal


def headline(header: dict[str, Any], changed: dict[str, Any] | None = None) -> str:
    """What runs, in one line: recipe, environment, seed, changed settings, protocol with hash, versions, threads."""
    config, facts = header["config"], header["passport"]
    names = ", ".join(f"{name} {version}" for name, version in header["versions"].items())
    doubt = f" | {header['resume']}" if header.get("resume") else ""
    changes = f" {options_of(changed)}" if changed else ""
    seen = "" if "observations" not in facts else f" | observations: {_shortened(facts['observations'])}"
    masks = " | action masks used" if facts.get("action_masks") == "used" else ""
    how = "" if config.get("compile", "off") == "off" else f" compiled ({config['compile']})"
    return (
        f"c2d train {config['env']} --recipe {config['recipe_name']} --seed {config['seed']} "
        f"--iterations {config['iterations']}{changes} | protocol {facts['protocol']} [{facts['hash']}]{seen}{masks} | "
        f"{names} | "
        f"{config['device']}{how}, {_count(header[records.MEASURED]['threads'], 'thread')}{doubt}"
    )


def _shortened(text: str, most: int = 80) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


class ProgressDisplay(Observer):
    """Prints how a run gets on: a live display in a terminal and in notebooks, lines elsewhere."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(file=sys.stdout, soft_wrap=True, highlight=False, force_jupyter=False)
        self._live: Live | None = None
        self._cell: Any = None  # where a notebook shows the numbers

    def begin(self, run: RunView) -> None:
        self._run = run
        self._started = self._shown = time.perf_counter()
        self._shown_step, self._speed = -1, 0.0
        self._print(headline(run.header, changed_settings(run.config)))
        self._print(f"results in {run.run_dir.path}")
        if left := run.random_steps_left:
            self.console.print(f"filling the replay with {left:,} random steps ...", markup=False)
        self._cell = notebook_cell()
        if self.console.is_terminal:
            self._bar = Progress(
                TextColumn("{task.description}"), BarColumn(bar_width=None), TaskProgressColumn(), expand=True
            )
            self._task = self._bar.add_task("training", total=run.config.steps)
            self._live = Live(console=self.console, auto_refresh=False, transient=True)
            self._live.start()

    def notice(self, run: RunView, text: str, warning: bool) -> None:
        self._print(f"warning: {text}" if warning else text, style="yellow" if warning else None)

    def step(self, run: RunView, games: Sequence[FinishedGame]) -> None:
        now = time.perf_counter()
        if now - self._shown < (_REFRESH if self._live else _CELL if self._cell else _LINE) and self._shown_step >= 0:
            return
        if self._shown_step >= 0:
            speed = (run.step - self._shown_step) / (now - self._shown)
            smoothing = 0.8 if (self._live or self._cell) and self._speed else 0.0
            self._speed = smoothing * self._speed + (1 - smoothing) * speed
        self._shown, self._shown_step = now, run.step
        if self._live:
            self._live.update(self._table(run), refresh=True)
        elif self._cell:
            self._cell(self._as_html(run))
        elif self._speed:
            self._print_line(run)

    def evaluation(self, run: RunView, record: Mapping[str, Any]) -> None:
        scores = [each["mean_score"] for each in run.evaluations]
        best = " (the best so far)" if len(scores) > 1 and scores[-1] > max(scores[:-1]) else ""
        games = _count(record["games"], "game")
        self.console.print(
            f"evaluation at {record['steps']:,} steps: score {record['mean_score']:.2f} over {games}{best}",
            markup=False,
        )

    def iteration(self, run: RunView, record: Mapping[str, Any]) -> None:
        score = "no game ended"
        if record["mean_score"] is not None:
            score = f"score {record['mean_score']:.2f} over {_count(record['episodes'], 'game')}"
        parts = [
            f"iteration {record['iteration'] + 1}/{run.config.iterations}",
            f"{record['steps']:,} steps",
            f"{record['frames']:,} frames",
            score,
            *(f"{name} {value}" for name, value in _charted(dict(record)).items()),
            f"{record[records.MEASURED]['steps_per_second']:.0f} steps/s{self._together(' of {}')}",
        ]
        self.console.print(" | ".join(parts), markup=False)

    def end(self, run: RunView, summary: Mapping[str, Any]) -> None:
        if self._live:
            self._live.update("", refresh=True)
            self._live.stop()
        took = timedelta(seconds=round(time.perf_counter() - self._started))
        words = {"finished": "finished", "interrupted": "stopped on request", "failed": "stopped by an error"}
        unsaved = "unsaved" in summary
        reason = f": {summary['reason']}" if "reason" in summary else ""
        how = "stopped" if reason else words[summary["state"]]
        self._print(
            f"{'NOT SAVED' if unsaved else how} after {summary['steps']:,} steps "
            f"({_count(summary['iterations'], 'whole iteration')}) in {took}{reason}; "
            f"{'what was saved before is' if unsaved else 'weights and records are'} in {run.run_dir.path}"
        )
        if summary["state"] != "finished" and run.config.checkpoint.keep and not unsaved:
            self._print(f"resume with: {run.run_dir.command('resume', run.config)}")

    def _print(self, text: str, style: str | None = None) -> None:
        self.console.print(printable(text), markup=False, style=style)

    def _numbers(self, run: RunView) -> dict[str, str]:
        """What people watch, as text: over the iteration so far, but the score over the last 100 games."""
        scores = run.scores
        recent = f"{sum(scores) / len(scores):.2f} ({len(scores)} games)" if scores else "no game yet"
        left = (run.config.steps - run.step) / self._speed if self._speed else None
        declared = {metric.name for metric in records.metrics()}
        return {
            "iteration": f"{run.iteration + 1}/{run.config.iterations}",
            "steps": f"{run.step:,}",
            "frames": f"{run.frames:,}",
            "steps/s": f"{self._speed:.0f}{self._together(' ({})')}",
            "ETA": str(timedelta(seconds=round(left))) if left is not None else "…",
            "mean score": recent,
            **_charted(run.metrics, live=True),
            **{name: f"{value:.4g}" for name, value in run.diagnostics.items() if name not in declared},
        }

    def _together(self, form: str) -> str:
        """How many environments the speed is of, if several."""
        count = self._run.config.streams
        return form.format(_count(count, "environment")) if count > 1 else ""

    def _print_line(self, run: RunView) -> None:
        self.console.print(" | ".join(f"{key} {value}" for key, value in self._numbers(run).items()), markup=False)

    def _as_html(self, run: RunView) -> str:
        cells = "".join(f"<td>{escape(k)}<br><b>{escape(v)}</b></td>" for k, v in self._numbers(run).items())
        bar = f'<progress value="{run.step}" max="{run.config.steps}" style="width: 100%"></progress>'
        return f"{bar}<table><tr>{cells}</tr></table>"

    def _table(self, run: RunView) -> Table:
        self._bar.update(self._task, completed=run.step)
        numbers = Table.grid(padding=(0, 2))
        items = list(self._numbers(run).items())
        for row in range(0, len(items), 4):
            cells = [Text.assemble((key, "dim"), " ", (value, "bold")) for key, value in items[row : row + 4]]
            numbers.add_row(*cells)  # no markup: lines printed meanwhile have none, and then this has none either
        table = Table.grid(expand=True)
        table.add_row(self._bar)
        table.add_row(numbers)
        return table


def notebook_cell() -> Callable[[str], None] | None:
    """Shows HTML in the cell of a notebook, replacing what it showed before; None elsewhere."""
    interactive = sys.modules.get("IPython")
    shell = None if interactive is None else interactive.get_ipython()
    if shell is None or not hasattr(shell, "kernel"):
        return None
    from IPython.display import HTML, display

    handle = display(HTML(""), display_id=True)
    return lambda text: handle.update(HTML(text))


def _charted(values: dict[str, Any], live: bool = False) -> dict[str, str]:
    """Metrics with a short name, as text; those of one chart together. `live`: only what an iteration shows so far."""
    shown: dict[str, str] = {}
    for chart, metrics in records.charts().items():
        wanted = [metric for metric in metrics if not live or metric.live]
        present = [metric for metric in wanted if not (metric.optional and metric.value_in(values) is None)]
        if chart.short is not None and present:
            shown[chart.short] = " … ".join(metric.text(metric.value_in(values)) for metric in present)
    return shown


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
