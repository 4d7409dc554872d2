"""Equal settings have the same canonical text and the same hash."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any


def canonical(settings: Mapping[str, Any]) -> str:
    """Sorted JSON without spaces.

    Raises:
        ValueError: a number is not finite, which JSON cannot say.
    """
    return json.dumps(settings, sort_keys=True, separators=(",", ":"), allow_nan=False)


def config_hash(settings: Mapping[str, Any]) -> str:
    """SHA-256 of the resolved settings, hexadecimal."""
    return hashlib.sha256(canonical(settings).encode()).hexdigest()
