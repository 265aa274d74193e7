"""How often, and how badly, does T_h choose wrongly? Random MDPs by stochasticity, rewards and ε of h."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from c2d.errors import UserError
from c2d.theory.control import backup, greedy, policy_q, value_iteration
from c2d.theory.control import scale as size
from c2d.theory.homeomorphism import Homeomorphism, named
from c2d.theory.mdp import FiniteMDP
from c2d.theory.sources import random_mdp

_REAL_LOSS = 1e-7  # of the largest value: below this a policy counts as optimal (rounding, unsettled iterations)
_Z = 1.96


@dataclass(frozen=True)
class Cell:
    """One setting of the survey."""

    stochasticity: float
    reward_scale: float
    eps: float
    spread: float
    mdps: int
    wrong: float  # share of MDPs whose T_h policy is not optimal
    low: float  # its 95 % interval (Wilson)
    high: float
    mean_loss: float  # over all MDPs; see `losses`
    worst_loss: float


def survey(
    stochasticities: Sequence[float],
    reward_scales: Sequence[float],
    epsilons: Sequence[float],
    spreads: Sequence[float] = (1.0,),
    mdps: int = 500,
    states: int = 10,
    actions: int = 4,
    outcomes: int = 3,
    gamma: float = 0.9,
    seed: int = 0,
) -> Iterator[Cell]:
    """Every combination. The same seed gives the same MDPs up to stochasticity and scale: cells are comparable."""
    check_axes(mdps, stochasticities, reward_scales, epsilons, spreads, gamma)
    for eps, scale, spread, stochasticity in product(epsilons, reward_scales, spreads, stochasticities):
        mdp = random_mdp(states, actions, outcomes, gamma, seed, mdps, stochasticity, scale, spread=spread)
        loss = losses(mdp, named("h", eps))  # [M]
        wrong = float((loss > 0).mean())
        low, high = wilson(wrong, mdps)
        yield Cell(stochasticity, scale, eps, spread, mdps, wrong, low, high, float(loss.mean()), float(loss.max()))


def check_axes(
    mdps: int,
    stochasticities: Sequence[float],
    reward_scales: Sequence[float],
    epsilons: Sequence[float],
    spreads: Sequence[float],
    gamma: float,
) -> None:
    """Refuse what cannot be surveyed, before any work."""
    for name, values, fine, accepted in (
        ("mdps", (mdps,), lambda v: v >= 1, "at least 1"),
        ("stochasticity", stochasticities, lambda v: 0 <= v <= 1, "numbers from 0 to 1"),
        ("reward-scale", reward_scales, lambda v: 0 < v < np.inf, "numbers above 0"),
        ("eps", epsilons, lambda v: 0 <= v < np.inf, "numbers, 0 or above"),
        ("spread", spreads, lambda v: 0 <= v <= 20, "numbers from 0 to 20"),
        ("gamma", (gamma,), lambda v: 0 < v < 1, "a number between 0 and 1, both excluded"),
    ):
        if not values or not all(map(fine, values)):
            shown = " ".join(f"{value:g}" for value in values) or "empty"
            raise UserError(f"--{name} is {shown}; accepted: {accepted}")


def losses(mdp: FiniteMDP, h: Homeomorphism) -> np.ndarray:
    """What the policy of T_h loses in each MDP, as a share of what there is to gain over random actions. -> [...]

    (ΣV* − ΣV_h) / (ΣV* − ΣV_random), summed over states: 0 for an optimal policy, 1 for one no better than chance.
    Exactly 0 where the difference is within rounding.
    """
    best = value_iteration(mdp)
    policy = greedy(fixed_point(mdp, h))
    even = policy_q(mdp, np.full(mdp.shape, 1 / mdp.shape[-1]))
    v_best = best.max(-1)  # [..., S]
    v_misled = (policy * policy_q(mdp, policy)).sum(-1)
    lost, gain = (v_best - v_misled).sum(-1), (v_best - even.mean(-1)).sum(-1)
    real = (v_best - v_misled).max(-1) > _REAL_LOSS * np.abs(v_best).max(-1)
    return np.where(real, lost / gain, 0.0)


def fixed_point(mdp: FiniteMDP, h: Homeomorphism, tolerance: float = 1e-12, limit: int | None = None) -> np.ndarray:
    """Q with T_h Q = Q, by iteration from 0: in h-space. -> [..., S, A]"""
    limit = int(5 * np.log(tolerance) / np.log(mdp.gamma)) + 1000 if limit is None else limit
    q = np.zeros(mdp.shape)
    for _ in range(limit):
        after = backup(mdp, h.back(q).max(-1), h.to)
        settled = size(after - q) <= tolerance * size(after)
        q = after
        if settled.all():
            return q
    raise UserError(f"T_h did not settle in {limit:,} iterations ({h.name}, gamma {mdp.gamma}); try a smaller gamma")


@dataclass(frozen=True)
class Worst:
    """The two-action MDP in which T_h loses most: a chance p of R, or a sure r just above h⁻¹(p·h(R))."""

    eps: float
    chance: float
    prize: float
    loss: float  # share of the optimal value


def worst_loss(eps: float, most: float = 1e6) -> Worst:
    """The largest share of value that one such decision can lose, with prizes up to `most`.

    1 − h⁻¹(p·h(R)) / (pR), on a fine grid of p and R.
    """
    h = named("h", eps)
    chance = np.logspace(-4, 0, 401)[:, None]
    prize = np.logspace(-2, np.log10(most), 401)[None, :]
    loss = 1 - h.back(chance * h.to(prize)) / (chance * prize)
    place = np.unravel_index(int(np.argmax(loss)), loss.shape)
    return Worst(eps, float(chance[place[0], 0]), float(prize[0, place[1]]), float(loss[place]))


def wilson(share: float, cases: int) -> tuple[float, float]:
    """95 % interval of a share."""
    center = (share + _Z**2 / (2 * cases)) / (1 + _Z**2 / cases)
    half = _Z / (1 + _Z**2 / cases) * np.sqrt(share * (1 - share) / cases + _Z**2 / (4 * cases**2))
    return max(0.0, float(center - half)), min(1.0, float(center + half))
