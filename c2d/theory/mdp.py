"""A finite MDP (S, A, R, ρ) with its discount: for each state and action, a list of outcomes.

Shapes here and in the rest of `theory`:
    S states    A actions    K outcomes of a pair (s, a)    N atoms of a law
    ... leading dimensions, empty for one MDP; with one, many MDPs of the same size are handled at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from c2d.errors import UserError

END = -1  # the next state of an outcome after which nothing follows
_SUM = 1e-9  # probabilities may miss a sum of 1 by this much


@dataclass(frozen=True, eq=False)
class FiniteMDP:
    """Outcome k of (s, a) has probability `prob`, gives `reward` and leads to state `after` (END: the episode ends).

    The joint law ρ(r, s' | s, a) of the paper, listed. Pairs with fewer than K outcomes are filled up with
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
            f"shapes are {listed}; accepted: one shape [states, actions, outcomes] for the three, none empty"
        )
    states, actions = mdp.sizes
    for kind, names, count in (("states", mdp.states, states), ("actions", mdp.actions, actions)):
        if names and len(names) != count:
            raise UserError(f"{len(names)} names for {count} {kind}; accepted: one each, or none")


def _check_entries(mdp: FiniteMDP) -> None:
    states, _ = mdp.sizes
    outside = (mdp.after < END) | (mdp.after >= states)
    for name, wrong, accepted in (
        ("prob", ~np.isfinite(mdp.prob) | (mdp.prob < 0), "a probability, 0 or above"),
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
