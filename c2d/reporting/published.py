"""Published scores: the tables bundled with the project, and published curves that the user has on disk.

The bundled tables name their sources. Curves on disk may be in any of the public formats, recognized by content:

* Dopamine's `baselines/atari/data/GAME.json` and the C2D authors' `data/GAME.json`: a list of
  {"Iteration", "Value", "Agent"}; a new run begins where the iteration number decreases.
* The authors' `data/supplementary/GAME_T1.csv`: one run, one row per iteration, with the smallest and largest atom.
* `learning_curves.csv[.gz]` (agent, game, seed, iteration, value), `supports.csv[.gz]` (game, seed, iteration,
  supp_min, supp_max) and `published_scores.csv` (agent, game, seed, frames_millions, score).
"""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from c2d.envs.games import GAMES
from c2d.errors import UserError, did_you_mean
from c2d.files import load_json, read_file
from c2d.formatting import alphanumeric
from c2d.reporting.scores import COMMON, NOMINAL, RunCurve, RunKey

QUANTITIES: dict[str, str] = {
    "mean_loss": "mean loss",
    "atom_min": "smallest atom",
    "atom_max": "largest atom",
    "gradient_norm_max": "largest gradient norm",
    "episodes": "games ended",
    "mean_score": "mean score",
}  # column of the table and key of a record -> display name

# column of the score table -> (millions of frames averaged, end of that window)
_POINTS = {
    "at_10": (5.0, 10.0),
    "at_50": (5.0, 50.0),
    "at_100": (5.0, 100.0),
    "at_150": (5.0, 150.0),
    "at_200": (5.0, 199.0),
    "iteration_198": (1.0, 199.0),
    "iteration_199": (1.0, 200.0),
}


def _rows(name: str) -> Iterator[dict[str, str]]:
    return csv.DictReader(line for line in _resource(name).splitlines() if not line.startswith("#"))


def _resource(name: str) -> str:
    return resources.files("c2d.reporting").joinpath(f"data/{name}").read_text(encoding="utf-8")


@cache
def early_iterations() -> dict[str, dict[int, dict[str, tuple[float, ...]]]]:
    """game -> iteration -> quantity -> value of each of the authors' seeds, in order of the seeds."""
    table: dict[str, dict[int, dict[str, tuple[float, ...]]]] = {}
    for row in sorted(_rows("early_iterations.csv"), key=lambda row: int(row["seed"])):
        cell = table.setdefault(row["game"], {}).setdefault(int(row["iteration"]), {})
        for quantity in QUANTITIES:
            cell[quantity] = (*cell.get(quantity, ()), float(row[quantity]))
    return table


@cache
def bundled_runs() -> tuple[RunCurve, ...]:
    """Published agents as points at 10, 50, 100, 150 and 200M frames, and C2D's first ten iterations on eight games."""
    early = {run.key: run for run in _early_runs()}
    runs = []
    for row in _rows("published_scores.csv"):
        key = RunKey(row["agent"], row["game"], int(row["seed"]))
        points = {at: float(row[column]) for column, at in _POINTS.items() if row[column]}
        run = RunCurve(key, points=points, source="the project's table of published scores")
        runs.append(run.joined(early[key]) if key in early else run)
    return tuple(runs)


@cache
def mean_curves() -> dict[tuple[str, str], RunCurve]:
    """(agent, game) -> the mean over Dopamine's five seeds, every iteration; data/ATTRIBUTION.md names the source."""
    packed = resources.files("c2d.reporting").joinpath("data/dopamine_curves.csv.gz").read_bytes()
    header, *rows = csv.reader(gzip.decompress(packed).decode().splitlines())
    ends = np.array([float(iteration) + 1 for iteration in header[2:]])
    return {
        (agent, game): RunCurve(RunKey(agent, game, 0), ends=ends, values=np.array(values, dtype=np.float64))
        for agent, game, *values in rows
    }


def _early_runs() -> Iterator[RunCurve]:
    for game, iterations in early_iterations().items():
        ends = np.array(sorted(iterations), dtype=np.float64) + 1
        for place in range(3):
            figures = {
                name: np.array([iterations[at][name][place] for at in sorted(iterations)])
                for name in ("mean_score", "atom_min", "atom_max")
            }
            yield RunCurve(
                RunKey("C2D", game, place + 1),
                ends=ends,
                values=figures["mean_score"],
                atom_ends=ends,
                low=figures["atom_min"],
                high=figures["atom_max"],
            )


