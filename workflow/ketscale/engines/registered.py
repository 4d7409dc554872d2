"""Builds what a registry names: a simulator of circuits, dynamics or pulses, from the settings that it takes."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Mapping
from typing import Any


def build(implementation: str, known: Mapping[str, Any]) -> Any:
    """Call an implementation, 'package.module:Name', with those of the known values that it names and that are not None."""
    made = pkgutil.resolve_name(implementation)
    taken = inspect.signature(made).parameters
    return made(**{name: value for name, value in known.items() if name in taken and value is not None})
