"""Loggers: observers that send the numbers of a run to TensorBoard, a CSV file, Weights & Biases or MLflow."""

from __future__ import annotations

import csv
import hashlib
import io
import os
import queue
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from c2d.config import Config, flat, to_json
from c2d.errors import UserError, unknown_name
from c2d.files import kind_of, read_file
from c2d.runs import records
from c2d.runs.records import LineFile
from c2d.training.observers import Observer, RunView
from c2d.types import FinishedGame

Values = Mapping[str, float]

_MOST = 10_000  # calls that may wait for a logger's thread
_LAST = 60.0  # seconds that the end of a run waits for it


class Logger(Observer):
    """Sends the numbers of a run somewhere. Derive from it and override `open`, `log` and `close`.

    Names are `now/mean_loss` (the metrics of a point, up to 50 times in an iteration), `iteration/mean_score`,
    `game/score` and `evaluation/mean_score`; the axis is agent steps. If a method raises, that is said once, the logger
    is given up, and training goes on. With `background` the methods run in a thread of the logger's own, so that a slow
    server does not slow training down.
    """

    title = "the logger"
    background = False

    def open(self, run: RunView) -> None:
        """The run begins, or continues at `run.step`."""

    def log(self, values: Values, step: int) -> None:
        """Numbers at a step."""
        raise NotImplementedError

    def log_all(self, calls: Sequence[tuple[Values, int]]) -> None:
        """Several calls of `log` at once, those that have waited together. Override it if that saves requests."""
        for values, step in calls:
            self.log(values, step)

    def flush(self) -> None:
        """An iteration is over: what was logged should be visible."""

    def close(self, state: str) -> None:
        """The run ends: finished, interrupted or failed."""

    # ------------------------------------------------------------------------------------------------- as an observer

    def begin(self, run: RunView) -> None:
        self._error: Exception | None = None
        self._said = False
        self._tasks: queue.SimpleQueue[tuple[Any, ...]] | None = queue.SimpleQueue() if self.background else None
        self._thread: threading.Thread | None = None
        if self._tasks is not None:
            self._thread = threading.Thread(target=self._work, name=self.title, daemon=True)
            self._thread.start()
        self._do(run, self.open, run)

    def game(self, run: RunView, game: FinishedGame) -> None:
        self._do(run, self.log, {"game/score": game.score, "game/steps": game.steps}, run.step)

    def point(self, run: RunView, record: Mapping[str, Any]) -> None:
        self._log_record(run, "now", record)

    def iteration(self, run: RunView, record: Mapping[str, Any]) -> None:
        self._log_record(run, "iteration", record)
        self._do(run, self.flush)

    def evaluation(self, run: RunView, record: Mapping[str, Any]) -> None:
        names = [name for name in record if name.endswith("_score")]
        self._do(run, self.log, {f"evaluation/{name}": record[name] for name in names}, record["steps"])

    def _log_record(self, run: RunView, group: str, record: Mapping[str, Any]) -> None:
        hidden = {metric.name for metric in records.metrics() if not metric.tensorboard}
        numbers = {
            f"{group}/{name}": value
            for name, value in {**record, **record[records.MEASURED]}.items()
            if isinstance(value, int | float) and name not in hidden
        }
        self._do(run, self.log, numbers, record["steps"])

    def end(self, run: RunView, summary: Mapping[str, Any]) -> None:
        if self._error is None:
            self._do(run, self.close, summary["state"])
        if self._tasks is not None and self._thread is not None:
            self._tasks.put(())
            self._thread.join(_LAST)
            if self._thread.is_alive() and self._error is None:
                self._error = TimeoutError(f"no answer for {_LAST:.0f} s at the end of the run")
        self._tell_trouble(run)

    def _do(self, run: RunView, call: Any, *arguments: Any) -> None:
        if self._error is None and self._tasks is not None:
            if self._tasks.qsize() < _MOST:
                self._tasks.put((call, *arguments))
            else:
                self._error = TimeoutError(f"{_MOST:,} calls are waiting")
        elif self._error is None:
            self._attempt(call, *arguments)
        self._tell_trouble(run)

    def _work(self) -> None:
        """Carry out what waits, several calls of `log` at a time, until an empty task comes."""
        assert self._tasks is not None
        while True:
            tasks = [self._tasks.get()]
            while not self._tasks.empty():
                tasks.append(self._tasks.get())
            logged: list[tuple[Values, int]] = []
            for task in tasks:
                if task and task[0] == self.log:
                    logged.append(task[1:])
                    continue
                if logged:
                    self._attempt(self.log_all, logged)
                    logged = []
                if not task:
                    return
                self._attempt(*task)
            if logged:
                self._attempt(self.log_all, logged)

    def _attempt(self, call: Any, *arguments: Any) -> None:
        if self._error is None:
            try:
                call(*arguments)
            except Exception as error:
                self._error = error

    def _tell_trouble(self, run: RunView) -> None:
        if self._error is not None and not self._said:
            self._said = True
            text = self._error.strerror if isinstance(self._error, OSError) else None
            why = " ".join((text or str(self._error) or type(self._error).__name__).split())[:300]
            run.notice(f"{self.title} no longer logs this run: {why}; training goes on", warning=True)


