"""Where finite MDPs come from: arrays, a readable dictionary, Gymnasium's toy-text environments, a seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from c2d.errors import UserError, did_you_mean
from c2d.theory.mdp import END, FiniteMDP

Outcomes = Sequence[tuple[float, float, Any]]  # (probability, reward, next state; None: the episode ends)


def from_arrays(chances: np.ndarray, rewards: np.ndarray, gamma: float, ends: Sequence[int] = ()) -> FiniteMDP:
    """P(s' | s, a) [S, A, S] and rewards [S, A] or [S, A, S]. Entering a state of `ends` ends the episode."""
    chances, rewards = np.asarray(chances, np.float64), np.asarray(rewards, np.float64)
    if chances.ndim != 3 or chances.shape[0] != chances.shape[2]:
        raise UserError(f"chances have shape {chances.shape}; accepted: [states, actions, states]")
    if rewards.shape not in (chances.shape, chances.shape[:2]):
        raise UserError(f"rewards have shape {rewards.shape}; accepted: {chances.shape[:2]} or {chances.shape}")
    for end in ends:
        if not 0 <= end < chances.shape[0]:
            raise UserError(f"ends has {end}; accepted: states from 0 to {chances.shape[0] - 1}")
    if rewards.ndim == 2:
        rewards = np.broadcast_to(rewards[..., None], chances.shape)
    after = np.broadcast_to(np.arange(chances.shape[0]), chances.shape)
    after = np.where(np.isin(after, list(ends)), END, after)
    return FiniteMDP(chances, rewards.copy(), after, gamma)


def from_dict(table: Mapping[Any, Mapping[Any, Outcomes]], gamma: float) -> FiniteMDP:
    """{state: {action: [(probability, reward, next state or None), ...], ...}, ...}; names may be anything."""
    if (
        not isinstance(table, Mapping)
        or not table
        or not all(isinstance(offer, Mapping) and offer for offer in table.values())
    ):
        raise UserError("the table is {state: {action: [(probability, reward, next state), ...]}}, none of them empty")
    states, first = list(table), next(iter(table))
    actions = list(table[first])
    rows = []
    for state, offer in table.items():
        if set(offer) != set(actions):
            raise UserError(
                f"state {state} offers the actions {_listed(offer)}, state {first} {_listed(actions)}; "
                "accepted: the same in every state"
            )
        rows.append([_outcomes(offer[action], states, state, action) for action in actions])
    return _filled(rows, gamma, tuple(map(str, states)), tuple(map(str, actions)))


def from_gymnasium(env: Any, gamma: float) -> FiniteMDP:
    """The transition table of a toy-text environment ("FrozenLake-v1", "Taxi-v4", or the environment itself)."""
    if isinstance(env, str):
        import gymnasium

        try:
            env = gymnasium.make(env)
        except gymnasium.error.Error as error:
            raise UserError(f"Gymnasium cannot make {env}: {str(error).splitlines()[0]}") from None
    table = getattr(getattr(env, "unwrapped", None), "P", None)
    if not isinstance(table, Mapping):
        raise UserError(f"{env} has no transition table P; accepted: toy-text environments such as FrozenLake-v1")
    states = sorted(table)
    rows = [
        [
            [(float(chance), float(reward), END if done else int(after)) for chance, after, reward, done in outcomes]
            for _, outcomes in sorted(table[state].items())
        ]
        for state in states
    ]
    return _filled(rows, gamma, (), ())


def random_mdp(
    states: int = 10,
    actions: int = 4,
    outcomes: int = 3,
    gamma: float = 0.9,
    seed: int | list[int] = 0,
    count: int | None = None,
    stochasticity: float = 1.0,
    reward_scale: float = 1.0,
    end: float = 0.1,
    spread: float | None = None,
) -> FiniteMDP:
    """A random MDP, or with `count` that many at once ([count, S, A, K]).

    Each pair (s, a) has `outcomes` with states drawn evenly (the end with probability `end`) and rewards
    `reward_scale` times a standard normal number, or with `spread` times exp(spread · normal): positive, the larger
    the spread the rarer and larger the prizes. Probabilities: 1 − stochasticity for the first outcome, the rest
    shared as a flat Dirichlet draw among all.
    """
    for name, number in (("states", states), ("actions", actions), ("outcomes", outcomes), ("count", count or 1)):
        if number < 1:
            raise UserError(f"{name} is {number}; accepted: at least 1")
    for name, share in (("stochasticity", stochasticity), ("end", end)):
        if not 0.0 <= share <= 1.0:
            raise UserError(f"{name} is {share}; accepted: from 0 to 1")
    if min(seed if isinstance(seed, list) else [seed]) < 0:
        raise UserError(f"seed is {seed}; accepted: 0 or above")
    rng = np.random.Generator(np.random.PCG64(seed))
    shape = (states, actions, outcomes) if count is None else (count, states, actions, outcomes)
    prob = stochasticity * rng.dirichlet(np.ones(outcomes), shape[:-1])
    prob[..., 0] += 1 - stochasticity
    normal = rng.standard_normal(shape)
    reward = reward_scale * (normal if spread is None else np.exp(spread * normal))
    after = np.where(rng.random(shape) < end, END, rng.integers(states, size=shape))
    return FiniteMDP(prob, reward, after, gamma)


def _outcomes(outcomes: Outcomes, states: list[Any], state: Any, action: Any) -> list[tuple[float, float, int]]:
    listed = []
    for outcome in outcomes:
        if not isinstance(outcome, Sequence) or len(outcome) != 3:
            raise UserError(
                f"an outcome of state {state}, action {action} is {outcome}; accepted: (probability, reward, next)"
            )
        chance, reward, after = outcome
        if after is not None and after not in states:
            near = did_you_mean(str(after), [str(name) for name in states])
            raise UserError(
                f"state {state}, action {action} leads to {after}, which is no state.{near} States: {_listed(states)}; "
                "None for the end"
            )
        try:
            listed.append((float(chance), float(reward), END if after is None else states.index(after)))
        except (TypeError, ValueError):
            raise UserError(
                f"an outcome of state {state}, action {action} is {outcome}; accepted: two numbers and a state"
            ) from None
    return listed


def _filled(rows: list[Any], gamma: float, states: tuple[str, ...], actions: tuple[str, ...]) -> FiniteMDP:
    """Lists of outcomes as arrays, shorter lists filled up with probability 0."""
    most = max(len(outcomes) for row in rows for outcomes in row)
    shape = (len(rows), len(rows[0]), most)
    prob, reward, after = np.zeros(shape), np.zeros(shape), np.full(shape, END)
    for s, row in enumerate(rows):
        for a, outcomes in enumerate(row):
            for k, entry in enumerate(outcomes):
                prob[s, a, k], reward[s, a, k], after[s, a, k] = entry
    return FiniteMDP(prob, reward, after, gamma, states, actions)


def _listed(names: Any) -> str:
    words = [str(name) for name in names]
    return ", ".join(words[:8]) + (", ..." if len(words) > 8 else "")
