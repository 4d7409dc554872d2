"""The simulators of circuits, one line each. Imports nothing heavy, since configs are checked with it at every start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class CircuitMethod:
    """A simulator that can be chosen, and what is known about it without importing it.

    name: its usual name, which models and `ketscale.Layer` accept.
    device, gradient, batching: the settings that choose it: what evaluates a circuit, how it is differentiated, and
        whether a batch is one call (broadcast) or one call for each sample (loop).
    implementation: what builds it, as 'package.module:Name'; it takes those of the settings that it names as arguments.
    processor: the only kind that it computes on; None if it follows its placement.
    stacks: whether it evaluates several sets of weights at once, under torch.func.vmap.
    how: how a call for the whole batch is made by a simulator that is not ours.
    shots: what the gradient of results from shots is, in words; None if it is exact and takes no shots.
    """

    name: str
    device: str
    gradient: str
    batching: Literal["broadcast", "loop"]
    implementation: str
    processor: Literal["cpu", "cuda"] | None = None
    stacks: bool = False
    how: str = "torch"
    shots: str | None = None

    @property
    def mode(self) -> str | None:
        """What describes its numbers in tables and figures; None for ours at its best."""
        if self.batching == "loop":
            return f"{self.gradient}, by sample"
        return None if self.device == "fused" else f"{self.how}, {self.gradient}"


_FUSED, _PENNYLANE = "ketscale.engines.circuits.fused", "ketscale.engines.circuits.pennylane:PennyLane"
_JITTED, _JIT = "ketscale.engines.circuits.jitted:Jitted", "jax.jit, vmap"
_QISKIT = "ketscale.engines.circuits.qiskit:Qiskit"

SIMULATORS: dict[str, CircuitMethod] = {
    method.name: method
    for method in (
        CircuitMethod("fused", "fused", "adjoint", "broadcast", f"{_FUSED}:Fused", stacks=True),
        CircuitMethod("fused-loop", "fused", "adjoint", "loop", f"{_FUSED}:looped"),
        CircuitMethod("default.qubit", "default.qubit", "backprop", "broadcast", _PENNYLANE),
        CircuitMethod("default.qubit-loop-shift", "default.qubit", "parameter-shift", "loop", _PENNYLANE),
        CircuitMethod(
            "default.qubit-jit", "default.qubit-jit", "backprop", "broadcast", _JITTED, "cpu", how=_JIT
        ),
        CircuitMethod("lightning.qubit", "lightning.qubit", "adjoint", "loop", _PENNYLANE, "cpu"),
        CircuitMethod("lightning.gpu", "lightning.gpu", "adjoint", "loop", _PENNYLANE, "cuda"),
        CircuitMethod("qiskit", "qiskit", "parameter-shift", "loop", _QISKIT, "cpu"),
    )
}

# Simulators with shots are named by their block, as the number of shots is a setting.
_SHOTS = "ketscale.engines.circuits.shots:fused"
WITH_SHOTS = (
    CircuitMethod("", "fused", "shift", "broadcast", _SHOTS, shots="gradient with shots of its own"),
    CircuitMethod("", "fused", "exact", "broadcast", _SHOTS, shots="noisy value, exact gradient"),
)
METHODS = (*SIMULATORS.values(), *WITH_SHOTS)
