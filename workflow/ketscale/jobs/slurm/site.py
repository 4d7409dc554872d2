"""The site file: the user's description of a cluster, and what a run asks for there."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from ketscale.config import Block, load, parse
from ketscale.config.block import Text
from ketscale.errors import UserError
from ketscale.grid import BACKENDS, POINT, Run
from ketscale.jobs import driver
from ketscale.words import suggestion

# The site file of this folder, or the one that KETSCALE_SITE names (set by the workflow if this folder has none).
PATH = Path(os.environ.get("KETSCALE_SITE") or "profiles/slurm/site.yaml")
# Memory that a job needs besides its ranks: Snakemake twice (for the job group and for the run), and the launcher.
OVERHEAD_MB = 700
_REQUESTS = ("minutes", "memory_mb")


class Pack(Block, frozen=True, kw_only=True):
    """The size of a job group: runs in turn in one allocation, up to these limits; a block of timed runs is never split."""

    minutes: Annotated[int, Meta(ge=1, description="Limit of the sum of the runs' time limits")]
    runs: Annotated[int, Meta(ge=1, description="Limit of the number of runs")]


class Preparation(Block, frozen=True, kw_only=True):
    """What preparing a workload's data asks for at first; a retry doubles memory."""

    minutes: Annotated[int, Meta(ge=1, description="Time limit")]
    memory_mb: Annotated[int, Meta(ge=100, description="Memory in megabytes")]


class SiteFile(Block, frozen=True, kw_only=True):
    """A cluster as its users see it."""

    account: Annotated[Text | None, Meta(description="The account to charge; null if you have only one")] = (
        None
    )
    partition: Annotated[
        Text | None, Meta(description="Partition for runs on CPUs; null for the cluster's default")
    ] = None
    gpu_partition: Annotated[
        Text | None, Meta(description="Partition for runs on GPUs; null for the same as partition")
    ] = None
    gpu_type: Annotated[
        Annotated[str, Meta(extra_json_schema={"pattern": r"^[A-Za-z0-9_.]+$"})] | None,
        Meta(description="Type of GPU, e.g. h200; null for any (`sinfo -o %G` lists them)"),
    ] = None
    qos: Annotated[Text | None, Meta(description="Quality of service; null for the default")] = None
    constraint: Annotated[Text | None, Meta(description="Features that nodes must have")] = None
    node_type: Annotated[
        Text | None,
        Meta(
            description="A name for the partition's nodes if all are alike: only times on one type are compared"
        ),
    ] = None
    gpu_node_type: Annotated[Text | None, Meta(description="The same of the partition for GPUs")] = None
    setup: Annotated[
        str,
        Meta(
            description="Shell commands before each run and before preparing data, such as `module load cuda`"
        ),
    ] = ""
    mpi: Annotated[
        str,
        Meta(
            extra_json_schema={"pattern": r"^[a-z0-9_]+$"},
            description="How srun starts MPI ranks: one of `srun --mpi=list` that the MPI library supports",
        ),
    ] = "pmix"
    pack: Pack = Pack(minutes=60, runs=30)
    features: Preparation = Preparation(minutes=30, memory_mb=4000)
    limits: Annotated[
        list[dict[str, Any]],
        Meta(
            min_length=1,
            description="Time (minutes) and memory (memory_mb, per rank) that a run asks for; the last line that "
            "matches a run and has the key counts",
        ),
    ]


@dataclass(frozen=True)
class Site:
    """The settings of a site file, and what runs ask for according to them.

    sizes: gives a run's sizes by name, which `limits` may use.
    """

    file: SiteFile
    sizes: Callable[[Run], Mapping[str, int]]

    def minutes(self, run: Run) -> int:
        """The time limit of the run's first attempt."""
        return self._request(run, "minutes")

    def memory_mb(self, run: Run) -> int:
        """The megabytes per node of the run's first attempt: for its ranks there, and for what starts them."""
        return self._request(run, "memory_mb") * (run.ranks // run.nodes) + OVERHEAD_MB

    def partition_of(self, run: Run) -> str | None:
        """The run's partition; None for the cluster's default."""
        return self.file.gpu_partition or self.file.partition if gpus_per_node(run) else self.file.partition

    def _request(self, run: Run, key: str) -> int:
        axes = {axis: getattr(run, axis) for axis in _AXES} | dict(self.sizes(run))
        for line in reversed(self.file.limits):
            values = {axis: value if isinstance(value, list) else [value] for axis, value in line.items()}
            if key in line and all(axes.get(axis) in values[axis] for axis in line if axis not in _REQUESTS):
                return int(line[key])
        raise UserError(
            f"{PATH}: limits has no {key} for {run.path}; begin it with a line for all runs, such as "
            "{minutes: 10, memory_mb: 2000}"
        )


_AXES = (*(axis for axis in POINT if axis not in ("layout", "size")), "backend")


def path_of(folder: Path) -> Path:
    """The site file of a folder: its own, else that of the checkout."""
    path = folder / PATH
    return path if path.exists() else driver.CHECKOUT / PATH


def load_site(sizes: Callable[[Run], Mapping[str, int]], axes: tuple[str, ...], path: Path = PATH) -> Site:
    """The checked site file. sizes: gives a run's sizes by name; axes: the names of all.

    Raises:
        UserError: the file is missing or is not YAML, or a setting is wrong.
    """
    file = read_file(path)
    names = (*_AXES, *axes, *_REQUESTS)
    for number, line in enumerate(file.limits):
        for key in line:
            if key not in names:
                raise UserError(f"{path}: limits.{number}.{key}: unknown setting{suggestion(key, names)}")
    return Site(file, sizes)


def read_file(path: Path = PATH) -> SiteFile:
    """The settings of the site file; the axes inside `limits` are not checked.

    Raises:
        UserError: as for `load_site`.
    """
    try:
        # A setting that is null is the same as a missing one.
        settings = {key: value for key, value in load(path).items() if value is not None}
        file = parse(SiteFile, settings, "")
        for number, line in enumerate(file.limits):
            request = {key: line[key] for key in _REQUESTS if key in line}
            parse(Preparation, {"minutes": 1, "memory_mb": 100} | request, f"limits.{number}")
        return file
    except UserError as error:
        lines = map(str, error.args)
        raise UserError(
            *(line if line.startswith(str(path)) else f"{path}: {line}" for line in lines)
        ) from None


def gpus_per_node(run: Run) -> int:
    """The run's GPUs per node, one for each rank."""
    return run.ranks // run.nodes if BACKENDS[run.backend].device == "gpu" else 0


def cores_per_node(run: Run) -> int:
    """The run's cores per node, one for each thread."""
    return run.ranks * run.threads // run.nodes
