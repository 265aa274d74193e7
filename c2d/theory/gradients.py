"""Are gradients from samples of the target right on average? For the squared Cramér distance yes, for Wasserstein no.

The prediction μ has probabilities softmax(θ) on free atoms; the target ν is seen through m draws from it, the empirical
law ν̂. A loss d has unbiased sample gradients if E ∇d(μ, ν̂) = ∇d(μ, ν) (Bellemare et al. 2017, "The Cramér distance").
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from c2d.returns.losses import cramer
from c2d.types import ReturnDist

Loss = Callable[[ReturnDist, ReturnDist], Tensor]


class Bias(NamedTuple):
    """The mean of sample gradients minus the true gradient, in each parameter."""

    bias: np.ndarray  # [2N] in the logits, then in the atoms
    error: np.ndarray  # [2N] standard error of that mean
    size: float  # length of the true gradient


def wasserstein(prediction: ReturnDist, target: ReturnDist) -> Tensor:
    """W₁ = ∫ |F_μ − F_ν|. [B, N], [B, M] -> [B]"""
    atoms, order = torch.cat((prediction.atoms, target.atoms), -1).sort(stable=True)
    mass = torch.cat((prediction.log_probs.exp(), -target.log_probs.exp()), -1).gather(-1, order)
    return (mass.cumsum(-1)[..., :-1].abs() * atoms.diff()).sum(-1)


def sample_bias(loss: Loss, draws: int, size: int, seed: int | list[int], atoms: int = 5) -> Bias:
    """The bias of `draws` sample gradients, each from `size` draws of the target.

    The two laws are drawn until their distribution functions cross: W₁ of laws that do not is linear in them.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    while True:
        logits, places = rng.standard_normal(atoms), 2 * rng.standard_normal(atoms)
        target, chances = 2 * rng.standard_normal(4), rng.dirichlet(np.ones(4))
        if _crossing(places, np.exp(logits) / np.exp(logits).sum(), target, chances) > 0.1:
            break
    picked = target[rng.choice(4, (draws, size), p=chances)]
    samples = _gradient(loss, logits, places, picked, np.full((draws, size), 1 / size))
    truth = _gradient(loss, logits, places, target[None], chances[None])[0]
    mean, spread = samples.mean(0), samples.std(0, ddof=1)
    return Bias(mean - truth, spread / np.sqrt(draws), float(np.linalg.norm(truth)))


def _crossing(x: np.ndarray, p: np.ndarray, y: np.ndarray, q: np.ndarray) -> float:
    """How far F − G goes to either side, the lesser of the two."""
    order = np.argsort(np.concatenate((x, y)))
    difference = np.concatenate((p, -q))[order].cumsum()
    return float(min(difference.max(), -difference.min()))


def _gradient(loss: Loss, logits: np.ndarray, places: np.ndarray, target: np.ndarray, probs: np.ndarray) -> np.ndarray:
    """∇ loss for each target separately. target, probs [B, M] -> [B, 2N]"""
    batch = target.shape[0]
    theta = torch.from_numpy(logits).repeat(batch, 1).requires_grad_()
    atoms = torch.from_numpy(places).repeat(batch, 1).requires_grad_()
    seen = ReturnDist(torch.from_numpy(target), torch.from_numpy(probs).log())
    total = loss(ReturnDist(atoms, theta.log_softmax(-1)), seen).sum()
    gradient: np.ndarray = torch.cat(torch.autograd.grad(total, (theta, atoms)), -1).numpy()
    return gradient


LOSSES: dict[str, Loss] = {"squared Cramér": cramer, "Wasserstein": wasserstein}
