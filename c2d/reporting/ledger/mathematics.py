"""The paper's propositions, checked on the functions that train agents.

PyTorch is imported only when `entries` is called, through `c2d.theory`. If that fails, the entries say so.
"""

from __future__ import annotations

import math

from c2d.reporting.ledger.entry import FAILS, HOLDS, LEDGER, NEEDS_TORCH, LedgerEntry

_SECTION = "Mathematics"
_COUNTEREXAMPLE = "Proposition: the fixed point of T_h need not give an optimal policy (stochastic MDP)"
_BELLMAN = "Proposition: iterates of the conjugated operator have Bellman's means (random MDP, 6 iterations)"
_TRANSLATION = "The Cramér distance is translation invariant (Algorithm 1, 32 atoms)"
_SCALE = "The Cramér distance is scale sensitive, ℓ₂ ∝ √γ (Algorithm 1, 32 atoms)"


def entries() -> list[LedgerEntry]:
    try:
        from c2d.theory import statements
        from c2d.theory.examples import counterexample
        from c2d.theory.homeomorphism import named
    except ImportError as error:
        return [_unavailable(what, str(error)) for what in (_COUNTEREXAMPLE, _BELLMAN, _TRANSLATION, _SCALE)]
    example = counterexample(named("h"), prize=100.0)
    best, chosen = example.choice["T*"], example.choice["T_h"]
    errors = statements.cramer_errors()
    return [
        LedgerEntry(
            _SECTION,
            _COUNTEREXAMPLE,
            LEDGER,
            "optimal a, chosen b",
            f"R = 100, r = {example.sure:.2f}: optimal {best} ({example.high:.2f} > {example.sure:.2f}), T_h chooses "
            f"{chosen} ({example.low:.2f} < {example.sure:.2f})",
            "exact",
            HOLDS if (best, chosen) == ("a", "b") else FAILS,
        ),
        _small(_BELLMAN, statements.bellman_error(), 1e-9, "largest difference "),
        _small(_TRANSLATION, errors["translation"], 1e-12),
        _small(_SCALE, errors["scale"], 1e-12),
    ]


def _small(what: str, error: float, tolerance: float, prefix: str = "") -> LedgerEntry:
    """A difference that must be 0 up to rounding."""
    status = HOLDS if error < tolerance else FAILS
    limit = f"1e{round(math.log10(tolerance))}"
    return LedgerEntry(_SECTION, what, LEDGER, "difference 0", f"{prefix}{error:.1e}", limit, status)


def _unavailable(what: str, reason: str) -> LedgerEntry:
    return LedgerEntry(_SECTION, what, LEDGER, "–", "–", "–", NEEDS_TORCH, f"not checked here: {reason}")
