"""Ceilings of lines: what counts as a room, and what is too large."""

from collections import Counter
from pathlib import PurePosixPath

import pytest

from tests.style import rooms


@pytest.mark.parametrize(
    ("path", "room"),
    [
        ("workflow/ketscale/files.py", "workflow/ketscale"),
        ("workflow/ketscale/engines/circuits/fused/cpu.py", "workflow/ketscale/engines/circuits"),
        ("tests/unit/engines/circuits/test_fused.py", "tests/unit/engines"),
        ("tests/nightly/slurm/project.py", "tests/nightly"),
        ("README.md", "words of docs"),
        ("docs/measurements/2026-11-h100.md", None),
        ("docs/changelog.md", None),
    ],
)
def test_a_file_is_in_a_room(path: str, room: str | None) -> None:
    assert rooms.room(PurePosixPath(path)) == room


def test_a_room_above_its_ceiling_or_without_one_is_named() -> None:
    sizes = Counter({"small": 9, "full": 10, "large": 11, "new": 1})
    wrong = rooms.faults(sizes, {"small": 10, "full": 10, "large": 10})
    assert [fault.partition(":")[0] for fault in wrong] == ["large", "new"]


def test_every_room_has_a_ceiling() -> None:
    assert rooms.counts().keys() <= rooms.ceilings().keys()
