"""The runs that two results folders have in common, and why the others cannot be compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ketscale.analysis.columns import Column, Trained
from ketscale.analysis.comparability import host_class as hardware
from ketscale.analysis.completeness import code
from ketscale.config import Settings
from ketscale.errors import UserError
from ketscale.grid import PATTERN, RECORD, RUNS, Run
from ketscale.measure import parity
from ketscale.measure.form import Record
from ketscale.measure.record import Checked, check_alone
from ketscale.problems.registry import FAMILIES

# Largest relative difference of the first losses of one run that was trained twice, perhaps by other code.
SAME_LOSSES = {"fp64": parity.ACROSS_SIMULATORS, "fp32": parity.SINGLE_PRECISION}


@dataclass(frozen=True)
class Folder:
    """The records below a results folder: what was found at each run's path, with the settings of valid records."""

    path: Path
    found: Mapping[Run, tuple[Checked, Settings | None]]

    @property
    def records(self) -> list[Record]:
        """Those that can be trusted."""
        return [checked.record for checked, _ in self.found.values() if checked.record is not None]

    def about(self) -> dict[str, Any]:
        """The folder, how many records it has, and the code, the hardware and the packages that they are of."""
        packages: dict[str, set[str]] = {}
        for record in self.records:
            for name, version in record.packages.items():
                packages.setdefault(name, set()).add(version)
        return {
            "folder": str(self.path),
            "records": len(self.records),
            "code": sorted({code(record) for record in self.records}),
            "hardware": sorted({hardware(record.machine) for record in self.records}),
            "packages": {name: sorted(versions) for name, versions in sorted(packages.items())},
        }


@dataclass(frozen=True)
class Pair:
    """The two records of one run with the same settings, data and hardware; both completed."""

    run: Run
    settings: Settings
    hardware: str
    first: Record
    second: Record

    @property
    def untimed(self) -> str:
        """Why their times cannot be compared; '' if they can."""
        if not self.settings.protocol.timed:
            return "not timed alone, by their protocol"
        return "" if self.first.quiet.quiet and self.second.quiet.quiet else "busy"

    def values(self, column: Column) -> tuple[Any, Any]:
        """A column of the first and of the second."""
        assert column.of is not None
        return column.of(Trained(self.first, self.settings)), column.of(Trained(self.second, self.settings))

    @property
    def same_losses(self) -> bool:
        """Whether both computed the same: their first losses agree within the limit of their precision."""
        limit = SAME_LOSSES.get(self.settings.protocol.precision)
        found = parity.between((self.run, self.second), (self.run, self.first))
        return limit is None or found is None or found <= limit


def read(results: Path) -> Folder:
    """Every record below a results folder.

    Raises:
        UserError: there is none.
    """
    places = [*results.glob("/".join([RUNS, *("*" for _ in PATTERN.split("/")), RECORD]))]
    if not places:
        raise UserError(f"{results}: no records below {results / RUNS}; name a folder of results")
    return Folder(results, {Run.parse(str(path)): check_alone(path, FAMILIES) for path in sorted(places)})


def pair(a: Folder, b: Folder) -> tuple[list[Pair], list[Run], Counter[str]]:
    """The pairs; the runs that completed in A and failed or have a refused record in B; and how many runs are left out, by reason."""
    pairs, failed, left_out = [], [], Counter[str]()
    for run in sorted(a.found.keys() | b.found.keys()):
        if run not in a.found or run not in b.found:
            left_out[f"only in {'A' if run in a.found else 'B'}"] += 1
            continue
        (first, settings), (second, others) = a.found[run], b.found[run]
        if first.state == "completed" and second.state == "refused":
            failed.append(run)
            continue
        if first.record is None or second.record is None or settings is None or others is None:
            left_out[f"{(first if first.record is None else second).state} record"] += 1
            continue
        reason = _differs(first.record, second.record, settings, others)
        if not reason and first.state == "completed" != second.state:
            failed.append(run)
        elif not reason and first.state == "completed":
            pairs.append(Pair(run, settings, hardware(first.record.machine), first.record, second.record))
        else:
            left_out[reason or f"{first.state.replace('_', ' ')} in A"] += 1
    return pairs, failed, left_out


def _differs(first: Record, second: Record, settings: Settings, others: Settings) -> str:
    if settings.content != others.content:
        return "other settings"
    if (first.data_hash, first.features_hash) != (second.data_hash, second.features_hash):
        return "other data"
    return "" if hardware(first.machine) == hardware(second.machine) else "other hardware"
