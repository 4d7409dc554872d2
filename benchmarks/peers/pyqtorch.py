"""pyqtorch: its batched circuits in torch, differentiated by autograd."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from benchmarks.circuits import Call, Loss, torch_call
from benchmarks.peers.gates import ROT, SHORT
from benchmarks.peers.kronecker import Values
from ketscale.engines.circuits.circuit import Angles, Gate
from ketscale.optional import needed_for

RENAMED = {"PhaseShift": "PHASE", "ControlledPhaseShift": "CPHASE"}
# What turns a rotation about ZZ into one about XX or YY, on each wire before and after.
TO_Z = {"X": (("H",), ("H",)), "Y": (("SDagger", "H"), ("H", "S")), "Z": ((), ())}


class PyQTorch:
    """The state is its own; the words' values are made of it all at once, faster than by its observables.

    Raises:
        UserError: pyqtorch is not installed.
    """

    uncapturable: str | None = "it was not tried: pyqtorch builds tensors while it runs"

    def __init__(self, name: str, device: torch.device) -> None:
        with needed_for(f"simulator {name}"):
            import pyqtorch
        self._pyq: Any = pyqtorch
        self._device = device

    def prepare(self, loss: Loss) -> Call:
        """See `Simulator.prepare`."""
        real = torch.tensor(loss.inputs).dtype
        parts = [part for gate in loss.circuit.gates for part in self._parts(gate)]
        circuit = self._pyq.QuantumCircuit(loss.circuit.qubits, parts).to(self._device)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Complex modules", UserWarning)
            circuit = circuit.to(dtype=real.to_complex())
        values_of = Values(loss.circuit.qubits, loss.words, real.to_complex(), self._device)
        batch = len(loss.inputs)

        def expval(angles: Angles) -> torch.Tensor:
            numbers = {_name("input", i): column for i, column in enumerate(angles.inputs.unbind(1))}
            numbers |= {_name("weight", i): weight for i, weight in enumerate(angles.weights.unbind())}
            states = circuit.run(state=circuit.init_state(batch), values=numbers)
            return values_of(states.flatten(0, -2).T)

        return torch_call(loss, expval, self._device)

    def _parts(self, gate: Gate) -> list[Any]:
        """pyqtorch's gates for one of ours, the first to act first."""
        pyq, wires = self._pyq, gate.wires
        if gate.name in SHORT:
            return [getattr(pyq, SHORT[gate.name])(*wires)]
        if gate.name == "Rot":
            return [
                getattr(pyq, name)(*wires, _name(c.kind, c.index))
                for name, c in zip(ROT, gate.columns, strict=True)
            ]
        column = gate.columns[0]
        angle = _name(column.kind, column.index)
        if not gate.name.startswith("Ising"):
            return [getattr(pyq, RENAMED.get(gate.name, gate.name))(*wires, angle)]
        before, after = ([getattr(pyq, n)(w) for n in names for w in wires] for names in TO_Z[gate.name[-1]])
        return [*before, pyq.CNOT(*wires), pyq.RZ(wires[1], angle), pyq.CNOT(*wires), *after]


def _name(kind: str, index: int) -> str:
    return f"{kind}{index}"
