"""Warnings outlive the terminal: they are kept in the run's events.jsonl."""

import json

from tests.training.short_runs import short_run


def test_warnings_are_kept_with_the_run(tmp_path):
    run = tmp_path / "run"
    short_run("gym/CartPole-v1", run, iterations=1, steps=60)
    assert not (run / "events.jsonl").exists()  # nothing happened
    newest = max((run / "checkpoints").iterdir())
    (newest / "state.json").write_text("damaged")
    short_run("gym/CartPole-v1", run, iterations=2, steps=60)
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    warnings = [event for event in events if event["event"] == "warning"]
    assert [newest.name in event["text"] and event["time"] > 0 for event in warnings] == [True]
