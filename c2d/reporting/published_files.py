"""Published curves that the user has on disk: the public formats, recognized by what is in them.

* Dopamine's `baselines/atari/data/GAME.json` and the C2D authors' `data/GAME.json`: a list of
  {"Iteration", "Value", "Agent"}; a new run begins where the iteration falls back.
* The authors' `data/supplementary/GAME_T1.csv`: one run, one row per iteration, with the smallest and largest atom.
* `learning_curves.csv[.gz]` (agent, game, seed, iteration, value), `supports.csv[.gz]` (game, seed, iteration,
  supp_min, supp_max) and `published_scores.csv` (agent, game, seed, frames_millions, score).
"""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from c2d.envs.games import GAMES
from c2d.errors import UserError
from c2d.files import load_json, read_file
from c2d.reporting.conventions import COMMON, NOMINAL
from c2d.reporting.curves import Key, Run
from c2d.reporting.published_values import Unknown, Unusable, game_of, iteration_of, number_of, plain

AGENT_NAMES = {"Quantile (JAX)": "QR-DQN", "Quantile": "QR-DQN", "ACN": "C2D"}  # theirs -> ours; others stay
_LARGEST = 256 * 2**20  # bytes of one file, unpacked
_SUFFIXES = (".json", ".csv", ".csv.gz")
T = TypeVar("T")


def read_published(path: Path) -> tuple[list[Run], list[str]]:
    """Every run found under `path`, and notes on what was left aside and why."""
    files = _files(path)
    runs: dict[Key, Run] = {}
    notes: list[str] = []
    unknown: list[str] = []
    for file in files:
        try:
            found = list(_read(file, notes))
        except Unknown:
            unknown.append(file.name)
            continue
        except Unusable as reason:
            notes.append(f"{file}: left aside, {reason}")
            continue
        for run in found:
            known = runs.get(run.key)
            if known is not None and _disagree(known, run):
                notes.append(f"{file}: {_words(run.key)} differs from {known.source}; the longer curve is used")
            runs[run.key] = run if known is None else known.joined(run)
    if unknown:
        more = " ..." * (len(unknown) > 5)
        notes.append(f"no curves in a known format, and not used: {', '.join(unknown[:5])}{more}")
    if not runs:
        raise UserError(f"--published {path} holds no curves in a known format ({'; '.join(notes[:3]) or 'no files'})")
    return list(runs.values()), notes + _short(runs)


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise UserError(f"--published {path} does not exist: name a directory with published curves (docs/reports.md)")
    return sorted(
        file
        for file in path.rglob("*")
        if file.name.endswith(_SUFFIXES) and not file.name.startswith(".") and file.is_file()
    )


def _read(file: Path, notes: list[str]) -> Iterator[Run]:
    text = _text(file)
    if file.name.endswith(".json"):
        return _from_json(file, text)
    rows = csv.reader(text.splitlines())
    header = next(rows, [])
    for columns, reader in _TABLES.items():
        if set(columns) <= set(header):
            return reader(file, _Columns(file, header, rows, columns), notes)
    raise Unknown("its format is not known")


def _text(file: Path) -> str:
    try:
        packed = read_file(file, _LARGEST)
        with gzip.open(io.BytesIO(packed)) if file.name.endswith(".gz") else io.BytesIO(packed) as stream:
            data = stream.read(_LARGEST + 1)
        if len(data) > _LARGEST:
            raise Unusable(f"it is larger than {_LARGEST // 2**20} MB")
        return data.decode("utf-8-sig")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise Unusable(f"it cannot be read: {error}") from None


# ---------------------------------------------------------------------------------------------------------- JSON


def _from_json(file: Path, text: str) -> Iterator[Run]:
    try:
        entries = load_json(text)
    except ValueError as error:
        raise Unusable(f"it is no JSON: {error}") from None
    if not isinstance(entries, list) or not entries:
        raise Unknown("its format is not known")
    game = game_of(_game_of_name(file))
    curves: dict[str, list[dict[int, float]]] = {}
    for entry in entries:
        agent, iteration, value = _entry(entry)
        seeds = curves.setdefault(AGENT_NAMES.get(agent, agent), [])
        if not seeds or (seeds[-1] and iteration <= max(seeds[-1])):
            seeds.append({})
        seeds[-1][iteration] = value
    for agent, seeds in curves.items():
        for seed, curve in enumerate(seeds, 1):
            yield _run(file, Key(agent, game, seed), curve)


def _entry(entry: Any) -> tuple[str, int, float]:
    try:
        agent, iteration, value = entry["Agent"], entry["Iteration"], entry["Value"]
    except (TypeError, KeyError):
        raise Unknown("its format is not known") from None
    if not isinstance(agent, str) or isinstance(iteration, bool) or not isinstance(iteration, int):
        raise Unusable(f"an entry is not {{Iteration, Value, Agent}}: {str(entry)[:80]}")
    return agent, iteration_of(iteration), number_of(value)


def _game_of_name(file: Path) -> str:
    """pong.json, Pong.json, dopamine_pong.json -> pong"""
    stem = file.name.partition(".")[0]
    names = [plain(stem), plain(stem.partition("_")[2])]
    return next((name for name in names if name in GAMES), names[0])


# ----------------------------------------------------------------------------------------------------------- CSV


