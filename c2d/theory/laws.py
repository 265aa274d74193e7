"""Collections of discrete laws (return distributions), and the distances between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from c2d.errors import UserError
from c2d.theory.mdp import FiniteMDP

_SUM = 1e-9


@dataclass(frozen=True, eq=False)
class Laws:
    """η: laws Σ_i p_i δ_{x_i}, one for each place of the leading dimensions, usually [S, A].

    `Laws.of` and the operators keep atoms ascending and distinct; shorter laws are padded with their last atom and
    probability 0.
    """

    atoms: np.ndarray  # [..., N] f64
    probs: np.ndarray  # [..., N] f64

    @classmethod
    def of(cls, atoms: np.ndarray, probs: np.ndarray) -> Laws:
        """Sorts the atoms and merges equal ones exactly."""
        atoms, probs = np.broadcast_arrays(np.asarray(atoms, np.float64), np.asarray(probs, np.float64))
        _check(atoms, probs)
        return merged(atoms, probs)

    @classmethod
    def zero(cls, mdp: FiniteMDP, at: float = 0.0) -> Laws:
        """The point mass at 0 (or at `at`) for every state and action."""
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
        """One law as (atoms [M], probabilities [M]), without padding."""
        real = self.probs[place] > 0
        return self.atoms[place][real], self.probs[place][real]


def merged(atoms: np.ndarray, probs: np.ndarray) -> Laws:
    """Sort, drop atoms of probability 0, and merge equal atoms, for all laws at once. [..., N]"""
    shape, n = atoms.shape[:-1], atoms.shape[-1]
    x, p = atoms.reshape(-1, n), probs.reshape(-1, n)
    x = np.where(p > 0, x, np.inf)  # atoms of probability 0 go last
    order = np.argsort(x, axis=-1, kind="stable")
    x, p = np.take_along_axis(x, order, -1), np.take_along_axis(p, order, -1)
    starts = np.ones(x.shape, bool)
    # An atom starts a group if it lies above its predecessor (inf − inf is NaN: not above).
    with np.errstate(invalid="ignore"):
        starts[:, 1:] = np.diff(x, axis=-1) > 0
    if starts.all() and p.all():  # nothing to merge or to drop
        return Laws(x.reshape(*shape, n), p.reshape(*shape, n))
    group = starts.cumsum(-1) - 1  # [L, N]
    width = int(group[p > 0].max(initial=0)) + 1
    return Laws(*_gathered(x, p, group, width, exact=True, shape=shape))


def _gathered(
    x: np.ndarray, p: np.ndarray, group: np.ndarray, width: int, exact: bool, shape: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Merge groups of neighbors. A group's atom is the mean of its members; if `exact`, they are all equal."""
    rows = x.shape[0]
    cell = np.minimum(group, width - 1) + width * np.arange(rows)[:, None]  # groups beyond have probability 0
    probs = np.bincount(cell.ravel(), weights=p.ravel(), minlength=rows * width).reshape(rows, width)
    x = np.where(p > 0, x, 0.0)
    if exact:
        atoms = np.full(rows * width, -np.inf)
        atoms[cell[p > 0]] = x[p > 0]  # equal atoms overwrite each other
        atoms = atoms.reshape(rows, width)
    else:
        sums = np.bincount(cell.ravel(), weights=(p * x).ravel(), minlength=rows * width).reshape(rows, width)
        atoms = np.divide(sums, probs, out=np.full_like(sums, -np.inf), where=probs > 0)
    last = atoms.max(-1, keepdims=True)
    atoms = np.where(probs > 0, atoms, last)  # padding repeats the last atom
    return atoms.reshape(*shape, width), probs.reshape(*shape, width)


