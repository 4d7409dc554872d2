"""`ketscale.jax`: circuits as functions of JAX, by the kernels of `fused`, under jit, vmap, grad and jvp in any order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ketscale.engines.circuits.circuit import Circuit
from ketscale.engines.circuits.transforms import inputs_only
from ketscale.errors import UserError
from ketscale.optional import needed_for

with needed_for("ketscale.jax", "jax"):
    import jax.numpy as jnp

    from ketscale.interop.expressions import ParametrisedCircuit, check_circuit
    from ketscale.interop.jax_primitive import evaluate
    from ketscale.interop.layer import read_observables

if TYPE_CHECKING:
    from jax import Array
    from jax.typing import ArrayLike

    from ketscale.interop.layer import Observable

__all__ = ["expval", "state"]


# It takes inputs and weights, whichever a circuit has, and perhaps initial states.
Function = Callable[..., "Array"]


def expval(
    circuit: Circuit | ParametrisedCircuit, observables: Sequence[Observable] | None = None
) -> Function:
    """A function of angles in radians that gives a circuit's expectation values (..., outputs), real.

    It takes the inputs (..., circuit.inputs), if the circuit has any, then the weights (..., circuit.weights), if it has
    any, and perhaps `initial`, normalised states (..., 2**qubits) in place of |0...0>. Leading dimensions broadcast. All are
    jax.numpy.float32, or all float64; the states are complex. It runs on a CPU, without Python once it is compiled.
    A circuit with channels begins with |0...0>. If a strength is not from 0 to 1, a call raises JaxRuntimeError, which names it.

    observables: as for `ketscale.Layer`; None is Z on each wire.

    Raises:
        UserError: this is no circuit, or an observable does not fit; when called, the arguments do not.

    Example:
        >>> values = ketscale.jax.expval(ketscale.Circuit(1).ry(0, "x0").rx(0, "w0"))
        >>> inputs, weights = jnp.zeros((5, 1)), jnp.zeros(1)
        >>> jax.grad(lambda weights: jax.vmap(values, (0, None))(inputs, weights).sum())(weights).shape
        (1,)
    """
    check_circuit(circuit, "ketscale.jax.expval")
    words, sums = read_observables(observables, circuit.qubits)
    function = _function(circuit, words)
    if sums is None:
        return function
    table = sums.numpy()

    def weighted(*angles: ArrayLike, initial: ArrayLike | None = None) -> Array:
        values = function(*angles, initial=initial)
        return values @ jnp.asarray(table, values.dtype)

    return weighted


def state(circuit: Circuit | ParametrisedCircuit) -> Function:
    """As `expval`, but a function that gives the final states (..., 2**qubits), complex.

    Raises:
        UserError: this is no circuit; when called, the arguments do not fit.

    Example:
        >>> ketscale.jax.state(ketscale.Circuit(1).ry(0, "x0"))(jnp.zeros((5, 1))).shape
        (5, 2)
    """
    check_circuit(circuit, "ketscale.jax.state")
    if isinstance(circuit, Circuit) and circuit.noisy:
        raise UserError("a circuit with channels has no state vector: take ketscale.jax.expval")
    return _function(circuit, None)


def _function(circuit: Circuit | ParametrisedCircuit, words: tuple[str, ...] | None) -> Function:
    """The expectation values of words, or without words the final states."""
    widths = {
        name: width for name, width in (("inputs", circuit.inputs), ("weights", circuit.weights)) if width
    }
    columns = inputs_only(circuit.circuit if isinstance(circuit, ParametrisedCircuit) else circuit)

    def function(*angles: ArrayLike, initial: ArrayLike | None = None) -> Array:
        given = [jnp.asarray(each) for each in angles]
        if [each.shape[-1:] for each in given] != [(width,) for width in widths.values()]:
            wanted = " and ".join(f"{name} (..., {width})" for name, width in widths.items()) or "no angles"
            raise UserError(
                f"this circuit takes {wanted}, not {', '.join(str(each.shape) for each in given) or 'none'}"
            )
        # A weakly typed array, such as jnp.arange(3) * 0.1, would give way to float32 if both were joined at once.
        named = jnp.result_type(*given) if given else jnp.real(0.0 if initial is None else initial).dtype
        real = jnp.promote_types(named, jnp.float32)
        if real not in (jnp.float32, jnp.float64):
            raise UserError(f"angles are {real}: circuits take float32 or float64")
        operands = [each.astype(real) for each in given]
        if isinstance(circuit, ParametrisedCircuit):
            none = dict.fromkeys(("inputs", "weights"), jnp.zeros(0, real))
            blocks = circuit(**none | dict(zip(widths, operands, strict=True)), library=jnp)
            operands = [block for block in blocks if block.shape[-1]]
        operands = operands or [jnp.zeros(0, real)]
        if initial is not None:
            operands.append(jnp.asarray(initial, jnp.result_type(real, jnp.complex64)))
            if operands[-1].shape[-1:] != (2**circuit.qubits,):
                raise UserError(f"initial must be (..., {2**circuit.qubits}), not {operands[-1].shape}")
        most = max(each.ndim for each in operands)
        operands = [each.reshape((1,) * (most - each.ndim) + each.shape) for each in operands]
        found: Array = evaluate(columns, words, *operands)
        return found

    return function
