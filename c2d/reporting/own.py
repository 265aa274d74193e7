"""One's own run directories as curves, under names that tell unlike settings apart."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from c2d.config import flat
from c2d.errors import UserError
from c2d.reporting.curves import Key, Run
from c2d.reporting.runs import RunRecords, read_what_is_there

SUFFIX = " (own)"  # after the recipe's name, lest `c2d` be taken for the published C2D
# settings in which runs of one agent may differ
_FREE = ("env", "seed", "run-dir", "device", "threads", "compress-replay", "tensorboard", "iterations", "recipe")
_LONGEST_NAME = 60


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
        records, damage = read_what_is_there(path)
        notes += damage
        _check(records)
        if not records.iterations:
            notes.append(f"{path} has no whole iteration yet: left out")
            continue
        if records.summary is None:
            notes.append(f"{path} is in progress, or was killed: its {len(records.iterations)} iterations so far count")
        found.append(records)
    if not found:
        raise UserError(f"nothing to report: {'; '.join(notes) or 'no run directory was named'}")
    names = _names(found, notes)
    return _without_doubles(
        [OwnRun(one, _curve(one, name)) for one, name in zip(found, names, strict=True)], notes
    ), notes


def _directories(paths: list[Path]) -> list[Path]:
    """Each run directory once; a directory without records stands for those in it."""
    found: dict[Path, Path] = {}
    for path in paths:
        inner = [path]
        if path.is_dir() and not (path / "records.jsonl").exists():
            inner = sorted(file.parent for file in path.glob("*/records.jsonl")) or [path]
        for one in inner:
            found.setdefault(one.resolve(), one)
    return list(found.values())


def _check(records: RunRecords) -> None:
    config = records.header.get("config")
    if not isinstance(config, dict):
        raise UserError(f"{records.path}: its config is damaged")
    for key, kind in {"env": str, "recipe": str, "seed": int}.items():
        if not isinstance(config.get(key), kind):
            raise UserError(f'{records.path}: its config is damaged: "{key}" is {config.get(key)!r}')


def _names(found: list[RunRecords], notes: list[str]) -> list[str]:
    """The recipe's name; where runs of one name differ in settings, with those settings."""
    settings = [_settings(records.config) for records in found]
    families: dict[tuple[str, str], list[int]] = {}
    for place, records in enumerate(found):
        env = str(records.config["env"])
        families.setdefault((records.config["recipe"], "atari" if env.startswith("atari/") else env), []).append(place)
    names = [clean(str(records.config["recipe"])) + SUFFIX for records in found]
    for (recipe, _), places in families.items():
        unlike = _unlike([settings[place] for place in places])
        if not unlike:
            continue
        for place in places:
            told = ", ".join(f"{key}={settings[place][key]}" for key in unlike[:3] if key in settings[place])
            names[place] = clean(f"{recipe} [{told}]") + SUFFIX
        kinds = Counter(names[place] for place in places)
        notes.append(
            f'runs under the name "{clean(recipe)}" differ in settings and are kept apart: '
            + "; ".join(f"{name}: {count}" for name, count in sorted(kinds.items()))
            + (f" (they also differ in {', '.join(unlike[3:])})" if len(unlike) > 3 else "")
        )
    return names


def _settings(config: dict[str, Any]) -> dict[str, str]:
    return {
        key: str(value) for key, value in flat(config).items() if key not in _FREE and not key.startswith("checkpoint.")
    }


def _unlike(settings: list[dict[str, str]]) -> list[str]:
    """Settings with more than one value. One that a run does not name (it is older than the setting) tells nothing."""
    keys = dict.fromkeys(key for one in settings for key in one)
    return [key for key in keys if len({one[key] for one in settings if key in one}) > 1]


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
            f"the first counts, the second is left out"
        )
    return list(kept.values())


def clean(name: str) -> str:
    """A name from a file, fit to print: no control characters, not too long."""
    plain = "".join(letter if letter.isprintable() else "?" for letter in name)
    return plain if len(plain) <= _LONGEST_NAME else plain[: _LONGEST_NAME - 1] + "…"
