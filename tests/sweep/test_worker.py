"""A worker without Ray: on the sweep's own disk and on another one."""

import os
from dataclasses import replace

from c2d.config import to_json
from c2d.runs.reader import read_evaluations
from c2d.sweep.plan import changed, config_hash, multiply
from c2d.sweep.transfer import RunReceiver, transfer_order
from c2d.sweep.worker import RunWorker, WorkerRequest
from tests.sweep.faulty_envs import Raises
from tests.sweep.tiny_plans import left_by, straight, tiny_plan


def start(config, where, ship, files=(), **more):
    where.mkdir(parents=True, exist_ok=True)
    (where / "marker").write_text("token")
    worker = RunWorker(WorkerRequest(to_json(config), str(where / "marker"), "token", ship, **more))
    assert worker.shared != ship
    worker.start(files)
    return worker


def finish(worker, receiver):
    while (report := worker.report(0.05)).state is None:
        receiver.put(report.items)
    return report


def test_a_worker_on_another_disk_sends_everything_and_resumes_from_what_it_gets(tmp_path):
    where = tmp_path / "sweep"
    config = multiply(tiny_plan(seeds=(1,), iterations=3), where).runs[0].config
    wanted = straight(config, tmp_path / "straight")
    half = replace(config, iterations=1)
    first = start(half, where, ship=True)
    report = finish(first, RunReceiver(config.directory))
    assert report.state == "finished" and report.pid == os.getpid() and report.steps == 240
    assert not first._path.exists()  # nothing is left where it ran
    files = [(name, (config.directory / name).read_bytes()) for name in transfer_order(config.directory)]
    second = start(config, where, True, files, keep_replay=False)
    assert finish(second, RunReceiver(config.directory)).state == "finished"
    assert left_by(config.directory) == wanted
    assert "resumed from the checkpoint at step 200: exact" in (config.directory / "log.txt").read_text()
    assert not list(config.directory.glob("checkpoints/*")) and not list(config.directory.glob("replay/*"))


def test_a_worker_on_the_same_disk_works_in_place_and_stops_on_request(tmp_path):
    where = tmp_path / "sweep"
    config = multiply(tiny_plan(seeds=(1,), iterations=400), where).runs[0].config
    worker = start(config, where, ship=False)
    while not config.directory.joinpath("weights.safetensors").is_file():
        assert worker.report(0.05).items == []
    worker.stop()
    report = finish(worker, RunReceiver(tmp_path / "nowhere"))
    assert report.state == "interrupted" and not (tmp_path / "nowhere").exists()
    assert list((config.directory / "checkpoints").iterdir())


def test_the_runs_of_a_sweep_have_the_observers_that_their_settings_ask_for(tmp_path):
    plan = changed(
        tiny_plan(seeds=(1,), iterations=1), settings={"eval-every": (50,), "eval-games": (1,), "log": ("csv",)}
    )
    config = multiply(plan, tmp_path / "sweep").runs[0].config
    assert finish(start(config, tmp_path / "sweep", True), RunReceiver(config.directory)).state == "finished"
    assert [record["steps"] for record in read_evaluations(config.directory)] == [50, 100, 150, 200]
    names = {line.split(",")[1] for line in (config.directory / "metrics.csv").read_text().splitlines()}
    assert {"evaluation/mean_score", "iteration/mean_score"} < names
    assert not (config.directory / "tensorboard").exists()
    plain = multiply(tiny_plan(seeds=(1,), iterations=1), tmp_path / "sweep").runs[0]
    assert plain.config.directory == config.directory and config_hash(plain.config) == config_hash(config)


def test_a_worker_reports_errors_in_one_line_and_logs_the_rest(tmp_path, monkeypatch):
    monkeypatch.setenv("C2D_TEST_MARKS", str(tmp_path))
    monkeypatch.setattr(Raises, "pause", 0.0)
    config = multiply(tiny_plan(("tests.sweep.faulty_envs:Raises",), seeds=(1,)), tmp_path).runs[0].config
    report = finish(start(config, tmp_path, ship=False), RunReceiver(tmp_path))
    assert (report.state, report.error) == ("failed", "RuntimeError: the emulator lost its mind")
    assert "Traceback" in (config.directory / "log.txt").read_text()
    broken = replace(config, run_dir=str(tmp_path / "file" / "run"))
    (tmp_path / "file").write_text("a file")
    report = finish(start(broken, tmp_path, ship=False), RunReceiver(tmp_path))
    assert report.state == "failed" and "\n" not in report.error
