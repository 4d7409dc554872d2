"""PennyLane: its devices as our models use them, and a user's QNode on its devices and on ours, and converted."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.circuits import Call, Loss, torch_call
from ketscale.engines import registered
from ketscale.engines.circuits.circuit import Angles
from ketscale.engines.circuits.pennylane import default_precision, quantum_function
from ketscale.engines.circuits.registry import SIMULATORS
from ketscale.engines.circuits.spanned import Spanned
from ketscale.optional import needed_for

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
        run = quantum_function(loss.circuit, loss.words)
        device = self._qml.device(QNODES[self._name], wires=loss.circuit.qubits)
        qnode: Any = self._qml.QNode(lambda inputs, weights: run(inputs, weights, None), device)
        if self._name == "from_qnode":
            from ketscale.interop.qnode import from_qnode

            qnode = from_qnode(qnode)

        def expval(angles: Angles) -> torch.Tensor:
            dtype = angles.inputs.dtype
            with default_precision(dtype):
                return torch.stack(tuple(qnode(*angles)), 1).to(dtype)

        return torch_call(loss, expval, self._device)
