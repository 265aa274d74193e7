"""Your own run directories as curves: finding them, naming their agents, and the rules behind their scores.

One agent name stands for one recipe with one set of settings and rules. Where runs of one recipe differ, each set gets
a name of its own. A run's passport records the rules under which its scores arose.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from c2d.config import FREE, flat, to_json
from c2d.envs.protocols import PROTOCOLS
from c2d.errors import UserError
from c2d.files import kind_of
from c2d.formatting import plural, printable_name
from c2d.recipes.rows import RECIPES
from c2d.reporting.scores import RunCurve, RunKey
from c2d.runs.layout import RECORDS, RunDir
from c2d.runs.reader import RunRecords, read_tolerantly
from c2d.runs.records import metrics

_MAX_DEPTH = 4  # levels below a given directory that are searched for runs


@dataclass(frozen=True)
class LocalRun:
    """A run directory and its curve."""

    records: RunRecords
    run: RunCurve

    @property
    def passport(self) -> dict[str, Any]:
        passport = self.records.header.get("passport")
        return passport if isinstance(passport, dict) else {}


def read_local_runs(paths: Iterable[Path]) -> tuple[list[LocalRun], list[str]]:
    """Read run directories, or directories of them. Notes name what was skipped, duplicate, unfinished or different."""
    notes: list[str] = []
    found: list[RunRecords] = []
    for path in run_directories(list(paths)):
        try:
            records, damage = read_tolerantly(path)
            _check(records)
        except UserError as error:
            notes.append(f"{error}; run skipped")
            continue
        notes += damage
        if not records.iterations:
            notes.append(f"{path} has no complete iteration yet; run skipped")
            continue
        if records.summary is None:
            notes.append(f"{path} is in progress or was killed: using its {len(records.iterations)} iterations so far")
        found.append(records)
    if not found:
        raise UserError(f"nothing to report: {'; '.join(notes) or 'no run directory given'}")
    names = agent_names(found, notes)
    return _without_duplicates(
        [LocalRun(one, _curve(one, name)) for one, name in zip(found, names, strict=True)], notes
    ), notes


def run_directories(paths: list[Path]) -> list[Path]:
    """Each run directory once. A directory without records stands for the runs in it."""
    found: dict[Path, Path] = {}
    for path in paths:
        inner = list(_runs_in(path, _MAX_DEPTH))
        if not inner:
            raise UserError(f"{path} is not a run directory: {_why_not(path)}")
        for one in inner:
            found.setdefault(one.resolve(), one)
    return list(found.values())


def _runs_in(path: Path, deepest: int) -> Iterator[Path]:
    if kind_of(RunDir(path).records) is not None:
        yield path
    elif deepest and path.is_dir():
        for inner in sorted(path.iterdir()):
            if not inner.name.startswith(".") and not inner.is_symlink():
                yield from _runs_in(inner, deepest - 1)


def _why_not(path: Path) -> str:
    return f"neither it nor a directory in it has a {RECORDS}" if path.is_dir() else "it does not exist or is a file"


def _check(records: RunRecords) -> None:
    config = records.header.get("config")
    if not isinstance(config, dict):
        raise UserError(f"{records.path}: its config is damaged")
    for key, kind in {"env": str, "recipe_name": str, "seed": int}.items():
        if not isinstance(config.get(key), kind):
            raise UserError(f'{records.path}: its config is damaged: "{key}" is {config.get(key)!r}')


def _curve(records: RunRecords, name: str) -> RunCurve:
    env = str(records.config["env"])
    family, _, game = env.partition("/")
    lines = records.iterations
    frames = [line["steps"] * _repeat(records.config) for line in lines]
    ends = np.array(frames, dtype=np.float64) / 1e6
    key = RunKey(name, printable_name(game if family == "atari" else env), int(records.config["seed"]))
    return RunCurve(
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


def _without_duplicates(runs: list[LocalRun], notes: list[str]) -> list[LocalRun]:
    """Keep one run per agent, game and seed: the longest."""
    kept: dict[RunKey, LocalRun] = {}
    for one in runs:
        other = kept.setdefault(one.run.key, one)
        if other is one:
            continue
        longer, shorter = (one, other) if one.run.length > other.run.length else (other, one)
        kept[one.run.key] = longer
        key = one.run.key
        notes.append(
            f"{longer.records.path} and {shorter.records.path} are both seed {key.seed} of {key.agent} on {key.game}: "
            f"using the longer one; the other is left out"
        )
    return list(kept.values())


class RecordedMetric(NamedTuple):
    """A number that an agent's runs on one environment recorded: means over their first and last iterations."""

    agent: str
    env: str
    metric: str
    first: float
    last: float
    format: str  # as in format(value, ".4g")


