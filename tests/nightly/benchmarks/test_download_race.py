"""The race of downloads, on real files where they are; and what it says without them."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from benchmarks import download_race
from tests import ROOT

SHARED = Path(os.environ.get("KETSCALE_SHARED", ROOT.parent / "shared")) / "data/eegmmidb/S001"


@pytest.mark.slow
def test_a_race_of_one_repeat_tells_both_ways(capsys: pytest.CaptureFixture[str]) -> None:
    if not SHARED.is_dir():
        pytest.skip(f"{SHARED} is absent; KETSCALE_SHARED names the folder that holds data/eegmmidb")
    download_race.main([str(SHARED), "--repeats", "1"])
    said = [line for line in capsys.readouterr().out.splitlines() if "repeats failed" in line]
    assert [re.sub(r": [01] of 1 ", ": N of 1 ", line) for line in said] == [
        "two at once: N of 1 repeats failed",
        "one, then two: N of 1 repeats failed",
    ]


def test_missing_files_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        download_race.main([str(tmp_path)])
    assert f"{tmp_path / 'S001R04.edf'}: no such file" in capsys.readouterr().err
