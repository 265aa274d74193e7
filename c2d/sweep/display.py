"""A sweep while it goes on: one live display in a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from c2d.formatting import duration, printable
from c2d.sweep.board import STATES, Board, Entry

_REFRESH = 0.5  # seconds between pictures
_LINE = 30.0  # seconds between lines when there is no terminal
_ROWS = 16  # runs shown one by one


class Display:
    """Looks at a board and prints."""

    def __init__(self, board: Board, console: Console | None = None) -> None:
        self.board = board
        self.console = console or Console(file=sys.stdout, soft_wrap=True, highlight=False)
        self._live: Live | None = None
        self._began, self._shown = time.monotonic(), 0.0
        self._states = {entry.run.name: entry.state for entry in board.entries}
        self._told = 0

    def __enter__(self) -> Display:
        if self.console.is_terminal:
            self._live = Live(
                console=self.console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False
            )
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()
        self._changes()

    def show(self, board: Board) -> None:
        """Whenever there may be something new."""
        self._changes()
        now = time.monotonic()
        if now - self._shown < (_REFRESH if self._live else _LINE):
            return
        self._shown = now
        if self._live is not None:
            self._live.update(self._picture(), refresh=True)
        else:
            self.console.print(summary(board), markup=False)

    def _changes(self) -> None:
        for text in self.board.notes[self._told :]:
            self.console.print(printable(text), markup=False, style="yellow")
        self._told = len(self.board.notes)
        for entry in self.board.entries:
            if entry.state == self._states[entry.run.name]:
                continue
            self._states[entry.run.name] = entry.state
            if entry.state in ("done", "failed", "stopped"):
                style = {"done": None, "failed": "red", "stopped": "yellow"}[entry.state]
                self.console.print(printable(f"{self._count()} {outcome(entry)}"), markup=False, style=style)

    def _count(self) -> str:
        return f"[{self.board.count('done')}/{len(self.board.entries)}]"

    def _picture(self) -> Table:
        picture = Table.grid(expand=True)
        picture.add_row(Text(summary(self.board), style="bold"))
        rows = Table.grid(padding=(0, 2))
        running = sorted(self.board.of("running"), key=lambda entry: -entry.steps / entry.total)
        for entry in running[:_ROWS]:
            score = "" if entry.score is None else f"score {entry.score:.2f}"
            again = f"attempt {entry.lost + 1}" if entry.lost else ""
            bar = ProgressBar(total=entry.total, completed=entry.steps, width=20)
            rows.add_row(entry.run.name, bar, f"{entry.steps:,}", f"{entry.rate:.0f} steps/s", score, again)
        picture.add_row(rows)
        if len(running) > _ROWS:
            picture.add_row(f"… and {len(running) - _ROWS} more")
        return picture


def summary(board: Board) -> str:
    """Everything in one line."""
    starting = sum(entry.starting for entry in board.entries)
    numbers = {state: board.count(state) - starting * (state == "waiting") for state in STATES}
    counts = ", ".join(f"{number} {state}" for state, number in numbers.items())
    counts += f", {starting} starting" * (starting > 0)
    left = board.seconds_left()
    eta = "…" if left is None else duration(left)
    end = f" | {board.stopping}: runs are saving themselves" if board.stopping else f" | ETA {eta}"
    return f"{counts} | {board.rate:,.0f} steps/s{end}"


def outcome(entry: Entry) -> str:
    """How a run ended, in one line."""
    again = f" (its process or node died {entry.lost} times)" if entry.lost > 1 else ""
    again = " (its process or node died once, it went on from its checkpoint)" if entry.lost == 1 else again
    score = "" if entry.score is None else f", score {entry.score:.2f}"
    if entry.state == "failed":
        return f"{entry.run.name}: failed: {entry.error}; log: {entry.run.config.directory / 'log.txt'}{again}"
    if entry.state == "stopped":
        return f"{entry.run.name}: saved at step {entry.steps:,}"
    return f"{entry.run.name}: done{score}{again}"
