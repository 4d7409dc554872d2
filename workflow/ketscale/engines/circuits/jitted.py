"""PennyLane's default.qubit in `jax.jit`: the circuit of one sample, compiled for all of them under `jax.vmap`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any, TypeAlias

import torch

from ketscale.engines.circuits.checks import check_request, no_rows, one_gradient
from ketscale.engines.circuits.circuit import Angles, Circuit
from ketscale.engines.circuits.pennylane import quantum_function
from ketscale.engines.circuits.simulator import CircuitPullBack
from ketscale.optional import needed_for
from ketscale.private_torch import transforms_active

with needed_for("simulator default.qubit-jit", "jax"):
    import jax
    import jax.experimental
    import jax.numpy as jnp
with needed_for("simulator default.qubit-jit"):
    import pennylane as qml

# From so many amplitudes on, all samples together, what the forward pass leaves for the backward pass is kept. Below,
# handing over its some hundred arrays takes longer than to compute them again in one program with the gradient.
KEPT_FROM = 2**12

# By which arrays a derivative is asked for.
Wanted: TypeAlias = tuple[bool, ...]

# JAX's context of double precision, which JAX 0.6 has among its experiments.
_precision: Any = jax if hasattr(jax, "enable_x64") else jax.experimental
_in_double: Callable[[bool], AbstractContextManager[None]] = _precision.enable_x64


class Jitted:
    """default.qubit as JAX's users have it at its best, for torch: one compiled program for values, and one for gradients.

    The first call with a circuit compiles it, for some seconds; later ones take what is compiled for their shapes. All
    derivatives of any order, and torch.func's transforms, are JAX's own. Both precisions work, whatever JAX is set to.
    It computes on the CPU, with as many threads as the process may use cores when JAX starts.
    """

    stacks = True

    def state(self, circuit: Circuit, angles: Angles, initial: torch.Tensor | None = None) -> torch.Tensor:
        """See `Simulator.state`."""
        return self._evaluate(circuit, None, angles, initial)

    def expval(
        self, circuit: Circuit, angles: Angles, paulis: Sequence[str], initial: torch.Tensor | None = None
    ) -> torch.Tensor:
        """See `Simulator.expval`."""
        return self._evaluate(circuit, tuple(paulis), angles, initial)

    def vjp(
        self, circuit: Circuit, angles: Angles, paulis: tuple[str, ...]
    ) -> tuple[torch.Tensor, CircuitPullBack] | None:
        """See `simulator.vjp`; of one run."""
        if angles.inputs.ndim == 3 or len(angles.inputs) == 0:
            return None
        check_request(circuit, angles, None, paulis)
        wanted, kept = (True, True), _keeps(circuit, angles)
        function = _of_samples(circuit, paulis, None)
        (values,) = function.run(angles) if kept is None else function.keep(wanted, angles, kept)

        def back(cotangent: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            to_inputs, to_weights = function.pull(wanted, angles, (cotangent,), kept)
            return to_inputs, to_weights

        return values, back

    def _evaluate(
        self, circuit: Circuit, paulis: tuple[str, ...] | None, angles: Angles, initial: torch.Tensor | None
    ) -> torch.Tensor:
        """The state (if `paulis` is None) or the expectation values, one row per sample."""
        check_request(circuit, angles, initial, paulis)
        if len(angles.inputs) == 0:
            dtype = angles.inputs.dtype if paulis else angles.inputs.dtype.to_complex()
            return no_rows(angles, initial, len(paulis or ()) or 2**circuit.qubits, dtype)
        function = _of_samples(circuit, paulis, None if initial is None else initial.ndim)
        tensors = (*angles, *([] if initial is None else [initial]))
        recorded = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
        kept = _keeps(circuit, angles) if recorded and not transforms_active() else None
        values: torch.Tensor
        (values,) = _Call.apply(function, kept, *tensors)
        return values


def sample_function(circuit: Circuit, paulis: tuple[str, ...] | None) -> Callable[..., Any]:
    """A QNode on default.qubit as a function of JAX's arrays of one sample: inputs, weights, and perhaps an initial state.

    It gives the expectation values (words,), or the state (2**n,) if `paulis` is None.
    """
    device = qml.device("default.qubit", wires=circuit.qubits)
    qnode = qml.QNode(quantum_function(circuit, paulis), device, interface="jax", diff_method="backprop")

    def values(inputs: Any, weights: Any, initial: Any = None) -> Any:
        # In single precision JAX says of each matrix of PennyLane's that it is not kept in double precision.
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Explicitly requested dtype", UserWarning)
            found = qnode(inputs, weights, initial)
        return found if paulis is None else jnp.stack(found)

    return values


@lru_cache(maxsize=256)
def _of_samples(circuit: Circuit, paulis: tuple[str, ...] | None, initial: int | None) -> _Function:
    """The function of all samples. initial: the dimensions of the initial states, None without any."""
    axes = (0, None, *([] if initial is None else [0 if initial == 2 else None]))
    samples = jax.vmap(sample_function(circuit, paulis), axes)
    return _Function(lambda *arrays: (samples(*arrays),))


def _keeps(circuit: Circuit, angles: Angles) -> list[Any] | None:
    """A place for what the forward pass keeps for the backward pass, where that pays."""
    return [] if len(angles.inputs) * 2**circuit.qubits >= KEPT_FROM else None


class _Function:
    """A function from a tuple of JAX's arrays to another, and its program; complex gradients are torch's, not conjugated."""

    def __init__(self, traced: Callable[..., tuple[Any, ...]]) -> None:
        self.traced = traced
        self._program = jax.jit(traced)

    def run(self, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """The results for some tensors."""
        return tuple(map(torch.from_dlpack, _called(self._program, tensors)))

    def keep(
        self, wanted: Wanted, tensors: Sequence[torch.Tensor], kept: list[Any]
    ) -> tuple[torch.Tensor, ...]:
        """As `run`; `kept` gets what `pull` then needs."""
        values, rest = _called(_halves(self, wanted)[0], tensors)
        kept.append(rest)
        return tuple(map(torch.from_dlpack, values))

    def pull(
        self,
        wanted: Wanted,
        tensors: Sequence[torch.Tensor],
        cotangents: Sequence[torch.Tensor],
        kept: list[Any] | None,
    ) -> tuple[torch.Tensor, ...]:
        """The gradients by the tensors that are wanted."""
        if not kept:
            return _gradient(self, wanted).run((*tensors, *cotangents))
        return tuple(map(torch.from_dlpack, _called(_halves(self, wanted)[1], cotangents, *kept)))

    def by(self, wanted: Wanted, arrays: Sequence[Any]) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """The function of the wanted arrays alone, and these."""

        def partial(*chosen: Any) -> tuple[Any, ...]:
            given = iter(chosen)
            return self.traced(*(next(given) if want else x for x, want in zip(arrays, wanted, strict=True)))

        return partial, tuple(x for x, want in zip(arrays, wanted, strict=True) if want)


@lru_cache(maxsize=1024)
def _gradient(function: _Function, wanted: Wanted) -> _Function:
    """The function of the arrays, then the cotangents of the results, that gives the gradients."""

    def traced(*given: Any) -> tuple[Any, ...]:
        partial, chosen = function.by(wanted, given[: len(wanted)])
        return _conjugated(jax.vjp(partial, *chosen)[1](_conjugated(given[len(wanted) :])))

    return _Function(traced)


@lru_cache(maxsize=1024)
def _derivative(function: _Function, wanted: Wanted) -> _Function:
    """The function of the arrays, then the tangents of those that are wanted, that gives the results' tangents."""

    def traced(*given: Any) -> tuple[Any, ...]:
        partial, chosen = function.by(wanted, given[: len(wanted)])
        return tuple(jax.jvp(partial, chosen, given[len(wanted) :])[1])

    return _Function(traced)


