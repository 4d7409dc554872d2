"""KetScale: train hybrid quantum-classical models fast, and measure honestly what pays."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ketscale.engines.circuits.circuit import Circuit
    from ketscale.interop.qnode import from_qnode
    from ketscale.problems.library import construct, load

__version__ = "0.4.0"
__all__ = ["Circuit", "__version__", "construct", "from_qnode", "load"]

_MODULES = {
    "Circuit": "engines.circuits.circuit",
    "construct": "problems.library",
    "from_qnode": "interop.qnode",
    "load": "problems.library",
}


def __getattr__(name: str) -> Any:
    """Import the package's functions and classes on first use, since most commands need no torch."""
    if name in _MODULES:
        return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
