"""Small MDPs behind the paper's statements, and a search: how often, and how badly, does T_h choose wrongly?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from c2d.errors import UserError
from c2d.theory.homeomorphism import Homeomorphism, named
from c2d.theory.laws import Laws, cramer, wasserstein
from c2d.theory.mdp import FiniteMDP, Outcomes, from_dict, random_mdp
from c2d.theory.operators import (
    backup,
    conjugated,
    greedy,
    largest_value,
    optimal,
    policy_q,
    transformed,
    value_iteration,
)  # fmt: skip

_REAL_LOSS = (
    1e-7  # share of the largest value: a policy that loses less counts as optimal (rounding, unfinished iterations)
)
_Z = 1.96


@dataclass(frozen=True)
class Counterexample:
    """Proposition 3.1: one decision between a coin for 0 or R (action a) and a sure reward r (action b)."""

    h: Homeomorphism
    prize: float  # R
    sure: float  # r
    low: float  # h⁻¹(h(R)/2)
    high: float  # R/2
    mdp: FiniteMDP
    q: dict[str, np.ndarray]  # operator -> Q of its fixed point [2], of T_h and T_φ in real returns

    @property
    def choice(self) -> dict[str, str]:
        """The action that each operator's fixed point induces."""
        return {name: self.mdp.action_name(int(np.argmax(q))) for name, q in self.q.items()}


def counterexample(
    h: Homeomorphism, prize: float = 100.0, gamma: float = 0.99, sure: float | None = None
) -> Counterexample:
    """The MDP of the proof (Eq. 10). By default r is the middle of the interval in which T_h is wrong."""
    if not (np.isfinite(prize) and prize > 0):
        raise UserError(f"R is {prize}; accepted: a finite number above 0")
    for letter, reward in (("R", prize), ("r", sure)):
        if reward is not None and np.isfinite(reward):
            h.check_inside(h.to(np.array([reward])), f"{h.name} of {letter} = {reward:g}: value")
    _check_odd_and_concave(h, prize)
    low, high = float(h.back(h.to(np.array([prize])) / 2)[0]), prize / 2
    sure = (low + high) / 2 if sure is None else float(sure)
    if not np.isfinite(sure):
        raise UserError(f"r is {sure}; accepted: a finite number")
    mdp = from_dict({"s": {"a": [(0.5, 0.0, None), (0.5, prize, None)], "b": [(1.0, sure, None)]}}, gamma)
    zero = Laws.zero(mdp)
    q = {
        "T*": optimal(mdp, zero).mean()[0],
        "T_h": h.back(transformed(mdp, zero, h).mean())[0],
        "T_φ": conjugated(mdp, zero.push(h.to), h).mean(h.back)[0],
    }
    return Counterexample(h, prize, sure, low, high, mdp, q)


def _check_odd_and_concave(h: Homeomorphism, prize: float) -> None:
    """Check on [0, R] what the proposition requires of h."""
    x = np.linspace(0.0, prize, 1001)
    y = h.to(x)
    if not np.allclose(h.to(-x), -y, rtol=1e-9, atol=1e-12):
        raise UserError(
            f"{h.name} is not odd; accepted: odd functions, strictly concave on [0, ∞), as in Proposition 3.1"
        )
    if not (np.diff(y, 2) < 1e-12 * abs(y[-1])).all() or h.back(y[-1:] / 2)[0] >= prize / 2 * (1 - 1e-12):
        raise UserError(
            f"{h.name} is not strictly concave on [0, {prize:g}] in float64; accepted: odd functions, strictly concave "
            "on [0, ∞), as in Proposition 3.1"
        )


def clipping() -> tuple[FiniteMDP, FiniteMDP]:
    """An MDP, and a copy with rewards clipped to [−1, 1] in which many small rewards look better than one large one."""
    table: dict[str, dict[str, Outcomes]] = {
        "s": {"many small": [(1.0, 1.0, "t")], "one large": [(1.0, 10.0, None)]},
        "t": {"many small": [(1.0, 1.0, None)], "one large": [(1.0, 1.0, None)]},
    }
    real = from_dict(table, gamma=0.9)
    clipped = FiniteMDP(real.prob, np.clip(real.reward, -1, 1), real.after, real.gamma, real.states, real.actions)
    return real, clipped


def clipping_loss() -> float:
    """What the policy learned from clipped rewards loses, as a share of the optimal value in the first state."""
    real, clipped = clipping()
    best, misled = value_iteration(real), greedy(value_iteration(clipped))
    return float(1 - (misled[0] * best[0]).sum() / best[0].max())


def _two_actions(bonus: float) -> FiniteMDP:
    """x leads to y. There action a gives 0, and b gives 1 or −1 with equal probability, plus a small bonus."""
    return from_dict(
        {
            "x": {"a": [(1.0, 0.0, "y")], "b": [(1.0, 0.0, "y")]},
            "y": {"a": [(1.0, 0.0, None)], "b": [(0.5, bonus - 1.0, None), (0.5, bonus + 1.0, None)]},
        },
        gamma=0.9,
    )


def expansion(bonus: float) -> tuple[float, float]:
    """How much T* can increase the distance of two collections: (ratio in ℓ₂, ratio in W₁) (Bellemare et al. 2017).

    One collection is the fixed point; the other assigns b rewards lower by 2·bonus, and so prefers a.
    The two differ slightly at (y, b), and after T* by the whole law of b at x.
    """
    mdp = _two_actions(bonus)
    fixed = optimal(mdp, optimal(mdp, Laws.zero(mdp)))
    atoms = fixed.atoms.copy()
    atoms[1, 1] -= 2 * bonus
    atoms[0] = mdp.gamma * atoms[1, 1]  # at x both expect b, each with its own law
    other = Laws.of(atoms, fixed.probs)
    before, after = (fixed, other), (optimal(mdp, fixed), optimal(mdp, other))
    ratios = [
        float(np.sqrt(cramer(*after).max() / cramer(*before).max())),
        float(wasserstein(*after).max() / wasserstein(*before).max()),
    ]
    return ratios[0], ratios[1]


