"""A finite MDP (S, A, R, ρ) with its discount, and the sources it can be built from.

Shapes here and in the rest of `theory`:
    S states    A actions    K outcomes of a pair (s, a)    N atoms of a law
    ... leading dimensions: none for one MDP; with one or more, many MDPs of the same size are handled at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from c2d.errors import UserError, unknown_name

END = -1  # the next state of an outcome that ends the episode
_SUM = 1e-9  # probabilities may miss a sum of 1 by this much
Outcomes = Sequence[tuple[float, float, Any]]  # (probability, reward, next state; None: the episode ends)


@dataclass(frozen=True, eq=False)
class FiniteMDP:
    """Outcome k of (s, a) has probability `prob`, reward `reward` and next state `after` (END: the episode ends).

    This lists the joint law ρ(r, s' | s, a) of the paper. Pairs with fewer than K outcomes are padded with
    probability 0.
    """

    prob: np.ndarray  # [..., S, A, K] f64
    reward: np.ndarray  # [..., S, A, K] f64
    after: np.ndarray  # [..., S, A, K] i64, from -1 to S - 1
    gamma: float
    states: tuple[str, ...] = ()
    actions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_gamma(self.gamma)
        _check_shapes(self)
        _check_entries(self)

    @property
    def shape(self) -> tuple[int, ...]:
        """(..., S, A)"""
        return self.prob.shape[:-1]

    @property
    def sizes(self) -> tuple[int, int]:
        """Numbers of states and actions."""
        return self.prob.shape[-3], self.prob.shape[-2]

    def state_name(self, index: int) -> str:
        return self.states[index] if self.states else str(index)

    def action_name(self, index: int) -> str:
        return self.actions[index] if self.actions else str(index)


def _check_gamma(gamma: float) -> None:
    if not (isinstance(gamma, int | float | np.floating) and 0.0 < gamma < 1.0):
        raise UserError(f"gamma is {gamma}; accepted: a number between 0 and 1, both excluded")


def _check_shapes(mdp: FiniteMDP) -> None:
    for name, kinds in (("prob", "f"), ("reward", "f"), ("after", "i")):
        array = getattr(mdp, name)
        if not isinstance(array, np.ndarray) or array.dtype.kind not in kinds:
            what = f"an array of {array.dtype}" if isinstance(array, np.ndarray) else type(array).__name__
            raise UserError(f"{name} is {what}; accepted: a NumPy array of {'integers' if kinds == 'i' else 'floats'}")
    shapes = {name: getattr(mdp, name).shape for name in ("prob", "reward", "after")}
    if len(set(shapes.values())) > 1 or len(shapes["prob"]) < 3 or 0 in shapes["prob"]:
        listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise UserError(
            f"shapes are {listed}; accepted: the same shape [states, actions, outcomes] for all three, none empty"
        )
    states, actions = mdp.sizes
    for kind, names, count in (("states", mdp.states, states), ("actions", mdp.actions, actions)):
        if names and len(names) != count:
            raise UserError(f"{len(names)} names for {count} {kind}; accepted: one each, or none")


def _check_entries(mdp: FiniteMDP) -> None:
    states, _ = mdp.sizes
    outside = (mdp.after < END) | (mdp.after >= states)
    for name, wrong, accepted in (
        ("prob", ~np.isfinite(mdp.prob) | (mdp.prob < 0), "a probability, 0 or greater"),
        ("reward", ~np.isfinite(mdp.reward), "a finite number"),
        ("after", outside, f"a state from 0 to {states - 1}, or {END} for the end"),
    ):
        if wrong.any():
            place = tuple(int(i) for i in np.argwhere(wrong)[0])
            raise UserError(f"{name}{list(place)} is {getattr(mdp, name)[place]}; accepted: {accepted}")
    sums = mdp.prob.sum(-1)
    if (wrong := np.abs(sums - 1) > _SUM).any():
        place = tuple(int(i) for i in np.argwhere(wrong)[0])
        where = f"state {mdp.state_name(place[-2])}, action {mdp.action_name(place[-1])}"
        raise UserError(f"the probabilities of {where} sum to {sums[place]:.12g}; accepted: 1")


def from_arrays(chances: np.ndarray, rewards: np.ndarray, gamma: float, ends: Sequence[int] = ()) -> FiniteMDP:
    """From P(s' | s, a) [S, A, S] and rewards [S, A] or [S, A, S]. Entering a state of `ends` ends the episode."""
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
    """From {state: {action: [(probability, reward, next state or None), ...], ...}, ...}; names can be any objects."""
    if (
        not isinstance(table, Mapping)
        or not table
        or not all(isinstance(choices, Mapping) and choices for choices in table.values())
    ):
        raise UserError(
            "malformed table; accepted: {state: {action: [(probability, reward, next state), ...]}}, none empty"
        )
    states, first = list(table), next(iter(table))
    actions = list(table[first])
    rows = []
    for state, choices in table.items():
        if set(choices) != set(actions):
            raise UserError(
                f"state {state} has the actions {_listed(choices)}, but state {first} has {_listed(actions)}; "
                "accepted: the same actions in every state"
            )
        rows.append([_outcomes(choices[action], states, state, action) for action in actions])
    return _padded(rows, gamma, tuple(map(str, states)), tuple(map(str, actions)))


def from_gymnasium(env: Any, gamma: float) -> FiniteMDP:
    """The transition table of a toy-text environment ("FrozenLake-v1", "Taxi-v4", or the environment itself)."""
    if isinstance(env, str):
        import gymnasium

        try:
            env = gymnasium.make(env)
        except gymnasium.error.Error as error:
            raise UserError(f'Gymnasium cannot make "{env}": {str(error).splitlines()[0]}') from None
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
    return _padded(rows, gamma, (), ())


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
    """A random MDP, or `count` of them at once ([count, S, A, K]).

    Each pair (s, a) has `outcomes` outcomes. Next states are uniform, and END with probability `end`. Rewards are
    `reward_scale` times a standard normal number, or with `spread` times exp(spread · normal): positive, and the
    larger the spread, the rarer and larger the prizes. The first outcome has probability 1 − stochasticity; a flat
    Dirichlet draw divides the rest among all.
    """
    for name, number in (("states", states), ("actions", actions), ("outcomes", outcomes), ("count", count or 1)):
        if number < 1:
            raise UserError(f"{name} is {number}; accepted: at least 1")
    for name, share in (("stochasticity", stochasticity), ("end", end)):
        if not 0.0 <= share <= 1.0:
            raise UserError(f"{name} is {share}; accepted: from 0 to 1")
    if min(seed if isinstance(seed, list) else [seed]) < 0:
        raise UserError(f"seed is {seed}; accepted: 0 or greater")
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
                f"an outcome of state {state}, action {action} is {outcome}; "
                "accepted: (probability, reward, next state)"
            )
        chance, reward, after = outcome
        if after is not None and after not in states:
            names = [str(name) for name in states]
            raise unknown_name(
                f"next state of state {state}, action {action}:",
                str(after),
                names,
                f"{_listed(states)}, None for the end",
            )
        try:
            listed.append((float(chance), float(reward), END if after is None else states.index(after)))
        except (TypeError, ValueError):
            raise UserError(
                f"an outcome of state {state}, action {action} is {outcome}; accepted: two numbers and a state"
            ) from None
    return listed


def _padded(rows: list[Any], gamma: float, states: tuple[str, ...], actions: tuple[str, ...]) -> FiniteMDP:
    """Lists of outcomes as arrays; shorter lists are padded with probability 0."""
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
