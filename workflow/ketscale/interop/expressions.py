"""Qiskit's expressions of parameters as functions of arrays, and circuits whose angles they are."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import nn

from ketscale.engines.circuits.circuit import Angles, Circuit, Column
from ketscale.errors import UserError, short

if TYPE_CHECKING:
    from qiskit.circuit import Parameter

# An angle as Qiskit gives it: a number or a ParameterExpression.
Expression = Any

# A calculation on a stack: each step puts a parameter or a constant on it, or is Qiskit's name of an operation.
Shape = tuple[str, ...]
PARAMETER, CONSTANT = "parameter", "constant"

# Operations on two operands, also with R before their names, and then the operands change places.
ON_TWO: dict[str, Callable[[Any, Any], Any]] = {
    "ADD": operator.add, "SUB": operator.sub, "MUL": operator.mul, "DIV": operator.truediv, "POW": operator.pow,
}  # fmt: skip
# Functions, by the names that torch, numpy and jax.numpy share.
ON_ONE = {
    "SIN": "sin", "COS": "cos", "TAN": "tan", "ASIN": "arcsin", "ACOS": "arccos", "ATAN": "arctan",
    "EXP": "exp", "LOG": "log", "ABS": "abs", "SIGN": "sign", "CONJ": "conj",
}  # fmt: skip


class Alike(NamedTuple):
    """The k expressions of one shape: for each parameter in it the k places, for each constant k values or one."""

    shape: Shape
    parameters: Sequence[Any]
    constants: Sequence[Any]


class Expressions:
    """Columns (..., columns), the values of expressions, as a function of the values (..., parameters) of parameters.

    Expressions that differ in parameters and constants alone are computed together. A value that is not real, such as
    that of log(t) at -1, is NaN.

    parameters: in the order of the values.

    Raises:
        UserError: an expression has a constant that is complex or not finite, or Qiskit lost track of it.
    """

    def __init__(self, expressions: Sequence[Expression], parameters: Sequence[Parameter]) -> None:
        places = {parameter.name: place for place, parameter in enumerate(parameters)}
        shapes: dict[Shape, list[tuple[int, Alike]]] = {}
        for column, expression in enumerate(expressions):
            one = _read(expression, places)
            if not one.parameters:  # they cancel each other
                one = Alike((PARAMETER, CONSTANT, "MUL", CONSTANT, "ADD"), (0,), (0.0, *one.constants))
            shapes.setdefault(one.shape, []).append((column, one))
        self._alike = [
            Alike(
                shape,
                [np.array(each) for each in zip(*(one.parameters for _, one in same), strict=True)],
                [_one_or_all(each) for each in zip(*(one.constants for _, one in same), strict=True)],
            )
            for shape, same in shapes.items()
        ]
        columns = [column for same in shapes.values() for column, _ in same]
        self._order = None if columns == sorted(columns) else np.argsort(columns)
        # How many values are read.
        self.width = 1 + max(
            (int(places.max()) for one in self._alike for places in one.parameters), default=-1
        )

    def __call__(self, values: Any, library: Any = torch) -> Any:
        """The columns at these values; `library` is torch, numpy or jax.numpy, whichever has made them."""
        if not self._alike:
            return values[..., :0]
        table = partial(torch.as_tensor, device=values.device) if library is torch else library.asarray
        columns = [
            _value(
                shape,
                library,
                (values[..., table(places)] for places in parameters),
                (each if isinstance(each, float) else table(each, dtype=values.dtype) for each in constants),
            )
            for shape, parameters, constants in self._alike
        ]
        joined = columns[0] if len(columns) == 1 else library.concatenate(columns, -1)
        return joined if self._order is None else joined[..., table(self._order)]


def _one_or_all(values: tuple[float, ...]) -> float | np.ndarray[Any, Any]:
    return values[0] if len(set(values)) == 1 else np.array(values)


def _read(expression: Expression, places: Mapping[str, int]) -> Alike:
    """An expression alone, from the operations that Qiskit keeps for its files.

    Its own `sympify` confuses s - t**2 with t**2 - s, s + (t - t) with t in 2.2 and 2.3, and has no 2**s from 2.4 on.
    """
    name = str(expression)
    if any(name == each.name for each in expression.parameters):  # it keeps no operation of s + (t - t)
        return Alike((PARAMETER,), (places[name],), ())
    if not expression._qpy_replay:  # nor of s - s
        return _constant(expression.bind(dict.fromkeys(expression.parameters, 1.0)).numeric(), expression)
    stack: list[Alike] = []

    def operand(value: Any) -> Alike:
        if value is None:  # the last result
            return stack.pop()
        return _read(value, places) if getattr(value, "parameters", ()) else _constant(value, expression)

    for step in expression._qpy_replay:
        name = str(step.op).rpartition(".")[2]
        if name in ON_ONE:
            operands = [operand(step.lhs)]
        elif name.removeprefix("R") in ON_TWO:
            # The last result is the right operand.
            operands = [operand(step.rhs), operand(step.lhs)]
            operands = operands if name[0] == "R" else operands[::-1]
        else:
            raise UserError(f"angle {short(expression)} has the operation {name}, which is unknown here")
        steps, parameters, constants = (sum(parts, ()) for parts in zip(*operands, strict=True))
        joined = Alike((*steps, name.removeprefix("R")), parameters, constants)
        if not parameters:
            joined = _constant(_value(joined.shape, np, iter(()), iter(constants)), expression)
        stack.append(joined)
    if len(stack) != 1:  # as with sign(1) in 2.3
        raise UserError(
            f"angle {short(expression)}: Qiskit lost track of it; write its constants as plain numbers"
        )
    return stack[0]


def _constant(value: Any, expression: Expression) -> Alike:
    number = complex(value)
    if number.imag or not isfinite(number.real):
        raise UserError(f"angle {short(expression)} has the constant {value}; angles are real")
    return Alike((CONSTANT,), (), (number.real,))


def _value(shape: Shape, library: Any, parameters: Iterator[Any], constants: Iterator[Any]) -> Any:
    stack: list[Any] = []
    for step in shape:
        if step == PARAMETER:
            stack.append(next(parameters))
        elif step == CONSTANT:
            stack.append(next(constants))
        elif step in ON_ONE:
            stack.append(getattr(library, ON_ONE[step])(stack.pop()))
        else:
            second = stack.pop()
            stack.append(ON_TWO[step](stack.pop(), second))
    return stack.pop()


class ParametrisedCircuit(nn.Module):
    """A circuit whose angles are expressions of named parameters; see `from_qiskit`.

    `ketscale.Layer`, the estimators and the functions of `ketscale.jax` take it in a Circuit's place. Called with values
    of the inputs (batch, inputs) and of the weights (weights,) it gives the Angles of `circuit`, differentiable in both.

    circuit: the gates, with a column for each expression.
    inputs, weights: the parameters in Qiskit's order, whose names become `input_names` and `weight_names`.
    columns: the column of each expression, in the order of the columns.

    Example:
        >>> t, written = Parameter("t"), qiskit.QuantumCircuit(1)
        >>> _ = written.ry(2 * t + 1, 0)
        >>> ketscale.from_qiskit(written).weight_names
        ('t',)
    """

    def __init__(
        self,
        circuit: Circuit,
        inputs: Sequence[Parameter],
        weights: Sequence[Parameter],
        columns: Mapping[Expression, Column],
    ) -> None:
        super().__init__()
        self.circuit = circuit
        # Qiskit's `assign_parameters` takes them.
        self.input_names = tuple(parameter.name for parameter in inputs)
        self.weight_names = tuple(parameter.name for parameter in weights)
        of_inputs, of_weights = (
            [each for each, column in columns.items() if column.kind == kind and column.index < used]
            for kind, used in (("input", circuit.inputs), ("weight", circuit.weights))
        )
        self._of_inputs = Expressions(of_inputs, [*inputs, *weights])
        self._of_weights = Expressions(of_weights, weights)

    @property
    def qubits(self) -> int:
        """Number of qubits."""
        return self.circuit.qubits

    @property
    def inputs(self) -> int:
        """Number of input parameters."""
        return len(self.input_names)

    @property
    def weights(self) -> int:
        """Number of weight parameters."""
        return len(self.weight_names)

    def forward(self, inputs: Any, weights: Any, library: Any = torch) -> Angles:
        """The angles of `circuit` at these values, whose leading dimensions broadcast; `library` has made them."""
        values = inputs
        if self._of_inputs.width > self.inputs:
            leading = np.broadcast_shapes(inputs.shape[:-1], weights.shape[:-1])
            both = [library.broadcast_to(each, (*leading, each.shape[-1])) for each in (inputs, weights)]
            values = library.concatenate(both, -1)
        return Angles(self._of_inputs(values, library), self._of_weights(weights, library))


def check_circuit(circuit: Any, taker: str) -> None:
    """Raise UserError if what `taker` was given is no circuit."""
    if not isinstance(circuit, Circuit | ParametrisedCircuit):
        raise UserError(
            f"{taker} needs a ketscale.Circuit, not {type(circuit).__name__}: convert one of Qiskit's by from_qiskit; "
            f"for a QNode call from_qnode in place of {taker}"
        )
