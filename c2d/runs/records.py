"""What a run records: the schema of `records.jsonl`, and how its lines are written.

The first line of the file is a `RunHeader`, every other line an `IterationRecord`. A new metric is one field of
`IterationRecord` (see `metric`): it is then recorded, and shown by TensorBoard, the progress display, the web page and
reports. Nobody else lists the keys of a record. `points.jsonl` has the same metrics of shorter stretches (`to_point`).

What depends on the clock or the machine is under the key `measured`. Without it, two runs of one config on one machine
write the same bytes (`canonical`), however often they were stopped and resumed.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, NamedTuple

from c2d.files import open_own, read_up_to, write_atomically

MEASURED = "measured"
HEADER, ITERATION, POINT = "run", "iteration", "point"  # the kinds of lines
_POINTS = 50  # of an iteration
_DIGITS = 6  # significant ones of a number in a point
_COUNT = 1e15  # the largest plausible counter or score

Reduction = Literal["mean", "min", "max", "sum", "last"]


class Chart(NamedTuple):
    """A chart on the page of a run. Metrics of the same chart are drawn together; two of them bound a band."""

    title: str
    unit: str  # what the numbers are, in a few words
    short: str | None = None  # name in the progress display; None: not shown there
    color: int = 4  # number in the palette of the page


class Metric(NamedTuple):
    """What is known about one number of an iteration record."""

    name: str  # key in the record
    title: str  # for people
    path: tuple[str, ...]  # keys that lead to it in the record
    chart: Chart | None  # None: not drawn on the page
    format: str  # as in format(value, ".4g")
    update: str | None  # computed from this value of each `Update`: "loss", or a key of `Update.metrics`
    reduce: Reduction | None  # how the values of an iteration's updates become one
    diagnostic: bool  # the online network reports it under this name (`diagnostics`)
    tensorboard: bool
    live: bool  # also shown while the iteration is in progress
    optional: bool  # left out of the record where there is no value; otherwise null
    required: bool  # every version has recorded it
    largest: float | None  # a line with a value beyond it is damaged; None: not checked

    def value_in(self, record: dict[str, Any]) -> Any:
        """Its value in a record; None if there is none."""
        value: Any = record
        for key in self.path:
            value = value.get(key) if isinstance(value, dict) else None
        return value

    def text(self, value: float | None) -> str:
        return "–" if value is None else format(value, self.format)


def metric(
    title: str,
    chart: Chart | None = None,
    *,
    update: str | None = None,
    reduce: Reduction | None = None,
    diagnostic: bool = False,
    format: str = ".4g",
    tensorboard: bool = True,
    live: bool = False,
    optional: bool = False,
    required: bool = False,
    largest: float | None = None,
    default: Any = None,
) -> Any:
    """A field of `IterationRecord` that is a number.

    Where does its value come from?
    * `update="key", reduce="mean"`: from what `Learner.update` returns in `Update.metrics["key"]` at each update;
    * `reduce="mean"` alone: from the agent's own play, under the name of the field (`OwnPlay` in agents/rollout.py);
    * `diagnostic=True`: from the online network at the end of the iteration, under the name of the field;
    * neither: the code that makes the record passes it.
    """
    if (update is not None and reduce is None) or (update is None and reduce not in (None, "mean")):
        raise ValueError(f"metric {title!r} needs both update and reduce, or neither, or a mean over play")
    facts = {
        "title": title,
        "chart": chart,
        "update": update,
        "reduce": reduce,
        "diagnostic": diagnostic,
        "format": format,
        "tensorboard": tensorboard,
        "live": live,
        "optional": optional,
        "required": required,
        "largest": largest,
    }
    return field(default=default, metadata={"metric": facts})


def _counter(title: str, required: bool = True) -> Any:
    return metric(title, tensorboard=False, required=required, largest=_COUNT, default=MISSING)


_SCORE = Chart("Score", "mean of whole games per iteration", color=0)
_LOSS = Chart("Loss", "mean per update", "loss", color=1)
_ATOMS = Chart("Atoms", "range in training batches, φ-space", "atoms", color=3)
_GRADIENT = Chart("Gradient norm", "largest before clipping", color=8)
_ALPHA = Chart("α", "trained scale of the support", "α", color=2)
_UNIT = Chart("Unit of rewards", "u in φ(return/u)", "u", color=7)
_EPSILON = Chart("ε", "probability of a random action", "ε", color=6)
_TD_ERROR = Chart("TD error", "of the real mean in batches: target less q", color=1)
_TD_ERROR_PLAY = Chart("TD error in play", "of the real mean: r + γq′ less q of chosen actions", color=1)
_BIAS = Chart("Bias", "q of chosen actions less the discounted return that came", color=7)
_EFFECTIVE = Chart("Effective atoms", "1/Σp² of a law, mean in batches", color=3)
_SATURATED = Chart("Saturated atoms", "probability beyond 0.95 α, mean in batches", color=8)
_SPREAD = Chart("Spread of laws", "standard deviation in φ-space: mean in batches; at the start of the run", color=2)
_GAP = Chart("Action gap", "best less second-best real mean, mean in batches", color=6)
_CHURN = Chart("Churn", "share of states whose greedy action changed in an iteration", color=9)
_STALENESS = Chart("Staleness", "updates made since the weights that chose an action, mean over steps", color=9)
_RATIO = Chart("Samples per insertion", "samples that the learner draws per step that is inserted", color=3)
_ACTORS = Chart("Actors", "that answer", color=5)
_LEARNER = Chart("Learner", "share of its time in which it waits for no actor", color=2)
_SPEED = Chart("Speed", "agent steps per second", color=5)
_MEMORY = Chart("Memory", "peak of the process, MB", color=9)


@dataclass(kw_only=True)
class Measured:
    """What differs from machine to machine and from run to run."""

    seconds: float = metric("seconds", default=MISSING)
    steps_per_second: float = metric("steps/s", _SPEED, format=".0f", default=MISSING)
    peak_memory_mb: float = metric("peak memory, MB", _MEMORY, format=".0f", default=MISSING)
    time: float = metric("time of the record", format=".0f", tensorboard=False, default=MISSING)
    learner_share: float | None = metric("learner's share of time", _LEARNER, format=".2f", optional=True)
    actors_alive: int | None = metric("actors alive", _ACTORS, format=".0f", optional=True)


@dataclass(kw_only=True)
class IterationRecord:
    """One iteration, as the authors of the paper recorded it. Order and names are those in the file."""

    iteration: int = _counter("iteration")
    steps: int = _counter("agent steps")
    frames: int = _counter("frames", required=False)
    episodes: int = metric("games", required=True, format=",", default=MISSING)
    mean_score: float | None = metric("mean score", _SCORE, required=True, largest=_COUNT)
    mean_loss: float | None = metric("mean loss", _LOSS, update="loss", reduce="mean", live=True, required=True)
    atom_min: float | None = metric(
        "smallest atom", _ATOMS, update="atom_min", reduce="min", live=True, required=True, largest=_COUNT
    )
    atom_max: float | None = metric(
        "largest atom", _ATOMS, update="atom_max", reduce="max", live=True, required=True, largest=_COUNT
    )
    gradient_norm_max: float | None = metric(
        "largest gradient norm", _GRADIENT, update="gradient_norm", reduce="max", required=True
    )
    updates: int = metric("updates", format=",", default=MISSING)
    alpha: float | None = metric("α", _ALPHA, diagnostic=True, optional=True, format=".2f", live=True)
    unit: float | None = metric("unit of rewards", _UNIT, diagnostic=True, optional=True, live=True)
    extra: dict[str, float] = field(default_factory=dict)  # diagnostics of a network that no field declares
    epsilon: float = metric("ε", _EPSILON, format=".3f", live=True, default=MISSING)
    td_error: float | None = metric("TD error in batches", _TD_ERROR, update="td_error", reduce="mean", optional=True)
    td_error_play: float | None = metric("TD error in play", _TD_ERROR_PLAY, reduce="mean", optional=True)
    bias: float | None = metric("bias in play", _BIAS, reduce="mean", optional=True)
    effective_atoms: float | None = metric(
        "effective atoms", _EFFECTIVE, update="effective_atoms", reduce="mean", optional=True
    )
    saturated: float | None = metric("saturated atoms", _SATURATED, update="saturated", reduce="mean", optional=True)
    law_std: float | None = metric("spread of laws", _SPREAD, update="law_std", reduce="mean", optional=True)
    law_std_fresh: float | None = metric("spread of fresh laws", _SPREAD, optional=True)
    action_gap: float | None = metric("action gap", _GAP, update="action_gap", reduce="mean", optional=True)
    churn: float | None = metric("churn", _CHURN, optional=True)
    staleness: float | None = metric("staleness of weights", _STALENESS, reduce="mean", optional=True)
    samples_per_insert: float | None = metric("samples per insertion", _RATIO, reduce="mean", optional=True)
    measured: Measured | None = None  # None until the run loop has measured it

    def to_json(self) -> dict[str, Any]:
        """The line of the file as a dictionary."""
        record: dict[str, Any] = {"kind": ITERATION}
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name == "extra":
                record |= value
            elif each.name != MEASURED and not (value is None and each.metadata["metric"]["optional"]):
                record[each.name] = value
        if self.measured is not None:
            record[MEASURED] = {name: value for name, value in vars(self.measured).items() if value is not None}
        return record

    def to_point(self) -> dict[str, Any]:
        """The line of `points.jsonl`: the same metrics, of the steps since the point before.

        Only `seconds` counts from the beginning of the iteration. What a short stretch cannot know is left out.
        """
        record = {name: _rounded(value) for name, value in self.to_json().items()}
        if self.measured is not None:
            record[MEASURED] = {name: _rounded(value, 12) for name, value in record[MEASURED].items()}
        return {**record, "kind": POINT}


def _rounded(value: Any, digits: int = _DIGITS) -> Any:
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value


def at_point(step: int, steps: int, length: int) -> bool:
    """Whether a point is due after the last `steps` of `step` steps, in iterations of this length; always at an end."""
    spacing = -(-length // _POINTS)
    return step % length < steps or step // spacing > (step - steps) // spacing


def metrics() -> tuple[Metric, ...]:
    """Every number of an iteration record, in the order of the file."""
    return tuple(
        Metric(name=each.name, path=(*path, each.name), **each.metadata["metric"])
        for schema, path in ((IterationRecord, ()), (Measured, (MEASURED,)))
        for each in fields(schema)
        if "metric" in each.metadata
    )


def charts() -> dict[Chart, list[Metric]]:
    """The charts of a run's page, and the metrics in each."""
    drawn: dict[Chart, list[Metric]] = {}
    for each in metrics():
        if each.chart is not None:
            drawn.setdefault(each.chart, []).append(each)
    return drawn


