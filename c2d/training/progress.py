"""Progress for people: a live display in a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
from rich.table import Table
from rich.text import Text

from c2d.formatting import printable
from c2d.training.observer import Observer
from c2d.training.record import MEASURED
from c2d.training.rundir import RunDir
from c2d.training.session import Session
from c2d.types import GameEnd

_REFRESH = 0.25  # seconds between pictures of the live display
_LINE = 30.0  # seconds between lines when there is no terminal


def headline(header: dict[str, Any]) -> str:
    """What runs, in one line: recipe, environment, seed, protocol with hash, versions, threads, doubts."""
    config, facts = header["config"], header["passport"]
    names = ", ".join(f"{name} {version}" for name, version in header["versions"].items())
    doubt = f" | {header['resume']}" if header.get("resume") else ""
    return (
        f"c2d train {config['env']} --recipe {config['recipe_name']} --seed {config['seed']} "
        f"--iterations {config['iterations']} | protocol {facts['protocol']} [{facts['hash']}] | {names} | "
        f"{config['device']}, {_count(header[MEASURED]['threads'], 'thread')}{doubt}"
    )


class ProgressDisplay(Observer):
    """An observer that prints. Looks at the clock once per step and at nothing else."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(file=sys.stdout, soft_wrap=True, highlight=False)
        self._live: Live | None = None

    def begin(self, session: Session, run_dir: RunDir, header: dict[str, Any]) -> None:
        self._session, self._run_dir = session, run_dir
        self._last_score: float | None = None
        self._recent: list[float] = []
        self._started = self._shown = time.perf_counter()
        self._shown_step, self._speed = -1, 0.0
        self._print(headline(header))
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

    def stepped(self, session: Session, game: GameEnd | None) -> None:
        if game is not None:
            self._recent = [*self._recent[-99:], game.score]
        now = time.perf_counter()
        if now - self._shown < (_REFRESH if self._live else _LINE) and self._shown_step >= 0:
            return
        if self._shown_step >= 0:
            speed = (session.step - self._shown_step) / (now - self._shown)
            smoothing = 0.8 if self._live and self._speed else 0.0
            self._speed = smoothing * self._speed + (1 - smoothing) * speed
        self._shown, self._shown_step = now, session.step
        if self._live:
            self._live.update(self._picture(session), refresh=True)
        elif self._speed:
            self._print_line(session)

    def iterated(self, record: dict[str, Any]) -> None:
        score = "no game ended"
        if record["mean_score"] is not None:
            score = f"score {record['mean_score']:.2f} over {_count(record['episodes'], 'game')}"
        extra = f" | α {record['alpha']:.2f}" if "alpha" in record else ""
        self.console.print(
            f"iteration {record['iteration'] + 1}/{self._session.config.iterations} | {record['steps']:,} steps | "
            f"{record['frames']:,} frames | {score} | "
            f"loss {_number(record['mean_loss'])} | "
            f"atoms {_number(record['atom_min'])} … {_number(record['atom_max'])}{extra} | ε {record['epsilon']:.3f} | "
            f"{record[MEASURED]['steps_per_second']:.0f} steps/s",
            markup=False,
        )

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
            again = self._run_dir.command("resume", self._session.config.env)
            self._print(f"go on with: {again}")

    def _print(self, text: str, style: str | None = None) -> None:
        self.console.print(printable(text), markup=False, style=style)

    def _numbers(self, session: Session) -> dict[str, str]:
        """What people watch, as text. Means are over the iteration so far; the score over the last 100 games."""
        tally, frames = session.tally, session.step * session.env.spec.frames_per_step
        recent = (
            f"{sum(self._recent) / len(self._recent):.2f} ({len(self._recent)} games)"
            if self._recent
            else "no game yet"
        )
        left = (session.config.steps - session.step) / self._speed if self._speed else None
        numbers = {
            "iteration": f"{session.iteration + 1}/{session.config.iterations}",
            "steps": f"{session.step:,}",
            "frames": f"{frames:,}",
            "steps/s": f"{self._speed:.0f}",
            "ETA": str(timedelta(seconds=round(left))) if left is not None else "…",
            "mean score": recent,
            "ε": f"{session.epsilon:.3f}",
            "loss": _number(tally.mean_loss),
        }
        if tally.updates:
            numbers["atoms"] = f"{_number(tally.atom_min)} … {_number(tally.atom_max)}"
        for name, value in session.learner.online.diagnostics().items():
            numbers["α" if name == "alpha" else name] = f"{value:.3f}"
        return numbers

    def _print_line(self, session: Session) -> None:
        self.console.print(" | ".join(f"{key} {value}" for key, value in self._numbers(session).items()), markup=False)

    def _picture(self, session: Session) -> Table:
        self._bar.update(self._task, completed=session.step)
        numbers = Table.grid(padding=(0, 2))
        items = list(self._numbers(session).items())
        for row in range(0, len(items), 4):
            cells = [Text.assemble((key, "dim"), " ", (value, "bold")) for key, value in items[row : row + 4]]
            numbers.add_row(*cells)  # no markup: lines printed meanwhile are without it, and so is this then
        picture = Table.grid(expand=True)
        picture.add_row(self._bar)
        picture.add_row(numbers)
        return picture


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"
