"""`mamba`, `mamba_hybrid` and their lite forms: circuits modelled on a selective state-space model.

Their state-space, gate and skip circuits are those of the Quantum Mamba models; the classical model is Gu and Dao,
arXiv:2312.00752. In `mamba` the data enter as amplitudes and all angles are learned, so each circuit is one
unitary for all samples. In `mamba_hybrid` the data enter as angles, and gate and skip do not depend on them.
"""

from __future__ import annotations

import math

import torch
from torch import nn

from ketscale.engines.circuits.circuit import Angles, pauli_words
from ketscale.engines.circuits.simulator import Simulator
from ketscale.layers.dropout import SampleDropout
from ketscale.problems.eeg.circuits import amplitude_circuits, angle_circuits
from ketscale.problems.eeg.per_step import AngleHead, ComplexSum, Core, Mixture, OverTime, PerStep, SoftmaxSum
from ketscale.simulators.factory import resolve_simulator


def _weights(count: int) -> nn.Parameter:
    """Learned angles that start uniform in [0, 2 pi)."""
    return nn.Parameter(2 * math.pi * torch.rand(count))


def _one_step(values: torch.Tensor) -> torch.Tensor:
    """The sum over one step."""
    return values


class AmplitudeCore(Core):
    """(rows, features) -> `outputs` numbers: three circuits act on a row's amplitudes, and their values are superposed.

    The coefficients are complex; their real parts start uniform in [0, 1), their imaginary parts at 0.
    """

    def __init__(
        self,
        qubits: int,
        layers: int,
        simulator: Simulator | str | None,
        features: int,
        outputs: int,
        dropout: float,
    ) -> None:
        super().__init__()
        self.simulator = resolve_simulator(simulator)
        self.words = pauli_words(qubits, "XYZ")
        self.circuits = amplitude_circuits(qubits, layers)
        self.amplitudes = nn.Linear(features, 2**qubits)
        self.norm = nn.LayerNorm(2**qubits)
        self.ssm_angles = _weights(4 * qubits * layers)
        self.b = _weights(qubits)
        self.c = _weights(qubits)
        self.gate_angles = _weights(qubits)
        self.skip_angles = _weights(qubits)
        # Six parameters: real and imaginary parts.
        self.coefficients = nn.Parameter(torch.stack([torch.rand(3), torch.zeros(3)], dim=1))
        values = len(self.words)
        self.mlp = nn.Sequential(
            nn.Linear(values, values),
            nn.ReLU(),
            SampleDropout(dropout),
            nn.Linear(values, outputs),
            SampleDropout(dropout),
        )

    @property
    def entrance(self) -> nn.Linear:
        """The layer before the amplitudes."""
        return self.amplitudes

    def forward(self, entered: torch.Tensor, over_time: OverTime) -> torch.Tensor:
        """The MLP of the modulus of the superposed expectation values."""
        # Under automatic mixed precision the layers before give half-precision numbers, which have no complex type.
        amplitudes = nn.functional.normalize(self.norm(entered).to(self.b.dtype), dim=1)
        state = torch.complex(amplitudes, torch.zeros_like(amplitudes))
        weights = (torch.cat([self.ssm_angles, self.b, self.c]), self.gate_angles, self.skip_angles)
        empty = amplitudes.new_empty(len(entered), 0)
        values = torch.stack(
            [
                self.simulator.expval(circuit, Angles(empty, angles), self.words, state)
                for circuit, angles in zip(self.circuits, weights, strict=True)
            ]
        )
        # Real and imaginary parts of the superposition: (2, 3) times (3, rows * values).
        parts = (self.coefficients.T @ values.flatten(1)).to(values.dtype)
        parts = parts.unflatten(1, (len(entered), len(self.words)))
        norm = torch.sqrt(parts.square().sum((0, 2)) + 1e-8)
        # abs() of complex numbers, since torch takes nine times as long for a norm over two rows.
        return over_time(self.mlp(torch.complex(parts[0], parts[1]).abs() / norm[:, None]))


