"""KetScale: train hybrid quantum-classical models fast, and measure honestly what pays."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ketscale.engines.circuits.circuit import Circuit
    from ketscale.engines.specialised import specialise
    from ketscale.interop.estimators import CircuitClassifier, CircuitRegressor
    from ketscale.interop.expressions import ParametrisedCircuit
    from ketscale.interop.layer import Layer
    from ketscale.interop.qiskit import from_qasm2, from_qasm3, from_qiskit
    from ketscale.interop.qiskit_primitives import FusedEstimator, FusedEstimatorGradient, FusedSampler
    from ketscale.interop.qnode import from_qnode
    from ketscale.problems.fitted import Fitted
    from ketscale.problems.library import construct, load, predictions

__version__ = "0.4.0"
__all__ = [
    "Circuit",
    "CircuitClassifier",
    "CircuitRegressor",
    "Fitted",
    "FusedEstimator",
    "FusedEstimatorGradient",
    "FusedSampler",
    "Layer",
    "ParametrisedCircuit",
    "__version__",
    "construct",
    "from_qasm2",
    "from_qasm3",
    "from_qiskit",
    "from_qnode",
    "load",
    "predictions",
    "specialise",
]

_HOMES = {
    "Circuit": "ketscale.engines.circuits.circuit",
    "CircuitClassifier": "ketscale.interop.estimators",
    "CircuitRegressor": "ketscale.interop.estimators",
    "Fitted": "ketscale.problems.fitted",
    "FusedEstimator": "ketscale.interop.qiskit_primitives",
    "FusedEstimatorGradient": "ketscale.interop.qiskit_primitives",
    "FusedSampler": "ketscale.interop.qiskit_primitives",
    "Layer": "ketscale.interop.layer",
    "ParametrisedCircuit": "ketscale.interop.expressions",
    "construct": "ketscale.problems.library",
    "from_qasm2": "ketscale.interop.qiskit",
    "from_qasm3": "ketscale.interop.qiskit",
    "from_qiskit": "ketscale.interop.qiskit",
    "from_qnode": "ketscale.interop.qnode",
    "load": "ketscale.problems.library",
    "predictions": "ketscale.problems.library",
    "specialise": "ketscale.engines.specialised",
}


def __getattr__(name: str) -> Any:
    """Import what is public on first use, since most commands need no torch."""
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
