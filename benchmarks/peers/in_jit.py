"""In `jax.jit`, as functions of one sample under `vmap`: PennyLane's default.qubit, and `fused` through `ketscale.jax`."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch

from benchmarks.circuits import Call, Loss
from benchmarks.peers.on_jax import Jax
from ketscale.engines.circuits.circuit import Circuit
from ketscale.optional import needed_for


class InJit:
    """One compiled value-and-gradient over all samples.

    Raises:
        UserError: JAX or PennyLane is not installed, or JAX has no such device.
    """

    uncapturable: str | None = "JAX compiles and launches by itself"

    def __init__(self, name: str, device: torch.device) -> None:
        self._on, self._name = Jax(name, device.type), name
        if name == "default.qubit-jit":
            with needed_for(f"simulator {name}"):
                import pennylane  # noqa: F401

    def prepare(self, loss: Loss) -> Call:
        """See `Simulator.prepare`. Precision is global: it holds when a call is first made."""
        self._on.jax.config.update("jax_enable_x64", loss.real == np.float64)
        own = self._name == "fused-jax"
        return self._on.call(
            loss, self._fused(loss) if own else sample_function(self._on.jax, loss.circuit, loss.words)
        )

    def _fused(self, loss: Loss) -> Any:
        from ketscale.jax import expval

        values, circuit = expval(loss.circuit, loss.words), loss.circuit

        def one(row: Any, weights: Any) -> Any:
            return values(*([row] * bool(circuit.inputs)), *([weights] * bool(circuit.weights)))

        return one


def sample_function(jax: Any, circuit: Circuit, words: tuple[str, ...]) -> Any:
    """One sample's expectation values (words,) of inputs and weights, by default.qubit."""
    import pennylane as qml

    from ketscale.engines.circuits.pennylane import quantum_function

    run = quantum_function(circuit, words)
    device = qml.device("default.qubit", wires=circuit.qubits)
    qnode = qml.QNode(
        lambda row, weights: run(row, weights, None), device, interface="jax", diff_method="backprop"
    )

    def one(row: Any, weights: Any) -> Any:
        # In single precision JAX says of each matrix of PennyLane's that it is not kept in double precision.
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Explicitly requested dtype", UserWarning)
            return jax.numpy.stack(qnode(row, weights))

    return one
