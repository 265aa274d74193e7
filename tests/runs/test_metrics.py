"""A new metric of an iteration is one field in one place: then it is recorded, drawn, reported and shown."""

import io
import json
from dataclasses import dataclass, fields

import pytest
import torch
from rich.console import Console

from c2d.agents.learner import Learner
from c2d.agents.rollout import OwnPlay
from c2d.reporting.local_runs import read_local_runs, recorded_metrics
from c2d.reporting.report import ReportRequest, build_report
from c2d.runs import records
from c2d.runs.confined import Root
from c2d.runs.reader import read_iterations
from c2d.runs.records import Chart, IterationRecord, Measured, RunHeader, charts, metric, metrics
from c2d.training.loggers import TensorBoard
from c2d.training.progress import ProgressDisplay
from c2d.training.run import run
from c2d.training.session import Session, Tally
from c2d.types import FetchedUpdate, GameEnd, ResetFrame, Step
from c2d.web.run_index import RunIndex
from tests.training.short_runs import short_config

ORDER = ["kind", "iteration", "steps", "frames", "episodes", "mean_score", "mean_loss", "atom_min", "atom_max",
         "gradient_norm_max", "updates", "alpha", "epsilon", "measured"]  # fmt: skip

DIAGNOSTICS = ["td_error", "td_error_play", "bias", "effective_atoms", "saturated", "law_std", "law_std_fresh",
               "action_gap", "churn"]  # fmt: skip


@dataclass(kw_only=True)
class WithTarget(IterationRecord):
    target_mean: float | None = metric(
        "mean target", Chart("Target", "mean per update", "target"), update="target", reduce="mean", live=True
    )


def test_a_new_metric_is_one_field(tmp_path, monkeypatch):
    """Declared once, returned by a learner: no other line knows its name."""
    monkeypatch.setattr(records, "IterationRecord", WithTarget)
    update = Learner.update

    def reporting(self, batch):
        result = update(self, batch)
        return result._replace(metrics={**result.metrics, "target": torch.tensor(float(self.updates))})

    monkeypatch.setattr(Learner, "update", reporting)
    shown = io.StringIO()
    display = ProgressDisplay(Console(file=shown, soft_wrap=True, highlight=False))
    path = tmp_path / "runs" / "a"
    result = run(short_config("toy/skewed", path, iterations=2, steps=80, update_period=8), [display, TensorBoard()])
    assert [record["target_mean"] for record in result.records] == [5.5, 15.5]  # of updates 1 to 10, 11 to 20

    assert [record["target_mean"] for record in read_iterations(path)] == [5.5, 15.5]
    assert list(result.records[1]) == [*ORDER[:-1], *DIAGNOSTICS, "target_mean", "measured"]
    assert list(result.records[0]) == [name for name in result.records[1] if name != "churn"]  # since the last record

    assert "| target 5.5 |" in shown.getvalue() and "| target 15.5 |" in shown.getvalue()

    assert scalars(path)["iteration/target_mean"] == [(80, 5.5), (160, 15.5)]

    index = RunIndex(Root(path.parent))
    index.refresh()
    assert index.curves(["a"])["a"]["columns"]["target_mean"] == [5.5, 15.5]
    (chart,) = [chart for chart in index.detail("a")["charts"] if chart["title"] == "Target"]
    assert chart["curves"] == [{"column": "target_mean", "label": "mean target"}]
    json.dumps(index.detail("a"), allow_nan=False)

    runs, _ = read_local_runs([path])
    (row,) = [row for row in recorded_metrics(runs) if row.metric == "mean target"]
    assert (row.first, row.last) == (5.5, 15.5)
    report = build_report(ReportRequest(runs=(path,), replications=10))
    (table,) = [table for section in report.sections for table in section.tables if table.name == "recorded"]
    assert ("c2d (own)", "toy/skewed", "mean target", "5.5", "15.5") in table.rows


def scalars(path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(path / "tensorboard"))
    events.Reload()
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_names_and_order_in_the_file_are_those_of_the_first_version():
    record = IterationRecord(
        iteration=0, steps=1, frames=4, episodes=0, updates=0, epsilon=1.0, alpha=50.0,
        measured=Measured(seconds=1.0, steps_per_second=1.0, peak_memory_mb=1.0, time=1.0),
    )  # fmt: skip
    assert list(record.to_json()) == ORDER
    assert list(record.to_json()["measured"]) == ["seconds", "steps_per_second", "peak_memory_mb", "time"]
    record.alpha = None
    assert "alpha" not in record.to_json() and record.to_json()["mean_loss"] is None
    header = RunHeader(config={}, passport={}, versions={}, resume=None, measured={})
    assert list(header.to_json()) == ["kind", "config", "passport", "versions", "resume", "measured"]


def test_every_metric_has_a_source():
    """An update, play, the network, or an argument of the record; and every reduction is one that the tally knows."""
    tally = Tally()
    everything = {each.update: 1.0 for each in metrics() if each.update not in (None, "loss")}
    tally.count(FetchedUpdate(2.0, None, None, everything))
    play = OwnPlay(1, 0.99)  # one game of one step
    play.follow(0, 1.0, Step(None, 1.0, True, False, ResetFrame(None), GameEnd(1.0, 1)), tally.add)
    of_actors = {"staleness", "samples_per_insert"}  # counted where transitions come from other processes
    reduced = {each.name for each in metrics() if each.reduce is not None} - of_actors
    assert all(tally.record()[name] is not None for name in reduced)
    named = {each.name for schema in (IterationRecord, Measured) for each in fields(schema)}
    assert {each.name for each in metrics()} == named - {"extra", "measured"}
    assert {each.name for drawn in charts().values() for each in drawn} <= named


@pytest.mark.parametrize(("reduce", "wanted"), [("mean", 3.0), ("min", 1.0), ("max", 6.0), ("sum", 9.0), ("last", 2.0)])
def test_reductions(reduce, wanted, monkeypatch):
    @dataclass(kw_only=True)
    class Extended(IterationRecord):
        new: float | None = metric("new", update="new", reduce=reduce)

    monkeypatch.setattr(records, "IterationRecord", Extended)
    tally = Tally()
    for value in (1.0, 6.0, None, 2.0):  # an update may not report it
        tally.count(FetchedUpdate(0.0, None, None, {} if value is None else {"new": value}))
    assert tally.record()["new"] == wanted and tally.record()["atom_min"] is None
    same = Tally()
    same.load_state_dict(tally.state_dict())
    assert same.record() == tally.record()
    monkeypatch.undo()
    older = Tally()
    older.load_state_dict(tally.state_dict())  # a version that does not know it
    assert "new" not in older.record() and older.updates == 4


def test_a_metric_needs_both_halves():
    for half in ({"update": "x"}, {"reduce": "max"}):
        with pytest.raises(ValueError, match="both update and reduce"):
            metric("x", **half)


def test_diagnostics_that_no_field_declares_are_recorded_too(tmp_path, monkeypatch):
    session = Session(short_config("toy/skewed", tmp_path))
    monkeypatch.setattr(type(session.learner.online), "diagnostics", lambda self: {"alpha": 49.0, "entropy": 0.5})
    record = session.finish_iteration().to_json()
    assert list(record) == [*ORDER[: ORDER.index("epsilon")], "entropy", "epsilon"]
    assert (record["alpha"], record["entropy"]) == (49.0, 0.5)
    session.close()
