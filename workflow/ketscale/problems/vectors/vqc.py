"""`vqc`: a dense head on 512 image features, a variational circuit, and a small classifier."""

from __future__ import annotations

import torch
from torch import nn

from ketscale.engines.circuits import simulator
from ketscale.engines.circuits.ansaetze import BY_NAME
from ketscale.engines.circuits.circuit import Angles, pauli_words
from ketscale.engines.circuits.simulator import Simulator
from ketscale.engines.vjp import VJP, Slots, offered, vjp_of
from ketscale.layers.dense import Dense
from ketscale.layers.dropout import SampleDropout
from ketscale.simulators.factory import resolve_simulator


def head(inputs: int, outputs: int, dropout: float) -> Dense:
    """inputs -> 128 -> 32 -> outputs with ReLU and dropout, then tanh."""
    return Dense(
        nn.Linear(inputs, 128),
        nn.ReLU(),
        SampleDropout(dropout),
        nn.Linear(128, 32),
        nn.ReLU(),
        SampleDropout(dropout),
        nn.Linear(32, outputs),
        nn.Tanh(),
    )


def classifier(inputs: int, outputs: int, dropout: float) -> Dense:
    """inputs -> 16 -> outputs with ReLU and dropout: logits."""
    return Dense(nn.Linear(inputs, 16), nn.ReLU(), SampleDropout(dropout), nn.Linear(16, outputs))


class VQC(nn.Module):
    """Features (batch, inputs) -> head -> `qubits` angles in (-1, 1) rad -> circuit -> <Z> -> logits (batch, outputs).

    The circuit is the one of `ansaetze.BY_NAME` that `ansatz` names; its weights start from N(0, 0.01^2) rad. 70,186 trainable parameters
    at 4 qubits, 3 layers, 512 inputs and 10 outputs with the ring.

    simulator: an object, a usual name such as "default.qubit", or None for fused.

    Raises:
        UserError: there is no such simulator.

    Example:
        >>> VQC(qubits=4, layers=3)(torch.zeros(8, 512)).shape
        torch.Size([8, 10])
    """

    def __init__(
        self,
        qubits: int = 4,
        layers: int = 3,
        simulator: Simulator | str | None = None,
        inputs: int = 512,
        outputs: int = 10,
        dropout: float = 0.2,
        ansatz: str = "ring",
    ) -> None:
        super().__init__()
        self.simulator = resolve_simulator(simulator)
        self.circuit = BY_NAME[ansatz](qubits, layers)
        self.paulis = pauli_words(qubits)
        self.head = head(inputs, qubits, dropout)
        self.weights = nn.Parameter(0.01 * torch.randn(self.circuit.weights))
        self.classifier = classifier(qubits, outputs, dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits (batch, outputs) of features (batch, inputs)."""
        # Under automatic mixed precision the head gives half-precision angles; the circuit needs its weights' type.
        angles = Angles(self.head(x).to(self.weights.dtype), self.weights)
        return self.classifier(self.simulator.expval(self.circuit, angles, self.paulis))

    @vjp_of(forward)
    def vjp(self, x: torch.Tensor) -> VJP | None:
        """`forward`, see `engines.vjp`; the gradient with respect to the features is not computed."""
        through_head, through_classifier = offered(self.head), offered(self.classifier)
        head = through_head and through_head(x, to_input=False)
        if head is None or through_classifier is None:
            return None
        weights = self.weights
        circuit = simulator.vjp(self.simulator, self.circuit, Angles(head.value, weights), self.paulis)
        classifier = circuit and through_classifier(circuit[0], to_input=True)
        if circuit is None or classifier is None:
            return None
        back = circuit[1]

        def all_back(cotangent: torch.Tensor, slots: Slots) -> None:
            to_values = classifier.back(cotangent, slots)
            assert to_values is not None
            to_angles, to_weights = back(to_values)
            slots.slot(weights).copy_(to_weights)
            head.back(to_angles, slots)

        return VJP(classifier.value, all_back)
