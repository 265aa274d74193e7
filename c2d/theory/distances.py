"""Distances between discrete laws, for all states and actions at once. Each takes two `Laws` and returns [...].

All three compare the distribution functions F and G: a step function F − G, found by sorting the atoms of both.
The largest value over states and actions is the distance between collections that the theory uses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from c2d.theory.laws import Laws


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
    """sup |F − G|, the distance of Kolmogorov and Smirnov."""
    steps, gaps = _difference(one, two)
    counts = np.concatenate(
        (gaps > 0, np.ones((*gaps.shape[:-1], 1), bool)), -1
    )  # between equal atoms F − G is no value
    largest: np.ndarray = np.where(counts, np.abs(steps), 0.0).max(-1)
    return largest


def energy(one: Laws, two: Laws) -> np.ndarray:
    """Energy distance 2E|X − Y| − E|X − X'| − E|Y − Y'|, from its definition: every pair of atoms."""

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
