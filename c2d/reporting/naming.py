"""Names for agents among one's own runs: one name for one recipe with one set of settings and rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from c2d.config import FREE, flat
from c2d.reporting.passports import facts
from c2d.reporting.runs import RunRecords, clean
from c2d.words import plural

SUFFIX = " (own)"  # after the recipe's name, lest `c2d` be taken for the published C2D
_ALSO_FREE = {"env", "seed", "recipe", *(name.replace("_", "-") for name in FREE)}  # within one agent
_LONGEST = 30  # of a name that tells settings; else a letter stands for them
_Facts = dict[str, str]


class _Kind(NamedTuple):
    """Runs that are of one agent."""

    recipe: str
    told: str  # what tells it from others of its recipe; empty if nothing does


def agent_names(found: Sequence[RunRecords], notes: list[str]) -> list[str]:
    """The recipe's name; where runs of one recipe differ in settings or rules, a name for each set of them."""
    kinds: list[_Kind] = [_Kind(str(records.config["recipe"]), "") for records in found]
    for places in _families(found):
        for place, told in zip(places, _distinctions([found[place] for place in places]), strict=True):
            kinds[place] = kinds[place]._replace(told=told)
    names = _labels(list(dict.fromkeys(kinds)))
    for recipe in dict.fromkeys(kind.recipe for kind in kinds if kind.told):
        unlike = dict.fromkeys(kind for kind in kinds if kind.recipe == recipe and kind.told)
        told = "; ".join(
            f"{names[kind]}: {plural(kinds.count(kind), 'run')}{'' if kind.told in names[kind] else f', {kind.told}'}"
            for kind in unlike
        )
        notes.append(f'runs under the name "{clean(recipe)}" differ and are kept apart: {told}')
    return [names[kind] for kind in kinds]


def _families(found: Sequence[RunRecords]) -> list[list[int]]:
    """Places of runs whose settings should be the same: of one recipe, on Atari or on one environment."""
    families: dict[tuple[str, str], list[int]] = {}
    for place, records in enumerate(found):
        env = str(records.config["env"])
        families.setdefault((records.config["recipe"], "atari" if env.startswith("atari/") else env), []).append(place)
    return list(families.values())


def _distinctions(family: Sequence[RunRecords]) -> list[str]:
    """For each run what it differs in from some other: its settings, and rules that no setting tells of."""
    settings = [_settings(records.config) for records in family]
    told = [_told(one, _unlike(settings)) for one in settings]
    for alike in dict.fromkeys(told):
        places = [place for place, words in enumerate(told) if words == alike]
        passports = [family[place].header.get("passport") for place in places]
        rules = [facts(passport) if isinstance(passport, dict) else {} for passport in passports]
        for place, one in zip(places, rules, strict=True):
            told[place] = ", ".join(filter(None, (alike, _told(one, _unlike(rules)))))
    return told


def _told(values: _Facts, keys: Sequence[str]) -> str:
    return ", ".join(f"{clean(key)}={clean(values[key])}" for key in keys if key in values)


def _settings(config: dict[str, Any]) -> _Facts:
    return {key: str(value) for key, value in flat(config).items() if key.partition(".")[0] not in _ALSO_FREE}


def _unlike(values: Sequence[_Facts]) -> list[str]:
    """Facts with more than one value. One that a run does not name (it is older than the setting) tells nothing."""
    keys = dict.fromkeys(key for one in values for key in one)
    return [key for key in keys if len({one[key] for one in values if key in one}) > 1]


def _labels(kinds: Sequence[_Kind]) -> dict[_Kind, str]:
    """Short names, no two of them the same."""
    labels: dict[_Kind, str] = {}
    for kind in kinds:
        others = [other for other in kinds if other.recipe == kind.recipe and other.told]
        label = clean(kind.recipe)
        if kind.told and all(len(_spelled(other)) <= _LONGEST for other in others):
            label = _spelled(kind)
        elif kind.told:
            label += f" {_letter(others.index(kind))}"
        taken, number = set(labels.values()), 2
        unique = label + SUFFIX
        while unique in taken:
            unique, number = f"{label} {number}{SUFFIX}", number + 1
        labels[kind] = unique
    return labels


def _spelled(kind: _Kind) -> str:
    return f"{clean(kind.recipe)} [{kind.told}]"


def _letter(number: int) -> str:
    """A, B, ..., Z, AA, AB, ..."""
    return (_letter(number // 26 - 1) if number >= 26 else "") + "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[number % 26]
