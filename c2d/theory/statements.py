"""The paper's statements, each checked on many random cases: `c2d theory check`.

Most checks use the float64 operators of this package. `bellman_error` and `cramer_errors`, at the end, run the very
functions of `c2d.returns` that train agents, so a mistake in one of them shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from c2d.returns import bellman as training
from c2d.returns import losses
from c2d.returns.losses import project
from c2d.returns.phi import scaled_h
from c2d.theory.examples import clipping_loss, counterexample, cycle, expansion
from c2d.theory.homeomorphism import Homeomorphism, from_callables, named
from c2d.theory.laws import Laws, cramer, energy, wasserstein
from c2d.theory.mdp import FiniteMDP, random_mdp
from c2d.theory.operators import bellman, conjugated, greedy, optimal
from c2d.types import ReturnDist

TOLERANCE = 1e-10
AT_ONCE = 50  # MDPs per batch
_SURE = 4.9  # standard errors: 1 in 20,000 for any of 50 parameters

Loss = Callable[[ReturnDist, ReturnDist], Tensor]


@dataclass(frozen=True)
class Finding:
    """One line of the table."""

    statement: str
    source: str  # where the paper says it
    cases: int
    found: str  # the largest error, or whatever else decides
    holds: bool


def checked_phis() -> list[Homeomorphism]:
    """The φ of the checks: those of the agents, and one onto a bounded interval."""
    bounded = from_callables(
        lambda x: x / (1 + np.abs(x)), lambda y: y / (1 - np.abs(y)), "x/(1 + |x|)", low=-1.0, high=1.0
    )
    return [*(named(name) for name in ("identity", "h", "scaled_h", "symlog", "asinh")), bounded]


def check(mdps: int = 1000, states: int = 10, actions: int = 4, steps: int = 3, seed: int = 0,
          cases: int = 1000, draws: int = 100_000) -> Iterator[Finding]:  # fmt: skip
    """All statements in order: `mdps` MDPs for operators, `cases` laws for distances, `draws` samples for gradients."""
    yield from _operators(mdps, states, actions, steps, seed)
    yield _ties(max(mdps // 10, 1), seed)
    rng = np.random.Generator(np.random.PCG64(seed))
    yield _counterexamples(rng, cases // 5)
    yield _not_a_contraction()
    yield _no_metric()
    yield _clipping()
    yield from _distances(rng, cases)
    yield _projection(rng, cases)
    yield from _gradients(seed, draws)


def _operators(mdps: int, states: int, actions: int, steps: int, seed: int) -> Iterator[Finding]:
    """Lemma 2.1 and Proposition 3.2, for every φ."""
    phis = checked_phis()
    lemma = mirror = 0.0
    bellmans = {phi.name: 0.0 for phi in phis}
    for start in range(0, mdps, AT_ONCE):
        count = min(AT_ONCE, mdps - start)
        mdp = random_mdp(states, actions, 3, 0.9, [seed, start], count)
        first = _random_laws(mdp, [seed, start])
        exact, q = [first], [first.mean()]
        for _ in range(steps):
            exact.append(optimal(mdp, exact[-1]))
            q.append(bellman(mdp, q[-1]))
            lemma = max(lemma, _relative(exact[-1].mean() - bellman(mdp, exact[-2].mean()), q[-1]))
        for phi in phis:
            worst, apart = _conjugated_run(mdp, phi, exact, q)
            bellmans[phi.name] = max(bellmans[phi.name], worst)
            mirror = max(mirror, apart)
    tried = mdps * states * actions * steps
    yield _exact("Q of T*η is the Bellman iterate of Q of η", "Lemma 2.1", tried, lemma)
    for phi in phis:
        yield _exact(
            f"Q of T_φ^k ξ₀ is the k-th Bellman iterate, φ = {phi.name}", "Prop. 3.2", tried, bellmans[phi.name]
        )
    yield _exact("φ⁻¹#T_φ^k ξ₀ = (T*)^k η₀, largest W₁, every φ", "Prop. 3.2, proof", tried * len(phis), mirror)


def _ties(mdps: int, seed: int) -> Finding:
    """Rewards of 0 and 1 with equal probabilities cause many ties; both operators split them evenly (Def. 3.1)."""
    drawn = random_mdp(6, 3, 2, 0.5, [seed, 1], mdps)
    mdp = FiniteMDP(np.full_like(drawn.prob, 0.5), (drawn.reward > 0).astype(float), drawn.after, 0.5)
    exact, phi, worst, shared = Laws.zero(mdp), named("scaled_h"), 0.0, 0
    laws = exact.push(phi.to)
    for _ in range(3):
        shared += int(((greedy(exact.mean(), "uniform") > 0).sum(-1) > 1).sum())
        exact, laws = optimal(mdp, exact, "uniform"), conjugated(mdp, laws, phi, "uniform")
        worst = max(worst, _relative(wasserstein(laws.push(phi.back), exact), exact.atoms))
    return _exact("the same with ties, shared evenly, φ = scaled_h, largest W₁", "Def. 3.1", shared, worst)


def _conjugated_run(mdp: FiniteMDP, phi: Homeomorphism, exact: list[Laws], q: list[np.ndarray]) -> tuple[float, float]:
    """Largest error of Q, and of the laws, while iterating T_φ."""
    laws, worst, apart = exact[0].push(phi.to), 0.0, 0.0
    for k in range(1, len(exact)):
        laws = conjugated(mdp, laws, phi)
        worst = max(worst, _relative(laws.mean(phi.back) - q[k], q[k]))
        apart = max(apart, _relative(wasserstein(laws.push(phi.back), exact[k]), q[k]))
    return worst, apart


def _random_laws(mdp: FiniteMDP, seed: list[int]) -> Laws:
    """An initial collection η₀ with three atoms per law."""
    rng = np.random.Generator(np.random.PCG64([*seed, 1]))
    return Laws.of(3 * rng.standard_normal((*mdp.shape, 3)), rng.dirichlet(np.ones(3), mdp.shape))


def _counterexamples(rng: np.random.Generator, cases: int) -> Finding:
    """Proposition 3.1: inside the interval T_h is wrong and T_φ is not; outside neither is."""
    wrong = 0
    choices = [named("symlog"), named("asinh"), *(named("h", eps) for eps in (0.0, 1e-3, 1e-2))]
    for case in range(cases):
        h, prize = choices[case % len(choices)], float(10 ** rng.uniform(-1, 5))
        inside = counterexample(h, prize)
        place = rng.uniform(0.01, 0.99)
        below = counterexample(h, prize, sure=inside.low * (1 - 0.5 * place))
        above = counterexample(h, prize, sure=inside.high * (1 + place))
        middle = counterexample(h, prize, sure=inside.low + place * (inside.high - inside.low))
        fine = (middle.choice == {"T*": "a", "T_h": "b", "T_φ": "a"} and set(below.choice.values()) == {"a"}
                and set(above.choice.values()) == {"b"})  # fmt: skip
        wrong += not fine
    return Finding(
        "T_h errs exactly for h⁻¹(h(R)/2) < r < R/2, T_φ never", "Prop. 3.1", cases, f"{wrong} exceptions", not wrong
    )


def _not_a_contraction() -> Finding:
    ratios = [expansion(bonus) for bonus in (1e-1, 1e-2, 1e-3, 1e-4)]
    grows = all(two > one > 1 for pair in zip(*ratios, strict=True) for one, two in pairwise(pair))
    text = f"distances × {ratios[-1][0]:.0f} in ℓ₂, × {ratios[-1][1]:.0f} in W₁, without bound"
    return Finding("T* can enlarge distances", "Sec. 2.1", len(ratios), text, grows)


def _no_metric() -> Finding:
    iterates = cycle(20)
    apart = [float(wasserstein(one, two).max()) for one, two in pairwise(iterates)]
    returned = [float(wasserstein(one, two).max()) for one, two in zip(iterates, iterates[2:], strict=False)]
    text = f"period 2: T*η is {min(apart):g} from η in W₁, T*T*η is {max(returned):g} from it"
    holds = min(apart) > 0 and max(returned) == 0
    return Finding("T* is not a contraction in any metric (ties in turn)", "Sec. 2.1", len(apart), text, holds)


def _clipping() -> Finding:
    lost = clipping_loss()
    return Finding(
        "clipped rewards change the optimal policy", "Sec. 3", 1, f"{100 * lost:.0f} % of the value lost", lost > 0
    )


def _distances(rng: np.random.Generator, cases: int) -> Iterator[Finding]:
    """The Cramér distance's invariances, and the energy distance."""
    one, two = (Laws.of(10 * rng.standard_normal((cases, n)), rng.dirichlet(np.ones(n), cases)) for n in (6, 9))
    shift, gamma = 100 * rng.standard_normal((cases, 1)), rng.uniform(0.01, 3.0, (cases, 1))
    base = np.sqrt(cramer(one, two))
    moved = np.sqrt(cramer(one.push(lambda x: x + shift), two.push(lambda x: x + shift)))
    scaled = np.sqrt(cramer(one.push(lambda x: gamma * x), two.push(lambda x: gamma * x)))
    yield _exact("ℓ₂ does not change under translation", "Sec. 3.1", cases, _relative(moved - base, base))
    yield _exact(
        "ℓ₂ of laws scaled by γ is √γ·ℓ₂", "Sec. 3.1", cases, _relative(scaled - np.sqrt(gamma[:, 0]) * base, base)
    )
    doubled = 2 * cramer(one, two)
    yield _exact("energy distance = 2·ℓ₂²", "Sec. 3.1", cases, _relative(energy(one, two) - doubled, doubled))


