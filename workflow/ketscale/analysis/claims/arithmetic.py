"""Evaluates the arithmetic of claims that need no run: numbers, + - * / // **, ceil and floor."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable
from typing import Any

_BINARY: dict[type[ast.operator], Callable[[Any, Any], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
}
_FUNCTIONS: dict[str, Callable[[float], int]] = {"ceil": math.ceil, "floor": math.floor}


def evaluate(text: str) -> float:
    """The value of an expression such as 'ceil(1492 / 128)'.

    Raises:
        ValueError: the text is not such an expression.
    """
    try:
        return float(_value(ast.parse(text, mode="eval").body))
    except (SyntaxError, ZeroDivisionError):
        raise ValueError(f"{text!r} is not arithmetic") from None


def _value(node: ast.expr) -> float:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return number
        case ast.BinOp(left, op, right) if type(op) in _BINARY:
            return _BINARY[type(op)](_value(left), _value(right))
        case ast.Call(ast.Name(name), [argument], []) if name in _FUNCTIONS:
            return _FUNCTIONS[name](_value(argument))
    raise ValueError(f"{ast.unparse(node)!r} is not arithmetic: use numbers, + - * / // **, ceil and floor")
