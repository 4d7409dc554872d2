"""Builds what a registry names: a simulator of circuits, dynamics or pulses, from the settings that it takes."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Mapping
from typing import Any


def build(implementation: str, values: Mapping[str, Any]) -> Any:
    """Call an implementation, 'package.module:Name', with those of the known values that it names and that are not None."""
    factory = pkgutil.resolve_name(implementation)
    names = inspect.signature(factory).parameters
    return factory(**{name: value for name, value in values.items() if name in names and value is not None})
