"""PennyLane's default.qubit in `jax.jit`: the circuit of one sample, compiled for all of them under `jax.vmap`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any, TypeAlias

import torch

from ketscale.engines.circuits.checks import check_request, no_rows, one_gradient, refuse_transforms
from ketscale.engines.circuits.circuit import Angles, Circuit
from ketscale.engines.circuits.pennylane import quantum_function
from ketscale.engines.circuits.simulator import CircuitPullBack
from ketscale.optional import needed_for

with needed_for("simulator default.qubit-jit", "jax"):
    import jax
    import jax.experimental
    import jax.numpy as jnp
with needed_for("simulator default.qubit-jit"):
    import pennylane as qml

# From so many amplitudes on, all samples together, what the forward pass leaves for the backward pass is kept. Below,
# handing over its some hundred arrays takes longer than to compute them again in one program with the gradient.
SAVED_FROM = 2**12

# By which arrays a derivative is asked for.
Mask: TypeAlias = tuple[bool, ...]

# JAX's context of double precision, which JAX 0.6 has among its experiments.
_precision: Any = jax if hasattr(jax, "enable_x64") else jax.experimental
_in_double: Callable[[bool], AbstractContextManager[None]] = _precision.enable_x64


class Jitted:
    """default.qubit as JAX's users have it at its best, for torch: one compiled program for values, and one for gradients.

    The first call with a circuit compiles it, for some seconds; later ones take what is compiled for their shapes.
    Derivatives of any order are JAX's own. Both precisions work, whatever JAX is set to. It computes on the CPU, with as
    many threads as the process may use cores when JAX starts.
    """

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
        leaves = [tensor.detach().requires_grad_() for tensor in angles]
        with torch.enable_grad():
            values = self._evaluate(circuit, paulis, Angles(*leaves), None)

        def back(cotangent: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            to_inputs, to_weights = torch.autograd.grad(values, leaves, cotangent)
            return to_inputs, to_weights

        return values.detach(), back

    def _evaluate(
        self, circuit: Circuit, paulis: tuple[str, ...] | None, angles: Angles, initial: torch.Tensor | None
    ) -> torch.Tensor:
        """The state (if `paulis` is None) or the expectation values, one row per sample."""
        check_request(circuit, angles, initial, paulis)
        refuse_transforms("default.qubit-jit", *angles, initial)
        if len(angles.inputs) == 0:
            dtype = angles.inputs.dtype if paulis else angles.inputs.dtype.to_complex()
            return no_rows(angles, initial, len(paulis or ()) or 2**circuit.qubits, dtype)
        tensors = (*angles, *([] if initial is None else [initial]))
        function = _of_samples(circuit, paulis, None if initial is None else initial.ndim)
        keeps = torch.is_grad_enabled() and len(angles.inputs) * 2**circuit.qubits >= SAVED_FROM
        values: torch.Tensor
        (values,) = _Called.apply(function, keeps, *tensors)
        return values


def sample_function(circuit: Circuit, paulis: tuple[str, ...] | None, on: str = "default.qubit") -> Any:
    """A QNode on a device of PennyLane's as a function of JAX's arrays of one sample: inputs, weights, and perhaps an initial state.

    It gives the expectation values (words,), or the state (2**n,) if `paulis` is None.
    """
    device = qml.device(on, wires=circuit.qubits)
    qnode = qml.QNode(quantum_function(circuit, paulis), device, interface="jax", diff_method="backprop")

    def values(inputs: Any, weights: Any, initial: Any = None) -> Any:
        # In single precision JAX says of each matrix of PennyLane's that it is not kept in double precision.
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Explicitly requested dtype", UserWarning)
            values = qnode(inputs, weights, initial)
        return values if paulis is None else jnp.stack(values)

    return values


@lru_cache(maxsize=256)
def _of_samples(circuit: Circuit, paulis: tuple[str, ...] | None, initial: int | None) -> _Function:
    """The function of all samples. initial: the dimensions of the initial states, None without any."""
    axes = (0, None, *([] if initial is None else [0 if initial == 2 else None]))
    samples = jax.vmap(sample_function(circuit, paulis), axes)
    return _Function(lambda *arrays: (samples(*arrays),))


class _Function:
    """A function from JAX's arrays to a tuple of them, and its program."""

    def __init__(self, traced: Callable[..., tuple[Any, ...]]) -> None:
        self.traced, self.program = traced, jax.jit(traced)

    def pulled(self, by: Mask, arrays: Sequence[Any]) -> tuple[tuple[Any, ...], Callable[..., Any]]:
        """The results, and their pullback to the wanted arrays alone."""

        def partial(*some: Any) -> tuple[Any, ...]:
            values = iter(some)
            return self.traced(*(next(values) if want else x for x, want in zip(arrays, by, strict=True)))

        values, back = jax.vjp(partial, *(x for x, want in zip(arrays, by, strict=True) if want))
        return values, back


class _Called(torch.autograd.Function):
    """A function's results, with its gradients as results of another function; complex ones are torch's, not conjugated.

    keeps: whether something is kept for the backward pass.
    """

    @staticmethod
    def forward(
        ctx: Any, function: _Function, keeps: bool, *tensors: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        ctx.function, ctx.mask, ctx.saved = function, ctx.needs_input_grad[2:], None
        ctx.save_for_backward(*tensors)
        if keeps and any(ctx.mask):
            values, ctx.saved = _called(_halves(function, ctx.mask)[0], tensors)
        else:
            values = _called(function.program, tensors)
        return tuple(map(torch.from_dlpack, values))

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        one_gradient("simulator 'default.qubit-jit'", cotangents[0])
        tensors = ctx.saved_tensors  # which refuses those that were changed in place
        if ctx.saved is None or torch.is_grad_enabled():
            results = _Called.apply(_gradient(ctx.function, ctx.mask), False, *tensors, *cotangents)
        else:
            arrays = _called(_halves(ctx.function, ctx.mask)[1], cotangents, ctx.saved)
            results = map(torch.from_dlpack, arrays)
        gradients = iter(results)
        return None, None, *(next(gradients) if need else None for need in ctx.mask)


@lru_cache(maxsize=1024)
def _gradient(function: _Function, by: Mask) -> _Function:
    """The function of the arrays, then the cotangents of the results, that gives the gradients."""

    def traced(*values: Any) -> tuple[Any, ...]:
        _, back = function.pulled(by, values[: len(by)])
        return _conjugated(back(_conjugated(values[len(by) :])))

    return _Function(traced)


@lru_cache(maxsize=1024)
def _halves(function: _Function, by: Mask) -> tuple[Any, Any]:
    """The programs of the forward pass, which gives arrays besides, and of the backward pass, which takes them.

    How those arrays make JAX's function is known from tracing one before the other: to hand over that function itself
    would take milliseconds.
    """
    structures: dict[object, Any] = {}

    def forward(*arrays: Any) -> Any:
        values, back = function.pulled(by, arrays)
        rest, structure = jax.tree.flatten(back)
        structures[_types((*values, *rest))] = structure
        return values, rest

    def backward(*values: Any) -> Any:
        *cotangents, rest = values
        structure = structures[_types((*cotangents, *rest))]
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
