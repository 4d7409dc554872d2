"""Circuits as a primitive of JAX: their derivatives along tangents, and the gradients of these, in any transformation.

With F the result of a circuit, D_k(t_1, ..., t_k) is F's derivative along k tangents, and P_k(c; t_1, ..., t_k) the gradient
of c . D_k. Each is linear in everything but the point, and symmetric in the tangents, so the two are closed under JAX's
rules: differentiating D_k or P_k adds a tangent, transposing makes P_(k-1) of D_k and D_(k+1) of P_k.

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

# D_k, a list of one; or where gradients are wanted P_k, those by each wanted operand.
circuit_p = Primitive("ketscale_circuit")
circuit_p.multiple_results = True


def evaluate(circuit: Circuit, words: tuple[str, ...] | None, *operands: Any) -> Any:
    """Expectation values (..., words), or without words states (..., 2**n), of blocks of angles and an initial state.

    circuit: without weights. operands: as the module says, all of one precision.
    """
    return _bound(Terms(list(operands), []), circuit, words)[0]


def _bound(terms: Terms, circuit: Circuit, words: Any, wanted: tuple[bool, ...] | None = None) -> Any:
    """The primitive's results: D_k, or with a cotangent P_k, the gradients by the `wanted` operands."""
    flags = tuple(tuple(each is not None for each in tangent) for tangent in terms.tangents)
    given = [each for tangent in terms.tangents for each in tangent if each is not None]
    given += [] if terms.cotangent is None else [terms.cotangent]
    return circuit_p.bind(
        *terms.point,
        *given,
        circuit=circuit,
        words=words,
        count=len(terms.point),
        tangents=flags,
        wanted=wanted,
    )


def _terms(operands: Sequence[Any], count: int, tangents: Any) -> Terms:
    """The operands of the primitive in their places."""
    rest = iter(operands[count:])
    found = [[next(rest) if there else None for there in flags] for flags in tangents]
    return Terms(list(operands[:count]), found, next(rest, None))


@circuit_p.def_abstract_eval
def _results(
    *avals: Any, circuit: Circuit, words: tuple[str, ...] | None, wanted: tuple[bool, ...] | None, **_: Any
) -> Any:
    if wanted is not None:
        pairs = zip(avals, wanted, strict=False)
        return [jax.core.ShapedArray(aval.shape, aval.dtype) for aval, there in pairs if there]
    leading = jnp.broadcast_shapes(*(aval.shape[:-1] for aval in avals))
    real = avals[0].dtype
    if words is None:
        return [jax.core.ShapedArray((*leading, 2**circuit.qubits), jnp.result_type(real, jnp.complex64))]
    return [jax.core.ShapedArray((*leading, len(words)), real)]


# --- vmap ---


def _batch(operands: Sequence[Any], dims: Sequence[Any], **parameters: Any) -> Any:
    # The new dimension is in front, of size 1 for operands that all copies share.
    moved = [
        jnp.expand_dims(op, 0) if dim is None else jnp.moveaxis(op, dim, 0)
        for op, dim in zip(operands, dims, strict=True)
    ]
    size = next(op.shape[dim] for op, dim in zip(operands, dims, strict=True) if dim is not None)
    # Each copy has a gradient of its own.
    for number, there in enumerate(parameters["wanted"] or ()):
        if there:
            moved[number] = jnp.broadcast_to(moved[number], (size, *moved[number].shape[1:]))
    found = circuit_p.bind(*moved, **parameters)
    return found, [0] * len(found)


# --- jvp ---


def _derive(operands: Sequence[Any], moves: Sequence[Any], **parameters: Any) -> Any:
    circuit, words, wanted = parameters["circuit"], parameters["words"], parameters["wanted"]
    places = parameters["count"], parameters["tangents"]
    moved = [None if type(move) is ad.Zero else move for move in moves]
    values = circuit_p.bind(*operands, **parameters)
    terms = [
        _bound(change, circuit, words, wanted)
        for change in changes(_terms(operands, *places), _terms(moved, *places))
    ]
    return values, [sum(each[1:], each[0]) for each in zip(*terms, strict=True)]


# --- transposes ---


def _transpose(cotangents: Sequence[Any], *operands: Any, **parameters: Any) -> Any:
    terms = _terms(operands, parameters["count"], parameters["tangents"])
    # The tangent in which the primitive is transposed; None for the cotangent.
    number = next(
        (n for n, tangent in enumerate(terms.tangents) if any(map(ad.is_undefined_primal, tangent))), None
    )
    if parameters["wanted"] is None:
        assert number is not None
        others = [tangent for n, tangent in enumerate(terms.tangents) if n != number]
        pulled = terms._replace(tangents=others, cotangent=cotangents[0])
        return _placed(terms, number, _pulled(pulled, terms.tangents[number], parameters))
    given = iter(cotangents)
    along = [next(given) if there else None for there in parameters["wanted"]]
    along = [None if type(each) is ad.Zero else each for each in along]
    if number is not None:
        tangents = [along if n == number else tangent for n, tangent in enumerate(terms.tangents)]
        found = _pulled(terms._replace(tangents=tangents), terms.tangents[number], parameters)
        return [*_placed(terms, number, found), None]
    moved = Terms(terms.point, [*terms.tangents, along])
    (value,) = _bound(moved, parameters["circuit"], parameters["words"])
    return [*[None] * (len(operands) - 1), jnp.broadcast_to(value, terms.cotangent.aval.shape)]


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


def _lowered(
    *operands: Any, circuit: Circuit, words: Any, count: int, tangents: Any, wanted: Any
) -> Sequence[Any]:
    return jax_kernels.arranged(circuit, words, _terms(operands, count, tangents), wanted)


circuit_p.def_impl(partial(xla.apply_primitive, circuit_p))
ad.primitive_jvps[circuit_p] = _derive
ad.primitive_transposes[circuit_p] = _transpose
batching.primitive_batchers[circuit_p] = _batch
mlir.register_lowering(circuit_p, mlir.lower_fun(_lowered, multiple_results=True), platform="cpu")
mlir.register_lowering(circuit_p, jax_kernels.refuse)
