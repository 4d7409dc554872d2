"""Circuits as primitives of JAX: their values, derivatives along tangents, and gradients, in any transformation.

Values F and gradients are calls of kernels. Derivatives along tangents are linear in these, and their transposes are
gradients. Where JAX differentiates those two, blocks of a few angles that turn one rotation each are shifted, as in
`fused.hessians`, which has the rule; others go through F in JAX's own operators (`jax_hessians`). So there is every order.

Operands are blocks of angles (..., columns), whose columns, one block after the other, are the circuit's inputs, and
perhaps an initial state (..., 2**n). Their leading dimensions are equally many, and broadcast. So vmap adds one in front,
and which samples share angles is read from the shapes, when the call is compiled (`jax_kernels`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from operator import add
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir, xla

from ketscale.engines.circuits.circuit import Circuit
from ketscale.engines.circuits.fused.hessians import Shifts, shifts_of
from ketscale.engines.circuits.fused.jax_hessians import Shifted, plain, side_by_side
from ketscale.engines.noise import density
from ketscale.errors import UserError
from ketscale.interop import jax_kernels

# A function of the operands.
values_p = Primitive("ketscale_values")
# A function of the operands, then of a tangent for each of `which`.
tangent_p = Primitive("ketscale_tangent")
# A function of the operands and a cotangent of the values, which gives a gradient for each of `which`.
gradients_p = Primitive("ketscale_gradients")

Moves = dict[int, Any]  # tangents by the numbers of their operands
_sum = partial(reduce, add)


def evaluate(circuit: Circuit, words: tuple[str, ...] | None, *operands: Any) -> Any:
    """Expectation values (..., words), or without words states (..., 2**n), of blocks of angles and an initial state.

    circuit: without weights. operands: as the module says, all of one precision.

    With channels: without words Pauli vectors (..., 4**n); from |0...0> alone, by JAX's own operators beyond gradients.
    """
    if circuit.noisy and jnp.iscomplexobj(operands[-1]):
        raise UserError("a circuit with channels begins with |0...0>: leave out the initial state")
    return values_p.bind(*operands, circuit=circuit, words=words)


def _results(*avals: Any, circuit: Circuit, words: tuple[str, ...] | None, **_: Any) -> Any:
    leading = jnp.broadcast_shapes(*(aval.shape[:-1] for aval in avals))
    columns, dtype = jax_kernels.outputs(circuit, words, avals[0].dtype)
    return jax.core.ShapedArray((*leading, columns), dtype)


def _gradient_results(*avals: Any, which: tuple[int, ...], **_: Any) -> Any:
    return [jax.core.ShapedArray(avals[number].shape, avals[number].dtype) for number in which]


def _along(point: Sequence[Any], moves: Moves, **request: Any) -> Any:
    """F's derivative along tangents, linear in these."""
    return tangent_p.bind(*point, *moves.values(), which=tuple(moves), **request)


def _gradients(point: Sequence[Any], cotangent: Any, which: Sequence[int], **request: Any) -> list[Any]:
    gradients: list[Any] = gradients_p.bind(*point, cotangent, which=tuple(which), **request)
    return gradients


# --- vmap ---


def _batch(primitive: Primitive, operands: Sequence[Any], dims: Sequence[Any], **parameters: Any) -> Any:
    # The new dimension is in front, of size 1 for operands that all copies share.
    aligned = [
        jnp.expand_dims(op, 0) if dim is None else jnp.moveaxis(op, dim, 0)
        for op, dim in zip(operands, dims, strict=True)
    ]
    if not primitive.multiple_results:
        return primitive.bind(*aligned, **parameters), 0
    size = next(op.shape[dim] for op, dim in zip(operands, dims, strict=True) if dim is not None)
    # Each copy has a gradient of its own.
    for number in parameters["which"]:
        aligned[number] = jnp.broadcast_to(aligned[number], (size, *aligned[number].shape[1:]))
    results = primitive.bind(*aligned, **parameters)
    return results, [0] * len(results)