def cycle(steps: int = 6) -> list[Laws]:
    """Why no metric makes T* a contraction: with alternating tie-breaks, it alternates between two collections.

    η and T*η differ and T*(T*η) = η, exactly; under a contraction in any metric, d(η, T*η) would shrink. "Any action
    in argmax" (Eq. 2) permits the rule: at y choose b if the law at x came from a, else a.
    """
    mdp = _two_actions(0.0)
    iterates = [optimal(mdp, optimal(mdp, Laws.zero(mdp)))]
    for _ in range(steps):
        laws = iterates[-1]
        sure = bool((laws.at(0, 0)[0] == 0.0).all())

        def alternate(best: np.ndarray, wanted: int = int(sure)) -> np.ndarray:
            policy = np.eye(2)[[0, wanted]]
            assert best[policy > 0].all()  # still a greedy choice
            return policy

        iterates.append(optimal(mdp, laws, ties=alternate))
    return iterates


@dataclass(frozen=True)
class Cell:
    """One combination of the survey."""

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
    """Every combination. The same seed gives the same MDPs up to stochasticity and scale, so cells are comparable."""
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
    """Reject values that cannot be surveyed, before any work."""
    for name, values, fine, accepted in (
        ("mdps", (mdps,), lambda v: v >= 1, "at least 1"),
        ("stochasticity", stochasticities, lambda v: 0 <= v <= 1, "numbers from 0 to 1"),
        ("reward-scale", reward_scales, lambda v: 0 < v < np.inf, "numbers above 0"),
        ("eps", epsilons, lambda v: 0 <= v < np.inf, "numbers, 0 or greater"),
        ("spread", spreads, lambda v: 0 <= v <= 20, "numbers from 0 to 20"),
        ("gamma", (gamma,), lambda v: 0 < v < 1, "a number between 0 and 1, both excluded"),
    ):
        if not values or not all(map(fine, values)):
            shown = " ".join(f"{value:g}" for value in values) or "empty"
            raise UserError(f"--{name} is {shown}; accepted: {accepted}")


def losses(mdp: FiniteMDP, h: Homeomorphism) -> np.ndarray:
    """What the policy of T_h loses in each MDP, as a share of the optimal gain over random actions. -> [...]

    (ΣV* − ΣV_h) / (ΣV* − ΣV_random), summed over states: 0 for an optimal policy, 1 for one no better than random.
    Exactly 0 if the difference is within rounding.
    """
    best = value_iteration(mdp)
    policy = greedy(fixed_point(mdp, h))
    uniform = policy_q(mdp, np.full(mdp.shape, 1 / mdp.shape[-1]))
    v_best = best.max(-1)  # [..., S]
    v_misled = (policy * policy_q(mdp, policy)).sum(-1)
    lost, gain = (v_best - v_misled).sum(-1), (v_best - uniform.mean(-1)).sum(-1)
    real = (v_best - v_misled).max(-1) > _REAL_LOSS * np.abs(v_best).max(-1)
    return np.where(real, lost / gain, 0.0)


def fixed_point(mdp: FiniteMDP, h: Homeomorphism, tolerance: float = 1e-12, limit: int | None = None) -> np.ndarray:
    """The Q with T_h Q = Q, in h-space, by iteration from 0. -> [..., S, A]"""
    limit = int(5 * np.log(tolerance) / np.log(mdp.gamma)) + 1000 if limit is None else limit
    q = np.zeros(mdp.shape)
    for _ in range(limit):
        after = backup(mdp, h.back(q).max(-1), h.to)
        converged = largest_value(after - q) <= tolerance * largest_value(after)
        q = after
        if converged.all():
            return q
    raise UserError(f"T_h did not converge in {limit:,} iterations ({h.name}, gamma {mdp.gamma}); lower gamma")


@dataclass(frozen=True)
class LargestLoss:
    """The two-action MDP in which T_h loses most: R with probability p, or a sure r just above h⁻¹(p·h(R))."""

    eps: float
    chance: float
    prize: float
    loss: float  # share of the optimal value


def worst_loss(eps: float, largest_prize: float = 1e6) -> LargestLoss:
    """The largest share of value that one such decision can lose, with prizes up to `largest_prize`.

    1 − h⁻¹(p·h(R)) / (pR), on a fine grid of p and R.
    """
    h = named("h", eps)
    chance = np.logspace(-4, 0, 401)[:, None]
    prize = np.logspace(-2, np.log10(largest_prize), 401)[None, :]
    loss = 1 - h.back(chance * h.to(prize)) / (chance * prize)
    place = np.unravel_index(int(np.argmax(loss)), loss.shape)
    return LargestLoss(eps, float(chance[place[0], 0]), float(prize[0, place[1]]), float(loss[place]))


def wilson(share: float, cases: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share."""
    center = (share + _Z**2 / (2 * cases)) / (1 + _Z**2 / cases)
    half = _Z / (1 + _Z**2 / cases) * np.sqrt(share * (1 - share) / cases + _Z**2 / (4 * cases**2))
    return max(0.0, float(center - half)), min(1.0, float(center + half))