def _projection(rng: np.random.Generator, cases: int) -> Finding:
    """Πν, C51's projection, is orthogonal: ℓ₂²(ν, μ) = ℓ₂²(ν, Πν) + ℓ₂²(Πν, μ) for every μ on the grid.

    The targets ν are conjugated ones, φ(r + γφ⁻¹(x)), inside the grid; atoms outside would move to its ends.
    """
    grid, phi = np.linspace(-10.0, 10.0, 51), named("scaled_h")
    x, reward = rng.uniform(-8, 8, (cases, 7)), rng.uniform(-2, 2, (cases, 1))
    atoms, probs = phi.to(reward + 0.9 * phi.back(x)), rng.dirichlet(np.ones(7), cases)
    assert np.abs(atoms).max() < 10
    law = ReturnDist(torch.from_numpy(atoms), torch.from_numpy(probs).log())
    target = Laws.of(atoms, probs)
    projected = Laws.of(grid, project(law, torch.from_numpy(grid)).numpy())
    other = Laws.of(grid, rng.dirichlet(np.ones(51), cases))
    whole = cramer(target, other)
    error = np.abs(whole - cramer(target, projected) - cramer(projected, other))
    mean = np.abs(projected.mean() - target.mean())
    largest = max(_relative(error, whole), _relative(mean, np.ones(1)))
    return _exact("inside the grid Πν keeps the mean and is the nearest law on it", "Sec. 3.1", cases, largest)


