"""Policies, Q-functions and the paper's operators on collections of laws.

The operators are T* (Eq. 2), T_φ (Def. 3.1), T_h (Eq. 6), and T_π for a policy. Each takes a `FiniteMDP` and the `Laws`
of all its states and actions, and returns the next collection.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

import numpy as np

from c2d.errors import UserError
from c2d.theory.homeomorphism import Homeomorphism
from c2d.theory.laws import Laws, compress, merged
from c2d.theory.mdp import FiniteMDP

LARGEST = 50_000_000  # atoms of one collection, before merging
# How to break ties among best actions: the first, all with equal probability (Def. 3.1), or a user's own rule.
Ties = Literal["first", "uniform"] | Callable[[np.ndarray], np.ndarray]
_EQUAL = 1e-12  # values that differ by less than this share of the MDP's largest value are ties


def greedy(q: np.ndarray, ties: Ties = "first") -> np.ndarray:
    """The greedy policy as probabilities. [..., S, A] -> [..., S, A]

    A user's own rule receives the mask of best actions [..., S, A] and returns the policy.
    """
    best = q.max(-1, keepdims=True)
    mask = q >= best - _EQUAL * largest_value(q)[..., None, None]
    if callable(ties):
        return ties(mask)
    if ties == "uniform":
        policy: np.ndarray = mask / mask.sum(-1, keepdims=True)
        return policy
    if ties == "first":
        policy = np.eye(q.shape[-1])[mask.argmax(-1)]
        return policy
    raise UserError(f"ties is {ties!r}; accepted: 'first', 'uniform', or a function of the mask of best actions")


def largest_value(q: np.ndarray) -> np.ndarray:
    """The largest |value| of each MDP, the unit in which its errors are small. [..., S, A] -> [...]"""
    largest: np.ndarray = np.abs(q).max((-2, -1))
    return largest


def backup(mdp: FiniteMDP, value: np.ndarray, function: Callable[[np.ndarray], np.ndarray] | None = None) -> np.ndarray:
    """E[f(R + γ·value(S')) | s, a]; f is the identity by default. [..., S] -> [..., S, A]"""
    states = value.shape[-1]
    known = np.concatenate((value, np.zeros((*value.shape[:-1], 1))), -1)  # the value after END is 0
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
    """Q* to within `tolerance` times the largest value, by iterating the Bellman operator. -> [..., S, A]"""
    q = np.zeros(mdp.shape)
    for _ in range(limit):
        after = bellman(mdp, q)
        converged = largest_value(after - q) * mdp.gamma <= tolerance * (1 - mdp.gamma) * largest_value(after)
        q = after
        if converged.all():
            return q
    raise UserError(f"value iteration did not converge in {limit:,} steps (gamma {mdp.gamma}); raise the limit")


def policy_q(mdp: FiniteMDP, policy: np.ndarray) -> np.ndarray:
    """Q_π by solving the linear equations V = r_π + γP_πV. policy [..., S, A] -> [..., S, A]"""
    policy = check_policy(mdp, policy)
    states, _ = mdp.sizes
    to = (mdp.after[..., None] == np.arange(states)).astype(np.float64)  # [..., S, A, K, S']; no column for END
    chances = np.einsum("...sak,...sakt,...sa->...st", mdp.prob, to, policy)
    rewards = ((mdp.prob * mdp.reward).sum(-1) * policy).sum(-1)  # [..., S]
    value = np.linalg.solve(np.eye(states) - mdp.gamma * chances, rewards[..., None])[..., 0]
    return backup(mdp, value)


def check_policy(mdp: FiniteMDP, policy: np.ndarray) -> np.ndarray:
    """Probabilities [..., S, A] that match the MDP; one policy for many MDPs is broadcast."""
    policy = np.asarray(policy, np.float64)
    try:
        policy = np.broadcast_to(policy, mdp.shape)
    except ValueError:
        raise UserError(
            f"the policy has shape {policy.shape}; accepted: {mdp.shape}, probabilities of actions"
        ) from None
    if not (policy >= 0).all() or (np.abs(policy.sum(-1) - 1) > 1e-9).any():
        raise UserError("not a policy; accepted: in every state, probabilities of actions that sum to 1")
    return policy


def simulate(
    mdp: FiniteMDP, policy: np.ndarray, state: int, action: int, episodes: int, seed: int, horizon: int = 10_000
) -> np.ndarray:
    """Discounted returns of simulated episodes of one MDP that begin with `action` in `state`. -> [episodes]

    An episode stops at END, at the horizon, or when later rewards count for less than 1e-12 of the largest return.
    """
    states, actions = mdp.sizes
    if mdp.prob.ndim != 3 or not (0 <= state < states and 0 <= action < actions and episodes >= 1):
        raise UserError(
            f"state {state}, action {action}, {episodes} episodes of {mdp.shape}; accepted: one MDP, a state below "
            f"{states}, an action below {actions}, at least one episode"
        )
    policy = check_policy(mdp, policy)
    rng = np.random.Generator(np.random.PCG64(seed))
    cumulative, choice = mdp.prob.cumsum(-1), policy.cumsum(-1)
    returns, weight = np.zeros(episodes), 1.0
    playing = np.arange(episodes)
    where, what = np.full(episodes, state), np.full(episodes, action)
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


def optimal(mdp: FiniteMDP, laws: Laws, ties: Ties = "first") -> Laws:
    """T*η, the distributional optimality operator (Eq. 2): r + γZ(s', a*), with a* greedy for the mean."""
    _check_fits(mdp, laws)
    return evaluation(mdp, laws, greedy(laws.mean(), ties))


def conjugated(mdp: FiniteMDP, laws: Laws, phi: Homeomorphism, ties: Ties = "first") -> Laws:
    """T_φξ (Def. 3.1): every atom w becomes φ(r + γφ⁻¹(w)), with a* greedy for the mean of φ⁻¹."""
    _check_fits(mdp, laws)
    phi.check_inside(laws.atoms)
    return evaluation(mdp, laws, greedy(laws.mean(phi.back), ties), phi)


def transformed(mdp: FiniteMDP, laws: Laws, h: Homeomorphism) -> Laws:
    """T_h Q (Eq. 6) for the Q-function of `laws`, as a collection of single atoms: E h(r + γ max h⁻¹(Q(s', ·)))."""
    h.check_inside(laws.mean(), "Q")
    value = h.back(laws.mean()).max(-1)  # [..., S]
    q = backup(mdp, value, h.to)
    return Laws(q[..., None], np.ones((*q.shape, 1)))


def evaluation(mdp: FiniteMDP, laws: Laws, policy: np.ndarray, phi: Homeomorphism | None = None) -> Laws:
    """T_π: one backup of the return distributions under a policy [..., S, A]; in φ-space if φ is given."""
    _check_fits(mdp, laws)
    policy = check_policy(mdp, policy)
    if phi is not None:
        phi.check_inside(laws.atoms)
    value = _state_laws(laws, policy)  # [..., S, N]
    outcomes, atoms = mdp.prob.shape[-1], value.atoms.shape[-1]
    if (size := mdp.prob.size * atoms) > LARGEST:
        raise UserError(
            f"the next collection would have {size:,} atoms; accepted: at most {LARGEST:,}; compress the "
            "laws between iterations with iterate(..., atoms=N)"
        )
    later_atoms, later_probs = _next_laws(mdp, value, 0.0 if phi is None else float(phi.to(np.zeros(1))[0]))
    reward = mdp.reward[..., None]  # [..., S, A, K, 1]
    real = later_atoms if phi is None else phi.back(later_atoms)
    moved = reward + mdp.gamma * real  # f_{r,γ}
    if phi is not None:
        moved = phi.to(moved)
        phi.check_inside(moved[mdp.prob > 0], "after the backup, atom")
    shape = (*mdp.shape, outcomes * atoms)
    return merged(moved.reshape(shape), (mdp.prob[..., None] * later_probs).reshape(shape))


class Iterate(NamedTuple):
    """One step of `iterate`."""

    number: int
    laws: Laws
    error: float  # upper bound on the Cramér distance ℓ₂ (not squared, real returns) to the exact iterate


def iterate(
    mdp: FiniteMDP,
    laws: Laws,
    steps: int,
    phi: Homeomorphism | None = None,
    policy: np.ndarray | None = None,
    ties: Ties = "first",
    atoms: int | None = None,
) -> Iterator[Iterate]:
    """laws, T laws, T² laws, ... where T is T*, T_φ if φ is given, or T_π if a policy [..., S, A] is given.

    `atoms` compresses each iterate to that many atoms; `Iterate.error` then bounds the loss.
    """
    _check_fits(mdp, laws)
    error = 0.0
    yield Iterate(0, laws, error)
    for number in range(1, steps + 1):
        chosen = greedy(laws.mean(None if phi is None else phi.back), ties) if policy is None else policy
        laws = evaluation(mdp, laws, chosen, phi)
        if atoms is not None:
            laws, lost = compress(laws, atoms, *((phi.to, phi.back) if phi is not None else ()))
            error = math.sqrt(mdp.gamma) * error + float(lost.max())
        yield Iterate(number, laws, error)


def _check_fits(mdp: FiniteMDP, laws: Laws) -> None:
    if laws.atoms.shape[:-1] != mdp.shape:
        raise UserError(
            f"the collection has shape {laws.atoms.shape[:-1]}, but the MDP {mdp.shape}; accepted: the same shape"
        )


def _state_laws(laws: Laws, policy: np.ndarray) -> Laws:
    """The law of each state: the mixture of its actions' laws under the policy. [..., S, A, N] -> [..., S, N']"""
    shape = laws.atoms.shape
    if ((policy == 0) | (policy == 1)).all():  # one action each: no mixture
        action = policy.argmax(-1)[..., None, None]
        return Laws(
            np.take_along_axis(laws.atoms, action, -2)[..., 0, :],
            np.take_along_axis(laws.probs, action, -2)[..., 0, :],
        )
    flat = (*shape[:-2], shape[-2] * shape[-1])
    return merged(laws.atoms.reshape(flat), (policy[..., None] * laws.probs).reshape(flat))


def _next_laws(mdp: FiniteMDP, value: Laws, end: float) -> tuple[np.ndarray, np.ndarray]:
    """Atoms and probabilities of the law that follows each outcome; after END the point mass at 0. [..., S, A, K, N]"""
    states, n = value.atoms.shape[-2:]
    atoms = np.concatenate((value.atoms, np.full((*value.atoms.shape[:-2], 1, n), end)), -2)  # [..., S+1, N]
    ended = np.zeros((*value.probs.shape[:-2], 1, n))
    ended[..., 0] = 1.0
    probs = np.concatenate((value.probs, ended), -2)
    after = np.where(mdp.after < 0, states, mdp.after)  # [..., S, A, K]
    lead = after.shape[:-3]
    many = math.prod(lead)
    offset = (states + 1) * np.arange(many).reshape(*lead, 1, 1, 1)
    index = after + offset
    return atoms.reshape(-1, n)[index], probs.reshape(-1, n)[index]