@dataclass(kw_only=True)
class RunHeader:
    """The first line: what ran."""

    config: dict[str, Any]  # as JSON; where results lie and how often they are saved is left out
    passport: dict[str, Any]
    versions: dict[str, str]
    resume: str | None  # why resuming is not exact; None if it is
    measured: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        return {"kind": HEADER, **vars(self)}


def check_header(record: dict[str, Any], strict: bool = False) -> None:
    """ValueError if a header lacks what readers need; `strict`: lacks anything that every version has written."""
    optional = ("resume",) if strict else ("resume", "versions", MEASURED)
    _require(record, [each.name for each in fields(RunHeader) if each.name not in optional])


def check_iteration(record: dict[str, Any], strict: bool = False) -> None:
    """ValueError if an iteration record lacks what readers need, or holds an implausible number."""
    needed: tuple[str, ...] = ("iteration", "steps", "mean_score")
    if strict:
        needed = (*(each.name for each in metrics() if each.required), MEASURED)
    _require(record, needed)
    for each in metrics():
        if each.largest is None:
            continue
        value = each.value_in(record)
        missing = value is None and each.name not in ("iteration", "steps")
        if not missing and (type(value) not in (int, float) or not abs(value) < each.largest):
            raise ValueError(f'"{each.name}" is not a plausible number')


