"""Qiskit's expressions of parameters as functions of arrays, and circuits whose angles they are."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import nn

from ketscale.engines.circuits.circuit import Angles, Circuit, Column
from ketscale.errors import UserError, short
from ketscale.private_torch import transforms_active

if TYPE_CHECKING:
    from qiskit.circuit import Parameter

# An angle as Qiskit gives it: a number or a ParameterExpression.
Expression = Any

# The name of a function and the shapes of its arguments; an exponent that is a number stands for itself.
Shape = tuple[Any, ...]
PARAMETER: Shape = ("parameter",)
CONSTANT: Shape = ("constant",)

# sympy's names of what Qiskit's expressions have. Functions are by the names that torch, numpy and jax.numpy share.
OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add,
    "Mul": operator.mul,
    "Pow": operator.pow,
}
FUNCTIONS = {
    "sin": "sin", "cos": "cos", "tan": "tan", "asin": "arcsin", "acos": "arccos", "atan": "arctan",
    "exp": "exp", "log": "log", "Abs": "abs", "sign": "sign",
}  # fmt: skip

# Qiskit's names of operations, since 2.2: those on two operands, which change places if an R precedes, and on one.
ON_TWO: dict[str, Callable[[Any, Any], Any]] = {
    "ADD": operator.add, "SUB": operator.sub, "MUL": operator.mul, "DIV": operator.truediv, "POW": operator.pow,
}  # fmt: skip
ON_ONE = {
    "SIN": "sin", "COS": "cos", "TAN": "tan", "ASIN": "asin", "ACOS": "acos", "ATAN": "atan",
    "EXP": "exp", "LOG": "log", "ABS": "Abs", "SIGN": "sign", "CONJ": "conjugate",
}  # fmt: skip


class Alike(NamedTuple):
    """The k expressions of one shape: for each parameter in it the k places, for each constant k values or one."""

    shape: Shape
    parameters: list[Any]
    constants: list[Any]


class Expressions:
    """Columns (..., columns), the values of expressions, as a function of the values (..., parameters) of parameters.

    Expressions that differ in parameters and constants alone are computed together. A value that is not real, such as
    that of log(t) at -1, is NaN.

    parameters: in the order of the values.

    Raises:
        UserError: an expression is complex or not finite, whatever its parameters are.
    """

    def __init__(self, expressions: Sequence[Expression], parameters: Sequence[Parameter]) -> None:
        named = {parameter.name: place for place, parameter in enumerate(parameters)}
        shapes: dict[Shape, list[tuple[int, list[int], list[float]]]] = {}
        for column, expression in enumerate(expressions):
            read: list[int] = []
            constants: list[float] = []
            try:
                shape = _shape(_sympified(expression), named, read, constants)
            except ArithmeticError as error:
                raise UserError(f"angle {short(expression)} {error}; angles are real") from None
            if shape == CONSTANT:  # the parameters cancel each other
                shape = "Add", ("Mul", PARAMETER, CONSTANT), CONSTANT
                read, constants = [0], [0.0, *constants]
            shapes.setdefault(shape, []).append((column, read, constants))
        self._alike = [
            Alike(
                shape,
                [np.array(places) for places in zip(*(one[1] for one in same), strict=True)],
                [_one_or_all(values) for values in zip(*(one[2] for one in same), strict=True)],
            )
            for shape, same in shapes.items()
        ]
        columns = [column for same in shapes.values() for column, _, _ in same]
        self._order = None if columns == sorted(columns) else np.argsort(columns)
        # How many values are read.
        self.width = 1 + max(
            (int(places.max()) for one in self._alike for places in one.parameters), default=-1
        )
        self._tensors: dict[tuple[torch.device, torch.dtype], tuple[list[Alike], torch.Tensor | None]] = {}

    def __call__(self, values: Any, library: Any = torch) -> Any:
        """The columns at these values; `library` is torch, numpy or jax.numpy, whichever has made them."""
        if not self._alike:
            return values[..., :0]
        alike, order = self._for_torch(values) if library is torch else (self._alike, self._order)
        columns = [
            _value(
                shape,
                library,
                (values[..., places] for places in parameters),
                (
                    each if isinstance(each, float) else library.asarray(each, dtype=values.dtype)
                    for each in constants
                ),
            )
            for shape, parameters, constants in alike
        ]
        joined = columns[0] if len(columns) == 1 else library.concatenate(columns, -1)
        return joined if order is None else joined[..., order]

    def _for_torch(self, values: torch.Tensor) -> tuple[list[Alike], torch.Tensor | None]:
        """The tables as tensors, which take longer to make than a small circuit takes."""
        key = values.device, values.dtype
        if key in self._tensors:
            return self._tensors[key]

        def tensor(table: Any, dtype: torch.dtype) -> Any:
            if isinstance(table, float):
                return table
            return torch.as_tensor(table, dtype=dtype, device=values.device)

        # Autograd refuses what was made in inference mode.
        with torch.inference_mode(False):
            alike = [
                Alike(
                    shape,
                    [tensor(places, torch.int64) for places in parameters],
                    [tensor(each, values.dtype) for each in constants],
                )
                for shape, parameters, constants in self._alike
            ]
            order = None if self._order is None else tensor(self._order, torch.int64)
        # What torch traces with has no values to keep, and torch.func's tensors end with their transform.
        if not (torch.compiler.is_compiling() or transforms_active()):
            self._tensors[key] = alike, order
        return alike, order


def _sympified(expression: Expression) -> Any:
    """sympy's expression of Qiskit's, from the operations that Qiskit keeps for its files.

    Its own `sympify` takes s - t**2 for t**2 - s and t for s + (t - t) in 2.2 and 2.3, and has no 2**s from 2.4 on.

    Raises a UserError if these are no whole expression.
    """
    import sympy
    from qiskit.circuit import Parameter

    name = str(expression)
    if isinstance(expression, Parameter) or any(name == each.name for each in expression.parameters):
        # Qiskit's own symbols are complex: |exp(cos(s))| has a cosh with them. It keeps no operation of s + (t - t).
        return sympy.Symbol(name, real=True)
    done: list[Any] = []

    def operand(value: Any) -> Any:
        if value is None:
            return done.pop()
        return _sympified(value) if hasattr(value, "sympify") else sympy.sympify(value)

    for step in expression._qpy_replay:
        name = str(step.op).rpartition(".")[2]
        if name in ON_ONE:
            done.append(getattr(sympy, ON_ONE[name])(operand(step.lhs)))
        elif name.removeprefix("R") in ON_TWO:
            # The last result is the right operand.
            right = operand(step.rhs)
            pair = operand(step.lhs), right
            done.append(ON_TWO[name.removeprefix("R")](*(reversed(pair) if name[0] == "R" else pair)))
        else:  # of Qiskit 2.0 and 2.1
            return expression.sympify()
    if len(done) > 1:  # as with sign(1) in 2.3
        raise UserError(
            f"angle {short(expression)}: Qiskit lost track of it; write its constants as plain numbers"
        )
    return done.pop() if done else expression.sympify()


def _one_or_all(values: tuple[float, ...]) -> float | np.ndarray[Any, Any]:
    return values[0] if len(set(values)) == 1 else np.array(values)


def _shape(tree: Any, places: Mapping[str, int], parameters: list[int], constants: list[float]) -> Shape:
    """The shape of sympy's expression, whose parameters' places and constants are added in the order of reading.

    Raises:
        ArithmeticError: a number in it is complex or not finite.
    """
    if tree.is_Symbol:
        parameters.append(places[tree.name])
        return PARAMETER
    if not tree.free_symbols:
        constants.append(_real(tree))
        return CONSTANT
    name = tree.func.__name__
    if name in ("conjugate", "re"):
        return _shape(tree.args[0], places, parameters, constants)
    if name == "Pow" and not tree.args[1].free_symbols:
        return name, _shape(tree.args[0], places, parameters, constants), _real(tree.args[1])
    if name not in OPERATORS and name not in FUNCTIONS:
        raise ArithmeticError(f"has the function {name}, which Qiskit's own expressions lack")
    return name, *(_shape(argument, places, parameters, constants) for argument in tree.args)


def _real(number: Any) -> float:
    value = complex(number)
    if value.imag or not isfinite(value.real):
        raise ArithmeticError(f"has the constant {number}")
    return value.real


def _value(shape: Shape | float, library: Any, parameters: Iterator[Any], constants: Iterator[Any]) -> Any:
    if isinstance(shape, float):
        return shape
    if shape == PARAMETER:
        return next(parameters)
    if shape == CONSTANT:
        return next(constants)
    name, *arguments = shape
    values = [_value(argument, library, parameters, constants) for argument in arguments]
    if name in OPERATORS:
        return reduce(OPERATORS[name], values)
    return getattr(library, FUNCTIONS[name])(*values)


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
            f"{taker} takes a ketscale.Circuit, not {type(circuit).__name__}: convert one of Qiskit's by from_qiskit; "
            f"for a QNode call from_qnode in place of {taker}"
        )