def _gradients(seed: int, draws: int, pairs: int = 5) -> Iterator[Finding]:
    """For several pairs of laws, with an interval for the decisive parameter."""
    for name, biased in (("squared Cramér", False), ("Wasserstein", True)):
        biases = [sample_bias(LOSSES[name], draws // pairs, 2, [seed, pair]) for pair in range(pairs)]
        z = [np.abs(f.bias) / np.maximum(f.error, 1e-9 * f.size) for f in biases]
        # For each pair: the parameter with the largest bias, or the one whose bias is most significant.
        places = [int(np.argmax(np.abs(f.bias) if biased else values)) for f, values in zip(biases, z, strict=True)]
        sizes = [float(abs(f.bias[k]) / f.size) for f, k in zip(biases, places, strict=True)]
        real = [float(values[k]) > _SURE and size > 0.01 for values, k, size in zip(z, places, sizes, strict=True)]
        decisive = int(np.argmin(sizes)) if biased else int(np.argmax([values.max() for values in z]))
        one, k = biases[decisive], places[decisive]
        text = f"bias {one.bias[k]:+.4f} ± {_SURE * one.error[k]:.4f} where the gradient has length {one.size:.2f}"
        holds = all(real) if biased else not any(bool((values > _SURE).any()) for values in z)
        statement = f"sample gradients of the {name} distance are {'biased' if biased else 'unbiased'}"
        yield Finding(statement, "Sec. 3.1", draws, text, holds)


def _relative(error: np.ndarray, scale: np.ndarray) -> float:
    """Largest error, in units of the largest value (at least 1)."""
    return float(np.abs(error).max() / max(1.0, float(np.abs(scale).max())))


def _exact(statement: str, source: str, cases: int, error: float) -> Finding:
    return Finding(statement, source, cases, f"largest error {error:.1e}", error <= TOLERANCE)


# Are gradients from samples of the target right on average? For the squared Cramér distance yes, for Wasserstein no.
# The prediction μ has probabilities softmax(θ) on free atoms; the target ν is seen through m draws, the empirical law
# ν̂. A loss d has unbiased sample gradients if E ∇d(μ, ν̂) = ∇d(μ, ν) (Bellemare et al. 2017, "The Cramér distance").


class Bias(NamedTuple):
    """The mean of the sample gradients minus the true gradient, per parameter."""

    bias: np.ndarray  # [2N] of the logits, then of the atoms
    error: np.ndarray  # [2N] standard error of that mean
    size: float  # length of the true gradient


def wasserstein_loss(prediction: ReturnDist, target: ReturnDist) -> Tensor:
    """W₁ = ∫ |F_μ − F_ν|. [B, N], [B, M] -> [B]"""
    atoms, order = torch.cat((prediction.atoms, target.atoms), -1).sort(stable=True)
    mass = torch.cat((prediction.log_probs.exp(), -target.log_probs.exp()), -1).gather(-1, order)
    return (mass.cumsum(-1)[..., :-1].abs() * atoms.diff()).sum(-1)


def sample_bias(loss: Loss, draws: int, size: int, seed: int | list[int], atoms: int = 5) -> Bias:
    """The bias of `draws` sample gradients, each from `size` draws of the target.

    The two laws are redrawn until their distribution functions cross: otherwise W₁ is linear in them.
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
    """How far F − G reaches to both sides: the smaller of the two maxima."""
    order = np.argsort(np.concatenate((x, y)))
    difference = np.concatenate((p, -q))[order].cumsum()
    return float(min(difference.max(), -difference.min()))


def _gradient(loss: Loss, logits: np.ndarray, places: np.ndarray, target: np.ndarray, probs: np.ndarray) -> np.ndarray:
    """The gradient of the loss for each target separately. target, probs [B, M] -> [B, 2N]"""
    batch = target.shape[0]
    theta = torch.from_numpy(logits).repeat(batch, 1).requires_grad_()
    atoms = torch.from_numpy(places).repeat(batch, 1).requires_grad_()
    seen = ReturnDist(torch.from_numpy(target), torch.from_numpy(probs).log())
    total = loss(ReturnDist(atoms, theta.log_softmax(-1)), seen).sum()
    gradient: np.ndarray = torch.cat(torch.autograd.grad(total, (theta, atoms)), -1).numpy()
    return gradient


LOSSES: dict[str, Loss] = {"squared Cramér": losses.cramer, "Wasserstein": wasserstein_loss}


def bellman_error(iterations: int = 6, seed: int = 0) -> float:
    """Proposition 3.2 on a random MDP with 4 states and 3 actions: the largest gap between two Q-functions.

    One is the iterate of the Bellman operator, the other the mean of the return distributions, backed up through φ
    along every transition (s, a, s') with its probability.
    """
    rng = np.random.default_rng(seed)
    states, actions, gamma, phi = 4, 3, 0.9, scaled_h()
    chance = torch.from_numpy(rng.dirichlet(np.ones(states), (states, actions)))  # [S, A, S']
    reward = torch.from_numpy(rng.normal(0, 5, (states, actions, states)))
    q = torch.from_numpy(rng.normal(0, 1, (states, actions)))
    law = ReturnDist(phi.to(q)[..., None], torch.zeros(states, actions, 1, dtype=torch.float64))
    worst = 0.0
    for _ in range(iterations):
        q = (chance * (reward + gamma * q.amax(1))).sum(-1)
        later = training.at_action(law, training.greedy(training.q_values(law, phi)))  # [S', N]
        rows = ReturnDist(*(part.repeat(states * actions, 1) for part in later[:2]))  # [S A S', N]
        target = training.backup(reward.flatten(), torch.full((reward.numel(),), gamma, dtype=torch.float64), rows, phi)
        log_probs = chance.log().reshape(-1, 1) + target.log_probs
        law = ReturnDist(target.atoms.reshape(states, actions, -1), log_probs.reshape(states, actions, -1))
        worst = max(worst, float((training.q_values(law, phi) - q).abs().max()))
    return worst


def cramer_errors(atoms: int = 32, seed: int = 0) -> dict[str, float]:
    """Deviation of the loss from translation invariance, and from ℓ₂ ∝ √γ under scaling by γ = 0.99, on random laws."""
    rng = np.random.default_rng(seed)
    places = torch.from_numpy(rng.normal(size=(2, 1, atoms)))
    log_probs = torch.from_numpy(rng.dirichlet(np.ones(atoms), (2, 1))).log()

    def distance(scale: float = 1.0, shift: float = 0.0) -> float:
        one, two = (ReturnDist(scale * x + shift, p) for x, p in zip(places, log_probs, strict=True))
        return float(losses.cramer(one, two).sqrt())

    base = distance()
    return {"translation": abs(distance(shift=7.0) - base), "scale": abs(distance(scale=0.99) - np.sqrt(0.99) * base)}
