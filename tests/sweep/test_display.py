"""What people see of a sweep."""

import io

from rich.console import Console

from c2d.sweep.display import Display, RunProgress, SweepProgress, summary
from c2d.sweep.forecast import Rates
from c2d.sweep.plan import multiply
from tests.sweep.tiny_plans import tiny_plan


def board_of(tmp_path, rate=100.0, **plan):
    return SweepProgress([RunProgress(run) for run in multiply(tiny_plan(**plan), tmp_path).runs], Rates(rate))


def at(entry, monkeypatch, moments):
    """News of a run at given times."""
    for now, steps in moments:
        monkeypatch.setattr("c2d.sweep.display.time.monotonic", lambda now=now: now)
        entry.update(steps, None)


def test_counts_rate_and_eta(tmp_path, monkeypatch):
    board = board_of(tmp_path, seeds=(1, 2, 3, 4))
    board.slots = 2
    first, second, third, _ = board.entries
    first.leave("done")
    second.state, third.state = "running", "running"
    at(second, monkeypatch, [(0.0, 40), (1.0, 90), (2.0, 140)])
    assert second.rate == 50.0 and board.rate == 50.0
    # 300 of 440 steps are left at 50/s; two runs of 440 steps at the stated 100/s on the other place
    assert board.seconds_left() == 8.8 and abs(300 / 50 - 6.0) < 1e-9
    assert summary(board) == "1 done, 2 running, 1 waiting, 0 failed | 50 steps/s | ETA 9 s"


def test_without_any_rate_there_is_no_eta(tmp_path, monkeypatch):
    board = board_of(tmp_path, rate=None)
    assert board.seconds_left() is None and summary(board).endswith("ETA …")
    board.entries[0].state = "running"
    at(board.entries[0], monkeypatch, [(0.0, 40), (1.0, 240)])
    assert board.seconds_left() == 440 / 200 + 200 / 200  # one place: the rest of the first, then the second


def test_plain_lines_tell_each_change_once(tmp_path):
    board, out = board_of(tmp_path, seeds=(1, 2, 3)), io.StringIO()
    first, second, third = board.entries
    with Display(board, Console(file=out, soft_wrap=True)) as display:
        first.lost = 1
        first.leave("done")
        second.leave("failed", "RuntimeError: [no] markup")
        board.notes.append("something happened")
        display.show(board)
        display.show(board)
        third.leave("stopped")
    lines = out.getvalue().splitlines()
    assert sum("something happened" in line for line in lines) == 1
    name = first.run.name
    assert f"[1/3] {name}: done (its process or node died once, it went on from its checkpoint)" in lines
    assert sum("failed: RuntimeError: [no] markup; log: " in line for line in lines) == 1
    assert f"[1/3] {third.run.name}: saved at step 0" in lines


def test_live_picture(tmp_path, monkeypatch):
    board, out = board_of(tmp_path, seeds=tuple(range(1, 21))), io.StringIO()
    for entry in board.entries:
        entry.state = "running"
        at(entry, monkeypatch, [(0.0, 40), (1.0, 140)])
    board.entries[0].score = 1.25
    console = Console(file=out, force_terminal=True, width=110, height=40)
    with Display(board, console) as display:
        console.print(display._live_table())
    text = out.getvalue()
    assert "0 done, 20 running, 0 waiting, 0 failed | 2,000 steps/s" in text
    assert "score 1.25" in text and "100 steps/s" in text and "… and 4 more" in text