def recorded_metrics(runs: Sequence[LocalRun]) -> list[RecordedMetric]:
    """Every metric of the schema of records that has values, in the file's order, by agent and environment."""
    rows: list[RecordedMetric] = []
    together: dict[tuple[str, str], list[Sequence[dict[str, Any]]]] = {}
    for one in runs:
        together.setdefault((one.run.key.agent, one.run.key.game), []).append(one.records.iterations)
    for (agent, env), iterations in together.items():
        for metric in metrics():
            ends = [[_finite(metric.value_in(lines[end])) for lines in iterations] for end in (0, -1)]
            first, last = (float(np.nanmean(values)) if np.isfinite(values).any() else math.nan for values in ends)
            if metric.tensorboard and not (math.isnan(first) and math.isnan(last)):
                rows.append(RecordedMetric(agent, env, metric.title, first, last, metric.format))
    return rows


def _finite(value: Any) -> float:
    return float(value) if type(value) in (int, float) and abs(value) < 1e300 else math.nan


# ------------------------------------------------------------------------------------------- names of agents


SUFFIX = " (own)"  # after the recipe's name, so that `c2d` is not mistaken for the published C2D
_ALSO_FREE = {"env", "seed", "recipe", *(name.replace("_", "-") for name in FREE)}  # may differ within one agent
_LONGEST = 30  # of a name that spells out settings; longer ones become a letter
_Facts = dict[str, str]


class _Kind(NamedTuple):
    """One agent: a recipe with one set of settings and rules."""

    recipe: str
    distinction: str  # what distinguishes it from others of its recipe; empty if it is the only one


def agent_names(found: Sequence[RunRecords], notes: list[str]) -> list[str]:
    """The recipe's name, or one name per variant where runs of one recipe differ in settings or rules."""
    kinds: list[_Kind] = [_Kind(str(records.config["recipe_name"]), "") for records in found]
    for places in _families(found):
        for place, distinction in zip(places, _distinctions([found[place] for place in places]), strict=True):
            kinds[place] = kinds[place]._replace(distinction=distinction)
    names = _labels(list(dict.fromkeys(kinds)))
    for kind, records in dict(zip(kinds, found, strict=True)).items():
        if not kind.distinction and (exchanged := _exchanged(records.config)):
            notes.append(f"{names[kind]} is not the recipe as it stands: {exchanged}")
    for recipe in dict.fromkeys(kind.recipe for kind in kinds if kind.distinction):
        variants = dict.fromkeys(kind for kind in kinds if kind.recipe == recipe and kind.distinction)
        listed = "; ".join(
            f"{names[kind]}: {plural(kinds.count(kind), 'run')}"
            + ("" if kind.distinction in names[kind] else f", {kind.distinction}")
            for kind in variants
        )
        notes.append(f'runs of recipe "{printable_name(recipe)}" differ and are kept apart: {listed}')
    return [names[kind] for kind in kinds]


_INGREDIENTS = ("head", "phi.kind", "loss", "bootstrap", "sampler", "n-step", "noisy", "dueling")


def _exchanged(config: dict[str, Any]) -> str:
    """Ingredients that are not those of the recipe the run is named after."""
    recipe = RECIPES.get(config["recipe_name"])
    now, row = flat(config), {} if recipe is None else flat(to_json(recipe))
    changed = [name for name in _INGREDIENTS if name in row and now.get(name, row[name]) != row[name]]
    return ", ".join(f"{name} is {printable_name(str(now.get(name)))} instead of {row[name]}" for name in changed)


def _families(found: Sequence[RunRecords]) -> list[list[int]]:
    """Indices of runs whose settings should agree: same recipe, on Atari or on one other environment."""
    families: dict[tuple[str, str], list[int]] = {}
    for place, records in enumerate(found):
        env = str(records.config["env"])
        families.setdefault((records.config["recipe_name"], "atari" if env.startswith("atari/") else env), []).append(
            place
        )
    return list(families.values())


def _distinctions(family: Sequence[RunRecords]) -> list[str]:
    """What distinguishes each run from the others: its settings, and rules that no setting shows."""
    settings = [_settings(records.config) for records in family]
    texts = [_spell(one, _varying(settings)) for one in settings]
    for same in dict.fromkeys(texts):
        places = [place for place, text in enumerate(texts) if text == same]
        passports = [family[place].header.get("passport") for place in places]
        rules = [passport_facts(passport) if isinstance(passport, dict) else {} for passport in passports]
        for place, one in zip(places, rules, strict=True):
            texts[place] = ", ".join(filter(None, (same, _spell(one, _varying(rules)))))
    return texts