@cache
def paper_score_table() -> dict[str, dict[float, tuple[str, str]]]:
    """game -> millions of frames -> (mean, standard deviation) as printed in the paper's score table."""
    return {
        row["game"]: {float(at): (row[f"mean_{at}"], row[f"std_{at}"]) for at in (10, 50, 100, 200)}
        for row in _rows("paper_score_table.csv")
    }


@cache
def paper_figures() -> dict[str, Any]:
    """Values read off the paper's figures."""
    value: dict[str, Any] = json.loads(_resource("paper_figures.json"))
    return value


@cache
def reward_statistics() -> dict[str, tuple[float, float]]:
    """game -> (fraction of steps with a reward, mean size of those rewards), measured under random play."""
    return {row["game"]: (float(row["density"]), float(row["magnitude"] or "nan")) for row in _rows("rewards.csv")}


# ------------------------------------------------------------------------------------------------ curves on disk


# their name -> ours; other names are kept
AGENT_NAMES = {"Quantile (JAX)": "QR-DQN", "Quantile": "QR-DQN", "ACN": "C2D"}
_LARGEST = 256 * 2**20  # bytes of one file, uncompressed
_SUFFIXES = (".json", ".csv", ".csv.gz")
T = TypeVar("T")


def read_published(path: Path) -> tuple[list[RunCurve], list[str]]:
    """Every run under `path`, and notes on what was skipped and why."""
    files = _files(path)
    runs: dict[RunKey, RunCurve] = {}
    notes: list[str] = []
    unknown: list[str] = []
    for file in files:
        try:
            curves = list(_read(file, notes))
        except UnknownFormat:
            unknown.append(file.name)
            continue
        except UnusableData as reason:
            notes.append(f"{file}: skipped, {reason}")
            continue
        for run in curves:
            known = runs.get(run.key)
            if known is not None and _disagree(known, run):
                notes.append(f"{file}: {_describe(run.key)} differs from {known.source}; using the longer curve")
            runs[run.key] = run if known is None else known.joined(run)
    if unknown:
        more = " ..." * (len(unknown) > 5)
        notes.append(f"not used, no curves in a known format: {', '.join(unknown[:5])}{more}")
    if not runs:
        raise UserError(f"--published {path} has no curves in a known format ({'; '.join(notes[:3]) or 'no files'})")
    return list(runs.values()), notes + _short(runs)


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise UserError(
            f"--published {path} does not exist; accepted: a directory with published curves (docs/reports.md)"
        )
    return sorted(
        file
        for file in path.rglob("*")
        if file.name.endswith(_SUFFIXES) and not file.name.startswith(".") and file.is_file()
    )


def _read(file: Path, notes: list[str]) -> Iterator[RunCurve]:
    text = _text(file)
    if file.name.endswith(".json"):
        return _from_json(file, text)
    rows = csv.reader(text.splitlines())
    header = next(rows, [])
    for columns, reader in _TABLES.items():
        if set(columns) <= set(header):
            return reader(file, _Columns(file, header, rows, columns), notes)
    raise UnknownFormat("unknown format")


def _text(file: Path) -> str:
    try:
        packed = read_file(file, _LARGEST)
        with gzip.open(io.BytesIO(packed)) if file.name.endswith(".gz") else io.BytesIO(packed) as stream:
            data = stream.read(_LARGEST + 1)
        if len(data) > _LARGEST:
            raise UnusableData(f"it is larger than {_LARGEST // 2**20} MB")
        return data.decode("utf-8-sig")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise UnusableData(f"it cannot be read: {error}") from None


# ---------------------------------------------------------------------------------------------------------- JSON


def _from_json(file: Path, text: str) -> Iterator[RunCurve]:
    try:
        entries = load_json(text)
    except ValueError as error:
        raise UnusableData(f"it is not valid JSON: {error}") from None
    if not isinstance(entries, list) or not entries:
        raise UnknownFormat("unknown format")
    game = _parse_game(_game_of_name(file))
    curves: dict[str, list[dict[int, float]]] = {}
    for entry in entries:
        agent, iteration, value = _entry(entry)
        seeds = curves.setdefault(AGENT_NAMES.get(agent, agent), [])
        if not seeds or (seeds[-1] and iteration <= max(seeds[-1])):
            seeds.append({})
        seeds[-1][iteration] = value
    for agent, seeds in curves.items():
        for seed, curve in enumerate(seeds, 1):
            yield _run(file, RunKey(agent, game, seed), curve)


