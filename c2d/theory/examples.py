"""The small MDPs behind the paper's statements."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from c2d.errors import UserError
from c2d.theory.control import greedy, value_iteration
from c2d.theory.distances import cramer, wasserstein
from c2d.theory.homeomorphism import Homeomorphism
from c2d.theory.laws import Laws
from c2d.theory.mdp import FiniteMDP
from c2d.theory.operators import conjugated, optimal, transformed
from c2d.theory.sources import Outcomes, from_dict


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
    """The MDP of the proof (Eq. 10), with r in the middle of the interval in which T_h errs unless given."""
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
    """What the proposition asks of h, tried on [0, R]."""
    x = np.linspace(0.0, prize, 1001)
    y = h.to(x)
    if not np.allclose(h.to(-x), -y, rtol=1e-9, atol=1e-12):
        raise UserError(f"{h.name} is not odd; Proposition 3.1 is about odd functions, strictly concave on [0, ∞)")
    if not (np.diff(y, 2) < 1e-12 * abs(y[-1])).all() or h.back(y[-1:] / 2)[0] >= prize / 2 * (1 - 1e-12):
        raise UserError(
            f"{h.name} is not strictly concave on [0, {prize:g}], as float64 sees it, which Proposition 3.1 asks for"
        )


def clipping() -> tuple[FiniteMDP, FiniteMDP]:
    """An MDP and the same with rewards clipped to [−1, 1]: many small rewards look better than one large."""
    table: dict[str, dict[str, Outcomes]] = {
        "s": {"many small": [(1.0, 1.0, "t")], "one large": [(1.0, 10.0, None)]},
        "t": {"many small": [(1.0, 1.0, None)], "one large": [(1.0, 1.0, None)]},
    }
    real = from_dict(table, gamma=0.9)
    clipped = FiniteMDP(real.prob, np.clip(real.reward, -1, 1), real.after, real.gamma, real.states, real.actions)
    return real, clipped


def clipping_loss() -> float:
    """What the policy of the clipped rewards loses, as a share of the optimal value in the first state."""
    real, clipped = clipping()
    best, misled = value_iteration(real), greedy(value_iteration(clipped))
    return float(1 - (misled[0] * best[0]).sum() / best[0].max())


def _two_actions(bonus: float) -> FiniteMDP:
    """x leads to y; there action a gives 0, and b gives 1 or −1 with equal probability, plus a small bonus."""
    return from_dict(
        {
            "x": {"a": [(1.0, 0.0, "y")], "b": [(1.0, 0.0, "y")]},
            "y": {"a": [(1.0, 0.0, None)], "b": [(0.5, bonus - 1.0, None), (0.5, bonus + 1.0, None)]},
        },
        gamma=0.9,
    )


def expansion(bonus: float) -> tuple[float, float]:
    """How much T* can enlarge the distance of two collections: (ratio in ℓ₂, ratio in W₁). After Bellemare et al. 2017.

    One collection is the fixed point; the other believes that b's rewards are lower by 2·bonus, and so prefers a.
    The two differ by a hair at (y, b), and after T* by the whole law of b at x.
    """
    mdp = _two_actions(bonus)
    fixed = optimal(mdp, optimal(mdp, Laws.zero(mdp)))
    atoms = fixed.atoms.copy()
    atoms[1, 1] -= 2 * bonus
    atoms[0] = mdp.gamma * atoms[1, 1]  # at x both believe in b, each in its own law of it
    other = Laws.of(atoms, fixed.probs)
    before, after = (fixed, other), (optimal(mdp, fixed), optimal(mdp, other))
    ratios = [
        float(np.sqrt(cramer(*after).max() / cramer(*before).max())),
        float(wasserstein(*after).max() / wasserstein(*before).max()),
    ]
    return ratios[0], ratios[1]


def cycle(steps: int = 6) -> list[Laws]:
    """Why no metric makes T* a contraction: with ties broken in turn, its iterates alternate between two collections.

    η and T*η differ and T*(T*η) = η, exactly; of a contraction, in any metric, d(η, T*η) would shrink. "Any action in
    argmax" (Eq. 2) permits the rule: at y, b is chosen if the law at x is the one that a leaves, else a.
    """
    mdp = _two_actions(0.0)
    iterates = [optimal(mdp, optimal(mdp, Laws.zero(mdp)))]
    for _ in range(steps):
        laws = iterates[-1]
        sure = bool((laws.at(0, 0)[0] == 0.0).all())

        def in_turn(best: np.ndarray, wanted: int = int(sure)) -> np.ndarray:
            policy = np.eye(2)[[0, wanted]]
            assert best[policy > 0].all()  # a greedy choice among equals
            return policy

        iterates.append(optimal(mdp, laws, ties=in_turn))
    return iterates
