"""Which simulators can be asked for; imports nothing heavy, for the config's checks at every start."""

from __future__ import annotations

from typing import NamedTuple


class Method(NamedTuple):
    """How a circuit is evaluated (`device`), differentiated (`gradient`) and fed a batch (`batching`)."""

    device: str
    gradient: str
    batching: str


SUPPORTED: frozenset[Method] = frozenset(
    {
        Method("fused", "adjoint", "broadcast"),
        Method("fused", "adjoint", "loop"),
        Method("default.qubit", "backprop", "broadcast"),
        Method("default.qubit", "parameter-shift", "loop"),
        Method("lightning.qubit", "adjoint", "loop"),
        Method("lightning.gpu", "adjoint", "loop"),
        Method("qiskit", "parameter-shift", "loop"),
    }
)

# Where the circuits run: on the model's own device, or on this one whatever the model's is.
PLACEMENTS: tuple[str, ...] = ("model", "cpu", "gpu")

# Simulators that compute on one kind of processor only; the others follow their placement.
BOUND_TO: dict[str, str] = {
    "lightning.qubit": "cpu",
    "qiskit": "cpu",
    "lightning.gpu": "cuda",
}

# How `fused` evaluates a circuit: by sweeping its gates over the states; by multiplying its part behind the last
# input into one matrix; the cheaper of these two; gate by gate with no algebra at all. The first is the default.
ROUTES: tuple[str, ...] = ("auto", "sweep", "matrix", "literal")
