"""Whether two scores arose under the same rules, and if not, in what the rules differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any

from c2d.envs.protocols import PROTOCOLS
from c2d.reporting.runs import clean

_TRAINING = "mean raw score of the whole training games that ended in an iteration"


def published_passport(agent: str) -> dict[str, Any]:
    """The rules of a published agent: C2D's own, or those of Dopamine with rewards clipped to ±1."""
    protocol, clip = ("c2d-paper", None) if agent == "C2D" else ("dopamine", 1.0)
    facts = {**asdict(PROTOCOLS[protocol]), "protocol": protocol, "clip_reward": clip, "recorded_score": _TRAINING}
    if agent == "C2D":
        del facts["noop_max"]  # the authors' records name 30 idle frames, their released code none
    return facts


def _cap(passport: dict[str, Any]) -> str:
    steps, repeat, frames = (_count(passport.get(key)) for key in ("cap_steps", "action_repeat", "cap_frames"))
    caps = [cap for cap in (frames, None if steps is None else steps * (repeat or 1)) if cap is not None]
    return f"{min(caps):,} frames" if caps else "none"


def _count(value: Any) -> int | None:
    return value if type(value) is int else None


def _plain(value: Any) -> str:
    return {"None": "none", "True": "yes", "False": "no"}.get(str(value), clean(str(value)))


# what matters: words, the fact of a passport it is read from, and how it is said
_MATTERS: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("a lost life ends the learner's episode", "life_loss_ends_episode", _plain),
    ("sticky actions", "sticky", _plain),
    ("rewards clipped to ±", "clip_reward", _plain),
    ("frames per step", "action_repeat", _plain),
    ("idle frames at the start", "noop_max", _plain),
    ("all 18 actions", "full_action_set", _plain),
    ("a cut game counts for the learner as", "truncation", _plain),
    ("scores", "recorded_score", lambda value: "of training" if value == _TRAINING else clean(str(value))),
)


def facts(passport: dict[str, Any]) -> dict[str, str]:
    """What matters of the rules, in words."""
    found = {words: say(passport[key]) for words, key, say in _MATTERS if key in passport}
    if "cap_steps" in passport or "cap_frames" in passport:
        found["longest game"] = _cap(passport)
    return found


def differences(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """What differs and matters, each as "what: one | other". Facts that one of them does not tell are passed over."""
    ours, theirs = facts(one), facts(other)
    return [f"{what}: {ours[what]} | {theirs[what]}" for what in ours if theirs.get(what, ours[what]) != ours[what]]


def spread(passports: Iterable[tuple[str, dict[str, Any]]]) -> list[str]:
    """Each fact in which named passports differ: "what: one value (names) | another (names)"."""
    values: dict[str, dict[str, dict[str, None]]] = {}  # fact -> value -> names, in order
    for name, passport in passports:
        for what, value in facts(passport).items():
            values.setdefault(what, {}).setdefault(value, {})[name] = None
    return [
        f"{what}: " + " | ".join(f"{value} ({', '.join(names)})" for value, names in held.items())
        for what, held in values.items()
        if len(held) > 1
    ]