class _Columns:
    """The rows of a table with the named columns only."""

    def __init__(self, file: Path, header: list[str], rows: Iterable[list[str]], names: tuple[str, ...]) -> None:
        self._places = [header.index(name) for name in names]
        self._width, self._rows, self._file = len(header), rows, file

    def parsed(self, parse: Callable[..., T], notes: list[str]) -> Iterator[T]:
        """What `parse` makes of each row; rows that it cannot read are skipped, counted and told."""
        bad: list[str] = []
        for number, row in enumerate(self._rows, 2):
            try:
                if len(row) != self._width:
                    raise Unusable(f"{len(row)} cells instead of {self._width}")
                yield parse(*(row[place] for place in self._places))
            except Unusable as reason:
                bad.append(f"line {number}: {reason}")
        if bad:
            more = f" and {len(bad) - 1:,} more" if len(bad) > 1 else ""
            notes.append(f"{self._file}: skipped {bad[0]}{more}")


def _supplementary(file: Path, rows: _Columns, notes: list[str]) -> Iterator[Run]:
    """One of the authors' runs."""
    runs: dict[Key, dict[int, tuple[float, ...]]] = {}

    def parse(agent: str, game: str, tag: str, phase: str, iteration: str, *figures: str) -> Any:
        if phase != "train":
            return None
        key = Key(AGENT_NAMES.get(agent, agent), game_of(game), iteration_of(tag.lstrip("T")))
        return key, iteration_of(iteration), tuple(map(number_of, figures))

    for key, number, row in filter(None, rows.parsed(parse, notes)):
        runs.setdefault(key, {})[number] = row
    for key, found in runs.items():
        yield _run(file, key, {i: row[0] for i, row in found.items()}, {i: row[1:] for i, row in found.items()})


def _curves(file: Path, rows: _Columns, notes: list[str]) -> Iterator[Run]:
    runs: dict[tuple[str, str, str], dict[int, float]] = {}
    for key, iteration, value in rows.parsed(
        lambda agent, game, seed, iteration, value: ((agent, game, seed), iteration_of(iteration), number_of(value)),
        notes,
    ):
        runs.setdefault(key, {})[iteration] = value
    for (agent, game, seed), curve in runs.items():
        if _known(game, file, notes):
            yield _run(file, Key(AGENT_NAMES.get(agent, agent), plain(game), iteration_of(seed)), curve)


def _supports(file: Path, rows: _Columns, notes: list[str]) -> Iterator[Run]:
    runs: dict[tuple[str, str], dict[int, tuple[float, float]]] = {}
    for key, iteration, atoms in rows.parsed(
        lambda game, seed, iteration, low, high: (
            (game, seed),
            iteration_of(iteration),
            (number_of(low), number_of(high)),
        ),
        notes,
    ):
        runs.setdefault(key, {})[iteration] = atoms
    for (game, seed), found in runs.items():
        if _known(game, file, notes):
            yield _run(file, Key("C2D", plain(game), iteration_of(seed)), {}, found)


def _points(file: Path, rows: _Columns, notes: list[str]) -> Iterator[Run]:
    runs: dict[tuple[str, str, str], dict[tuple[float, float], float]] = {}
    for key, frames, score in rows.parsed(
        lambda agent, game, seed, frames, score: ((agent, game, seed), number_of(frames), number_of(score)), notes
    ):
        runs.setdefault(key, {})[(5.0, COMMON if frames == NOMINAL else frames)] = score
    for (agent, game, seed), points in runs.items():
        if _known(game, file, notes):
            key = Key(AGENT_NAMES.get(agent, agent), plain(game), iteration_of(seed))
            yield Run(key, points=points, source=str(file))


_Reader = Callable[[Path, _Columns, list[str]], Iterator[Run]]
_TABLES: dict[tuple[str, ...], _Reader] = {
    ("Agent", "game", "tag", "phase", "iteration", "avg_return", "supp_min", "supp_max"): _supplementary,
    ("agent", "game", "seed", "iteration", "value"): _curves,
    ("game", "seed", "iteration", "supp_min", "supp_max"): _supports,
    ("agent", "game", "seed", "frames_millions", "score"): _points,
}

# --------------------------------------------------------------------------------------------------------- shared


def _run(file: Path, key: Key, curve: dict[int, float], atoms: dict[int, Any] | None = None) -> Run:
    at, atoms = sorted(curve), atoms or {}
    when = sorted(atoms)
    return Run(
        key,
        ends=np.array(at, dtype=np.float64) + 1,
        values=np.array([curve[i] for i in at]),
        atom_ends=np.array(when, dtype=np.float64) + 1,
        low=np.array([atoms[i][0] for i in when]),
        high=np.array([atoms[i][1] for i in when]),
        source=str(file),
    )


def _known(name: str, file: Path, notes: list[str]) -> bool:
    """Whether to keep a game of a table of many; the first run of an unknown one leaves a note."""
    try:
        game_of(name)
    except Unusable as reason:
        note = f"{file}: rows left aside, {reason}"
        if note not in notes:
            notes.append(note)
        return False
    return True


def _disagree(one: Run, other: Run) -> bool:
    """Whether two sources tell different scores for the same iterations (more than rounding)."""
    shared = min(one.ends.size, other.ends.size)
    return shared > 0 and not np.allclose(
        one.values[:shared], other.values[:shared], rtol=1e-4, atol=1e-3, equal_nan=True
    )


def _short(runs: dict[Key, Run]) -> list[str]:
    """Runs that end before the others do."""
    return [
        f"{_words(run.key)} stops after {run.length:.0f}M frames"
        for run in runs.values()
        if run.ends.size and run.length < COMMON
    ]


def _words(key: Key) -> str:
    return f"{key.agent} {key.game} seed {key.seed}"
