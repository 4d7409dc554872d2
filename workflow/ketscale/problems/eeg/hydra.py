"""`hydra` and `hydra_hybrid`: three circuit branches for each time step, in superposition or mixed.

Quantum Hydra imitates the quasiseparable mixer of classical Hydra (Hwang et al., arXiv:2407.09941): a forward
branch, a backward one and a skip. Reversing the wires (`flip`) leaves |0...0> unchanged, so the backward branch
flip shift QLCU flip |0...0> is the flip of the forward one: it takes a permutation of amplitudes, not a second
simulation. The skip does not depend on the data, so it is computed once for a whole batch.
"""

from __future__ import annotations

import torch
from torch import nn

from ketscale.engines.circuits.ansaetze import qlcu_ansatz
from ketscale.engines.circuits.circuit import Angles, Circuit, pauli_words
from ketscale.engines.circuits.simulator import Simulator
from ketscale.engines.circuits.superposition import Superposition, superposed
from ketscale.layers.complex_weights import ComplexWeights
from ketscale.problems.eeg.circuits import shift, skip_circuit
from ketscale.problems.eeg.per_step import AngleHead, ComplexSum, Core, Mixture, OverTime, PerStep, SoftmaxSum
from ketscale.simulators.factory import resolve_simulator

# The published code's value of 2 pi.
PUBLISHED_TURN = 2 * 3.14159


class HydraCircuits(Core):
    """The three branches of both models.

    The offsets of the branches' angles and the angles of the skip start uniform in [0, 1) rad, as published.
    """

    def __init__(self, qubits: int, layers: int, simulator: Simulator | str | None) -> None:
        super().__init__()
        self.simulator = resolve_simulator(simulator)
        layer = qlcu_ansatz(qubits, layers)
        self.width = layer.inputs
        self.forward_branch = Circuit(qubits, (*layer.gates, *shift(qubits)))
        self.skip = skip_circuit(qubits)
        self.words = pauli_words(qubits, "XYZ")
        self.angles = AngleHead(self.width, PUBLISHED_TURN, torch.rand(self.width))
        self.skip_angles = nn.Parameter(torch.rand(self.skip.weights))

    def skip_of(self, angles: torch.Tensor) -> Angles:
        """The skip's angles, for one row, since the data do not change them."""
        return Angles(angles.new_empty(1, 0), self.skip_angles)


class HydraCore(HydraCircuits):
    """(rows, P) -> 3n expectation values of the normalised superposition of the branches' states.

    The coefficients are complex; their real and imaginary parts start uniform in [0, 1).
    """

    def __init__(self, qubits: int, layers: int, simulator: Simulator | str | None) -> None:
        super().__init__(qubits, layers, simulator)
        self.coefficients = ComplexWeights(torch.rand(3), torch.rand(3))
        self.out = nn.Linear(len(self.words), len(self.words))

    def forward(self, entered: torch.Tensor, over_time: OverTime) -> torch.Tensor:
        """<X> on all wires, then <Y>, then <Z>, through a linear layer and summed."""
        angles = self.angles(entered)
        per_row = Angles(angles, angles.new_empty(0))
        alpha, beta, gamma = self.coefficients()
        skip = gamma * self.simulator.state(self.skip, self.skip_of(angles))
        superposition = Superposition(torch.stack([alpha, beta]), skip[0])
        values = superposed(self.simulator, self.forward_branch, per_row, self.words, superposition)
        return over_time(values, self.out)


class HydraHybridCore(HydraCircuits):
    """(rows, P) -> 3n expectation values: the branches are measured separately, summed over time and mixed.

    The weights of the sum must add up to 1: then mixing the sums is the same as summing mixtures.
    """

    def __init__(self, qubits: int, layers: int, simulator: Simulator | str | None) -> None:
        super().__init__(qubits, layers, simulator)
        self.mixture = Mixture(len(self.words))
        # The word on the state itself for each word on the flipped state: the same letter, wires reversed.
        order = [letter * qubits + qubits - 1 - w for letter in range(3) for w in range(qubits)]
        self.register_buffer("flipped", torch.tensor(order), persistent=False)

    def forward(self, entered: torch.Tensor, over_time: OverTime) -> torch.Tensor:
        """The mixture of <X> on all wires, then <Y>, then <Z>."""
        angles = self.angles(entered)
        per_row = Angles(angles, angles.new_empty(0))
        forward = over_time(self.simulator.expval(self.forward_branch, per_row, self.words))
        skip = self.simulator.expval(self.skip, self.skip_of(angles), self.words)
        return self.mixture(forward, forward[:, self.get_buffer("flipped")], skip)


class Hydra(PerStep):
    """Series (batch, channels, steps) -> logits, by superposed branches and complex weights over time.

    6,170 trainable parameters at 6 qubits, 2 layers, 64 channels, 249 steps and 2 outputs. See `resolve_simulator` for
    `simulator`.
    """

    CORE = HydraCore
    OVER_TIME = ComplexSum


class HydraHybrid(PerStep):
    """Series (batch, channels, steps) -> logits, by branches measured separately and softmax weights over time.

    7,196 trainable parameters at 6 qubits, 2 layers, 64 channels, 249 steps and 2 outputs. See `resolve_simulator` for
    `simulator`.
    """

    CORE = HydraHybridCore
    OVER_TIME = SoftmaxSum
