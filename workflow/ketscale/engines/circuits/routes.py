"""The routes that this process's simulators took, for the record of its run; imports nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ketscale.engines.circuits.circuit import Circuit

_taken: dict[tuple[Circuit, int, str], dict[str, Any]] = {}


def note(circuit: Circuit, batch: int, route: str, modelled: Mapping[str, float]) -> None:
    """Keep the route of a circuit and batch size, with the modelled seconds of the routes compared."""
    entry = {
        "qubits": circuit.qubits,
        "gates": len(circuit.gates),
        "batch": batch,
        "route": route,
        **modelled,
    }
    _taken[circuit, batch, route] = entry


def taken() -> list[dict[str, Any]]:
    """What was noted, in the order of the first calls."""
    return list(_taken.values())
