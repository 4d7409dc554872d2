"""The record of every run of a config, checked by itself, against its data and against the other runs' records.

Status, recovery and tables all ask here, so that no run is done for one and refused by another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from ketscale.config import Config
from ketscale.grid import Run
from ketscale.jobs import prepared
from ketscale.measure import parity
from ketscale.measure.parity import Comparison
from ketscale.measure.record import Checked, check


@dataclass(frozen=True)
class Records:
    """What was found of every run of the config's studies, in scheduling order, and the runs that were compared."""

    checked: Mapping[Run, Checked]
    comparisons: tuple[Comparison, ...]


def read(config: Config, results: Path) -> Records:
    """Read and check the records below `results`.

    Raises:
        UserError: a source file of a workload cannot be read.
    """
    workloads = dict.fromkeys(run.workload for run in config.runs)
    features = {name: prepared.features_hash(prepared.manifest(config, results, name)) for name in workloads}
    outdated = {name for name in workloads if prepared.outdated(config, results, name)}
    checked = {}
    # Thousands of records have the same few blocks of settings, which are kept once.
    blocks: dict[bytes, Any] = {}
    for run in config.runs:
        found = check(results / run.path, config.settings(run), features[run.workload])
        if found.record is not None and run.workload in outdated:
            found = Checked(
                "stale",
                "trained on other data: its workload's settings or source files have changed since they were prepared",
            )
        if found.record is not None:
            given = found.record.config
            given |= {
                name: blocks.setdefault(msgspec.json.encode(block), block) for name, block in given.items()
            }
        checked[run] = found
    comparisons = parity.compare(checked)
    return Records(parity.refuse(checked, comparisons), tuple(comparisons))