def compress(
    laws: Laws,
    size: int,
    to: Callable[[np.ndarray], np.ndarray] | None = None,
    back: Callable[[np.ndarray], np.ndarray] | None = None,
) -> tuple[Laws, np.ndarray]:
    """Reduce each law to at most `size` atoms; also the Cramér distance ℓ₂ to the original, in real returns.

    -> laws, [...]. Neighbors within the same of `size` equal slices of probability become one atom at their mean
    return, so Q and the greedy action do not change. If φ is given (`to`, `back`), the mean is taken in real returns.

    Bound over an iteration: mixtures and translations do not increase ℓ₂, discounting multiplies it by √γ, and the
    greedy actions are the same. If δ_k is the largest distance returned at step k, the k-th iterate is within
    e_k = √γ·e_{k−1} + δ_k of the exact one (`operators.iterate` tracks this sum).
    """
    if size < 1:
        raise UserError(f"laws cannot be compressed to {size} atoms; accepted: at least 1")
    if laws.atoms.shape[-1] <= size:
        return laws, np.zeros(laws.atoms.shape[:-1])
    n = laws.atoms.shape[-1]
    real = laws if back is None else laws.push(back)
    x, p = real.atoms.reshape(-1, n), real.probs.reshape(-1, n)
    middle = p.cumsum(-1) - p / 2  # the middle of each atom on the scale of probability
    part = np.clip((size * middle).astype(np.int64), 0, size - 1)
    small = Laws(*_gathered(x, p, part, size, exact=False, shape=laws.atoms.shape[:-1]))
    small = merged(small.atoms, small.probs)
    error = np.sqrt(cramer(real, small))
    return (small if to is None else small.push(to)), error


def _check(atoms: np.ndarray, probs: np.ndarray) -> None:
    for name, wrong, array, accepted in (
        ("atoms", ~np.isfinite(atoms), atoms, "finite numbers"),
        ("probs", ~np.isfinite(probs) | (probs < 0), probs, "probabilities, 0 or greater"),
    ):
        if wrong.any():
            place = tuple(int(i) for i in np.argwhere(wrong)[0])
            raise UserError(f"{name}{list(place)} is {array[place]}; accepted: {accepted}")
    sums = probs.sum(-1)
    if (wrong := np.abs(sums - 1) > _SUM).any():
        place = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise UserError(f"the probabilities of law {list(place)} sum to {sums[place]:.12g}; accepted: 1")


# Distances, for all states and actions at once: each takes two `Laws` and returns [...]. They compare the distribution
# functions F and G: F − G is a step function, computed by sorting the atoms of both. The largest value over states and
# actions is the distance between collections that the theory uses.


def cramer(one: Laws, two: Laws) -> np.ndarray:
    """Squared Cramér distance ℓ₂² = ∫ (F − G)² (C2D, Alg. 1)."""
    steps, gaps = _difference(one, two)
    squared: np.ndarray = (steps[..., :-1] ** 2 * gaps).sum(-1)
    return squared


def wasserstein(one: Laws, two: Laws) -> np.ndarray:
    """1-Wasserstein distance ∫ |F − G|."""
    steps, gaps = _difference(one, two)
    distance: np.ndarray = (np.abs(steps[..., :-1]) * gaps).sum(-1)
    return distance


def kolmogorov(one: Laws, two: Laws) -> np.ndarray:
    """Kolmogorov–Smirnov distance sup |F − G|."""
    steps, gaps = _difference(one, two)
    counts = np.concatenate(
        (gaps > 0, np.ones((*gaps.shape[:-1], 1), bool)), -1
    )  # skip positions between equal atoms: F − G does not take those values
    largest: np.ndarray = np.where(counts, np.abs(steps), 0.0).max(-1)
    return largest


def energy(one: Laws, two: Laws) -> np.ndarray:
    """Energy distance 2E|X − Y| − E|X − X'| − E|Y − Y'|, by definition: over every pair of atoms."""

    def expected(a: Laws, b: Laws) -> np.ndarray:
        gap = np.abs(a.atoms[..., :, None] - b.atoms[..., None, :])
        mean: np.ndarray = (a.probs[..., :, None] * b.probs[..., None, :] * gap).sum((-2, -1))
        return mean

    distance: np.ndarray = 2 * expected(one, two) - expected(one, one) - expected(two, two)
    return distance


def _difference(one: Laws, two: Laws) -> tuple[np.ndarray, np.ndarray]:
    """F − G after each of the sorted atoms [..., N+M], and the gaps between them [..., N+M−1]."""
    atoms = np.concatenate((one.atoms, two.atoms), -1)
    masses = np.concatenate((one.probs, -two.probs), -1)
    order = np.argsort(atoms, axis=-1, kind="stable")
    atoms = np.take_along_axis(atoms, order, -1)
    return np.take_along_axis(masses, order, -1).cumsum(-1), np.diff(atoms, axis=-1)
