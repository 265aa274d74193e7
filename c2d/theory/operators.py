"""The operators of the paper on collections of laws: T* (Eq. 2), T_φ (Def. 3.1), T_h (Eq. 6), and T_π for a policy.

Each takes a `FiniteMDP` and the `Laws` of all its states and actions, and returns the next collection.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from c2d.errors import UserError
from c2d.theory.control import Ties, backup, check_policy, greedy
from c2d.theory.homeomorphism import Homeomorphism
from c2d.theory.laws import Laws, compress, merged
from c2d.theory.mdp import FiniteMDP

LARGEST = 50_000_000  # atoms of one collection, before merging


def optimal(mdp: FiniteMDP, laws: Laws, ties: Ties = "first") -> Laws:
    """T*η, the distributional optimality operator (Eq. 2): r + γZ(s', a*), a* greedy by the mean."""
    _check_fits(mdp, laws)
    return evaluation(mdp, laws, greedy(laws.mean(), ties))


def conjugated(mdp: FiniteMDP, laws: Laws, phi: Homeomorphism, ties: Ties = "first") -> Laws:
    """T_φξ (Def. 3.1): every atom w becomes φ(r + γφ⁻¹(w)), a* greedy by the mean of φ⁻¹."""
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
    """One step of the law of the return under a policy [..., S, A]; in φ-space if φ is given."""
    _check_fits(mdp, laws)
    policy = check_policy(mdp, policy)
    if phi is not None:
        phi.check_inside(laws.atoms)
    value = _of_states(laws, policy)  # [..., S, N]
    outcomes, atoms = mdp.prob.shape[-1], value.atoms.shape[-1]
    if (size := mdp.prob.size * atoms) > LARGEST:
        raise UserError(
            f"the next collection would have {size:,} atoms; accepted: at most {LARGEST:,}. Compress the laws between "
            "iterations: iterate(..., atoms=N)"
        )
    later_atoms, later_probs = _after(mdp, value, 0.0 if phi is None else float(phi.to(np.zeros(1))[0]))
    reward = mdp.reward[..., None]  # [..., S, A, K, 1]
    real = later_atoms if phi is None else phi.back(later_atoms)
    moved = reward + mdp.gamma * real  # f_{r,γ}
    if phi is not None:
        moved = phi.to(moved)
        phi.check_inside(moved[mdp.prob > 0], "an atom after the step: atom")
    shape = (*mdp.shape, outcomes * atoms)
    return merged(moved.reshape(shape), (mdp.prob[..., None] * later_probs).reshape(shape))


class Iterate(NamedTuple):
    """A step of `iterate`."""

    number: int
    laws: Laws
    error: float  # the Cramér distance ℓ₂ (not squared, real returns) to the exact iterate is at most this


def iterate(
    mdp: FiniteMDP,
    laws: Laws,
    steps: int,
    phi: Homeomorphism | None = None,
    policy: np.ndarray | None = None,
    ties: Ties = "first",
    atoms: int | None = None,
) -> Iterator[Iterate]:
    """laws, Tlaws, T²laws, ...: T* or, with φ, T_φ; with a policy [..., S, A] its T_π.

    With `atoms` each iterate is compressed to that many, and the bound on what this costs is kept.
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
        raise UserError(f"the collection has shape {laws.atoms.shape[:-1]}, the MDP {mdp.shape}; accepted: the same")


def _of_states(laws: Laws, policy: np.ndarray) -> Laws:
    """The law of a state: the mixture of its actions' laws by the policy. [..., S, A, N] -> [..., S, N']"""
    shape = laws.atoms.shape
    if ((policy == 0) | (policy == 1)).all():  # one action each: no mixture
        action = policy.argmax(-1)[..., None, None]
        return Laws(
            np.take_along_axis(laws.atoms, action, -2)[..., 0, :],
            np.take_along_axis(laws.probs, action, -2)[..., 0, :],
        )
    flat = (*shape[:-2], shape[-2] * shape[-1])
    return merged(laws.atoms.reshape(flat), (policy[..., None] * laws.probs).reshape(flat))


def _after(mdp: FiniteMDP, value: Laws, end: float) -> tuple[np.ndarray, np.ndarray]:
    """Atoms and probabilities of the law after each outcome; after the end the point mass at 0. [..., S, A, K, N]"""
    states, n = value.atoms.shape[-2:]
    atoms = np.concatenate((value.atoms, np.full((*value.atoms.shape[:-2], 1, n), end)), -2)  # [..., S+1, N]
    nothing = np.zeros((*value.probs.shape[:-2], 1, n))
    nothing[..., 0] = 1.0
    probs = np.concatenate((value.probs, nothing), -2)
    after = np.where(mdp.after < 0, states, mdp.after)  # [..., S, A, K]
    lead = after.shape[:-3]
    many = math.prod(lead)
    offset = (states + 1) * np.arange(many).reshape(*lead, 1, 1, 1)
    index = after + offset
    return atoms.reshape(-1, n)[index], probs.reshape(-1, n)[index]
