"""Circuits on PennyLane's devices: default.qubit by backprop or parameter-shift, Lightning by adjoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from ketscale.engines.circuits.checks import (
    check_request,
    no_rows,
    one_first_derivative,
    refuse_gradient,
    refuse_transforms,
)
from ketscale.engines.circuits.circuit import Angles, Circuit, Column, given_matrix
from ketscale.errors import UserError
from ketscale.optional import needed_for, remedy

QNode = Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None], Any]


class PennyLane:
    """One of PennyLane's devices with one of its gradient rules, through its torch interface.

    Parameter-shift is the naive formulation: Python calls the QNode once for each sample. Otherwise one call gets
    the whole batch: default.qubit broadcasts over it, and for Lightning's adjoint PennyLane loops over it. Only
    backprop differentiates initial and final states.

    Raises:
        UserError: PennyLane or the device is not installed.
    """

    def __init__(self, device: str, gradient: str) -> None:
        self.device, self.gradient = device, gradient
        self._qnodes: dict[tuple[Circuit, tuple[str, ...] | None, torch.dtype], QNode] = {}
        with needed_for(f"simulator {device}"):
            import pennylane
            from pennylane.exceptions import DeviceError
        self._qml: Any = pennylane
        try:
            self._device(1, torch.float64)
        # PennyLane's DeviceError if a plugin is missing, the others if its libraries are.
        except (ImportError, OSError, RuntimeError, DeviceError) as error:
            gpu = "pip install pennylane-lightning-gpu (in a checkout: make env-cuda)"
            install = gpu if device == "lightning.gpu" else remedy("simulators")
            raise UserError(
                f"simulator {device} cannot start: {install}, "
                f"or choose another device ({str(error).partition(chr(10))[0]})"
            ) from error

    def __reduce__(self) -> tuple[type[PennyLane], tuple[str, str]]:
        return PennyLane, (self.device, self.gradient)

    def state(self, circuit: Circuit, angles: Angles, initial: torch.Tensor | None = None) -> torch.Tensor:
        """See `Simulator.state`."""
        check_request(circuit, angles, initial)
        if self.gradient != "backprop":
            refuse_gradient(self._name, "a state", *angles, initial)
        return self._evaluate(circuit, angles, initial, None)

    def expval(
        self, circuit: Circuit, angles: Angles, paulis: Sequence[str], initial: torch.Tensor | None = None
    ) -> torch.Tensor:
        """See `Simulator.expval`."""
        check_request(circuit, angles, initial, paulis)
        if self.gradient != "backprop":
            refuse_gradient(self._name, "an initial state", initial)
        return self._evaluate(circuit, angles, initial, tuple(paulis))

    @property
    def _name(self) -> str:
        return f"{self.device} with gradient {self.gradient!r}"

    def _evaluate(
        self, circuit: Circuit, angles: Angles, initial: torch.Tensor | None, paulis: tuple[str, ...] | None
    ) -> torch.Tensor:
        """The state (if `paulis` is None) or the expectation values, one row per sample."""
        inputs, weights = angles
        if self.gradient != "backprop":
            refuse_transforms(self._name, *angles, initial)
        batch = inputs.shape[0]
        columns = 2**circuit.qubits if paulis is None else len(paulis)
        dtype = inputs.dtype.to_complex() if paulis is None else inputs.dtype
        if batch == 0:
            return no_rows(angles, initial, columns, dtype)
        qnode = self._qnode(circuit, paulis, inputs.dtype)
        with default_precision(inputs.dtype):
            if self.gradient == "parameter-shift":
                starts = [None] * batch if initial is None else initial.expand(batch, -1)
                rows = torch.stack(
                    [_stacked(qnode(row, weights, start)) for row, start in zip(inputs, starts, strict=True)]
                )
            else:
                rows = _stacked(qnode(inputs, weights, initial))
            if self.gradient != "backprop":
                rows = _FirstDerivatives.apply(rows, self._name)
        # default.qubit keeps a complex128 state whatever the angles' precision is (only the gates' matrices follow
        # it), and returns a single row for a batch whose samples do not differ.
        return rows.to(dtype).expand(batch, columns)

    def _qnode(self, circuit: Circuit, paulis: tuple[str, ...] | None, precision: torch.dtype) -> QNode:
        """The QNode of a circuit, built once; it maps (inputs, weights, initial) to the measured values."""
        key = (circuit, paulis, precision)
        if key not in self._qnodes:
            # Adjoint and parameter-shift have no rule for a state; such a gradient was rejected before.
            gradient = None if paulis is None and self.gradient != "backprop" else self.gradient
            device = self._device(circuit.qubits, precision)
            function = quantum_function(circuit, paulis)
            self._qnodes[key] = self._qml.QNode(function, device, interface="torch", diff_method=gradient)
        return self._qnodes[key]

    def _device(self, qubits: int, precision: torch.dtype) -> Any:
        if self.device == "default.qubit":
            return self._qml.device("default.qubit", wires=qubits)
        c_dtype = np.complex64 if precision == torch.float32 else np.complex128
        return self._qml.device(self.device, wires=qubits, c_dtype=c_dtype)


def quantum_function(circuit: Circuit, paulis: tuple[str, ...] | None) -> QNode:
    """The quantum function of a circuit; it maps (inputs, weights, initial) to what is measured."""
    import pennylane as qml

    def function(inputs: torch.Tensor, weights: torch.Tensor, initial: torch.Tensor | None) -> Any:
        if initial is None and inputs.ndim > 1 and not inputs.is_cpu:
            # PennyLane 0.45 makes |0...0> on the CPU, where it cannot meet a rotation by many angles on the GPU.
            initial = torch.eye(1, 2**circuit.qubits, dtype=inputs.dtype.to_complex(), device=inputs.device)[
                0
            ]
        if initial is not None:
            qml.StatePrep(initial, wires=range(circuit.qubits), validate_norm=False)
        for gate in circuit.gates:
            matrix = given_matrix(gate)
            if matrix is not None:
                qml.QubitUnitary(matrix, wires=gate.wires)
                continue
            angles, kind = (_angle(c, inputs, weights) for c in gate.columns), getattr(qml, gate.base)
            if gate.controls:
                kind = qml.ctrl(kind, control=gate.controls)
            kind(*angles, wires=gate.wires[len(gate.controls) :])
        if paulis is None:
            return qml.state()
        return [qml.expval(qml.pauli.string_to_pauli_word(word)) for word in paulis]

    return function


class _FirstDerivatives(torch.autograd.Function):
    """The same tensor, with one first derivative: these gradient rules would leave out their part of a second one."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, name: str) -> torch.Tensor:
        ctx.name = name
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> tuple[torch.Tensor, None]:
        one_first_derivative(ctx.name, cotangent)
        return cotangent, None


def _angle(column: Column, inputs: torch.Tensor, weights: torch.Tensor) -> torch.Tensor | float:
    """The angle of a column: of all samples, of the weights, or a constant.

    torch's Rot takes no mixture of tensors and numbers, JAX's does.
    """
    match column.kind:
        case "input":
            return inputs[..., column.index]
        case "weight":
            return weights[column.index]
    return weights.new_tensor(column.value) if isinstance(weights, torch.Tensor) else column.value


@contextmanager
def default_precision(dtype: torch.dtype) -> Iterator[None]:
    """Let torch read Python floats as `dtype`: Lightning's results are Python floats and would become float32."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _stacked(measured: torch.Tensor | Sequence[torch.Tensor]) -> torch.Tensor:
    """A QNode's result with the observables in the last dimension (a state has this form already)."""
    return measured if isinstance(measured, torch.Tensor) else torch.stack(tuple(measured), dim=-1)
