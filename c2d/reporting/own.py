"""One's own run directories as curves, under names that tell unlike settings apart."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from c2d.errors import UserError
from c2d.files import kind_of
from c2d.reporting.curves import Key, Run
from c2d.reporting.naming import agent_names
from c2d.reporting.runs import RunRecords, clean, read_what_is_there

_DEEPEST = 4  # levels below a named directory at which runs are looked for


@dataclass(frozen=True)
class OwnRun:
    """A run directory and what was made of it."""

    records: RunRecords
    run: Run

    @property
    def passport(self) -> dict[str, Any]:
        passport = self.records.header.get("passport")
        return passport if isinstance(passport, dict) else {}


def read_own(paths: Iterable[Path]) -> tuple[list[OwnRun], list[str]]:
    """Read run directories, or directories of them; notes tell what was skipped, doubled, unfinished or unlike."""
    notes: list[str] = []
    found: list[RunRecords] = []
    for path in _directories(list(paths)):
        try:
            records, damage = read_what_is_there(path)
            _check(records)
        except UserError as error:
            notes.append(f"{error}: the run is left out")
            continue
        notes += damage
        if not records.iterations:
            notes.append(f"{path} has no whole iteration yet: left out")
            continue
        if records.summary is None:
            notes.append(f"{path} is in progress, or was killed: its {len(records.iterations)} iterations so far count")
        found.append(records)
    if not found:
        raise UserError(f"nothing to report: {'; '.join(notes) or 'no run directory was named'}")
    names = agent_names(found, notes)
    return _without_doubles(
        [OwnRun(one, _curve(one, name)) for one, name in zip(found, names, strict=True)], notes
    ), notes


def _directories(paths: list[Path]) -> list[Path]:
    """Each run directory once; a directory without records stands for those in it."""
    found: dict[Path, Path] = {}
    for path in paths:
        inner = list(_runs_in(path, _DEEPEST))
        if not inner:
            raise UserError(f"{path} is not a run directory: {_why_not(path)}")
        for one in inner:
            found.setdefault(one.resolve(), one)
    return list(found.values())


def _runs_in(path: Path, deepest: int) -> Iterator[Path]:
    if kind_of(path / "records.jsonl") is not None:
        yield path
    elif deepest and path.is_dir():
        for inner in sorted(path.iterdir()):
            if not inner.name.startswith(".") and not inner.is_symlink():
                yield from _runs_in(inner, deepest - 1)


def _why_not(path: Path) -> str:
    return "it has no records.jsonl, nor has a directory in it" if path.is_dir() else "it does not exist or is a file"


def _check(records: RunRecords) -> None:
    config = records.header.get("config")
    if not isinstance(config, dict):
        raise UserError(f"{records.path}: its config is damaged")
    for key, kind in {"env": str, "recipe": str, "seed": int}.items():
        if not isinstance(config.get(key), kind):
            raise UserError(f'{records.path}: its config is damaged: "{key}" is {config.get(key)!r}')


def _curve(records: RunRecords, name: str) -> Run:
    env = str(records.config["env"])
    family, _, game = env.partition("/")
    lines = records.iterations
    frames = [line["steps"] * _repeat(records.config) for line in lines]
    ends = np.array(frames, dtype=np.float64) / 1e6
    key = Key(name, clean(game if family == "atari" else env), int(records.config["seed"]))
    return Run(
        key,
        ends=ends,
        values=_figures(lines, "mean_score"),
        atom_ends=ends,
        low=_figures(lines, "atom_min"),
        high=_figures(lines, "atom_max"),
        source=str(records.path),
        finished=records.summary is not None and records.summary.get("state") == "finished",
    )


def _repeat(config: dict[str, Any]) -> int:
    """Emulated frames per agent step."""
    rules = config.get("rules")
    repeat = rules.get("action_repeat") if isinstance(rules, dict) else None
    return repeat if type(repeat) is int and 0 < repeat < 1000 else 1


def _figures(lines: tuple[dict[str, Any], ...], name: str) -> np.ndarray:
    values = (line.get(name) for line in lines)
    return np.array([math.nan if value is None else float(value) for value in values])


def _without_doubles(runs: list[OwnRun], notes: list[str]) -> list[OwnRun]:
    """A seed counts once per agent and game: the longer run of it."""
    kept: dict[Key, OwnRun] = {}
    for one in runs:
        other = kept.setdefault(one.run.key, one)
        if other is one:
            continue
        longer, shorter = (one, other) if one.run.length > other.run.length else (other, one)
        kept[one.run.key] = longer
        key = one.run.key
        notes.append(
            f"{longer.records.path} and {shorter.records.path} are both seed {key.seed} of {key.agent} on {key.game}: "
            f"the longer one counts, the other is left out"
        )
    return list(kept.values())
