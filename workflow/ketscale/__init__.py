"""KetScale: train hybrid quantum-classical models fast, and measure honestly what pays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ketscale.problems.library import construct, load

__version__ = "0.4.0"
__all__ = ["__version__", "construct", "load"]


def __getattr__(name: str) -> Any:
    """Import `construct` and `load` on first use, since most commands need no torch."""
    if name in __all__:
        from ketscale.problems import library

        return getattr(library, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
