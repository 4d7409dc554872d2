"""Names that a package imports on first use, since they bring torch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def on_first_use(package: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package. names: by module, what the package has from it, with spaces between."""
    homes = {name: module for module, each in names.items() for name in each.split()}

    def found(name: str) -> Any:
        if name in homes:
            value = getattr(import_module(homes[name]), name)
            # The next use does not come here: that would take as long as some steps of a small system.
            setattr(sys.modules[package], name, value)
            return value
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return found
