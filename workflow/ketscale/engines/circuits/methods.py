"""Which simulators can be asked for; imports nothing heavy, for the config's checks at every start."""

from __future__ import annotations

from typing import NamedTuple


class Method(NamedTuple):
    """How a circuit is evaluated (`device`), differentiated (`gradient`) and fed a batch (`batching`)."""

    device: str
    gradient: str
    batching: str


# The usual method of each simulator, by the name that a model takes and the config's own blocks use.
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
