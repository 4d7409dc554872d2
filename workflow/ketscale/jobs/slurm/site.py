"""The site file: what a user says about a cluster, and what a run asks for there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ketscale import config
from ketscale.config.schema import check_schema
from ketscale.errors import UserError
from ketscale.grid import Run
from ketscale.measure.records import SCHEMAS
from ketscale.parallel.backends import BACKENDS

PATH = Path("profiles/slurm/site.yaml")
SCHEMA = SCHEMAS / "site.schema.yaml"
# What a job needs beside its ranks: Snakemake twice (once for the pack, once for the run), and what starts the ranks.
OVERHEAD_MB = 700
_ASKED = ("minutes", "memory_mb")


@dataclass(frozen=True)
class Site:
    """The settings of profiles/slurm/site.yaml; its schema describes them."""

    account: str | None
    partition: str | None
    limits: tuple[Mapping[str, Any], ...]
    gpu_partition: str | None = None
    gpu_type: str | None = None
    qos: str | None = None
    constraint: str | None = None
    setup: str = ""
    mpi: str = "pmix"
    warning_s: int = 120
    pack_minutes: int = 60
    pack_runs: int = 30
    features_minutes: int = 30
    features_memory_mb: int = 4000

    def minutes(self, run: Run, factor: float = 1) -> int:
        """Time limit of the run in minutes, so many times the first try's."""
        return int(self._asked(run, "minutes") * factor)

    def memory_mb(self, run: Run, attempt: int = 1) -> int:
        """Memory of each node of the run in megabytes: its ranks there, and what starts them."""
        return self._asked(run, "memory_mb") * (run.ranks // run.nodes) * attempt + OVERHEAD_MB

    def partition_of(self, run: Run) -> str | None:
        """Where the run goes; None for the cluster's default."""
        return self.gpu_partition or self.partition if gpus_per_node(run) else self.partition

    def _asked(self, run: Run, key: str) -> int:
        for line in reversed(self.limits):
            if key in line and all(_fits(run, axis, line[axis]) for axis in line if axis not in _ASKED):
                return line[key]
        raise UserError(
            f"{PATH}: limits gives no {key} for {run.path}; begin it with a line for every run, such as "
            "{minutes: 10, memory_mb: 2000}"
        )


def load(path: Path = PATH) -> Site:
    """The site file, checked.

    Raises:
        UserError: it is missing, is not YAML, breaks its schema, or has no limits for some runs.
    """
    settings = config.load(path)
    try:
        check_schema(settings, SCHEMA)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    for block in ("pack", "features"):
        settings |= {f"{block}_{key}": value for key, value in settings.pop(block, {}).items()}
    settings["limits"] = tuple(settings["limits"])
    return Site(**{field.name: settings[field.name] for field in fields(Site) if field.name in settings})


def here() -> str | None:
    """The id of the SLURM job that this process is in; None outside of one."""
    return os.environ.get("SLURM_JOB_ID")


def gpus_per_node(run: Run) -> int:
    """GPUs of each of the run's nodes, one a rank."""
    return run.ranks // run.nodes if BACKENDS[run.backend].device == "gpu" else 0


def cores_per_node(run: Run) -> int:
    """Cores of each of the run's nodes, one a thread."""
    return run.ranks * run.threads // run.nodes


def _fits(run: Run, axis: str, wanted: Any) -> bool:
    return getattr(run, axis) in (wanted if isinstance(wanted, list) else [wanted])
