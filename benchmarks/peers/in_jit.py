"""In `jax.jit`, as functions of one sample under `vmap`: PennyLane's default.qubit, and `fused`, as PennyLane's device or by `ketscale.jax`."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from benchmarks.circuits import Call, Loss
from benchmarks.peers.on_jax import Jax
from ketscale.engines.circuits.jitted import sample_function
from ketscale.optional import needed_for


class InJit:
    """One compiled value-and-gradient over all samples.

    Raises:
        UserError: JAX or PennyLane is not installed, or JAX has no such device.
    """

    uncapturable: str | None = "JAX compiles and launches by itself"

    def __init__(self, name: str, device: torch.device) -> None:
        self._on, self._name = Jax(name, device.type), name
        with needed_for(f"simulator {name}"):
            import pennylane  # noqa: F401

    def prepare(self, loss: Loss) -> Call:
        """See `Simulator.prepare`. Precision is global: it holds when a call is first made."""
        self._on.jax.config.update("jax_enable_x64", loss.real == np.float64)
        on = "default.qubit" if self._name == "default.qubit-jit" else "ketscale.fused"
        qnode = None if self._name == "fused-jax" else sample_function(loss.circuit, loss.words, on)
        return self._on.call(loss, qnode or self._fused(loss))

    def _fused(self, loss: Loss) -> Any:
        from ketscale.jax import expval

        values, circuit = expval(loss.circuit, loss.words), loss.circuit

        def one(row: Any, weights: Any) -> Any:
            return values(*([row] * bool(circuit.inputs)), *([weights] * bool(circuit.weights)))

        return one
