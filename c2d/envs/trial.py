"""Whether an environment continues as it was saved: it is tried out, with random actions."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from c2d.envs.atari import studied
from c2d.envs.make import make
from c2d.envs.protocols import Rules
from c2d.envs.spec import Environment, LegalPlay, ReplayMismatch
from c2d.types import Step

NOT_EXACT = "resume is not exact for this game"


class Trial(NamedTuple):
    """A game, or several, as it was played, with what was saved on the way."""

    actions: list[int]
    trace: list[list[Any]]  # per step
    states: dict[int, dict[str, Any]]  # saved before step k


def play(env: Environment, steps: int, saves: Iterable[int], seed: int = 0) -> Trial:
    """Begin a game and take random actions; save before the steps in `saves`."""
    drawn = np.random.default_rng(seed).integers(env.spec.actions, size=steps).tolist()
    actions, trace, states, wanted = [], [], {}, set(saves)
    game = LegalPlay(env)
    for number, each in enumerate(drawn):
        if number in wanted:
            states[number] = env.state_dict()
        action, step = game.step(each)
        actions.append(action)
        trace.append(digest(step))
    return Trial(actions, trace, states)


def first_difference(env: Environment, state: dict[str, Any], actions: list[int], trace: list[list[Any]]) -> int | None:
    """Restore `state` and take the actions again: after how many steps something differs, if ever."""
    try:
        env.load_state_dict(state)
    except ReplayMismatch:
        return 0
    return next((k for k, action in enumerate(actions) if digest(env.step(action)) != trace[k]), None)


def digest(step: Step) -> list[Any]:
    """All of a step as JSON values, frames as hashes."""
    opening = None if step.reset is None else [_hash(step.reset.frame), step.reset.repeats]
    game = None if step.game is None else list(step.game)
    masks = [step.legal.tolist()] if step.legal is not None else []
    return [_hash(step.frame), step.reward, step.terminal, step.truncated, opening, game, *masks]


def _hash(frame: np.ndarray) -> str:
    return hashlib.sha1(frame.tobytes()).hexdigest()


def unequal(build: Callable[[], Environment], points: int, steps: int, after: int) -> list[int]:
    """Save at `points` random moments of `steps` steps, restore each in a new environment, compare `after` steps.

    Returns the moments from which the continuation differs.
    """
    moments = sorted(np.random.default_rng(1).choice(steps, size=points, replace=False).tolist())
    env = build()
    trial = play(env, steps + after, moments)
    env.close()
    wrong = []
    for moment, state in trial.states.items():
        env, span = build(), slice(moment, moment + after)
        if first_difference(env, state, trial.actions[span], trial.trace[span]) is not None:
            wrong.append(moment)
        env.close()
    return wrong


@cache
def why_not_exact(name: str, rules: Rules) -> str | None:
    """Why runs of this environment do not resume exactly; None if they do, as far as is known.

    Atari games are known from the study where it was made with this version of ale-py, and tried out elsewhere,
    which takes about a second. Other environments are checked whenever they are restored.
    """
    if not name.startswith("atari/"):
        return None
    import ale_py

    version = ale_py.__version__
    if version in studied():
        broken = name.removeprefix("atari/") in studied()[version].inexact
    else:
        broken = bool(unequal(lambda: make(name, rules, 0), points=3, steps=200, after=60))
    return f"{NOT_EXACT}: ale-py {version} does not continue {name} as it was saved" if broken else None
