"""A damaged data file gives data or one clear error, in bounded time and memory."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from tests.faults import SEED, count, data

COUNT = count(40)


@pytest.mark.parametrize("kind", data.CASES)
def test_a_damaged_file_gives_data_or_one_clear_error(kind: str, tmp_path: Path) -> None:
    found = list(islice(data.mutations(data.CASES[kind](tmp_path), SEED, COUNT), 20))
    assert not found, "\n".join(found)
