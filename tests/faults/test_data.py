"""No damaged data file gives anything but data or one clear error, in bounded time and memory.

KETSCALE_FAULT_SEED chooses other faults, KETSCALE_FAULT_COUNT how many of each kind.
"""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path

import pytest
from tests.faults import data

SEED = int(os.environ.get("KETSCALE_FAULT_SEED", "16"))
COUNT = int(os.environ.get("KETSCALE_FAULT_COUNT", "40"))


@pytest.mark.parametrize("kind", data.CASES)
def test_a_damaged_file_gives_data_or_one_clear_error(kind: str, tmp_path: Path) -> None:
    found = list(islice(data.mutations(data.CASES[kind](tmp_path), SEED, COUNT), 20))
    assert not found, "\n".join(found)
