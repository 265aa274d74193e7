"""c2d theory [check | search | phi] [options]"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from c2d.cli.settings import options
from c2d.errors import UserError, did_you_mean, unknown_name
from c2d.formatting import text_table
from c2d.plotting import check_figure_path

PARTS = {
    "example": "the counterexample of Proposition 3.1 (also without a name)",
    "check": "verify the paper's statements on many random MDPs",
    "search": "how often, and how badly, the transformed operator T_h chooses wrongly",
    "phi": "examine your own homeomorphism",
}


@dataclass(frozen=True)
class Example:
    """The counterexample of Proposition 3.1: a coin for R (action a), or a sure r (action b)."""

    h: str = "h"
    """Odd, concave for x ≥ 0: h, scaled_h, symlog, asinh, a formula such as "x / (1 + abs(x))", or my_module:my_phi."""
    reward: float = 100.0
    """R, the prize of action a, won with probability 1/2."""
    sure: float | None = None
    """r, the sure reward of action b; None: the middle of the interval in which T_h chooses wrongly."""
    gamma: float = 0.99
    """Discount. The episode ends after one step, so the result does not depend on it."""
    eps: float = 1e-3
    """ε of h and scaled_h."""
    beta: float = 1.99
    """β of scaled_h."""
    save: str | None = None
    """File for the figure (.svg, .png or .pdf); None: no figure."""


@dataclass(frozen=True)
class Check:
    """The number of cases."""

    mdps: int = 1000
    """Number of random MDPs; each is checked with every φ."""
    states: int = 10
    """States per MDP."""
    actions: int = 4
    """Actions per state; each action has three outcomes."""
    steps: int = 3
    """Iterations of each operator. Each iteration triples the supports."""
    seed: int = 0
    """The same seed gives the same cases."""


@dataclass(frozen=True)
class Search:
    """The random MDPs."""

    mdps: int = 500
    """Number of random MDPs per point of the figure."""
    states: int = 10
    """States per MDP."""
    actions: int = 4
    """Actions per state; each action has three outcomes."""
    gamma: float = 0.9
    """Discount."""
    seed: int = 0
    """The same seed gives the same MDPs."""
    stochasticity: tuple[float, ...] = (0.0, 0.05, 0.1, 0.25, 0.5, 1.0)
    """Weight of chance in the transitions; 0 is deterministic."""
    reward_scale: tuple[float, ...] = (0.1, 1.0, 100.0, 10_000.0)
    """Rewards are this times exp(spread · a standard normal number)."""
    eps: tuple[float, ...] = (0.0, 1e-4, 1e-3, 1e-2, 1e-1)
    """ε of h, varied at stochasticity 0.5; the other tables use 0.001."""
    spread: tuple[float, ...] = (0.0, 0.5, 1.0, 2.0, 3.0, 4.0)
    """Spread of the rewards, varied at stochasticity 0.5 and scale 1; the other tables use 1."""
    save: str | None = None
    """File for the figure (.svg, .png or .pdf); None: no figure."""


@dataclass(frozen=True)
class PhiOptions:
    """The function."""

    function: tyro.conf.Positional[str]
    """A formula in x such as "x / sqrt(1 + x*x)", a name (h, scaled_h, symlog, asinh), or my_module:my_phi."""
    inverse: str | None = None
    """A formula in y for the inverse; None: bisection."""
    gamma: float = 0.99
    """Discount of the step φ(r + γφ⁻¹(y)) whose slope is examined."""
    eps: float = 1e-3
    """ε of h and scaled_h."""
    beta: float = 1.99
    """β of scaled_h."""
    save: str | None = None
    """File for the figure (.svg, .png or .pdf); None: no figure."""


def main(arguments: Sequence[str]) -> None:
    words = list(arguments)
    if words in (["--help"], ["-h"]):
        print(_usage())
        return
    part = words.pop(0) if words and not words[0].startswith("-") else "example"
    if part not in PARTS:
        raise unknown_name("part of c2d theory", part, PARTS)
    import torch

    torch.set_num_threads(1)  # small arrays: more threads only add overhead
    {"example": _example, "check": _check, "search": _search, "phi": _phi}[part](words)


def _usage() -> str:
    rows = "\n".join(f"  {row}" for row in text_table(list(PARTS.items()), left=2))
    return (
        f"usage: c2d theory [PART] [options]\n\nThe paper's theory on finite MDPs, in float64.\n\nparts:\n{rows}\n\n"
        "c2d theory PART --help explains every option; docs/theory.md is a tutorial."
    )


def _example(words: list[str]) -> None:
    chosen = options(Example, words, "c2d theory example", "Show where the transformed operator T_h chooses wrongly.")
    from c2d.theory.examples import counterexample
    from c2d.theory.figures import counterexample_figure

    file = _figure_path(chosen.save)
    h = typed_phi(chosen.h, chosen.eps, chosen.beta)[0]
    example = counterexample(h, chosen.reward, chosen.gamma, chosen.sure)
    print(f"Proposition 3.1 with h = {h.name}, R = {example.prize:g}, r = {example.sure:.8g}, γ = {chosen.gamma:g}\n")
    print(f"  s --a--> 0 or {example.prize:g} with probability 1/2 each, then the end")
    print(f"  s --b--> {example.sure:.8g} for sure, then the end\n")
    print(f"T_h chooses wrongly for {example.low:.8g} < r < {example.high:.8g}, that is h⁻¹(h(R)/2) < r < R/2\n")
    print(f"  {'operator':<10}{'Q(s, a)':>12}{'Q(s, b)':>12}   action")
    best = example.q["T*"]
    for name, q in example.q.items():
        small = 1e-12 * max(abs(float(value)) for value in (*q, *best))
        taken = best[list(example.mdp.actions).index(example.choice[name])]
        tie, wrong = abs(q[0] - q[1]) <= small, taken < max(best) - small
        action = "either" if tie else example.choice[name] + ("   wrong" if wrong else "")
        print(f"  {name:<10}{q[0]:>12.8g}{q[1]:>12.8g}   {action}")
    print("\nvalues in real returns: those of T_h mapped back by h⁻¹, those of T_φ (φ = h) the mean of φ⁻¹")
    if file is not None:
        counterexample_figure(example, file)
        print(f"figure: {file}")


def _check(words: list[str]) -> None:
    chosen = options(Check, words, "c2d theory check", "Verify the paper's statements numerically.")
    for name in ("mdps", "states", "actions", "steps"):
        if getattr(chosen, name) < 1:
            raise UserError(f"--{name} is {getattr(chosen, name)}; accepted: at least 1")
    if chosen.seed < 0:
        raise UserError(f"--seed is {chosen.seed}; accepted: 0 or greater")
    from c2d.theory.operators import LARGEST
    from c2d.theory.statements import AT_ONCE, check

    size = AT_ONCE * chosen.states * chosen.actions * 3.0 ** (chosen.steps + 1)
    if size > LARGEST:
        most = math.floor(math.log(LARGEST / (AT_ONCE * chosen.states * chosen.actions), 3) - 1)
        raise UserError(f"--steps is {chosen.steps}; accepted: at most {most}, since each step triples the supports")
    print(f"c2d theory check: {chosen.mdps} random MDPs, {chosen.states} states, {chosen.actions} actions, "
          f"{chosen.steps} steps, seed {chosen.seed}\n")  # fmt: skip
    print(f"{'statement':<78}{'paper':<18}{'cases':>9}  found")
    failed = 0
    for finding in check(chosen.mdps, chosen.states, chosen.actions, chosen.steps, chosen.seed):
        mark = "" if finding.holds else "   DOES NOT HOLD"
        print(f"{finding.statement:<78}{finding.source:<18}{finding.cases:>9,}  {finding.found}{mark}", flush=True)
        failed += not finding.holds
    print(f"\n{'all statements hold' if not failed else f'{failed} statements do not hold'}")
    if failed:
        sys.exit(1)


def _search(words: list[str]) -> None:
    chosen = options(Search, words, "c2d theory search", "Search for MDPs in which the policy of T_h is not optimal.")
    from c2d.theory.examples import check_axes, survey, worst_loss
    from c2d.theory.figures import search_figure

    file = _figure_path(chosen.save)
    if chosen.seed < 0:
        raise UserError(f"--seed is {chosen.seed}; accepted: 0 or greater")
    check_axes(chosen.mdps, chosen.stochasticity, chosen.reward_scale, chosen.eps, chosen.spread, chosen.gamma)
    sizes: dict[str, Any] = {name: getattr(chosen, name) for name in ("mdps", "states", "actions", "gamma", "seed")}
    print(f"c2d theory search: {chosen.mdps} random MDPs a line, {chosen.states} states, {chosen.actions} actions, "
          f"3 outcomes, γ = {chosen.gamma:g}, seed {chosen.seed}\n")  # fmt: skip
    where, scales = chosen.stochasticity, chosen.reward_scale
    by_stochasticity = _rows("by stochasticity and reward scale", survey(where, scales, (1e-3,), **sizes))
    by_eps = _rows("by ε of h and reward scale", survey((0.5,), scales, chosen.eps, **sizes))
    by_spread = _rows("by the spread of rewards", survey((0.5,), (1.0,), (1e-3,), chosen.spread, **sizes))
    worst = [worst_loss(eps) for eps in chosen.eps]
    print("one decision between a chance p of R and a sure r just above h⁻¹(p·h(R)): the most that can be lost")
    for w in worst:
        print(f"  ε = {w.eps:<7g} p = {w.chance:.4g}, R = {w.prize:.4g}: {100 * w.loss:.1f} % of the value")
    if file is not None:
        search_figure(by_stochasticity, by_eps, by_spread, worst, file)
        print(f"figure: {file}")


def _rows(title: str, cells: Any) -> list[Any]:
    print(
        f"{title}\n{'stochasticity':>15}{'scale':>9}{'ε':>9}{'spread':>8}{'wrong policy':>24}{'mean loss':>12}"
        f"{'worst':>9}"
    )
    kept = []
    for c in cells:
        share = f"{100 * c.wrong:.1f} % ({100 * c.low:.1f} to {100 * c.high:.1f})"
        print(f"{c.stochasticity:>15g}{c.reward_scale:>9g}{c.eps:>9g}{c.spread:>8g}{share:>24}"
              f"{100 * c.mean_loss:>10.2f} %{100 * c.worst_loss:>7.1f} %", flush=True)  # fmt: skip
        kept.append(c)
    print()
    return kept


def _phi(words: list[str]) -> None:
    if not words:
        raise UserError(
            'no function given; accepted: a formula such as "x / sqrt(1 + x*x)", a name, or my_module:my_phi'
        )
    chosen = options(PhiOptions, words, "c2d theory phi", "Examine a homeomorphism φ of the real line.")
    from c2d.theory.figures import phi_figure
    from c2d.theory.homeomorphism import check_inverse, on_arrays, parse_formula, study

    file = _figure_path(chosen.save)
    phi, to, back, interval = typed_phi(chosen.function, chosen.eps, chosen.beta)
    if chosen.inverse is not None:
        back = parse_formula(chosen.inverse, variable="y")
        check_inverse("φ", phi.to, on_arrays(back))
    result = study(phi.name, to, back, chosen.gamma, interval=interval)
    print(f"φ(x) = {result.name}: strictly increasing where tried, |x| from 1e-9 to 1e30")
    print(f"  onto J = ({_number(result.low)}, {_number(result.high)}), as far as float64 shows")
    if result.saturates is not None:
        print(f"  beyond |x| = {result.saturates:.3g} float64 cannot tell its values apart")
    inverse = "by bisection in float64" if result.inverse_by_bisection else "as given"
    print(f"  φ⁻¹ {inverse}; φ⁻¹(φ(x)), 1e-4 ≤ |x| ≤ 1e6:")
    for kind, (error, place) in result.round_trip.items():
        text = f"relative error up to {error:.1e}, at x = {place:.4g}"
        if math.isinf(error):
            text = f"lost from |x| = {place:.4g} on: φ(x) is rounded to an end of J, or overflows"
        print(f"    {kind:<9} {text}")
    constants = f"φ {_number(result.lipschitz)}, φ⁻¹ {_number(result.lipschitz_back)}"
    print(f"  Lipschitz constants (largest slopes found): {constants}")
    steps = ", ".join(f"{_number(value)} for |r| = {reward:g}" for reward, value in result.lipschitz_step.items())
    print(f"    of the step φ(r + γφ⁻¹(y)), γ = {result.gamma:g}: {steps}")
    if math.isfinite(result.lipschitz):
        which = "is" if result.lipschitz < 1 - 1e-6 else "is not"
        print(f"  φ {which} a contraction; c·φ is one for every c below {result.largest_scale:.6g}")
    if file is not None:
        phi_figure(result, phi.to, phi.back if back is None else on_arrays(back), file)
        print(f"figure: {file}")


def _figure_path(save: str | None) -> Path | None:
    """The path of the figure, if one is requested; it is checked before any work."""
    if save is None:
        return None
    check_figure_path(Path(save), "--save")
    return Path(save)


def _number(value: float) -> str:
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    return f"{value:.6g}"


def typed_phi(text: str, eps: float, beta: float) -> tuple[Any, Any, Any, tuple[float, float] | None]:
    """φ from a name, a formula or my_module:my_phi. -> φ on arrays; on tensors `to` and `back` (or None); J, or None"""
    from c2d.returns.phi import KINDS
    from c2d.theory.homeomorphism import from_callables, from_phi, named, on_arrays, parse_formula
    from c2d.types import Phi
    from c2d.user_code import imported, trust

    if text in KINDS:
        phi = KINDS[text](beta, eps)
        return named(text, eps, beta), phi.to, phi.back, (phi.low, phi.high)
    if ":" in text:
        trust(text)
        value = imported(text)
        if isinstance(value, Phi):
            return from_phi(value, text), value.to, value.back, (value.low, value.high)
        if not callable(value):
            raise UserError(f'"{text}" is a {type(value).__name__}; accepted: a c2d.types.Phi or a function of tensors')
        to = _differentiable(value, text)
    else:
        if text.isidentifier() and text != "x" and did_you_mean(text, KINDS):
            raise unknown_name("φ", text, KINDS, f"{', '.join(KINDS)}, a formula in x, my_module:my_phi")
        to = parse_formula(text)
    return from_callables(on_arrays(to), None, text), to, None, None


def _differentiable(function: Any, name: str) -> Any:
    """The user's function, if it maps a tensor to one of the same shape that can be differentiated."""
    import torch

    x = torch.linspace(-1, 1, 3, dtype=torch.float64, requires_grad=True)
    try:
        y = function(x)
        fine = isinstance(y, torch.Tensor) and y.shape == x.shape and y.requires_grad
    except Exception as error:  # user code may raise anything
        raise UserError(f'"{name}" fails on a tensor: {error}; accepted: a function of torch tensors') from None
    if not fine:
        raise UserError(
            f'"{name}" does not return a differentiable tensor of the same shape; accepted: a function of torch tensors'
        )
    return function
