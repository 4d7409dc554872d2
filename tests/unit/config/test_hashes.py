"""No hash of settings moves, so that what is trained stays trained: a new field is named in its block's `later`.

`python -m tests.unit.config.test_hashes` stores the hashes anew, such as those of a study that has got more runs.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from ketscale.problems.registry import read_config
from tests import ROOT
from tests.ready_made import ALL

DATA = ROOT / "tests" / "data"
STORED = DATA / "config-hashes.json"
CONFIGS = [ROOT / "config.yaml", *ALL, *sorted(DATA.glob("*.yaml")), *sorted(DATA.glob("configs/*.yaml"))]


def hashed(path: Path) -> str:
    """SHA-256 of the paths and hashes of a config's runs, and of the texts of its workloads, which decide what is prepared."""
    config = read_config(path)
    lines = [f"{run.path} {config.settings(run).hash}" for run in sorted(config.runs)]
    lines += [config.workload_text(name) for name in sorted(config.workloads)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_the_hashes_of_a_config_are_the_stored_ones(path: Path) -> None:
    assert json.loads(STORED.read_text())[str(path.relative_to(ROOT))] == hashed(path)


if __name__ == "__main__":
    STORED.write_text(json.dumps({str(p.relative_to(ROOT)): hashed(p) for p in CONFIGS}, indent=1) + "\n")