def _spell(values: _Facts, keys: Sequence[str]) -> str:
    return ", ".join(f"{printable_name(key)}={printable_name(values[key])}" for key in keys if key in values)


def _settings(config: dict[str, Any]) -> _Facts:
    return {key: str(value) for key, value in flat(config).items() if key.partition(".")[0] not in _ALSO_FREE}


def _varying(values: Sequence[_Facts]) -> list[str]:
    """Keys with more than one value. A run without a key (older than the setting) does not count as different."""
    keys = dict.fromkeys(key for one in values for key in one)
    return [key for key in keys if len({one[key] for one in values if key in one}) > 1]


def _labels(kinds: Sequence[_Kind]) -> dict[_Kind, str]:
    """Short, unique names."""
    labels: dict[_Kind, str] = {}
    for kind in kinds:
        others = [other for other in kinds if other.recipe == kind.recipe and other.distinction]
        label = printable_name(kind.recipe)
        if kind.distinction and all(len(_spelled_out(other)) <= _LONGEST for other in others):
            label = _spelled_out(kind)
        elif kind.distinction:
            label += f" {_letter(others.index(kind))}"
        taken, number = set(labels.values()), 2
        unique = label + SUFFIX
        while unique in taken:
            unique, number = f"{label} {number}{SUFFIX}", number + 1
        labels[kind] = unique
    return labels


def _spelled_out(kind: _Kind) -> str:
    return f"{printable_name(kind.recipe)} [{kind.distinction}]"


def _letter(number: int) -> str:
    """A, B, ..., Z, AA, AB, ..."""
    return (_letter(number // 26 - 1) if number >= 26 else "") + "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[number % 26]


# ------------------------------------------------------------------------------------------------- passports


_TRAINING = "mean raw score of the whole training games that ended in an iteration"


def published_passport(agent: str) -> dict[str, Any]:
    """The rules of a published agent: C2D's own, or Dopamine's with rewards clipped to ±1."""
    protocol, clip = ("c2d-paper", None) if agent == "C2D" else ("dopamine", 1.0)
    passport = {**asdict(PROTOCOLS[protocol]), "protocol": protocol, "clip_reward": clip, "recorded_score": _TRAINING}
    if agent == "C2D":
        del passport["noop_max"]  # the authors' records say 30 no-op frames, their released code has none
    return passport


def _cap(passport: dict[str, Any]) -> str:
    steps, repeat, frames = (_count(passport.get(key)) for key in ("cap_steps", "action_repeat", "cap_frames"))
    caps = [cap for cap in (frames, None if steps is None else steps * (repeat or 1)) if cap is not None]
    return f"{min(caps):,} frames" if caps else "none"


def _count(value: Any) -> int | None:
    return value if type(value) is int else None


def _plain(value: Any) -> str:
    return {"None": "none", "True": "yes", "False": "no"}.get(str(value), printable_name(str(value)))


# what affects scores: description, key of the passport, and how its value is formatted
_RULES: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("life loss ends the learner's episode", "life_loss_ends_episode", _plain),
    ("sticky actions", "sticky", _plain),
    ("rewards clipped to ±", "clip_reward", _plain),
    ("frames per step", "action_repeat", _plain),
    ("no-op frames at the start", "noop_max", _plain),
    ("all 18 actions", "full_action_set", _plain),
    ("learner treats a truncated episode as", "truncation", _plain),
    ("scores", "recorded_score", lambda value: "of training" if value == _TRAINING else printable_name(str(value))),
)


def passport_facts(passport: dict[str, Any]) -> dict[str, str]:
    """The rules that affect scores: description -> value."""
    found = {text: describe(passport[key]) for text, key, describe in _RULES if key in passport}
    if "cap_steps" in passport or "cap_frames" in passport:
        found["longest episode"] = _cap(passport)
    return found


def passport_differences(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Rules that differ, each as "rule: one | other". Rules that one passport does not state are ignored."""
    ours, theirs = passport_facts(one), passport_facts(other)
    return [f"{what}: {ours[what]} | {theirs[what]}" for what in ours if theirs.get(what, ours[what]) != ours[what]]


def passport_spread(passports: Iterable[tuple[str, dict[str, Any]]]) -> list[str]:
    """Each rule in which named passports differ: "rule: one value (names) | another (names)"."""
    values: dict[str, dict[str, dict[str, None]]] = {}  # fact -> value -> names, in order
    for name, passport in passports:
        for what, value in passport_facts(passport).items():
            values.setdefault(what, {}).setdefault(value, {})[name] = None
    return [
        f"{what}: " + " | ".join(f"{value} ({', '.join(names)})" for value, names in held.items())
        for what, held in values.items()
        if len(held) > 1
    ]
