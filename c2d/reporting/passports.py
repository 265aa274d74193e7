"""Whether two scores arose under the same rules, and if not, in what the rules differ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from c2d.envs.protocols import PROTOCOLS

_TRAINING = "mean raw score of the whole training games that ended in an iteration"


def published_passport(agent: str) -> dict[str, Any]:
    """The rules of a published agent: C2D's own, or those of Dopamine with rewards clipped to ±1."""
    protocol, clip = ("c2d-paper", None) if agent == "C2D" else ("dopamine", 1.0)
    facts = {**asdict(PROTOCOLS[protocol]), "protocol": protocol, "clip_reward": clip, "recorded_score": _TRAINING}
    if agent == "C2D":
        del facts["noop_max"]  # the authors' records name 30 idle frames, their released code none
    return facts


def _cap(passport: dict[str, Any]) -> str:
    steps, repeat, frames = (passport.get(key) for key in ("cap_steps", "action_repeat", "cap_frames"))
    caps = [cap for cap in (frames, steps * (repeat or 1) if isinstance(steps, int) else None) if cap is not None]
    return f"{min(caps):,} frames" if caps else "none"


def _yes(value: Any) -> str:
    return {True: "yes", False: "no"}.get(value, str(value))


def _plain(value: Any) -> str:
    return "none" if value is None else str(value)


# what matters: words, the fact of a passport it is read from, and how it is said
_MATTERS: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("a lost life ends the learner's episode", "life_loss_ends_episode", _yes),
    ("sticky actions", "sticky", _plain),
    ("rewards clipped to ±", "clip_reward", _plain),
    ("frames per step", "action_repeat", _plain),
    ("idle frames at the start", "noop_max", _plain),
    ("all 18 actions", "full_action_set", _yes),
    ("a cut game counts for the learner as", "truncation", _plain),
    ("scores", "recorded_score", lambda value: "of training" if value == _TRAINING else str(value)),
)


def differences(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """What differs and matters, each as "what: one | other". Facts that one of them does not tell are passed over."""
    found = [
        f"{words}: {say(one[key])} | {say(other[key])}"
        for words, key, say in _MATTERS
        if key in one and key in other and one[key] != other[key]
    ]
    if {"cap_steps", "cap_frames"} & one.keys() & other.keys() and _cap(one) != _cap(other):
        found.append(f"longest game: {_cap(one)} | {_cap(other)}")
    return found