def _entry(entry: Any) -> tuple[str, int, float]:
    try:
        agent, iteration, value = entry["Agent"], entry["Iteration"], entry["Value"]
    except (TypeError, KeyError):
        raise UnknownFormat("unknown format") from None
    if not isinstance(agent, str) or isinstance(iteration, bool) or not isinstance(iteration, int):
        raise UnusableData(f"an entry is not {{Iteration, Value, Agent}}: {str(entry)[:80]}")
    return agent, _parse_iteration(iteration), _parse_number(value)


def _game_of_name(file: Path) -> str:
    """pong.json, Pong.json, dopamine_pong.json -> pong"""
    stem = file.name.partition(".")[0]
    names = [alphanumeric(stem), alphanumeric(stem.partition("_")[2])]
    return next((name for name in names if name in GAMES), names[0])


# ----------------------------------------------------------------------------------------------------------- CSV


class _Columns:
    """The rows of a table, restricted to the named columns."""

    def __init__(self, file: Path, header: list[str], rows: Iterable[list[str]], names: tuple[str, ...]) -> None:
        self._places = [header.index(name) for name in names]
        self._width, self._rows, self._file = len(header), rows, file

    def parsed(self, parse: Callable[..., T], notes: list[str]) -> Iterator[T]:
        """`parse` applied to each row. Rows it cannot read are skipped, counted and reported in `notes`."""
        bad: list[str] = []
        for number, row in enumerate(self._rows, 2):
            try:
                if len(row) != self._width:
                    raise UnusableData(f"{len(row)} cells instead of {self._width}")
                yield parse(*(row[place] for place in self._places))
            except UnusableData as reason:
                bad.append(f"line {number}: {reason}")
        if bad:
            more = f" and {len(bad) - 1:,} more" if len(bad) > 1 else ""
            notes.append(f"{self._file}: skipped {bad[0]}{more}")


def _supplementary(file: Path, rows: _Columns, notes: list[str]) -> Iterator[RunCurve]:
    """One of the authors' runs."""
    runs: dict[RunKey, dict[int, tuple[float, ...]]] = {}

    def parse(agent: str, game: str, tag: str, phase: str, iteration: str, *figures: str) -> Any:
        if phase != "train":
            return None
        key = RunKey(AGENT_NAMES.get(agent, agent), _parse_game(game), _parse_iteration(tag.lstrip("T")))
        return key, _parse_iteration(iteration), tuple(map(_parse_number, figures))

    for key, number, row in filter(None, rows.parsed(parse, notes)):
        runs.setdefault(key, {})[number] = row
    for key, rows_of_run in runs.items():
        scores, atoms = {i: row[0] for i, row in rows_of_run.items()}, {i: row[1:] for i, row in rows_of_run.items()}
        yield _run(file, key, scores, atoms)


def _curves(file: Path, rows: _Columns, notes: list[str]) -> Iterator[RunCurve]:
    runs: dict[tuple[str, str, str], dict[int, float]] = {}
    for key, iteration, value in rows.parsed(
        lambda agent, game, seed, iteration, value: (
            (agent, game, seed),
            _parse_iteration(iteration),
            _parse_number(value),
        ),
        notes,
    ):
        runs.setdefault(key, {})[iteration] = value
    for (agent, game, seed), curve in runs.items():
        if _known(game, file, notes):
            yield _run(file, RunKey(AGENT_NAMES.get(agent, agent), alphanumeric(game), _parse_iteration(seed)), curve)


def _supports(file: Path, rows: _Columns, notes: list[str]) -> Iterator[RunCurve]:
    runs: dict[tuple[str, str], dict[int, tuple[float, float]]] = {}
    for key, iteration, atoms in rows.parsed(
        lambda game, seed, iteration, low, high: (
            (game, seed),
            _parse_iteration(iteration),
            (_parse_number(low), _parse_number(high)),
        ),
        notes,
    ):
        runs.setdefault(key, {})[iteration] = atoms
    for (game, seed), atoms_of_run in runs.items():
        if _known(game, file, notes):
            yield _run(file, RunKey("C2D", alphanumeric(game), _parse_iteration(seed)), {}, atoms_of_run)


