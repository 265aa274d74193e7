"""Claims that scores do not decide: sizes of networks, supports, mathematics, and those that need training."""

from __future__ import annotations

import numpy as np

from c2d.envs.games import BENCHMARK
from c2d.reporting.field import Field
from c2d.reporting.figures.panels import mean_atoms
from c2d.reporting.ledger.entry import (
    FAILS,
    HOLDS,
    LEDGER,
    Entry,
    needs_training,
    without_curves,
)

_OTHER, _THEORY, _OPEN = "Other claims", "Mathematics", "Claims that need training"
_EPSILON = 0.001


def entries(field: Field) -> list[Entry]:
    return [_weights(), _support(field), _counterexample(), _bellman(), *_cramer_properties(), *_training()]


def _weights() -> Entry:
    """Features after three convolutions (8/4, 4/2, 3/1) of an 84 x 84 frame, and the weights of the dense layer."""
    valid = same = 84
    for kernel, stride in ((8, 4), (4, 2), (3, 1)):
        valid, same = (valid - kernel) // stride + 1, -(-same // stride)
    ours, theirs = (64 * side**2 * 512 for side in (valid, same))
    return Entry(
        _OTHER,
        "C2D's padding implies substantially less network weights than Dopamine's",
        LEDGER,
        "fewer",
        f"dense layer: {ours:,} weights from {64 * valid**2:,} features against {theirs:,} from {64 * same**2:,}",
        "exact",
        HOLDS if ours < theirs else FAILS,
    )


def _support(field: Field) -> Entry:
    words = "The maximal support (−50, 50) at first either shrinks or grows with the environment"
    last = {}
    for game in BENCHMARK:
        ends, low, high = mean_atoms(field.of("C2D", game))
        if ends.size and ends[-1] >= 199:
            last[game] = max(high[-1], -low[-1])
    if len(last) < len(BENCHMARK):
        return without_curves(_OTHER, words, "some above 50, some below")
    above, below = sum(value > 50 for value in last.values()), sum(value < 25 for value in last.values())
    return Entry(
        _OTHER,
        words,
        "c2d report --published-only --published PATH",
        "some above 50, some below",
        f"largest |atom| of the last iteration: above 50 on {above} games, below 25 on {below}, of {len(last)}",
        "–",
        HOLDS if above and below else FAILS,
        "atoms lie within ±α, so α grew where one is above 50; that it shrank elsewhere the data cannot show",
    )


def _h(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.sign(x) * (np.sqrt(1 + np.abs(x)) - 1) + _EPSILON * x)


def _h_inverse(y: np.ndarray) -> np.ndarray:
    root = (np.sqrt(1 + 4 * _EPSILON * (np.abs(y) + 1 + _EPSILON)) - 1) / (2 * _EPSILON)
    return np.asarray(np.sign(y) * (root**2 - 1))


def _counterexample() -> Entry:
    """Proposition 1: a chooses 0 or R with equal chance, b the sure r between h⁻¹(h(R) / 2) and R / 2."""
    large = 100.0
    seen = float(_h_inverse(_h(np.array(large)) / 2))
    sure = (seen + large / 2) / 2
    best, chosen = ("a" if large / 2 > sure else "b"), ("a" if seen > sure else "b")
    return Entry(
        _THEORY,
        "Proposition: the fixed point of T_h need not give an optimal policy (stochastic MDP)",
        LEDGER,
        "optimal a, chosen b",
        f"R = 100, r = {sure:.2f}: optimal {best} ({large / 2:.2f} > {sure:.2f}), T_h chooses {chosen} "
        f"({seen:.2f} < {sure:.2f})",
        "exact",
        HOLDS if (best, chosen) == ("a", "b") else FAILS,
    )


