"""The simulators that can be chosen. Imports nothing heavy, since configs are checked with it at every start."""

from __future__ import annotations

from typing import NamedTuple


class Method(NamedTuple):
    """How a circuit is evaluated (`device`), differentiated (`gradient`) and given a batch (`batching`)."""

    device: str
    gradient: str
    batching: str


# The usual method of each simulator, by the name that models accept and that the config's blocks use.
USUAL: dict[str, Method] = {
    "fused": Method("fused", "adjoint", "broadcast"),
    "default.qubit": Method("default.qubit", "backprop", "broadcast"),
    "default.qubit-loop-shift": Method("default.qubit", "parameter-shift", "loop"),
    "lightning.qubit": Method("lightning.qubit", "adjoint", "loop"),
    "lightning.gpu": Method("lightning.gpu", "adjoint", "loop"),
    "qiskit": Method("qiskit", "parameter-shift", "loop"),
}

SUPPORTED: frozenset[Method] = frozenset({*USUAL.values(), Method("fused", "adjoint", "loop")})

# Simulators that compute on one kind of processor only; the others follow their placement.
BOUND_TO: dict[str, str] = {
    "lightning.qubit": "cpu",
    "qiskit": "cpu",
    "lightning.gpu": "cuda",
}
