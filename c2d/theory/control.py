"""Control with known answers: Q-functions, policies, the linear solution of a policy's values, simulated returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from c2d.errors import UserError
from c2d.theory.mdp import FiniteMDP

# Which of several best actions: the first, all with equal probability (Def. 3.1), or the user's own rule.
Ties = Literal["first", "uniform"] | Callable[[np.ndarray], np.ndarray]
_EQUAL = 1e-12  # values whose difference is below this share of the MDP's largest are ties


def greedy(q: np.ndarray, ties: Ties = "first") -> np.ndarray:
    """The greedy policy as probabilities. [..., S, A] -> [..., S, A]

    A rule of the user's own receives the mask of best actions [..., S, A] and returns the policy.
    """
    best = q.max(-1, keepdims=True)
    mask = q >= best - _EQUAL * scale(q)[..., None, None]
    if callable(ties):
        return ties(mask)
    if ties == "uniform":
        policy: np.ndarray = mask / mask.sum(-1, keepdims=True)
        return policy
    if ties == "first":
        policy = np.eye(q.shape[-1])[mask.argmax(-1)]
        return policy
    raise UserError(f"ties is {ties!r}; accepted: 'first', 'uniform', or a function of the mask of best actions")


def scale(q: np.ndarray) -> np.ndarray:
    """The largest size of a value, of each MDP by itself: what is small is small beside it. [..., S, A] -> [...]"""
    largest: np.ndarray = np.abs(q).max((-2, -1))
    return largest


def backup(mdp: FiniteMDP, value: np.ndarray, function: Callable[[np.ndarray], np.ndarray] | None = None) -> np.ndarray:
    """E[f(R + γ·value(S')) | s, a]; f = identity if none is given. [..., S] -> [..., S, A]"""
    states = value.shape[-1]
    known = np.concatenate((value, np.zeros((*value.shape[:-1], 1))), -1)  # the value after the end is 0
    after = np.where(mdp.after < 0, states, mdp.after)
    flat = after.reshape(*after.shape[:-3], -1)
    later = np.take_along_axis(known, flat, -1).reshape(after.shape)
    target = mdp.reward + mdp.gamma * later
    mean: np.ndarray = (mdp.prob * (target if function is None else function(target))).sum(-1)
    return mean


def bellman(mdp: FiniteMDP, q: np.ndarray) -> np.ndarray:
    """The Bellman optimality operator on Q-functions (Eq. 3)."""
    return backup(mdp, q.max(-1))


def value_iteration(mdp: FiniteMDP, tolerance: float = 1e-12, limit: int = 100_000) -> np.ndarray:
    """Q* to within `tolerance` of the largest value, by iterating the Bellman operator. -> [..., S, A]"""
    q = np.zeros(mdp.shape)
    for _ in range(limit):
        after = bellman(mdp, q)
        settled = scale(after - q) * mdp.gamma <= tolerance * (1 - mdp.gamma) * scale(after)
        q = after
        if settled.all():
            return q
    raise UserError(f"value iteration did not settle in {limit:,} steps (gamma {mdp.gamma}): raise the limit")


def policy_q(mdp: FiniteMDP, policy: np.ndarray) -> np.ndarray:
    """Q_π by solving the linear equations V = r_π + γP_πV. policy [..., S, A] -> [..., S, A]"""
    policy = check_policy(mdp, policy)
    states, _ = mdp.sizes
    to = (mdp.after[..., None] == np.arange(states)).astype(np.float64)  # [..., S, A, K, S']; no column for the end
    chances = np.einsum("...sak,...sakt,...sa->...st", mdp.prob, to, policy)
    rewards = ((mdp.prob * mdp.reward).sum(-1) * policy).sum(-1)  # [..., S]
    value = np.linalg.solve(np.eye(states) - mdp.gamma * chances, rewards[..., None])[..., 0]
    return backup(mdp, value)


def check_policy(mdp: FiniteMDP, policy: np.ndarray) -> np.ndarray:
    """Probabilities [..., S, A] that fit the MDP; one policy for many MDPs is repeated."""
    policy = np.asarray(policy, np.float64)
    try:
        policy = np.broadcast_to(policy, mdp.shape)
    except ValueError:
        raise UserError(
            f"the policy has shape {policy.shape}; accepted: {mdp.shape}, probabilities of actions"
        ) from None
    if not (policy >= 0).all() or (np.abs(policy.sum(-1) - 1) > 1e-9).any():
        raise UserError("the policy is not one: in every state, probabilities of actions that sum to 1")
    return policy


def simulate(
    mdp: FiniteMDP, policy: np.ndarray, state: int, action: int, games: int, seed: int, horizon: int = 10_000
) -> np.ndarray:
    """Discounted returns of simulated games that begin with `action` in `state`, of one MDP. -> [games]

    A game stops at the end, at the horizon, or when what may follow is below 1e-12 of the largest return.
    """
    states, actions = mdp.sizes
    if mdp.prob.ndim != 3 or not (0 <= state < states and 0 <= action < actions and games >= 1):
        raise UserError(
            f"state {state}, action {action}, {games} games of {mdp.shape}; accepted: one MDP, a state below {states}, "
            f"an action below {actions}, at least one game"
        )
    policy = check_policy(mdp, policy)
    rng = np.random.Generator(np.random.PCG64(seed))
    cumulative, choice = mdp.prob.cumsum(-1), policy.cumsum(-1)
    returns, weight = np.zeros(games), 1.0
    playing = np.arange(games)
    where, what = np.full(games, state), np.full(games, action)
    for _ in range(horizon):
        draw = rng.random(playing.size)[:, None]
        outcome = np.minimum((draw >= cumulative[where, what]).sum(-1), mdp.prob.shape[-1] - 1)
        returns[playing] += weight * mdp.reward[where, what, outcome]
        weight *= mdp.gamma
        after = mdp.after[where, what, outcome]
        playing, where = playing[after >= 0], after[after >= 0]
        if playing.size == 0 or weight < 1e-12 * (1 - mdp.gamma):
            break
        draw = rng.random(playing.size)[:, None]
        what = np.minimum((draw >= choice[where]).sum(-1), choice.shape[-1] - 1)
    return returns
