"""Losses and projections one number at a time."""

import math
from itertools import pairwise


def projected(atoms, probs, low, high, count):
    """C51's projection by a loop: each atom's mass to its neighbors on the grid."""
    step = (high - low) / (count - 1)
    out = [0.0] * count
    for z, p in zip(atoms, probs, strict=True):
        z = min(max(z, low), high)
        for k in range(count):
            out[k] += p * max(0.0, 1.0 - abs(z - (low + k * step)) / step)
    return out


def projected_returns(atoms, probs, low, high, count, back):
    """The same with neighbors and nearness looked for among real returns: `back` is φ⁻¹ of one number."""
    points = [back(low + k * (high - low) / (count - 1)) for k in range(count)]
    out = [0.0] * count
    for z, p in zip(atoms, probs, strict=True):
        x = min(max(back(z), points[0]), points[-1])
        above = next(k for k in range(1, count) if x <= points[k])
        width = points[above] - points[above - 1]
        out[above] += p * (x - points[above - 1]) / width
        out[above - 1] += p * (points[above] - x) / width
    return out


def cross_entropy(target, log_probs):
    return -sum(m * lp for m, lp in zip(target, log_probs, strict=True))


def huber(u, kappa):
    return 0.5 * u * u if abs(u) <= kappa else kappa * (abs(u) - 0.5 * kappa)


def quantile_huber(z, taus, y, kappa):
    """Summed over the prediction's quantiles, averaged over the target's, each of which counts alike."""
    total = 0.0
    for zi, tau in zip(z, taus, strict=True):
        for yj in y:
            u = yj - zi
            size = abs(u) if kappa == 0 else huber(u, kappa) / kappa
            total += abs(tau - (1.0 if u < 0 else 0.0)) * size / len(y)
    return total


def fractions(scores):
    """FQF's fractions 0 = τ_0 < … < τ_N = 1 from N numbers, and their midpoints."""
    edges = [0.0]
    for share in softmax(scores, 1.0):
        edges.append(edges[-1] + share)
    return edges, [(low + high) / 2 for low, high in pairwise(edges)]


def fqf_value(edges, at_midpoints):
    """Expected return: each quantile times the length of its interval."""
    return sum((high - low) * v for (low, high), v in zip(pairwise(edges), at_midpoints, strict=True))


def fqf_slope(at_inner, at_midpoints):
    """∂W₁/∂τ_i, i = 1 … N−1 (Yang et al. 2019, Prop. 1)."""
    return [2 * at_inner[i] - at_midpoints[i] - at_midpoints[i + 1] for i in range(len(at_inner))]


def softmax(values, temperature):
    largest = max(values)
    weights = [math.exp((v - largest) / temperature) for v in values]
    return [w / sum(weights) for w in weights]
