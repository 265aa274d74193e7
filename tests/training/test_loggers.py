"""Loggers, with the packages they write for: without a network, and without anything in their place."""

import csv
import json
import os
import struct
import time
from dataclasses import replace

import pytest

import c2d
from c2d.config import Logging
from c2d.errors import UserError
from c2d.training.loggers import CsvLog, Logger, MLflow, TensorBoard, WandB, loggers_of
from c2d.training.run import run
from tests.training.short_runs import short_config
from tests.training.test_resume import Crash, Witness, saving


def config(path, **changes):
    return saving(replace(short_config("toy/skewed", path, iterations=2, steps=40), **changes))


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """Nobody's account, nobody's working directory."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("WANDB", "MLFLOW"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")


def test_csv(tmp_path):
    path = tmp_path / "run"
    result = c2d.train(config(path, log=Logging("csv"), eval_every=40, eval_games=1), progress=False)
    with open(path / "metrics.csv") as file:
        rows = [(int(row["steps"]), row["name"], float(row["value"])) for row in csv.DictReader(file)]
    scores = [(steps, value) for steps, name, value in rows if name == "iteration/mean_score"]
    assert scores == [(record["steps"], record["mean_score"]) for record in result.records]
    with open(result.run_dir.episodes) as file:
        games = [(int(row["step"]), float(row["score"])) for row in csv.DictReader(file)]
    assert [(steps, value) for steps, name, value in rows if name == "game/score"] == games
    assert [steps for steps, name, _ in rows if name == "now/epsilon"] == list(range(1, 81))
    assert [steps for steps, name, _ in rows if name == "evaluation/mean_score"] == [40, 80]


@pytest.mark.parametrize("crash", [30, 50])
def test_csv_has_each_step_once_after_a_resume(crash, tmp_path):
    """The checkpoints are of steps 20, 40 and 60: what came after the last one is made again."""

    def lines(path):
        hidden = ("steps_per_second", "seconds", "memory")
        return [line for line in (path / "metrics.csv").read_text().splitlines() if not any(w in line for w in hidden)]

    straight, path = (saving(config(tmp_path / name), every_steps=20) for name in ("straight", "run"))
    run(straight, [CsvLog()])
    with pytest.raises(Crash):
        run(path, [CsvLog(), Witness(crash=crash)])
    with open(tmp_path / "run" / "metrics.csv", "a") as file:
        file.write("999")  # of a process that was killed while it wrote
    run(path, [CsvLog()])
    assert lines(tmp_path / "run") == lines(tmp_path / "straight")


def test_mlflow(tmp_path, monkeypatch):
    """With a store of files, which needs no database."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    uri, path = f"file:{tmp_path / 'store'}", tmp_path / "run"
    asked = Logging("mlflow", project="study", uri=uri)
    c2d.train(config(path, log=asked, iterations=1), progress=False)
    told = Witness()
    result = c2d.train(config(path, log=asked, eval_every=80, eval_games=1), progress=False, callbacks=[told])
    assert not any("MLflow" in text for text in told.notices)
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    (found,) = client.search_runs([client.get_experiment_by_name("study").experiment_id])
    assert found.info.run_name == "run" and found.info.status == "FINISHED"
    assert found.data.params["head.atoms"] == "8" and found.data.params["recipe"] == "c2d"
    points = client.get_metric_history(found.info.run_id, "iteration/mean_score")
    assert [(point.step, point.value) for point in points] == [(r["steps"], r["mean_score"]) for r in result.records]
    assert len(client.get_metric_history(found.info.run_id, "now/epsilon")) == 80
    assert [point.step for point in client.get_metric_history(found.info.run_id, "evaluation/mean_score")] == [80]


def history(directory):
    """The settings and the rows of all runs that Weights & Biases kept offline, from its own log files."""
    from wandb.proto.wandb_internal_pb2 import Record

    settings, rows, names = {}, [], set()
    for file in sorted(directory.glob("wandb/offline-run-*/*.wandb")):
        data, place, whole = file.read_bytes(), 7, b""
        while place + 7 <= len(data):
            if place % 32_768 > 32_768 - 7:  # the rest of a block
                place += 32_768 - place % 32_768
                continue
            _, length, kind = struct.unpack_from("<IHB", data, place)
            whole += data[place + 7 : place + 7 + length]
            place += 7 + length
            if kind in (1, 4):  # a whole record, or the last part of one
                record, whole = Record.FromString(whole), b""
                names.add((record.run.project, record.run.display_name, record.run.run_id))
                settings |= {item.key: json.loads(item.value_json) for item in record.run.config.update}
                rows.append({(i.key or i.nested_key[0]): json.loads(i.value_json) for i in record.history.item})
    return settings, [row for row in rows if row], {name for name in names if any(name)}


