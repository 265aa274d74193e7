"""Progress for people: a live display in a terminal, plain lines otherwise."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.table import Table
from rich.text import Text

from c2d.config import changed_settings, options_of
from c2d.formatting import printable
from c2d.runs import records
from c2d.runs.layout import RunDir
from c2d.training.observers import Observer
from c2d.training.session import Session
from c2d.types import FinishedGame

_REFRESH = 0.25  # seconds between updates of the live display
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
    """An observer that prints. Per step, it only looks at the clock."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(file=sys.stdout, soft_wrap=True, highlight=False)
        self._live: Live | None = None

    def begin(self, session: Session, run_dir: RunDir, header: dict[str, Any]) -> None:
        self._session, self._run_dir = session, run_dir
        self._last_score: float | None = None
        self._recent: list[float] = []
        self._started = self._shown = time.perf_counter()
        self._shown_step, self._speed = -1, 0.0
        self._print(headline(header, changed_settings(session.config)))
        self._print(f"results in {run_dir.path}")
        if session.filling:
            left = session.schedule.random_history - session.history
            self.console.print(f"filling the replay with {left:,} random steps ...", markup=False)
        if self.console.is_terminal:
            self._bar = Progress(
                TextColumn("{task.description}"), BarColumn(bar_width=None), TaskProgressColumn(), expand=True
            )
            self._task = self._bar.add_task("training", total=session.config.steps)
            self._live = Live(console=self.console, auto_refresh=False, transient=True)
            self._live.start()

    def notice(self, text: str, warning: bool = False) -> None:
        self._print(f"warning: {text}" if warning else text, style="yellow" if warning else None)

    def stepped(self, session: Session, games: Sequence[FinishedGame]) -> None:
        if games:
            self._recent = [*self._recent, *(game.score for game in games)][-100:]
        now = time.perf_counter()
        if now - self._shown < (_REFRESH if self._live else _LINE) and self._shown_step >= 0:
            return
        if self._shown_step >= 0:
            speed = (session.step - self._shown_step) / (now - self._shown)
            smoothing = 0.8 if self._live and self._speed else 0.0
            self._speed = smoothing * self._speed + (1 - smoothing) * speed
        self._shown, self._shown_step = now, session.step
        if self._live:
            self._live.update(self._table(session), refresh=True)
        elif self._speed:
            self._print_line(session)

    def iterated(self, record: dict[str, Any]) -> None:
        score = "no game ended"
        if record["mean_score"] is not None:
            score = f"score {record['mean_score']:.2f} over {_count(record['episodes'], 'game')}"
        parts = [
            f"iteration {record['iteration'] + 1}/{self._session.config.iterations}",
            f"{record['steps']:,} steps",
            f"{record['frames']:,} frames",
            score,
            *(f"{name} {value}" for name, value in _charted(record).items()),
            f"{record[records.MEASURED]['steps_per_second']:.0f} steps/s{self._together(' of {}')}",
        ]
        self.console.print(" | ".join(parts), markup=False)

    def end(self, summary: dict[str, Any]) -> None:
        if self._live:
            self._live.update("", refresh=True)
            self._live.stop()
        took = timedelta(seconds=round(time.perf_counter() - self._started))
        words = {"finished": "finished", "interrupted": "stopped on request", "failed": "stopped by an error"}
        unsaved = "unsaved" in summary
        self._print(
            f"{'NOT SAVED' if unsaved else words[summary['state']]} after {summary['steps']:,} steps "
            f"({_count(summary['iterations'], 'whole iteration')}) in {took}; "
            f"{'what was saved before is' if unsaved else 'weights and records are'} in {self._run_dir.path}"
        )
        if summary["state"] != "finished" and self._session.config.checkpoint.keep and not unsaved:
            self._print(f"resume with: {self._run_dir.command('resume', self._session.config)}")

    def _print(self, text: str, style: str | None = None) -> None:
        self.console.print(printable(text), markup=False, style=style)

    def _numbers(self, session: Session) -> dict[str, str]:
        """What people watch, as text: over the iteration so far, but the score over the last 100 games."""
        frames = session.step * session.env.spec.frames_per_step
        recent = (
            f"{sum(self._recent) / len(self._recent):.2f} ({len(self._recent)} games)"
            if self._recent
            else "no game yet"
        )
        left = (session.config.steps - session.step) / self._speed if self._speed else None
        diagnostics = session.learner.online.diagnostics()
        declared = {metric.name for metric in records.metrics()}
        so_far = {**session.tally.record(), **diagnostics, "epsilon": session.epsilon}
        return {
            "iteration": f"{session.iteration + 1}/{session.config.iterations}",
            "steps": f"{session.step:,}",
            "frames": f"{frames:,}",
            "steps/s": f"{self._speed:.0f}{self._together(' ({})')}",
            "ETA": str(timedelta(seconds=round(left))) if left is not None else "…",
            "mean score": recent,
            **_charted(so_far, live=True),
            **{name: f"{value:.4g}" for name, value in diagnostics.items() if name not in declared},
        }

    def _together(self, form: str) -> str:
        """How many environments the speed is of, if several."""
        count = self._session.config.recipe.envs
        return form.format(_count(count, "environment")) if count > 1 else ""

    def _print_line(self, session: Session) -> None:
        self.console.print(" | ".join(f"{key} {value}" for key, value in self._numbers(session).items()), markup=False)

    def _table(self, session: Session) -> Table:
        self._bar.update(self._task, completed=session.step)
        numbers = Table.grid(padding=(0, 2))
        items = list(self._numbers(session).items())
        for row in range(0, len(items), 4):
            cells = [Text.assemble((key, "dim"), " ", (value, "bold")) for key, value in items[row : row + 4]]
            numbers.add_row(*cells)  # no markup: lines printed meanwhile have none, and then this has none either
        table = Table.grid(expand=True)
        table.add_row(self._bar)
        table.add_row(numbers)
        return table


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
