"""A kernel of your own: the fidelity of embedded samples, with regularised least squares. It is fitted, not trained by steps.

Copy this file next to your config, put your embedding into `circuit_of` and `angles`, and name it there:

    models:
      ring: {file: kernel.py, class: Ring, control: svm}
    protocols:
      fit: {precision: fp64, timed: false}

The kind `kernel` has an IQP embedding and support vector machines ready-made.
"""

from __future__ import annotations

import torch
from torch import nn

import ketscale
from ketscale.errors import UserError
from ketscale.problems.fitted import Samples


def circuit_of(qubits: int, layers: int) -> ketscale.Circuit:
    """`layers` times an angle on each wire, and the next wire's angle in a controlled rotation, all around."""
    circuit = ketscale.Circuit(qubits)
    for _ in range(layers):
        for wire in range(qubits):
            circuit = circuit.h(wire).rz(wire, f"x{wire}")
        for wire in range(qubits if qubits > 2 else qubits - 1):
            circuit = circuit.crz(wire, (wire + 1) % qubits, f"x{wire}")
    return circuit


class Ring(ketscale.Fitted):
    """Features (batch, inputs) -> a score for each class, or numbers (batch, outputs). Each wire has one feature.

    ridges: the penalties that validation chooses from; one alone needs no validation. scale: radians of a standard deviation.
    """

    known: torch.Tensor

    def __init__(
        self,
        qubits: int,
        layers: int,
        simulator: object,
        inputs: int,
        outputs: int,
        ridges: tuple[float, ...] = (1e-3, 1e-2, 1e-1, 1.0),
        scale: float = 0.5,
    ) -> None:
        super().__init__()
        if qubits != inputs:
            raise UserError(f"qubits: {qubits}, but samples have {inputs} features: set qubits: {inputs}")
        self.states = ketscale.Layer(circuit_of(qubits, layers), measure="state", simulator=simulator)
        self.ridges, self.scale, self.outputs = ridges, scale, outputs
        # What is learned; `fit` changes the shapes. Parameters are counted.
        self.register_buffer("known", torch.zeros(0, inputs))
        self.dual = nn.Parameter(torch.zeros(0, outputs))

    def kernel(self, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """|<phi(other)|phi(x)>|^2 of each two samples, all states of a side in one call."""
        one, two = (self.states(self.scale * each) for each in (x, other))
        return (one @ two.mH).abs().square()

    def fit(self, train: Samples, validation: Samples | None) -> None:
        x, targets = train
        wanted = torch.nn.functional.one_hot(targets, self.outputs).to(x) if targets.ndim == 1 else targets
        gram, self.known = self.kernel(x, x), x
        if validation is None and len(self.ridges) > 1:
            raise UserError("ridges: there is no validation to choose by; give one")
        best, self.tried = float("-inf"), len(self.ridges)
        for ridge in self.ridges:
            dual = torch.linalg.solve(gram + ridge * len(x) * torch.eye(len(x)).to(x), wanted)
            score = (
                0.0
                if validation is None
                else self.score(self.kernel(validation.inputs, x) @ dual, validation.targets)
            )
            if score > best:
                best, self.dual, self.chosen = score, nn.Parameter(dual), {"ridge": ridge}

    def score(self, outputs: torch.Tensor, targets: torch.Tensor) -> float:
        """The share of right classes, or minus the mean squared error."""
        if targets.ndim == 1:
            return float((outputs.argmax(1) == targets).double().mean())
        return -float((outputs - targets).square().mean())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.kernel(x, self.known) @ self.dual
