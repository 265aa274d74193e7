"""A formula in x, typed by the user, as a function of tensors. Parsed into a tree of allowed nodes, never executed."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable

import torch
from torch import Tensor

from c2d.errors import UserError, unknown_name

LONGEST = 200
LARGEST_POWER = 8.0
FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "sqrt": torch.sqrt,
    "abs": torch.abs,
    "sign": torch.sign,
    "exp": torch.exp,
    "expm1": torch.expm1,
    "log": torch.log,
    "log1p": torch.log1p,
    "sinh": torch.sinh,
    "cosh": torch.cosh,
    "tanh": torch.tanh,
    "asinh": torch.asinh,
    "atan": torch.atan,
    "erf": torch.erf,
    "sin": torch.sin,
    "cos": torch.cos,
}
CONSTANTS = {"pi": math.pi, "e": math.e}
_OPERATORS: dict[type[ast.operator], Callable[[Tensor, Tensor], Tensor]] = {
    ast.Add: torch.add,
    ast.Sub: torch.sub,
    ast.Mult: torch.mul,
    ast.Div: torch.true_divide,
}
_ACCEPTED = f"x, numbers, pi, e, + - * / **, and {', '.join(FUNCTIONS)}"


def parse(text: str, variable: str = "x") -> Callable[[Tensor], Tensor]:
    """The function that a formula such as "x / sqrt(1 + x*x)" describes."""
    if len(text) > LONGEST:
        raise UserError(f"the formula has {len(text)} characters; accepted: at most {LONGEST}")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        function = _compiled(tree, variable)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise UserError(f'"{text}" is not a formula; accepted: {_ACCEPTED}') from None
    if not any(isinstance(node, ast.Name) and node.id == variable for node in ast.walk(tree)):
        raise UserError(f'"{text}" does not contain {variable}; accepted: a formula in {variable}')
    return function


def _compiled(node: ast.expr, variable: str) -> Callable[[Tensor], Tensor]:
    """The tree as nested functions."""
    match node:
        case ast.Constant() | ast.Name():
            return _leaf(node, variable)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            inner = _compiled(operand, variable)
            return lambda x: -inner(x)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _compiled(operand, variable)
        case ast.BinOp(left=base, op=ast.Pow(), right=exponent):
            power = _power(exponent)
            root = _compiled(base, variable)
            return lambda x: root(x) ** power
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _OPERATORS:
            combine, one, two = _OPERATORS[type(operator)], _compiled(left, variable), _compiled(right, variable)
            return lambda x: combine(one(x), two(x))
        case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]):
            return _call(name, _compiled(argument, variable))
    raise UserError(f'"{ast.unparse(node)}" is not accepted in a formula; accepted: {_ACCEPTED}')


def _leaf(node: ast.Constant | ast.Name, variable: str) -> Callable[[Tensor], Tensor]:
    if isinstance(node, ast.Name):
        if node.id == variable:
            return lambda x: x
        if node.id not in CONSTANTS:
            accepted = _ACCEPTED.replace("x, ", f"{variable}, ", 1)
            raise UserError(f'unknown name "{node.id}" in the formula; accepted: {accepted}')
        number = CONSTANTS[node.id]
    else:
        number = _number(node)
    return lambda x: torch.full_like(x, number)


def _number(node: ast.Constant) -> float:
    if isinstance(node.value, bool) or not isinstance(node.value, int | float):
        raise UserError(f"{node.value!r} is not accepted in a formula; accepted: {_ACCEPTED}")
    try:
        number = float(node.value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise UserError("a number in the formula overflows; accepted: finite numbers")
    return number


def _power(node: ast.expr) -> float:
    """An exponent: a small constant such as 2, 0.5, -1 or 1/3."""
    match node:
        case ast.Constant():
            power = _number(node)
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            power = -_power(inner)
        case ast.BinOp(left=ast.Constant() as left, op=ast.Div(), right=ast.Constant() as right) if right.value:
            power = _number(left) / _number(right)
        case _:
            raise UserError(
                f'the exponent "{ast.unparse(node)}" is not accepted; accepted: a constant such as 2, 0.5, 1/3'
            )
    if abs(power) > LARGEST_POWER:
        raise UserError(f"the exponent {power:g} is not accepted; accepted: constants from -8 to 8")
    return power


def _call(name: str, inner: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    if name not in FUNCTIONS:
        raise unknown_name("function", name, FUNCTIONS)
    function = FUNCTIONS[name]
    return lambda x: function(inner(x))
