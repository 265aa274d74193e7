"""Errors the user can fix: shown as one line, exit code 2, no traceback."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Bad input. The message names what was wrong and what is accepted, in one line."""

    exit_code = 2


class NotSaved(UserError):
    """The work finished, but not all of it could be written to disk."""

    exit_code = 1


def did_you_mean(wrong: str, accepted: Iterable[str]) -> str:
    """ " Did you mean 'x'?" when a similar name exists, else ""."""
    names = {name.lower(): name for name in accepted}
    near = difflib.get_close_matches(wrong.lower(), list(names), n=3, cutoff=0.6)
    return f" Did you mean {' or '.join(repr(names[name]) for name in near)}?" if near else ""


def unknown_name(kind: str, name: str, known: Iterable[str], accepted: str | None = None) -> UserError:
    """The error for a name that is not among the known ones: what is accepted, and a suggestion."""
    names = list(known)
    hint = did_you_mean(name, names)
    return UserError(f'unknown {kind} "{name}"; accepted: {accepted or ", ".join(names)}{"." * bool(hint)}{hint}')


# What settings are called in other libraries, without the words in front.
_ALSO_CALLED = {
    "lr": "optim.learning-rate",
    "rate": "optim.learning-rate",
    "discount": "schedule.gamma",
    "buffer-size": "schedule.replay-capacity",
    "memory-size": "schedule.replay-capacity",
    "learning-starts": "schedule.random-history",
    "train-freq": "schedule.update-period",
    "train-frequency": "schedule.update-period",
    "gradient-steps": "schedule.updates-per-period",
    "target-update-interval": "schedule.target-period",
    "target-network-frequency": "schedule.target-period",
    "tau": "schedule.polyak",
    "exploration-fraction": "schedule.epsilon-decay-steps",
    "exploration-final-eps": "schedule.epsilon-min",
    "epsilon": "schedule.epsilon-min",
    "total-timesteps": "iterations",
    "timesteps": "iterations",
    "steps": "iterations",
    "frames": "iterations",
    "n-envs": "envs",
    "num-envs": "envs",
    "n-atoms": "head.atoms",
    "n-quantiles": "head.atoms",
    "quantiles": "head.atoms",
    "max-grad-norm": "optim.clip-norm",
    "frame-stack": "rules.stack",
    "algo": "recipe",
    "algorithm": "recipe",
    "agent": "recipe",
    "gpu": "device",
    "cuda": "device",
    "out": "run-dir",
    "log-dir": "run-dir",
    "save-dir": "run-dir",
}


def similar_setting(name: str, known: Iterable[str], dashes: str = "") -> str:
    """ " Did you mean '--optim.learning-rate'?" for --lr and the like; "" if nothing is similar."""
    name, names = name.replace("_", "-"), [name for name in known if name != "env"]
    last = name.rpartition(".")[2]
    for fits in (
        lambda other: other.removeprefix("recipe.") in (_ALSO_CALLED.get(name), _ALSO_CALLED.get(last)),
        lambda other: other.rpartition(".")[2] == last,
        lambda other: other.startswith(name),
    ):
        if likely := [other for other in names if fits(other)]:
            return f" Did you mean {' or '.join(repr(dashes + other) for other in likely[:3])}?"
    words = {other.rpartition(".")[2]: other for other in names} | {other: other for other in names}
    near = difflib.get_close_matches(name, words, n=1)
    return f" Did you mean {dashes + words[near[0]]!r}?" if near else ""