class TensorBoard(Logger):
    """Scalars for `tensorboard --logdir`, in the run directory. The horizontal axis is agent steps."""

    title = "TensorBoard"

    def __init__(self) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise UserError(
                "TensorBoard is not installed: pip install 'c2d[tensorboard]', or --tensorboard False"
            ) from None
        self._make_writer = SummaryWriter
        self._writer: Any = None
        self._hook = threading.excepthook

    def open(self, run: RunView) -> None:
        self._hook, threading.excepthook = threading.excepthook, self._failed
        self._writer = self._make_writer(str(run.run_dir.tensorboard), purge_step=run.step + 1 if run.step else None)

    def log(self, values: Values, step: int) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def flush(self) -> None:
        self._writer.flush()

    def close(self, state: str) -> None:
        self._writer.close()

    def end(self, run: RunView, summary: Mapping[str, Any]) -> None:
        super().end(run, summary)
        threading.excepthook = self._hook

    def _failed(self, what: Any) -> None:
        """An error of the disk ends the writer's own thread; the next scalar reports it."""
        if not (isinstance(what.exc_value, OSError) and type(what.thread).__module__.startswith("tensorboard")):
            self._hook(what)


class CsvLog(Logger):
    """A table `metrics.csv` in the run directory, one number per line: steps, name, value."""

    title = "The CSV log"

    def open(self, run: RunView) -> None:
        path, kept = run.run_dir.metrics, "steps,name,value\n"
        if run.step and kind_of(path) == "file":
            lines = read_file(path, 1 << 30, within=run.run_dir.path).decode().splitlines(keepends=True)[1:]
            kept += "".join(line for line in lines if _steps_of(line) <= run.step)
        self._file = LineFile(path, kept)

    def log(self, values: Values, step: int) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows((step, name, repr(value)) for name, value in values.items())
        self._file.append(text.getvalue())
        if self._file.trouble is not None:
            raise self._file.trouble

    def close(self, state: str) -> None:
        self._file.close()


def _steps_of(line: str) -> float:
    """Infinity for a line that is none."""
    steps = line.partition(",")[0]
    return int(steps) if steps.isdigit() and line.endswith("\n") else float("inf")


def _identity(run: RunView) -> str:
    """What a run is known by elsewhere: the same after a resume, another one after a fork."""
    started = run.header[records.MEASURED]["started"]
    return hashlib.sha256(f"{started} {run.run_dir.path.resolve().name}".encode()).hexdigest()[:16]


def _settings(config: Config) -> dict[str, Any]:
    return {name: value for name, value in flat(to_json(config)).items() if not name.startswith("log.")}


