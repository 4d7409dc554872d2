"""`reupload`: a circuit into which the data are loaded again before every layer."""

import torch
from torch import nn

from ketscale.engines.circuits.circuit import Angles, Circuit, Column, Gate, pauli_words
from ketscale.engines.circuits.simulator import Simulator
from ketscale.simulators.factory import resolve_simulator


def ansatz(qubits: int, layers: int) -> Circuit:
    """`layers` of RX(input), RY(weight) on every wire and a chain of CZ."""
    gates: list[Gate] = []
    for layer in range(layers):
        gates += [Gate("RX", (w,), (Column("input", w),)) for w in range(qubits)]
        gates += [Gate("RY", (w,), (Column("weight", layer * qubits + w),)) for w in range(qubits)]
        gates += [Gate("CZ", (w, w + 1)) for w in range(qubits - 1)]
    return Circuit(qubits, tuple(gates))


class Reupload(nn.Module):
    def __init__(
        self,
        qubits: int = 4,
        layers: int = 3,
        simulator: Simulator | str | None = None,
        inputs: int = 512,
        outputs: int = 10,
        spread: float = 0.1,
    ) -> None:
        super().__init__()
        self.simulator, self.circuit = resolve_simulator(simulator), ansatz(qubits, layers)
        self.encode = nn.Linear(inputs, qubits)
        self.weights = nn.Parameter(spread * torch.randn(self.circuit.weights))
        self.decode = nn.Linear(qubits, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        angles = Angles(self.encode(x), self.weights)
        return self.decode(self.simulator.expval(self.circuit, angles, pauli_words(self.circuit.qubits)))
