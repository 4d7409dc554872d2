"""JAX as its tests need it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import pytest


@pytest.fixture
def exact_jax() -> Iterator[Any]:
    """In double precision, also in the threads of its callbacks, and with a compiler in a hurry; its settings are global."""
    settings = ("jax_enable_x64", "jax_disable_most_optimizations")
    before = {name: jax.config.read(name) for name in settings}
    for name in settings:
        jax.config.update(name, True)
    yield jax
    for name, value in before.items():
        jax.config.update(name, value)
