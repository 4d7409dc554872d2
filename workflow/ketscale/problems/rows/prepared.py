"""Prepared rows: their features standardised, with targets and split."""

from __future__ import annotations

from pathlib import Path

from ketscale.config import Data, Settings
from ketscale.problems import store
from ketscale.problems.rows.specification import RowsWorkload
from ketscale.problems.vectors import prepared

VERSION = 2  # increase it whenever the arithmetic or the files of prepared rows change


def prepare(workload: RowsWorkload, manifest: Path, fetched: Path | None) -> None:
    """Standardise the features and write them with their targets and split; see `vectors.prepared.prepare`."""
    prepared.prepare(workload, workload.load(fetched), manifest, VERSION)


def read(settings: Settings, manifest: Path) -> Data:
    """Open and verify the features and their targets."""
    assert isinstance(settings.workload, RowsWorkload)
    folder = store.opened(manifest, VERSION)
    return prepared.data(folder, prepared.dataset(folder), settings.workload.split_by)
