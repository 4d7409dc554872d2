"""TensorCircuit on its JAX backend: one compiled value-and-gradient over a vectorised circuit."""

from __future__ import annotations

import io
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

import numpy as np
import torch

from benchmarks.circuits import Call, Loss
from benchmarks.peers.on_jax import Jax
from ketscale.engines.circuits.circuit import Circuit
from ketscale.optional import needed_for

# TensorCircuit's methods; the arguments are the angles in PennyLane's order.
FIXED = {
    "Hadamard": "h", "PauliX": "x", "PauliY": "y", "PauliZ": "z", "S": "s", "T": "t",
    "CNOT": "cnot", "CZ": "cz", "SWAP": "swap",
}  # fmt: skip
ROTATIONS = {
    "RX": "rx", "RY": "ry", "RZ": "rz", "PhaseShift": "phase", "CRX": "crx", "CRY": "cry", "CRZ": "crz",
    "ControlledPhaseShift": "cphase",
    "IsingXX": "rxx", "IsingYY": "ryy", "IsingZZ": "rzz",
}  # fmt: skip


# From this many qubits on, contracting gate by gate was faster than the order that TensorCircuit looks for.
GATE_BY_GATE_FROM = 9


class TensorCircuit:
    """The fastest of the ways tried: one U gate for a Rot, words of Z alone or of one letter from the state itself.

    Raises:
        UserError: TensorCircuit or JAX is not installed.
    """

    uncapturable: str | None = "JAX compiles and launches by itself"

    def __init__(self, name: str, device: torch.device) -> None:
        self._on = Jax(name, device.type)
        with needed_for(f"simulator {name}"):
            import tensorcircuit
        self._tc: Any = tensorcircuit
        # It prints that its optimisers, which nobody asked for, need another package.
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            self._tc.set_backend("jax")

    def prepare(self, loss: Loss) -> Call:
        """See `Simulator.prepare`. Precision and contractor are global: they hold when a call is first made."""
        self._tc.set_contractor("plain" if loss.circuit.qubits >= GATE_BY_GATE_FROM else "greedy")
        self._tc.set_dtype("complex64" if loss.real == np.float32 else "complex128")
        return self._on.call(loss, lambda row, weights: self._expval(loss.circuit, loss.words, row, weights))

    def _expval(self, circuit: Circuit, words: tuple[str, ...], row: Any, weights: Any) -> Any:
        """Expectation values (words,) of one sample."""
        jnp = self._on.jax.numpy
        run = self._run(circuit, row, weights)
        state = run.state()
        tensor = state.reshape((2,) * circuit.qubits)
        probabilities = jnp.real(tensor) ** 2 + jnp.imag(tensor) ** 2
        values = []
        for word in words:
            wires = {letter: [w for w, x in enumerate(word) if x == letter] for letter in "XYZ"}
            flipping = wires["X"] + wires["Y"]
            if not flipping:
                rest = tuple(w for w, letter in enumerate(word) if letter == "I")
                value = probabilities.sum(axis=rest)
                for _ in wires["Z"]:
                    value = value[0] - value[1]
            elif len(flipping) == 1 and not wires["Z"]:
                zero, one = jnp.moveaxis(tensor, flipping[0], 0)
                overlap = 2 * jnp.vdot(zero, one)
                value = jnp.real(overlap) if wires["X"] else jnp.imag(overlap)
            else:
                value = jnp.real(run.expectation_ps(x=wires["X"], y=wires["Y"], z=wires["Z"]))
            values.append(value)
        return jnp.stack(values)

    def _run(self, circuit: Circuit, row: Any, weights: Any) -> Any:
        run = self._tc.Circuit(circuit.qubits)
        for gate in circuit.gates:
            angles = [(row if c.kind == "input" else weights)[c.index] for c in gate.columns]
            if gate.name == "Rot":
                phi, theta, omega = angles
                run.u(*gate.wires, theta=theta, phi=omega, lbd=phi)  # a Rot but for its global phase
            elif gate.name in FIXED:
                getattr(run, FIXED[gate.name])(*gate.wires)
            else:
                getattr(run, ROTATIONS[gate.name])(*gate.wires, theta=angles[0])
        return run