def _points(file: Path, rows: _Columns, notes: list[str]) -> Iterator[RunCurve]:
    runs: dict[tuple[str, str, str], dict[tuple[float, float], float]] = {}
    for key, frames, score in rows.parsed(
        lambda agent, game, seed, frames, score: ((agent, game, seed), _parse_number(frames), _parse_number(score)),
        notes,
    ):
        runs.setdefault(key, {})[(5.0, COMMON if frames == NOMINAL else frames)] = score
    for (agent, game, seed), points in runs.items():
        if _known(game, file, notes):
            key = RunKey(AGENT_NAMES.get(agent, agent), alphanumeric(game), _parse_iteration(seed))
            yield RunCurve(key, points=points, source=str(file))


_Reader = Callable[[Path, _Columns, list[str]], Iterator[RunCurve]]
_TABLES: dict[tuple[str, ...], _Reader] = {
    ("Agent", "game", "tag", "phase", "iteration", "avg_return", "supp_min", "supp_max"): _supplementary,
    ("agent", "game", "seed", "iteration", "value"): _curves,
    ("game", "seed", "iteration", "supp_min", "supp_max"): _supports,
    ("agent", "game", "seed", "frames_millions", "score"): _points,
}


def _run(file: Path, key: RunKey, curve: dict[int, float], atoms: dict[int, Any] | None = None) -> RunCurve:
    at, atoms = sorted(curve), atoms or {}
    when = sorted(atoms)
    return RunCurve(
        key,
        ends=np.array(at, dtype=np.float64) + 1,
        values=np.array([curve[i] for i in at]),
        atom_ends=np.array(when, dtype=np.float64) + 1,
        low=np.array([atoms[i][0] for i in when]),
        high=np.array([atoms[i][1] for i in when]),
        source=str(file),
    )


def _known(name: str, file: Path, notes: list[str]) -> bool:
    """Whether to keep a game of a table. The first run of an unknown game leaves a note."""
    try:
        _parse_game(name)
    except UnusableData as reason:
        note = f"{file}: rows skipped, {reason}"
        if note not in notes:
            notes.append(note)
        return False
    return True


def _disagree(one: RunCurve, other: RunCurve) -> bool:
    """Whether two sources have different scores for the same iterations, beyond rounding."""
    shared = min(one.ends.size, other.ends.size)
    return shared > 0 and not np.allclose(
        one.values[:shared], other.values[:shared], rtol=1e-4, atol=1e-3, equal_nan=True
    )


def _short(runs: dict[RunKey, RunCurve]) -> list[str]:
    """Notes on runs that end before the others."""
    return [
        f"{_describe(run.key)} stops after {run.length:.0f}M frames"
        for run in runs.values()
        if run.ends.size and run.length < COMMON
    ]


def _describe(key: RunKey) -> str:
    return f"{key.agent} {key.game} seed {key.seed}"


_LAST_ITERATION = 10_000  # the largest plausible one


class UnusableData(Exception):
    """Why a file, or a line of it, is skipped."""


class UnknownFormat(UnusableData):
    """The file is in an unknown format."""


def _parse_iteration(text: str | int) -> int:
    try:
        number = int(text)
    except ValueError:
        raise UnusableData(f'"{str(text)[:40]}" is not a whole number') from None
    if not 0 <= number <= _LAST_ITERATION:
        raise UnusableData(f"{number} is out of range; accepted: 0 to {_LAST_ITERATION:,}")
    return number


def _parse_number(value: Any) -> float:
    """A number; an empty cell, null or infinity becomes NaN."""
    if value in (None, ""):
        return float("nan")
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise UnusableData(f'"{str(value)[:40]}" is not a number') from None
    return number if np.isfinite(number) else float("nan")


def _parse_game(name: str) -> str:
    key = alphanumeric(name)
    if key not in GAMES:
        raise UnusableData(f'"{name[:40]}" is not a known Atari game.{did_you_mean(key, GAMES)}')
    return key
