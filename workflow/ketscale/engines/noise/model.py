"""Noise models: channels after the gates of any circuit, and a simulator that adds them to every circuit that it is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import torch

from ketscale.engines.circuits.circuit import READOUT, Angles, Circuit, Column, Gate
from ketscale.engines.circuits.simulator import Simulator, probabilities, stacks
from ketscale.errors import UserError


class NoiseModel(NamedTuple):
    """Strengths of channels.

    one_qubit: of depolarising after each gate on one qubit. two_qubits: of depolarising of both after each gate on two, and of
    each qubit after a gate on more. damping: of amplitude damping of each qubit of a gate, after it. readout: the probabilities
    to read 1 from 0, and 0 from 1.
    """

    one_qubit: float = 0.0
    two_qubits: float = 0.0
    damping: float = 0.0
    readout: tuple[float, float] = (0.0, 0.0)

    def channels(self, gate: Gate) -> Iterator[Gate]:
        """What comes after a gate."""
        if len(gate.wires) == 2:
            yield from _channel("DepolarizingChannel", gate.wires, self.two_qubits)
        else:
            strength = self.one_qubit if len(gate.wires) == 1 else self.two_qubits
            for wire in gate.wires:
                yield from _channel("DepolarizingChannel", (wire,), strength)
        for wire in gate.wires:
            yield from _channel("AmplitudeDamping", (wire,), self.damping)


def _channel(name: str, wires: tuple[int, ...], *strengths: float) -> Iterator[Gate]:
    if any(strengths):
        yield Gate(name, wires, tuple(Column("constant", value=float(each)) for each in strengths))


@lru_cache(maxsize=256)
def with_noise(circuit: Circuit, model: NoiseModel) -> Circuit:
    """The circuit with a model's channels after its gates, and readout errors on all wires."""
    gates = [
        each for gate in circuit.gates for each in (gate, *(() if gate.is_channel else model.channels(gate)))
    ]
    read = {gate.wires[0] for gate in circuit.gates if gate.name == READOUT}
    for wire in (wire for wire in range(circuit.qubits) if wire not in read):
        gates += _channel(READOUT, (wire,), *model.readout)
    return Circuit(circuit.qubits, tuple(gates))


class WithNoise:
    """`simulator`, of circuits with the channels of a noise model; in training, where gradients are enabled, only if asked for."""

    def __init__(self, simulator: Simulator, model: NoiseModel, training: bool = True) -> None:
        self.simulator, self.model, self.training = simulator, model, training
        self.stacks = stacks(simulator)

    def state(self, circuit: Circuit, angles: Angles, initial: torch.Tensor | None = None) -> torch.Tensor:
        """Refused: there is no state vector, and so no superposition of states."""
        raise UserError(
            "with noise a circuit has no state vector and no superpositions: ask for expectation values, or leave out noise"
        )

    def expval(
        self, circuit: Circuit, angles: Angles, paulis: Sequence[str], initial: torch.Tensor | None = None
    ) -> torch.Tensor:
        """See `Simulator.expval`."""
        return self.simulator.expval(self._noisy(circuit, initial), angles, paulis)

    def probs(
        self, circuit: Circuit, angles: Angles, wires: Sequence[int], initial: torch.Tensor | None = None
    ) -> torch.Tensor:
        """See `simulator.probabilities`."""
        return probabilities(self.simulator, self._noisy(circuit, initial), angles, wires)

    def _noisy(self, circuit: Circuit, initial: torch.Tensor | None) -> Circuit:
        if initial is not None:
            raise UserError("with noise circuits begin with |0...0>: use another model, or leave out noise")
        return circuit if torch.is_grad_enabled() and not self.training else with_noise(circuit, self.model)
