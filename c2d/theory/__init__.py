"""The paper's theory on finite MDPs, in float64: return distributions, the operators T*, T_h and T_φ, and their checks.

from c2d.theory import FiniteMDP, Laws, conjugated, from_dict, named, optimal

mdp = from_dict({"s": {"a": [(0.5, 0, None), (0.5, 100, None)], "b": [(1, 40, None)]}}, gamma=0.9)
laws = optimal(mdp, Laws.zero(mdp))     # T* applied to the collection of point masses at 0
laws.mean()                             # its Q-function [S, A]
"""

from c2d.theory.homeomorphism import Homeomorphism, from_callables, named
from c2d.theory.laws import Laws, compress, cramer, kolmogorov, wasserstein
from c2d.theory.mdp import FiniteMDP, from_arrays, from_dict, from_gymnasium, random_mdp
from c2d.theory.operators import (
    conjugated,
    evaluation,
    greedy,
    iterate,
    optimal,
    policy_q,
    simulate,
    transformed,
    value_iteration,
)

__all__ = [
    "FiniteMDP",
    "Homeomorphism",
    "Laws",
    "compress",
    "conjugated",
    "cramer",
    "evaluation",
    "from_arrays",
    "from_callables",
    "from_dict",
    "from_gymnasium",
    "greedy",
    "iterate",
    "kolmogorov",
    "named",
    "optimal",
    "policy_q",
    "random_mdp",
    "simulate",
    "transformed",
    "value_iteration",
    "wasserstein",
]