@lru_cache(maxsize=1024)
def _mapped(function: _Function, axes: tuple[int | None, ...]) -> _Function:
    """The function of several members, (members, ...) where an axis says so."""
    return _Function(jax.vmap(function.traced, axes))


@lru_cache(maxsize=1024)
def _halves(function: _Function, wanted: Wanted) -> tuple[Any, Any]:
    """The programs of the forward pass, which gives arrays besides, and of the backward pass, which takes them.

    How those arrays make JAX's function is known from tracing one before the other: to hand over that function itself
    would take milliseconds.
    """
    known: dict[object, Any] = {}

    def forward(*arrays: Any) -> Any:
        partial, chosen = function.by(wanted, arrays)
        values, back = jax.vjp(partial, *chosen)
        rest, structure = jax.tree.flatten(back)
        known[_types((*values, *rest))] = structure
        return values, rest

    def backward(*given: Any) -> Any:
        *cotangents, rest = given
        structure = known[_types((*cotangents, *rest))]
        return _conjugated(jax.tree.unflatten(structure, rest)(_conjugated(cotangents)))

    return jax.jit(forward), jax.jit(backward)


def _called(program: Any, tensors: Sequence[torch.Tensor], *others: Any) -> Any:
    """The result of a program, complete, in the tensors' precision; for this call alone JAX is told of it.

    JAX takes NumPy's view of a tensor in a third of the time of dlpack's.
    """
    double = tensors[0].dtype in (torch.float64, torch.complex128)
    with _in_double(double):
        return jax.block_until_ready(program(*(tensor.numpy(force=True) for tensor in tensors), *others))


def _types(arrays: Sequence[Any]) -> tuple[tuple[Any, ...], ...]:
    return tuple((array.shape, array.dtype) for array in arrays)


def _conjugated(arrays: Sequence[Any]) -> tuple[Any, ...]:
    """JAX's gradients by complex numbers are the conjugates of torch's."""
    return tuple(map(jnp.conj, arrays))


class _Call(torch.autograd.Function):
    """Calls a function of JAX's on tensors, and hands on to JAX how torch transforms it."""

    @staticmethod
    def forward(
        function: _Function, kept: list[Any] | None, *tensors: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        if kept is None:
            return function.run(tensors)
        return function.keep(tuple(tensor.requires_grad for tensor in tensors), tensors, kept)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
        ctx.function, ctx.kept, *tensors = inputs
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        for cotangent in cotangents:
            one_gradient("simulator 'default.qubit-jit'", cotangent)
        tensors, wanted = ctx.saved_tensors, tuple(ctx.needs_input_grad[2:])
        if torch.is_grad_enabled() or not ctx.kept:
            found = _Call.apply(_gradient(ctx.function, wanted), None, *tensors, *cotangents)
        else:
            found = ctx.function.pull(wanted, tensors, cotangents, ctx.kept)
        gradients = iter(found)
        return None, None, *(next(gradients) if want else None for want in wanted)

    @staticmethod
    def jvp(ctx: Any, _: None, __: None, *tangents: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
        """The derivative along the tangents that are there."""
        wanted = tuple(tangent is not None for tangent in tangents)
        along = [tangent for tangent in tangents if tangent is not None]
        found: tuple[torch.Tensor, ...] = _Call.apply(
            _derivative(ctx.function, wanted), None, *ctx.saved_tensors, *along
        )
        return found

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], function: _Function, kept: None, *tensors: torch.Tensor
    ) -> tuple[tuple[torch.Tensor, ...], int]:
        return _Call.apply(_mapped(function, in_dims[2:]), None, *tensors), 0