class AngleCore(Core):
    """(rows, P) -> 3n numbers: a state-space circuit with the data as angles, a gate and a skip, measured and mixed.

    The weights of the sum over time must add up to 1: then mixing the sums is the same as summing mixtures.
    """

    def __init__(self, qubits: int, layers: int, simulator: Simulator | str | None) -> None:
        super().__init__()
        self.simulator = resolve_simulator(simulator)
        self.words = pauli_words(qubits, "XYZ")
        self.circuits = angle_circuits(qubits, layers)
        self.width = self.circuits[0].inputs
        self.angles = AngleHead(self.width, 2 * math.pi, 2 * math.pi * torch.rand(self.width))
        self.b = _weights(qubits)
        self.c = _weights(qubits)
        self.dt = _weights(qubits)
        # As published, 4n angles for each layer; the circuit uses only the first 3n * layers.
        self.gate_angles = _weights(4 * qubits * layers)
        self.skip_angles = _weights(3 * qubits)
        self.mixture = Mixture(len(self.words))

    def forward(self, entered: torch.Tensor, over_time: OverTime) -> torch.Tensor:
        """The mixture of the three circuits' values."""
        ssm, gate, skip = self.circuits
        angles = self.angles(entered)
        shared = torch.cat([self.b, self.c, self.dt])
        empty = angles.new_empty(1, 0)
        constant = [
            self.simulator.expval(circuit, Angles(empty, weights), self.words)
            for circuit, weights in ((gate, self.gate_angles), (skip, self.skip_angles))
        ]
        return self.mixture(
            over_time(self.simulator.expval(ssm, Angles(angles, shared), self.words)), *constant
        )


class Mamba(nn.Module):
    """Series (batch, channels, steps) -> depthwise convolution, SiLU, mean over time -> amplitudes -> logits.

    5,002 trainable parameters at 6 qubits, 2 layers, 64 channels and 2 outputs.
    """

    def __init__(
        self,
        qubits: int = 6,
        layers: int = 2,
        simulator: Simulator | str | None = None,
        inputs: tuple[int, int] = (64, 249),
        outputs: int = 2,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        channels, _ = inputs
        self.convolution = nn.Conv1d(channels, channels, 3, padding=1, groups=channels)
        self.core = AmplitudeCore(qubits, layers, simulator, channels, outputs, dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits of series."""
        rows = nn.functional.silu(self.convolution(x)).mean(2)
        return self.core(self.core.entrance(rows), _one_step)


class MambaHybrid(nn.Module):
    """Series (batch, channels, steps) -> convolution, SiLU, mean over time -> angles -> logits.

    19,365 trainable parameters at 6 qubits, 2 layers, 64 channels and 2 outputs.
    """

    def __init__(
        self,
        qubits: int = 6,
        layers: int = 2,
        simulator: Simulator | str | None = None,
        inputs: tuple[int, int] = (64, 249),
        outputs: int = 2,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        channels, _ = inputs
        self.convolution = nn.Conv1d(channels, channels, 3, padding=1)
        self.dropout = SampleDropout(dropout)
        self.core = AngleCore(qubits, layers, simulator)
        self.embed = nn.Linear(channels, self.core.width)
        self.classifier = nn.Linear(3 * qubits, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits of series."""
        pooled = nn.functional.silu(self.convolution(x)).mean(2)
        rows = self.embed(self.dropout(pooled))
        return self.classifier(self.core(self.core.entrance(rows), _one_step))


class RowCore(AmplitudeCore):
    """(rows, 4 * qubits * layers) -> 3 numbers for each qubit, without dropout."""

    def __init__(self, qubits: int, layers: int, simulator: Simulator | str | None) -> None:
        width = 4 * qubits * layers
        super().__init__(qubits, layers, simulator, width, 3 * qubits, dropout=0.0)
        self.width = width


class MambaLite(PerStep):
    """Series (batch, channels, steps) -> logits, by `mamba`'s core at every time step and complex weights over time.

    7,433 trainable parameters at 6 qubits, 2 layers, 64 channels, 249 steps and 2 outputs.
    """

    CORE = RowCore
    OVER_TIME = ComplexSum


class MambaHybridLite(PerStep):
    """Series (batch, channels, steps) -> logits, by `mamba_hybrid`'s core at every time step and softmax weights.

    7,262 trainable parameters at 6 qubits, 2 layers, 64 channels, 249 steps and 2 outputs.
    """

    CORE = AngleCore
    OVER_TIME = SoftmaxSum
