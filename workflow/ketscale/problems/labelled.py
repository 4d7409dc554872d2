"""What the specifications of families with labelled data and circuits have in common. Imports nothing heavy."""

from __future__ import annotations

from ketscale.config import Metric, SizeAxis

CIRCUIT_SIZES = (SizeAxis("q", "qubits", "qubits"), SizeAxis("l", "layers", "circuit layers", "depth"))
# What `Classification` gives; see there.
CLASSIFICATION = (
    Metric("accuracy", "accuracy", "share correct", "up"),
    Metric("auc", "AUC", "", "up"),
    Metric("f1", "F1", "", "up"),
)
# Two simulators for tiny studies, whose numbers must agree.
TINY_SIMULATORS = {
    "fused": {"device": "fused", "gradient": "adjoint", "batching": "broadcast"},
    "default.qubit": {"device": "default.qubit", "gradient": "backprop", "batching": "broadcast"},
}
