"""Plans that take seconds, and the results of their runs that must not depend on faults."""

from c2d.config import Config
from c2d.runs.reader import canonical_records
from c2d.sweep.directory import SweepDir
from c2d.sweep.forecast import Rates
from c2d.sweep.options import SweepOptions
from c2d.sweep.plan import Plan, Variant, multiply
from c2d.sweep.run_sweep import SweepRequest, run_sweep
from c2d.training.run import run

TINY = {
    "schedule.steps-per-iteration": 200,
    "schedule.random-history": 40,
    "schedule.replay-capacity": 300,
    "schedule.batch-size": 4,
    "schedule.target-period": 50,
    "head.hidden": 8,
    "checkpoint.every-steps": 100,
}


def tiny_plan(envs=("toy/sure",), seeds=(1, 2), iterations=2, recipes=("c51",), **settings):
    rows = tuple(Variant(name, name) for name in recipes)
    return Plan("tiny", rows, tuple(envs), tuple(seeds), iterations=iterations, settings={**TINY, **settings})


def request(plan, where, options=None, **changes):
    return SweepRequest(plan.name, multiply(plan, where), where, options or SweepOptions(), Rates(), **changes)


def carry_out(plan, where, options=None, **changes):
    """The progress at the end, and the lines printed."""
    lines = []
    return run_sweep(request(plan, where, options, **changes), lines.append), lines


def left_by(path):
    """The results of a run, except what depends on the machine."""
    return canonical_records(path / "records.jsonl"), (path / "episodes.csv").read_bytes(), (
        path / "weights.safetensors"
    ).read_bytes()  # fmt: skip


def straight(config: Config, path):
    """The same run without Ray and without faults."""
    from dataclasses import replace

    run(replace(config, run_dir=str(path)))
    return left_by(path)


def events(where, run=None):
    import json

    lines = [json.loads(line) for line in SweepDir(where).events.read_text().splitlines()]
    return [line["event"] for line in lines if run is None or line["run"] == run]
