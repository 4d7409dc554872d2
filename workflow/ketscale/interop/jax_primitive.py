"""Circuits as primitives of JAX: their derivatives along tangents, and the gradients of these, in any transformation.

With F the result of a circuit, D_k(t_1, ..., t_k) is F's derivative along k tangents, and P_k(c; t_1, ..., t_k) the gradient
of c . D_k. Each is linear in everything but the point, and symmetric in the tangents, so two primitives are closed under
JAX's rules: differentiating D_k or P_k adds a tangent, transposing makes P_(k-1) of D_k and D_(k+1) of P_k.

Operands are blocks of angles (..., columns), whose columns, one block after the other, are the circuit's inputs, and
perhaps an initial state (..., 2**n). Their leading dimensions are equally many, and broadcast. So vmap adds one in front,
and which samples share angles is read from the shapes, when the call is compiled (`jax_kernels`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir, xla

from ketscale.engines.circuits.circuit import Circuit
from ketscale.engines.circuits.fused.higher import Terms, changes
from ketscale.interop import jax_kernels

derivative_p = Primitive("ketscale_derivative")
gradient_p = Primitive("ketscale_gradient")
gradient_p.multiple_results = True


def evaluate(circuit: Circuit, words: tuple[str, ...] | None, *operands: Any) -> Any:
    """Expectation values (..., words), or without words states (..., 2**n), of blocks of angles and an initial state.

    circuit: without weights. operands: as the module says, all of one precision.
    """
    return _bound(Terms(list(operands), []), circuit, words)


def _bound(terms: Terms, circuit: Circuit, words: Any, wanted: tuple[bool, ...] | None = None) -> Any:
    """D_k, or with a cotangent P_k, whose gradients by the `wanted` operands are a list."""
    flags = tuple(tuple(each is not None for each in tangent) for tangent in terms.tangents)
    given = [each for tangent in terms.tangents for each in tangent if each is not None]
    parameters = {"circuit": circuit, "words": words, "count": len(terms.point), "tangents": flags}
    if terms.cotangent is None:
        return derivative_p.bind(*terms.point, *given, **parameters)
    return gradient_p.bind(*terms.point, *given, terms.cotangent, **parameters, wanted=wanted)


def _terms(operands: Sequence[Any], count: int, tangents: Any) -> Terms:
    """The operands of a primitive in their places."""
    rest = iter(operands[count:])
    found = [[next(rest) if there else None for there in flags] for flags in tangents]
    return Terms(list(operands[:count]), found, next(rest, None))


@derivative_p.def_abstract_eval
def _value(*avals: Any, circuit: Circuit, words: tuple[str, ...] | None, **_: Any) -> Any:
    leading = jnp.broadcast_shapes(*(aval.shape[:-1] for aval in avals))
    real = avals[0].dtype
    if words is None:
        return jax.core.ShapedArray((*leading, 2**circuit.qubits), jnp.result_type(real, jnp.complex64))
    return jax.core.ShapedArray((*leading, len(words)), real)


@gradient_p.def_abstract_eval
def _gradients(*avals: Any, wanted: tuple[bool, ...], **_: Any) -> Any:
    pairs = zip(avals, wanted, strict=False)
    return [jax.core.ShapedArray(aval.shape, aval.dtype) for aval, there in pairs if there]


# --- vmap ---


def _batch_derivative(operands: Sequence[Any], dims: Sequence[Any], **parameters: Any) -> Any:
    return derivative_p.bind(*_in_front(operands, dims), **parameters), 0


def _batch_gradient(operands: Sequence[Any], dims: Sequence[Any], **parameters: Any) -> Any:
    moved, wanted = _in_front(operands, dims), parameters["wanted"]
    size = next(op.shape[dim] for op, dim in zip(operands, dims, strict=True) if dim is not None)
    # Each copy has a gradient of its own.
    for number, there in enumerate(wanted):
        if there:
            moved[number] = jnp.broadcast_to(moved[number], (size, *moved[number].shape[1:]))
    return gradient_p.bind(*moved, **parameters), [0] * sum(wanted)


def _in_front(operands: Sequence[Any], dims: Sequence[Any]) -> list[Any]:
    """The operands with the new dimension in front, of size 1 for those that all copies share."""
    return [
        jnp.expand_dims(op, 0) if dim is None else jnp.moveaxis(op, dim, 0)
        for op, dim in zip(operands, dims, strict=True)
    ]


# --- jvp ---


def _derive(primitive: Primitive) -> Any:
    def rule(operands: Sequence[Any], moves: Sequence[Any], **parameters: Any) -> Any:
        circuit, words, wanted = parameters["circuit"], parameters["words"], parameters.get("wanted")
        places = parameters["count"], parameters["tangents"]
        moved = [None if type(move) is ad.Zero else move for move in moves]
        value = primitive.bind(*operands, **parameters)
        terms = [
            _bound(change, circuit, words, wanted)
            for change in changes(_terms(operands, *places), _terms(moved, *places))
        ]
        return value, jax.tree.map(lambda *each: sum(each[1:], each[0]), *terms)

    return rule


# --- transposes ---


def _transpose_derivative(cotangent: Any, *operands: Any, **parameters: Any) -> Any:
    terms, number = _linear(operands, parameters)
    assert number is not None
    others = [tangent for n, tangent in enumerate(terms.tangents) if n != number]
    found = _pulled(terms._replace(tangents=others, cotangent=cotangent), terms.tangents[number], parameters)
    return _placed(terms, number, found)


def _transpose_gradient(cotangents: Sequence[Any], *operands: Any, **parameters: Any) -> Any:
    terms, number = _linear(operands, parameters)
    given = iter(cotangents)
    along = [next(given) if there else None for there in parameters["wanted"]]
    along = [None if type(each) is ad.Zero else each for each in along]
    if number is not None:
        tangents = [along if n == number else tangent for n, tangent in enumerate(terms.tangents)]
        found = _pulled(terms._replace(tangents=tangents), terms.tangents[number], parameters)
        return [*_placed(terms, number, found), None]
    moved = Terms(terms.point, [*terms.tangents, along])
    value = _bound(moved, parameters["circuit"], parameters["words"])
    return [*[None] * (len(operands) - 1), jnp.broadcast_to(value, terms.cotangent.aval.shape)]


def _linear(operands: Sequence[Any], parameters: Any) -> tuple[Terms, int | None]:
    """The operands, and the number of the tangent in which a primitive is transposed; None for the cotangent."""
    terms = _terms(operands, parameters["count"], parameters["tangents"])
    numbers = [n for n, tangent in enumerate(terms.tangents) if any(map(ad.is_undefined_primal, tangent))]
    return terms, numbers[0] if numbers else None


def _pulled(terms: Terms, unknown: Sequence[Any], parameters: Any) -> list[Any]:
    """The gradients by the operands whose tangents are unknown, of the shapes of these tangents; None for the others."""
    wanted = tuple(map(ad.is_undefined_primal, unknown))
    primals = [
        jnp.broadcast_to(primal, each.aval.shape) if there else primal
        for primal, each, there in zip(terms.point, unknown, wanted, strict=True)
    ]
    found = iter(_bound(terms._replace(point=primals), parameters["circuit"], parameters["words"], wanted))
    return [next(found) if there else None for there in wanted]


def _placed(terms: Terms, number: int | None, found: list[Any]) -> list[Any]:
    """A transposition's results, one for each operand but the cotangent."""
    results: list[Any] = [None] * len(terms.point)
    for n, tangent in enumerate(terms.tangents):
        own = found if n == number else [None] * len(tangent)
        results += [value for value, each in zip(own, tangent, strict=True) if each is not None]
    return results


for primitive in (derivative_p, gradient_p):
    primitive.def_impl(partial(xla.apply_primitive, primitive))
    ad.primitive_jvps[primitive] = _derive(primitive)
batching.primitive_batchers[derivative_p] = _batch_derivative
batching.primitive_batchers[gradient_p] = _batch_gradient
ad.primitive_transposes[derivative_p] = _transpose_derivative
ad.primitive_transposes[gradient_p] = _transpose_gradient


def _lowered(multiple: bool) -> Any:
    def function(
        *operands: Any, circuit: Circuit, words: Any, count: int, tangents: Any, wanted: Any = None
    ) -> Any:
        return jax_kernels.arranged(circuit, words, _terms(operands, count, tangents), wanted)

    return mlir.lower_fun(function, multiple_results=multiple)


mlir.register_lowering(derivative_p, _lowered(False), platform="cpu")
mlir.register_lowering(gradient_p, _lowered(True), platform="cpu")
for primitive in (derivative_p, gradient_p):
    mlir.register_lowering(primitive, jax_kernels.refuse)