# --- F's derivatives, by shifts and by JAX's operators ---


def _shifts(point: Sequence[Any], circuit: Circuit, words: Any) -> dict[int, Shifts]:
    """The blocks that are shifted, by number."""
    first, by_number = 0, {}
    for number, block in enumerate(point):
        if not circuit.noisy and not jnp.iscomplexobj(block):
            shifts = shifts_of(circuit, words, "input", range(first, first + block.shape[-1]))
            if shifts is not None:
                by_number[number] = shifts
        first += block.shape[-1]
    return by_number


def _plain(*operands: Any, circuit: Circuit, words: tuple[str, ...] | None) -> Any:
    """The values in JAX's own operators, differentiable to any order."""
    if not circuit.noisy:
        return plain(*operands, circuit=circuit, words=words)
    return density.call_of(circuit, words).plain(side_by_side(operands), jnp)


def _derivative(*point: Any, moves: Moves, **request: Any) -> Any:
    """As `_along`, in functions of JAX's."""
    shifts, terms = _shifts(point, **request), []
    for number in [number for number in moves if number in shifts]:
        shifted = Shifted(point, number, shifts[number])
        terms.append(shifted.along(values_p.bind(*shifted.point, **request), moves[number]))
    rest = {number: move for number, move in moves.items() if number not in shifts}
    if rest:
        # A tangent may have dimensions that its operand lacks, and the other way round.
        every = [
            jnp.broadcast_arrays(each, moves[number])[0] if number in rest else each
            for number, each in enumerate(point)
        ]
        along = {number: jnp.broadcast_to(move, every[number].shape) for number, move in rest.items()}
        terms.append(_pushed(partial(_plain, **request), every, along))
    return _sum(terms)


def _second(
    point: Sequence[Any], cotangent: Any, which: Sequence[int], moves: Moves, **request: Any
) -> list[Any]:
    """How the gradients by the operands `which` change along tangents."""
    shifts, rest = _shifts(point, **request), dict(moves)
    terms: dict[int, list[Any]] = {number: [] for number in which}
    for number in [number for number in moves if number in shifts and tuple(which) == (number,)]:
        # Not along: vmap maps the tangent and not the point, which then needs no further call.
        shifted = Shifted(point, number, shifts[number])
        (slopes,) = _gradients(shifted.point, cotangent[None], which, **request)
        terms[number].append(shifted.along(slopes, rest.pop(number)))
    by_shifts, others = (
        {n: move for n, move in rest.items() if (n in shifts) is is_} for is_ in (True, False)
    )
    unshifted = [number for number in which if number not in shifts]
    for numbers, some in ((which, by_shifts), (unshifted, others)):
        if numbers and some:
            function = _of(numbers, point, partial(_derivative, moves=some, **request))
            values, pull = jax.vjp(function, *(point[number] for number in numbers))
            # All copies of a point may share a cotangent.
            pulled = pull(jnp.broadcast_to(cotangent, values.shape))
            for number, each in zip(numbers, pulled, strict=True):
                terms[number].append(each)
    for number in [number for number in which if number in shifts and others]:
        shifted = Shifted(point, number, shifts[number])
        changes = _along(shifted.point, {n: move[None] for n, move in others.items()}, **request)
        slopes = shifted.slopes((changes * cotangent).sum(-1))
        terms[number].append(jax_kernels.summed(slopes, point[number].shape))
    return [_sum(terms[number]) for number in which]


def _pushed(function: Callable[..., Any], point: Sequence[Any], moves: Moves) -> Any:
    """A function's derivative along tangents of some operands."""
    at = [point[number] for number in moves]
    return jax.jvp(_of(moves, point, function), at, [*moves.values()])[1]