def _bellman() -> Entry:
    """Proposition 2 on a random MDP: laws as atoms, iterated through φ, against Bellman's iteration of means."""
    rng = np.random.default_rng(0)
    states, actions, gamma = 4, 3, 0.9
    chance = rng.dirichlet(np.ones(states), (states, actions))  # [s, a, s']
    reward = rng.normal(0, 5, (states, actions, states))
    values = rng.normal(0, 1, (states, actions))
    atoms, probs = _h(values)[..., None], np.ones((states, actions, 1))
    worst = 0.0
    for _ in range(6):
        values = (chance * (reward + gamma * values.max(1))).sum(-1)
        best = (probs * _h_inverse(atoms)).sum(-1).argmax(1)  # [s']
        rows = np.arange(states)
        outcome = reward[..., None] + gamma * _h_inverse(atoms[rows, best])  # [s, a, s', N]
        atoms = _h(outcome).reshape(states, actions, -1)
        probs = (chance[..., None] * probs[rows, best]).reshape(states, actions, -1)
        worst = max(worst, float(np.abs((probs * _h_inverse(atoms)).sum(-1) - values).max()))
    return Entry(
        _THEORY,
        "Proposition: iterates of the conjugated operator have Bellman's means (random MDP, 6 iterations)",
        LEDGER,
        "difference 0",
        f"largest difference {worst:.1e}",
        "1e-9",
        HOLDS if worst < 1e-9 else FAILS,
    )


def _cramer(x: np.ndarray, p: np.ndarray, y: np.ndarray, q: np.ndarray) -> float:
    """ℓ₂ by Algorithm 1."""
    at = np.concatenate([x, y])
    order = np.argsort(at)
    mass = np.concatenate([p, -q])[order].cumsum()
    return float(np.sqrt((mass[:-1] ** 2 * np.diff(at[order])).sum()))


def _cramer_properties() -> list[Entry]:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 32))
    p, q = rng.dirichlet(np.ones(32), 2)
    distance = _cramer(x, p, y, q)
    moved = abs(_cramer(x + 7, p, y + 7, q) - distance)
    scaled = abs(_cramer(0.99 * x, p, 0.99 * y, q) - np.sqrt(0.99) * distance)
    return [
        Entry(
            _THEORY,
            f"The Cramér distance is {words} (Algorithm 1, 32 atoms)",
            LEDGER,
            "difference 0",
            f"{gap:.1e}",
            "1e-12",
            HOLDS if gap < 1e-12 else FAILS,
        )
        for words, gap in (("translation invariant", moved), ("scale sensitive, ℓ₂ ∝ √γ", scaled))
    ]


def _training() -> list[Entry]:
    suite = "33,000M frames (55 games × 3 seeds × 200M)"
    return [
        needs_training(
            _OPEN,
            "C2D with Rainbow's other ingredients should easily be superior",
            "c2d train GAME --recipe rainbow-c2d",
            suite,
        ),
        needs_training(
            _OPEN,
            "The whole score table by training again",
            "c2d train GAME --seed 1 (2, 3)",
            suite,
            "`c2d fingerprint` compares the first 1M frames of a game, which takes about an hour",
        ),
        needs_training(
            _OPEN,
            "β = 1.99, α = 50, c = 5 by a preliminary search over six environments",
            "c2d sweep paper-claims",
            "60M frames per setting tried (6 games × 10M)",
            "the six games and the settings tried are not named in the paper",
        ),
        needs_training(
            _OPEN,
            "Batch normalization makes specialized initialization redundant",
            "c2d train GAME --encoder.norm none",
            "66,000M frames (the suite with and without)",
        ),
        needs_training(
            _OPEN,
            "C2D gets stuck in non-optimal regions for want of exploration beyond ε-greedy",
            "c2d train GAME --noisy True",
            suite,
        ),
        needs_training(
            _OPEN,
            "The Cramér distance and free atoms, not the other settings, make the difference to C51",
            "c2d ablate c2d",
            suite,
            "published runs differ in clipping, life loss, normalization and padding at once",
        ),
    ]
