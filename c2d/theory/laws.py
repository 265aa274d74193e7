"""Collections of discrete laws: for each state and action, atoms and their probabilities."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from c2d.errors import UserError
from c2d.theory.distances import cramer
from c2d.theory.mdp import FiniteMDP

_SUM = 1e-9


@dataclass(frozen=True, eq=False)
class Laws:
    """η: laws Σ_i p_i δ_{x_i}, one for each place of the leading dimensions, usually [S, A].

    As `Laws.of` and the operators make them: atoms ascending and distinct; shorter laws are filled up with their
    last atom and probability 0.
    """

    atoms: np.ndarray  # [..., N] f64
    probs: np.ndarray  # [..., N] f64

    @classmethod
    def of(cls, atoms: np.ndarray, probs: np.ndarray) -> Laws:
        """Sorted, with equal atoms merged exactly."""
        atoms, probs = np.broadcast_arrays(np.asarray(atoms, np.float64), np.asarray(probs, np.float64))
        _check(atoms, probs)
        return merged(atoms, probs)

    @classmethod
    def zero(cls, mdp: FiniteMDP, at: float = 0.0) -> Laws:
        """The point mass at 0 (or elsewhere) for every state and action."""
        return cls(np.full((*mdp.shape, 1), float(at)), np.ones((*mdp.shape, 1)))

    def mean(self, back: Callable[[np.ndarray], np.ndarray] | None = None) -> np.ndarray:
        """Q(s, a) = ∫ z dη, or ∫ φ⁻¹(w) dξ if `back` is φ⁻¹. [..., N] -> [...]"""
        mean: np.ndarray = (self.probs * (self.atoms if back is None else back(self.atoms))).sum(-1)
        return mean

    def push(self, function: Callable[[np.ndarray], np.ndarray]) -> Laws:
        """f#η for an increasing f: the atoms move, the probabilities stay."""
        return Laws(function(self.atoms), self.probs)

    def support(self) -> tuple[np.ndarray, np.ndarray]:
        """Smallest and largest atom of positive probability. [...], [...]"""
        real = self.probs > 0
        return np.where(real, self.atoms, np.inf).min(-1), np.where(real, self.atoms, -np.inf).max(-1)

    def at(self, *place: int) -> tuple[np.ndarray, np.ndarray]:
        """One law as (atoms [M], probabilities [M]), the filling left out."""
        real = self.probs[place] > 0
        return self.atoms[place][real], self.probs[place][real]


def merged(atoms: np.ndarray, probs: np.ndarray) -> Laws:
    """Sort, drop probability 0, and give equal atoms their common probability. All laws at once. [..., N]"""
    shape, n = atoms.shape[:-1], atoms.shape[-1]
    x, p = atoms.reshape(-1, n), probs.reshape(-1, n)
    x = np.where(p > 0, x, np.inf)  # what has no probability goes last
    order = np.argsort(x, axis=-1, kind="stable")
    x, p = np.take_along_axis(x, order, -1), np.take_along_axis(p, order, -1)
    fresh = np.ones(x.shape, bool)
    # An atom begins a group if it lies above the one before it (inf − inf is NaN: not above).
    with np.errstate(invalid="ignore"):
        fresh[:, 1:] = np.diff(x, axis=-1) > 0
    if fresh.all() and p.all():  # nothing to merge or to drop
        return Laws(x.reshape(*shape, n), p.reshape(*shape, n))
    group = fresh.cumsum(-1) - 1  # [L, N]
    width = int(group[p > 0].max(initial=0)) + 1
    return Laws(*_gathered(x, p, group, width, exact=True, shape=shape))


def _gathered(
    x: np.ndarray, p: np.ndarray, group: np.ndarray, width: int, exact: bool, shape: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Atoms and probabilities of groups of neighbors. A group's atom is its mean; if exact, its members are equal."""
    rows = x.shape[0]
    cell = np.minimum(group, width - 1) + width * np.arange(rows)[:, None]  # what lies beyond has probability 0
    probs = np.bincount(cell.ravel(), weights=p.ravel(), minlength=rows * width).reshape(rows, width)
    x = np.where(p > 0, x, 0.0)
    if exact:
        atoms = np.full(rows * width, -np.inf)
        atoms[cell[p > 0]] = x[p > 0]  # equal ones overwrite each other
        atoms = atoms.reshape(rows, width)
    else:
        sums = np.bincount(cell.ravel(), weights=(p * x).ravel(), minlength=rows * width).reshape(rows, width)
        atoms = np.divide(sums, probs, out=np.full_like(sums, -np.inf), where=probs > 0)
    last = atoms.max(-1, keepdims=True)
    atoms = np.where(probs > 0, atoms, last)  # the filling repeats the last atom
    return atoms.reshape(*shape, width), probs.reshape(*shape, width)


def compress(
    laws: Laws,
    size: int,
    to: Callable[[np.ndarray], np.ndarray] | None = None,
    back: Callable[[np.ndarray], np.ndarray] | None = None,
) -> tuple[Laws, np.ndarray]:
    """At most `size` atoms each, and the Cramér distance ℓ₂ to the law before, in real returns. -> laws, [...]

    Neighbors that share one of `size` equal parts of the probability become one atom at their mean return, so that
    Q, and with it the greedy choice, stays. With φ given (`to`, `back`) the mean is taken in real returns.

    Bound over an iteration: mixtures and translations do not enlarge ℓ₂, discounting multiplies it by √γ, and the
    choice of actions is the same. If δ_k is the largest distance returned at step k, the k-th iterate is within
    e_k = √γ·e_{k−1} + δ_k of the exact one (`operators.iterate` keeps this sum).
    """
    if size < 1:
        raise UserError(f"laws cannot be compressed to {size} atoms; accepted: at least 1")
    if laws.atoms.shape[-1] <= size:
        return laws, np.zeros(laws.atoms.shape[:-1])
    n = laws.atoms.shape[-1]
    real = laws if back is None else laws.push(back)
    x, p = real.atoms.reshape(-1, n), real.probs.reshape(-1, n)
    middle = p.cumsum(-1) - p / 2  # where an atom stands on the scale of probability
    part = np.clip((size * middle).astype(np.int64), 0, size - 1)
    small = Laws(*_gathered(x, p, part, size, exact=False, shape=laws.atoms.shape[:-1]))
    small = merged(small.atoms, small.probs)
    error = np.sqrt(cramer(real, small))
    return (small if to is None else small.push(to)), error


def _check(atoms: np.ndarray, probs: np.ndarray) -> None:
    for name, wrong, array, accepted in (
        ("atoms", ~np.isfinite(atoms), atoms, "finite numbers"),
        ("probs", ~np.isfinite(probs) | (probs < 0), probs, "probabilities, 0 or above"),
    ):
        if wrong.any():
            place = tuple(int(i) for i in np.argwhere(wrong)[0])
            raise UserError(f"{name}{list(place)} is {array[place]}; accepted: {accepted}")
    sums = probs.sum(-1)
    if (wrong := np.abs(sums - 1) > _SUM).any():
        place = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise UserError(f"the probabilities of law {list(place)} sum to {sums[place]:.12g}; accepted: 1")
