"""KetScale: train hybrid quantum-classical models fast, and measure honestly what is fastest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ketscale.lazy import on_first_use

if TYPE_CHECKING:
    from ketscale.engines.circuits.circuit import Circuit
    from ketscale.interop.estimators import CircuitClassifier, CircuitRegressor
    from ketscale.interop.expressions import ParametrisedCircuit
    from ketscale.interop.layer import Layer
    from ketscale.interop.qiskit import from_qiskit
    from ketscale.interop.qiskit_primitives import FusedEstimator, FusedEstimatorGradient
    from ketscale.interop.qnode import from_qnode
    from ketscale.problems.fitted import Fitted
    from ketscale.problems.library import construct, load

__version__ = "0.4.0"
__all__ = [
    "Circuit",
    "CircuitClassifier",
    "CircuitRegressor",
    "Fitted",
    "FusedEstimator",
    "FusedEstimatorGradient",
    "Layer",
    "ParametrisedCircuit",
    "__version__",
    "construct",
    "from_qiskit",
    "from_qnode",
    "load",
]

__getattr__ = on_first_use(
    __name__,
    {
        "ketscale.engines.circuits.circuit": "Circuit",
        "ketscale.interop.estimators": "CircuitClassifier CircuitRegressor",
        "ketscale.interop.expressions": "ParametrisedCircuit",
        "ketscale.interop.layer": "Layer",
        "ketscale.interop.qiskit": "from_qiskit",
        "ketscale.interop.qiskit_primitives": "FusedEstimator FusedEstimatorGradient",
        "ketscale.interop.qnode": "from_qnode",
        "ketscale.problems.fitted": "Fitted",
        "ketscale.problems.library": "construct load",
    },
)
