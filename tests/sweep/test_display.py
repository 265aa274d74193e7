"""What users see of a sweep."""

import io

from rich.console import Console

from c2d.sweep.display import Display, RunProgress, SweepProgress, summary
from c2d.sweep.forecast import Rates
from c2d.sweep.plan import multiply
from tests.sweep.tiny_plans import tiny_plan


def progress_of(tmp_path, rate=100.0, **plan):
    return SweepProgress([RunProgress(run) for run in multiply(tiny_plan(**plan), tmp_path).runs], Rates(rate))


def report(entry, monkeypatch, moments):
    """Reports of a run at given times."""
    for now, steps in moments:
        monkeypatch.setattr("c2d.sweep.display.time.monotonic", lambda now=now: now)
        entry.update(steps, None)


def test_counts_rate_and_eta(tmp_path, monkeypatch):
    progress = progress_of(tmp_path, seeds=(1, 2, 3, 4))
    progress.slots = 2
    first, second, third, _ = progress.entries
    first.leave("done")
    second.state, third.state = "running", "running"
    report(second, monkeypatch, [(0.0, 40), (1.0, 90), (2.0, 140)])
    assert second.rate == 50.0 and progress.rate == 50.0
    # 300 of 440 steps are left at 50/s; two runs of 440 steps at the stated 100/s in the other slot
    assert progress.seconds_left() == 8.8 and abs(300 / 50 - 6.0) < 1e-9
    assert summary(progress) == "1 done, 2 running, 1 waiting, 0 failed | 50 steps/s | ETA 9 s"


def test_without_any_rate_there_is_no_eta(tmp_path, monkeypatch):
    progress = progress_of(tmp_path, rate=None)
    assert progress.seconds_left() is None and summary(progress).endswith("ETA …")
    progress.entries[0].state = "running"
    report(progress.entries[0], monkeypatch, [(0.0, 40), (1.0, 240)])
    assert progress.seconds_left() == 440 / 200 + 200 / 200  # one slot: the rest of the first, then the second


def test_plain_lines_show_each_change_once(tmp_path):
    progress, out = progress_of(tmp_path, seeds=(1, 2, 3)), io.StringIO()
    first, second, third = progress.entries
    with Display(progress, Console(file=out, soft_wrap=True)) as display:
        first.lost = 1
        first.leave("done")
        second.leave("failed", "RuntimeError: [no] markup")
        progress.notes.append("something happened")
        display.show(progress)
        display.show(progress)
        third.leave("stopped")
    lines = out.getvalue().splitlines()
    assert sum("something happened" in line for line in lines) == 1
    name = first.run.name
    assert f"[1/3] {name}: done (its process or node died once, resumed from its checkpoint)" in lines
    assert sum("failed: RuntimeError: [no] markup; log: " in line for line in lines) == 1
    assert f"[1/3] {third.run.name}: saved at step 0" in lines


def test_live_display(tmp_path, monkeypatch):
    progress, out = progress_of(tmp_path, seeds=tuple(range(1, 21))), io.StringIO()
    for entry in progress.entries:
        entry.state = "running"
        report(entry, monkeypatch, [(0.0, 40), (1.0, 140)])
    progress.entries[0].score = 1.25
    console = Console(file=out, force_terminal=True, width=110, height=40)
    with Display(progress, console) as display:
        console.print(display._live_table())
    text = out.getvalue()
    assert "0 done, 20 running, 0 waiting, 0 failed | 2,000 steps/s" in text
    assert "score 1.25" in text and "100 steps/s" in text and "… and 4 more" in text