class WandB(Logger):
    """Weights & Biases. Its own settings apply: `WANDB_MODE=offline`, `WANDB_ENTITY`, `WANDB_DIR` and others."""

    title = "Weights & Biases"
    background = True

    def __init__(self, project: str | None = None, name: str | None = None, group: str | None = None) -> None:
        if find_spec("wandb") is None:
            raise UserError("Weights & Biases is not installed: pip install 'c2d[wandb]', or leave wandb out of --log")
        self.project, self.name, self.group = project or "c2d", name, group

    def open(self, run: RunView) -> None:
        import wandb

        settings = wandb.Settings(console="off", silent=True, init_timeout=30)
        if os.environ.get("WANDB_MODE", "online") == "online" and not wandb.login(prompt=False):
            raise RuntimeError("nobody is logged in: run `wandb login`, or set WANDB_MODE=offline")
        self._run = wandb.init(
            project=self.project,
            name=self.name or run.run_dir.path.resolve().name,
            group=self.group,
            id=_identity(run),
            resume="allow",
            config=_settings(run.config),
            settings=settings,
        )
        self._run.define_metric("steps")
        self._run.define_metric("*", step_metric="steps")

    def log(self, values: Values, step: int) -> None:
        self._run.log({**values, "steps": step})

    def close(self, state: str) -> None:
        self._run.finish(exit_code=int(state == "failed"))


class MLflow(Logger):
    """MLflow: the server or store of `uri`, or of `MLFLOW_TRACKING_URI`, or `mlflow.db` in the working directory."""

    title = "MLflow"
    background = True

    def __init__(self, project: str | None = None, name: str | None = None, uri: str | None = None) -> None:
        if find_spec("mlflow") is None:
            raise UserError("MLflow is not installed: pip install 'c2d[mlflow]', or leave mlflow out of --log")
        self.project, self.name = project or "c2d", name
        self.uri = uri or os.environ.get("MLFLOW_TRACKING_URI") or "sqlite:///mlflow.db"
        # a server that is not there is given up after seconds, not minutes
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")

    def open(self, run: RunView) -> None:
        from mlflow.entities import Param
        from mlflow.tracking import MlflowClient

        self._client, identity = MlflowClient(tracking_uri=self.uri), _identity(run)
        experiment = self._client.get_experiment_by_name(self.project)
        number = self._client.create_experiment(self.project) if experiment is None else experiment.experiment_id
        known = self._client.search_runs([number], f"tags.c2d_run = '{identity}'", max_results=1)
        if known:
            self._number = known[0].info.run_id
            self._client.update_run(self._number, status="RUNNING")
            return
        name = self.name or run.run_dir.path.resolve().name
        self._number = self._client.create_run(number, tags={"c2d_run": identity}, run_name=name).info.run_id
        settings = [Param(key, str(value)[:500]) for key, value in _settings(run.config).items()]
        for part in _parts(settings, 100):
            self._client.log_batch(self._number, params=part)

    def log(self, values: Values, step: int) -> None:
        self.log_all([(values, step)])

    def log_all(self, calls: Sequence[tuple[Values, int]]) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1_000)
        numbers = [Metric(name, value, now, step) for values, step in calls for name, value in values.items()]
        for part in _parts(numbers, 1_000):
            self._client.log_batch(self._number, metrics=part)

    def close(self, state: str) -> None:
        status = {"finished": "FINISHED", "interrupted": "KILLED"}.get(state, "FAILED")
        self._client.set_terminated(self._number, status)


def _parts(items: list[Any], most: int) -> Iterable[list[Any]]:
    return (items[start : start + most] for start in range(0, len(items), most))


LOGGERS = ("tensorboard", "csv", "wandb", "mlflow")


def loggers_of(config: Config, usual: bool = True) -> list[Observer]:
    """Those that a config names. `usual`: TensorBoard too if it is installed, and nothing is said about loggers."""
    log = config.log
    names = [name.strip().lower() for name in log.to.split(",") if name.strip()]
    for name in names:
        if name not in LOGGERS:
            raise unknown_name("logger", name, LOGGERS)
    by_default = usual and not names and config.tensorboard is None and find_spec("tensorboard") is not None
    if config.tensorboard or by_default:
        names.append("tensorboard")
    made: dict[str, Observer] = {}
    for name in dict.fromkeys(names):
        if name == "wandb":
            made[name] = WandB(log.project, log.name, log.group)
        elif name == "mlflow":
            made[name] = MLflow(log.project, log.name, log.uri)
        else:
            made[name] = TensorBoard() if name == "tensorboard" else CsvLog()
    return list(made.values())
