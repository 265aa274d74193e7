"""Losses and projections one number at a time."""

import math


def projected(atoms, probs, low, high, count):
    """C51's projection by a loop: each atom's mass to its neighbors on the grid."""
    step = (high - low) / (count - 1)
    out = [0.0] * count
    for z, p in zip(atoms, probs, strict=True):
        z = min(max(z, low), high)
        for k in range(count):
            out[k] += p * max(0.0, 1.0 - abs(z - (low + k * step)) / step)
    return out


def cross_entropy(target, log_probs):
    return -sum(m * lp for m, lp in zip(target, log_probs, strict=True))


def huber(u, kappa):
    return 0.5 * u * u if abs(u) <= kappa else kappa * (abs(u) - 0.5 * kappa)


def quantile_huber(z, taus, y, q, kappa):
    total = 0.0
    for zi, tau in zip(z, taus, strict=True):
        for yj, qj in zip(y, q, strict=True):
            u = yj - zi
            size = abs(u) if kappa == 0 else huber(u, kappa) / kappa
            total += qj * abs(tau - (1.0 if u < 0 else 0.0)) * size
    return total


def softmax(values, temperature):
    largest = max(values)
    weights = [math.exp((v - largest) / temperature) for v in values]
    return [w / sum(weights) for w in weights]
