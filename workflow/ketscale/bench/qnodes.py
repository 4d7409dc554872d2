"""A user's QNode as a subject: the same quantum function on PennyLane's devices and on ours, and converted."""

from __future__ import annotations

from typing import Any

import torch

from ketscale.bench.calls import torch_call
from ketscale.bench.cases import Call, Case
from ketscale.engines.circuits.circuit import Angles
from ketscale.optional import needed_for

DEVICES = {
    "qnode-default.qubit": "default.qubit",
    "qnode-lightning.qubit": "lightning.qubit",
    "qnode-fused": "ketscale.fused",
    "from_qnode": "default.qubit",
}


class QNodes:
    """The QNode that a user would write, through torch's interface with PennyLane's default gradient for the device.

    name: of `selection.QNODES`.

    Raises:
        UserError: PennyLane is not installed.
    """

    uncapturable: str | None = "PennyLane copies from the host in every call"

    def __init__(self, name: str, device: torch.device) -> None:
        with needed_for(f"simulator {name}"):
            import pennylane
        self._qml: Any = pennylane
        self._name = name
        self._device = device

    def prepare(self, case: Case) -> Call:
        """See `Subject.prepare`."""
        from ketscale.engines.circuits.pennylane import default_precision, quantum_function

        run = quantum_function(case.circuit, case.words)
        wires = case.circuit.qubits
        qnode: Any = self._qml.QNode(
            lambda inputs, weights: run(inputs, weights, None),
            self._qml.device(DEVICES[self._name], wires=wires),
        )
        if self._name == "from_qnode":
            from ketscale.interop.qnode import from_qnode

            qnode = from_qnode(qnode)

        def expval(angles: Angles) -> torch.Tensor:
            dtype = angles.inputs.dtype
            with default_precision(dtype):
                return torch.stack(tuple(qnode(*angles)), 1).to(dtype)

        return torch_call(case, expval, self._device)