def _of(numbers: Any, point: Sequence[Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of some operands alone."""

    def of_some(*some: Any) -> Any:
        by_number = dict(zip(numbers, some, strict=True))
        return function(*(by_number.get(number, each) for number, each in enumerate(point)))

    return of_some


# --- jvp ---


def _moves(operands: Sequence[Any], numbers: Sequence[int] | None = None) -> Moves:
    every = range(len(operands)) if numbers is None else numbers
    return {n: x for n, x in zip(every, operands, strict=True) if type(x) is not ad.Zero}


def _derive_values(point: Sequence[Any], tangents: Sequence[Any], **request: Any) -> Any:
    values = values_p.bind(*point, **request)
    return values, _along(point, _moves(tangents), **request)


def _derive_tangent(
    operands: Sequence[Any], changes: Sequence[Any], *, which: tuple[int, ...], **request: Any
) -> Any:
    count = len(operands) - len(which)
    point, moves = operands[:count], dict(zip(which, operands[count:], strict=True))
    terms, along, changed = [], _moves(changes[count:], which), _moves(changes[:count])
    if along:
        terms.append(_along(point, along, **request))
    if changed:
        terms.append(_pushed(partial(_derivative, moves=moves, **request), point, changed))
    return _along(point, moves, **request), _sum(terms)


def _derive_gradients(
    operands: Sequence[Any], changes: Sequence[Any], *, which: tuple[int, ...], **request: Any
) -> Any:
    *point, cotangent = operands
    moves, terms = _moves(changes[:-1]), []
    if type(changes[-1]) is not ad.Zero:
        terms.append(_gradients(point, changes[-1], which, **request))
    if moves:
        terms.append(_second(point, cotangent, which, moves, **request))
    gradients = _gradients(point, cotangent, which, **request)
    return gradients, list(map(_sum, zip(*terms, strict=True)))


# --- transposes ---


def _transpose_tangent(cotangent: Any, *operands: Any, which: tuple[int, ...], **request: Any) -> Any:
    count = len(operands) - len(which)
    unknown = {n: x for n, x in zip(which, operands[count:], strict=True) if ad.is_undefined_primal(x)}
    point = [
        jnp.broadcast_to(each, jnp.broadcast_shapes(each.shape, unknown[number].aval.shape))
        if number in unknown
        else each
        for number, each in enumerate(operands[:count])
    ]
    gradients = dict(zip(unknown, _gradients(point, cotangent, [*unknown], **request), strict=True))
    results = (
        jax_kernels.summed(gradients[number], unknown[number].aval.shape) if number in gradients else None
        for number in which
    )
    return [*[None] * count, *results]


def _transpose_gradients(
    cotangents: Sequence[Any], *operands: Any, which: tuple[int, ...], **request: Any
) -> Any:
    *point, unknown = operands
    value = _along(point, _moves(cotangents, which), **request)
    return [*[None] * len(point), jax_kernels.summed(value, unknown.aval.shape)]


# --- the rules ---


def _lowered_tangent(*operands: Any, which: tuple[int, ...], **request: Any) -> Any:
    count = len(operands) - len(which)
    return _derivative(*operands[:count], moves=dict(zip(which, operands[count:], strict=True)), **request)


for _primitive, _abstract, _jvp, _lower in (
    (values_p, _results, _derive_values, jax_kernels.values),
    (tangent_p, _results, _derive_tangent, _lowered_tangent),
    (gradients_p, _gradient_results, _derive_gradients, jax_kernels.gradients),
):
    _primitive.multiple_results = _primitive is gradients_p
    _primitive.def_abstract_eval(_abstract)
    _primitive.def_impl(partial(xla.apply_primitive, _primitive))
    ad.primitive_jvps[_primitive] = _jvp
    batching.primitive_batchers[_primitive] = partial(_batch, _primitive)
    _lowering = mlir.lower_fun(_lower, multiple_results=_primitive.multiple_results)
    mlir.register_lowering(_primitive, _lowering, platform="cpu")
ad.primitive_transposes[tangent_p] = _transpose_tangent
ad.primitive_transposes[gradients_p] = _transpose_gradients