def test_weights_and_biases(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    asked, told = Logging("wandb", project="study", name="mine"), Witness()
    c2d.train(config(tmp_path / "run", log=asked, iterations=1), progress=False)
    result = c2d.train(config(tmp_path / "run", log=asked), progress=False, callbacks=[told])
    assert not any("Weights" in text for text in told.notices)
    settings, rows, names = history(tmp_path)
    (name,) = names  # the resumed run is the same one
    assert name[:2] == ("study", "mine") and settings["head.atoms"] == 8 and settings["recipe"] == "c2d"
    scores = [(row["steps"], row["iteration/mean_score"]) for row in rows if "iteration/mean_score" in row]
    assert scores == [(record["steps"], record["mean_score"]) for record in result.records]
    assert [row["steps"] for row in rows if "now/epsilon" in row] == list(range(1, 81))


def test_who_is_not_logged_in_is_told_so(tmp_path):
    told = Witness()
    assert run(config(tmp_path / "run"), [WandB(), told]).state == "finished"
    (said,) = [text for text in told.notices if "Weights" in text]
    assert said == (
        "warning: Weights & Biases no longer logs this run: nobody is logged in: run `wandb login`, or set "
        "WANDB_MODE=offline; training goes on"
    )


def test_a_server_that_does_not_answer_ends_the_logger_and_not_the_run(tmp_path):
    told = Witness()
    assert run(config(tmp_path / "run"), [MLflow(uri="http://127.0.0.1:9"), told]).state == "finished"
    (said,) = [text for text in told.notices if "MLflow" in text]
    assert said.startswith("warning: MLflow no longer logs this run: ") and said.endswith("; training goes on")
    assert "MLflow no longer logs" in (tmp_path / "run" / "events.jsonl").read_text()


class Own(Logger):
    def __init__(self, background=False, fail=None, slow=0.0):
        self.background, self.fail, self.slow, self.calls = background, fail, slow, []

    def _called(self, name):
        self.calls.append(name)
        time.sleep(self.slow)
        if name == self.fail:
            raise ValueError("of mine")

    def open(self, run):
        self._called("open")

    def log(self, values, step):
        self._called("log")

    def flush(self):
        self._called("flush")

    def close(self, state):
        self._called(state)


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("fail", ["open", "log", "flush", "finished", None])
def test_a_logger_of_ones_own(fail, background, tmp_path):
    own, told = Own(background, fail), Witness()
    assert run(config(tmp_path / "run"), [own, told]).state == "finished"
    said = [text for text in told.notices if "the logger" in text]
    assert said == ["warning: the logger no longer logs this run: of mine; training goes on"] * (fail is not None)
    if fail is None:
        assert own.calls[0] == "open" and own.calls[-1] == "finished" and own.calls.count("flush") == 2
        assert own.calls.count("log") > 80
    elif fail != "finished":
        assert own.calls[-1] == fail and own.calls.count(fail) == 1  # nothing is asked of it again


def test_one_that_never_answers_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr("c2d.training.loggers._LAST", 0.05)
    monkeypatch.setattr("c2d.training.loggers._MOST", 50)
    told = Witness()
    began = time.perf_counter()
    assert run(config(tmp_path / "run"), [Own(background=True, slow=5.0), told]).state == "finished"
    assert time.perf_counter() - began < 5.0
    assert any("no longer logs this run: 50 calls are waiting" in text for text in told.notices)


def test_which_loggers_a_config_asks_for(tmp_path):
    def kinds(**settings):
        return [type(each) for each in loggers_of(c2d.configure("toy/sure", **settings))]

    assert kinds() == [TensorBoard] and kinds(tensorboard=False) == [] and kinds(log="csv") == [CsvLog]
    assert kinds(log="MLflow, csv,csv", tensorboard=True) == [MLflow, CsvLog, TensorBoard]
    assert loggers_of(c2d.configure("toy/sure"), usual=False) == []
    with pytest.raises(
        UserError, match=r'unknown logger "wandd"; accepted: tensorboard, csv, wandb, mlflow. Did you .*wandb'
    ):
        c2d.train(config(tmp_path / "run", log=Logging("wandd")))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("kind", "extra"), [(WandB, "wandb"), (MLflow, "mlflow")])
def test_a_package_that_is_missing_is_named(kind, extra, monkeypatch):
    monkeypatch.setattr("c2d.training.loggers.find_spec", lambda name: None)
    with pytest.raises(
        UserError, match=rf"is not installed: pip install 'c2d\[{extra}\]', or leave {extra} out of --log"
    ):
        kind()
