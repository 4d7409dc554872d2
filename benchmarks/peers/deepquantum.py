"""DeepQuantum, a torch simulator: samples by its own vectorised encoding, gradients by autograd."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.circuits import Call, Loss, torch_call
from ketscale.engines.circuits.circuit import Angles, Circuit, Column, Gate
from ketscale.optional import needed_for

# DeepQuantum's gate and whether the first wire is a control.
CLASSES: dict[str, tuple[str, bool]] = {
    "Hadamard": ("Hadamard", False), "PauliX": ("PauliX", False), "PauliY": ("PauliY", False),
    "PauliZ": ("PauliZ", False), "S": ("SGate", False), "T": ("TGate", False),
    "RX": ("Rx", False), "RY": ("Ry", False), "RZ": ("Rz", False), "PhaseShift": ("PhaseShift", False),
    "Rot": ("U3Gate", False),  # but for its global phase
    "CNOT": ("CNOT", False), "CZ": ("PauliZ", True), "SWAP": ("Swap", False),
    "CRX": ("Rx", True), "CRY": ("Ry", True), "CRZ": ("Rz", True),
    "ControlledPhaseShift": ("PhaseShift", True),
    "IsingXX": ("Rxx", False), "IsingYY": ("Ryy", False), "IsingZZ": ("Rzz", False),
}  # fmt: skip


class DeepQuantum:
    """Its own vectorised way; gates of weights alone keep one matrix for the whole batch.

    Raises:
        UserError: DeepQuantum is not installed.
    """

    uncapturable: str | None = "it was not tried: DeepQuantum builds tensors while it runs"

    def __init__(self, name: str, device: torch.device) -> None:
        with needed_for(f"simulator {name}"):
            import deepquantum
        self._dq: Any = deepquantum
        self._device = device

    def prepare(self, loss: Loss) -> Call:
        """See `Simulator.prepare`."""
        circuit = loss.circuit
        run = self._dq.QubitCircuit(circuit.qubits)
        encoded: list[Column] = []
        shared: list[tuple[Any, list[int]]] = []
        for gate in circuit.gates:
            operation, columns = self._operation(circuit, gate)
            per_sample = any(column.kind == "input" for column in columns)
            run.add(operation, encode=per_sample)
            if per_sample:
                encoded += columns
            elif columns:
                shared.append((operation, [column.index for column in columns]))
        for word in loss.words:
            wires = [w for w, letter in enumerate(word) if letter != "I"]
            run.observable(wires, "".join(word[w] for w in wires).lower())
        run.to(torch.tensor(loss.inputs).dtype)
        run.to(self._device)

        def expval(angles: Angles) -> torch.Tensor:
            for operation, indices in shared:
                operation.init_para(
                    angles.weights[indices] if len(indices) > 1 else angles.weights[indices[0]]
                )
            run(_encoding(encoded, angles))
            return run.expectation()

        return torch_call(loss, expval, self._device)

    def _operation(self, circuit: Circuit, gate: Gate) -> tuple[Any, list[Column]]:
        """DeepQuantum's gate and the columns of its angles in its own order."""
        name, controlled = CLASSES[gate.name]
        wires = list(gate.wires)
        where = {"wires": wires[1:], "controls": wires[:1]} if controlled else {"wires": wires}
        columns = list(gate.columns)
        if gate.name == "Rot":
            phi, theta, omega = columns
            columns = [theta, omega, phi]
        return getattr(self._dq, name)(nqubit=circuit.qubits, **where), columns


def _encoding(columns: list[Column], angles: Angles) -> torch.Tensor:
    """The angles of the gates that differ between samples, (batch, columns)."""
    if all(column.kind == "input" for column in columns):
        indices = [column.index for column in columns]
        complete = indices == list(range(angles.inputs.shape[1]))
        return angles.inputs if complete else angles.inputs[:, indices]
    batch = angles.inputs.shape[0]
    return torch.stack(
        [
            angles.inputs[:, c.index] if c.kind == "input" else angles.weights[c.index].expand(batch)
            for c in columns
        ],
        dim=1,
    )
