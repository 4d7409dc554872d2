"""PennyLane: its devices as our models use them, and a user's QNode on its devices and on ours, and converted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from benchmarks.circuits import QNODE_FLOOR, Call, Loss, torch_call
from benchmarks.own import Nothing
from benchmarks.peers.gates import Gradients
from ketscale.engines import registered
from ketscale.engines.circuits.ansaetze import strongly_entangling_ansatz
from ketscale.engines.circuits.circuit import Angles
from ketscale.engines.circuits.pennylane import default_precision, quantum_function
from ketscale.engines.circuits.registry import SIMULATORS
from ketscale.optional import needed_for
from ketscale.simulators.spanned import Spanned

QNODES = {
    "qnode-default.qubit": "default.qubit",
    "qnode-lightning.qubit": "lightning.qubit",
    "qnode-fused": "ketscale.fused",
    "from_qnode": "default.qubit",
}


class Devices:
    """One of PennyLane's devices with its usual gradient, as a model pays for it, autograd included.

    Raises:
        UserError: PennyLane or the device is not installed.
    """

    # It makes the matrices of gates on the host.
    uncapturable: str | None = "PennyLane copies from the host in every call"

    def __init__(self, name: str, device: torch.device) -> None:
        self._simulator = Spanned(registered.build(SIMULATORS[name].implementation, vars(SIMULATORS[name])))
        self._device = device

    def prepare(self, loss: Loss) -> Call:
        """See `Simulator.prepare`."""
        return torch_call(
            loss, lambda angles: self._simulator.expval(loss.circuit, angles, loss.words), self._device
        )


class Products:
    """Lightning's own products of a vector and the Jacobian: one adjoint pass for all observables of a sample.

    Tapes are made before; a call evaluates and differentiates all of them.

    Raises:
        UserError: PennyLane is not installed.
    """

    uncapturable: str | None = Devices.uncapturable

    def __init__(self, name: str, device: torch.device) -> None:
        with needed_for(f"simulator {name}"):
            import pennylane
        self._qml: Any = pennylane

    def prepare(self, loss: Loss) -> Call:
        """See `Simulator.prepare`."""
        qml, kind = self._qml, np.complex64 if loss.real == np.float32 else np.complex128
        device = qml.device("lightning.qubit", wires=loss.circuit.qubits, c_dtype=kind)
        config = qml.devices.ExecutionConfig(
            gradient_method="adjoint", use_device_gradient=True, use_device_jacobian_product=True
        )
        run, gradients = quantum_function(loss.circuit, loss.words), _gradients(loss)
        tapes = [qml.tape.make_qscript(run)(row, loss.weights, None) for row in loss.inputs]
        tapes, _ = device.preprocess_transforms(device.setup_execution_config(config))(tapes)
        vectors = [tuple(row) for row in loss.coefficients.tolist()]

        def call() -> tuple[Any, ...]:
            values, derivatives = device.execute_and_compute_vjp(tapes, vectors)
            total = sum(map(np.dot, vectors, values))
            return total, *gradients.of(np.array(derivatives).reshape(len(tapes), -1))

        return call


def _gradients(loss: Loss) -> Gradients:
    return Gradients(loss, [column for gate in loss.circuit.gates for column in gate.columns])


class QNodes:
    """The QNode that a user would write, through torch's interface with PennyLane's default gradient for the device.

    Raises:
        UserError: PennyLane is not installed.
    """

    uncapturable: str | None = Devices.uncapturable

    def __init__(self, name: str, device: torch.device) -> None:
        with needed_for(f"simulator {name}"):
            import pennylane
        self._qml: Any = pennylane
        self._name = name
        self._device = device

    def prepare(self, loss: Loss) -> Call:
        """See `Simulator.prepare`."""
        wires = loss.circuit.qubits
        floor = self._name == QNODE_FLOOR
        device = (
            _immediate(wires, len(loss.words)) if floor else self._qml.device(QNODES[self._name], wires=wires)
        )
        qnode: Any = self._qml.QNode(self._function(loss), device)
        if loss.shots:
            qnode = self._qml.set_shots(qnode, shots=loss.shots)
        if self._name == "from_qnode":
            from ketscale.interop.qnode import from_qnode

            qnode = from_qnode(qnode)

        def expval(angles: Angles) -> torch.Tensor:
            dtype = angles.inputs.dtype
            with default_precision(dtype):
                return torch.stack(tuple(qnode(*angles)), 1).to(dtype)

        return torch_call(loss, expval, self._device)

    def _function(self, loss: Loss) -> Callable[..., Any]:
        """What a user writes: templates where they are the circuit, otherwise gate by gate, with an index each."""
        circuit, qml = loss.circuit, self._qml
        run, wires = quantum_function(circuit, loss.words), range(circuit.qubits)
        layers = circuit.weights // (3 * len(wires))
        if circuit != strongly_entangling_ansatz(len(wires), layers):
            return lambda inputs, weights: run(inputs, weights, None)
        words = [qml.pauli.string_to_pauli_word(word) for word in loss.words]

        def templates(inputs: torch.Tensor, weights: torch.Tensor) -> Any:
            qml.AngleEmbedding(inputs, wires=wires)
            qml.StronglyEntanglingLayers(weights.reshape(layers, len(wires), 3), wires=wires)
            return [qml.expval(word) for word in words]

        return templates


def _immediate(wires: int, words: int) -> Any:
    """A device that returns at once something that depends on the parameters: what PennyLane itself takes."""
    from pennylane.devices import Device, ExecutionConfig
    from pennylane.transforms.core import CompilePipeline

    class Immediate(Device):
        name = "immediate"

        def setup_execution_config(self, config: Any = None, circuit: Any = None) -> ExecutionConfig:
            inputs = {"gradient_method": "backprop", "use_device_gradient": True, "grad_on_execution": False}
            return replace(config or ExecutionConfig(), **inputs)

        def supports_derivatives(self, execution_config: Any = None, circuit: Any = None) -> bool:
            return True

        def preprocess_transforms(self, execution_config: Any = None) -> CompilePipeline:
            return CompilePipeline()

        def execute(self, circuits: Any, execution_config: Any = None) -> Any:
            result = (Nothing.apply(None, words, *tape.get_parameters()) for tape in circuits)
            return tuple(values.unbind(1) for values in result)

    return Immediate(wires=wires)