def _require(record: dict[str, Any], keys: Any) -> None:
    for key in keys:
        if key not in record:
            raise ValueError(f'"{key}" is missing')


# ------------------------------------------------------------------------------------------------------------ lines


def canonical(record: dict[str, Any]) -> bytes:
    """The reproducible part of one line: without `measured`, keys sorted."""
    kept = {key: value for key, value in record.items() if key != MEASURED}
    return json.dumps(kept, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def line_of(record: dict[str, Any]) -> str:
    return json.dumps(record, ensure_ascii=False) + "\n"


class LineFile:
    """A file of lines, each appended whole, so that another process can follow it.

    Lines that the disk rejects are kept and written with the next one. `trouble` is the last error, until a write
    succeeds.
    """

    def __init__(self, path: Path, content: str) -> None:
        """Replace the file, if there is one, by `content`."""
        self.path = path
        self.trouble: OSError | None = None
        self._pending = ""
        write_atomically(path, content.encode())
        self._file = open_own(path, os.O_RDWR)
        self._size = len(content.encode())

    def append(self, line: str) -> None:
        self._pending += line
        with suppress(OSError):
            self.flush()

    def flush(self) -> None:
        """Write what is pending. OSError if that fails; the file is then as before."""
        data = self._pending.encode()
        try:
            done = 0
            while done < len(data):
                done += os.pwrite(self._file, data[done:], self._size + done)
        except OSError as error:
            self.trouble = error
            with suppress(OSError):
                os.ftruncate(self._file, self._size)
            raise
        self._size += len(data)
        self._pending, self.trouble = "", None

    def content(self) -> bytes:
        """Everything appended so far. OSError if not all of it can be written."""
        self.flush()
        return read_up_to(self._file, self._size)

    def close(self) -> None:
        with suppress(OSError):
            self.flush()
        os.close(self._file)
