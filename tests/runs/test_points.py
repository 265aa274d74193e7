"""Points between the records of iterations: where they lie, what they hold, and that they are written once."""

import pytest

from c2d.runs.confined import Root
from c2d.runs.reader import PointReader, read_iterations, read_records
from c2d.runs.records import IterationRecord, Measured, at_point
from c2d.training.run import run
from tests.runs.test_metrics import scalars
from tests.training.short_runs import short_config


def ends(length, steps, iterations=2):
    return [step for step in range(steps, iterations * length + 1, steps) if at_point(step, steps, length)]


@pytest.mark.parametrize("length, steps", [(250_000, 1), (120, 1), (120, 8), (7, 1), (1_003, 1), (64, 64)])
def test_at_most_fifty_and_always_the_end(length, steps):
    found = ends(length, steps, 1 if length > 10_000 else 2)
    first = [step for step in found if step <= length]
    assert first[-1] == length and len(first) == min(50, length // steps) if length % 50 == 0 else len(first) <= 51
    assert length > 10_000 or found[-1] == 2 * length


def test_a_point_is_the_record_of_a_stretch():
    record = IterationRecord(
        iteration=1, steps=30, frames=120, episodes=2, mean_score=1 / 3, updates=4, epsilon=0.1, churn=None
    )
    record.measured = Measured(seconds=2.0, steps_per_second=15.0, peak_memory_mb=1.0, time=1234567890.25)
    point = record.to_point()
    assert point["kind"] == "point" and point["mean_score"] == 0.333333 and point["steps"] == 30
    assert "churn" not in point and point["measured"]["time"] == 1234567890.25


def test_points_and_records_agree_and_tensorboard_has_the_points(tmp_path):
    from c2d.training.loggers import TensorBoard

    path = tmp_path / "run"
    run(short_config("toy/skewed", path, iterations=2, steps=120, update_period=8), [TensorBoard()])
    points, records = PointReader(Root(path)).read_all(), read_iterations(path)
    assert [point["steps"] for point in points] == ends(120, 1) and len(points) == 2 * 40
    for record in records:
        own = [point for point in points if point["iteration"] == record["iteration"]]
        assert sum(point["updates"] for point in own) == record["updates"] == 15
        assert sum(point["episodes"] for point in own) == record["episodes"]
        total = sum((point["mean_loss"] or 0.0) * point["updates"] for point in own)
        assert total / record["updates"] == pytest.approx(record["mean_loss"], rel=1e-5)
        assert min(p["atom_min"] for p in own if p["updates"]) == pytest.approx(record["atom_min"], rel=1e-5)
    losses = [(point["steps"], point["mean_loss"]) for point in points if point["mean_loss"] is not None]
    shown = scalars(path)["now/mean_loss"]
    assert [step for step, _ in shown] == [step for step, _ in losses]
    assert [value for _, value in shown] == pytest.approx([value for _, value in losses], rel=1e-5)
    assert len(read_records(path / "points.jsonl")) == len(points)  # nothing else is in the file
