"""The φ that a user typed after c2d theory: a name, a formula, or code of their own."""

from __future__ import annotations

from typing import Any

from c2d.errors import UserError, did_you_mean


def typed_phi(text: str, eps: float, beta: float) -> tuple[Any, Any, Any, tuple[float, float] | None]:
    """From what the user typed: φ on arrays; `to` and `back` on tensors (None: not known); J, if told."""
    from c2d.recipes.user_code import imported, trust
    from c2d.returns.phi import KINDS
    from c2d.theory.expression import parse
    from c2d.theory.homeomorphism import from_callables, from_phi, named, on_arrays
    from c2d.types import Phi

    if text in KINDS:
        phi = KINDS[text](beta, eps)
        return named(text, eps, beta), phi.to, phi.back, (phi.low, phi.high)
    if ":" in text:
        trust(text)
        found = imported(text)
        if isinstance(found, Phi):
            return from_phi(found, text), found.to, found.back, (found.low, found.high)
        if not callable(found):
            raise UserError(f"{text} is neither a c2d.types.Phi nor a function of tensors")
        to = _tried(found, text)
    else:
        near = did_you_mean(text, KINDS) if text.isidentifier() and text != "x" else ""
        if near:
            raise UserError(f'unknown φ "{text}".{near} Accepted: {", ".join(KINDS)}, a formula in x, my_module:my_phi')
        to = parse(text)
    return from_callables(on_arrays(to), None, text), to, None, None


def _tried(function: Any, name: str) -> Any:
    """A function of the user's own, if it takes a tensor and gives one that can be differentiated."""
    import torch

    x = torch.linspace(-1, 1, 3, dtype=torch.float64, requires_grad=True)
    try:
        y = function(x)
        fine = isinstance(y, torch.Tensor) and y.shape == x.shape and y.requires_grad
    except Exception as error:  # whatever the user's own code raises
        raise UserError(f"{name} fails on a tensor: {error}; accepted: a function of torch tensors") from None
    if not fine:
        raise UserError(f"{name} gives no tensor of the shape of its argument; accepted: a function of torch tensors")
    return function
