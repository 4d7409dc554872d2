"""Systems are read from tables, which gives the bits of their own code: tests/unit/engines/dynamics/test_code.py."""

import pytest


@pytest.fixture(autouse=True)
def tables(read_from_tables: None) -> None:
    """No code of their own."""
