"""The site file: what a user says about a cluster, and what a run asks for there."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from ketscale.config import Block, load, parse, suggestion
from ketscale.errors import UserError
from ketscale.grid import BACKENDS, POINT, Run

# The site file of this folder, or the one that KETSCALE_SITE names (the workflow sets it where it runs elsewhere).
PATH = Path(os.environ.get("KETSCALE_SITE", "profiles/slurm/site.yaml"))
# What a job needs beside its ranks: Snakemake twice (once for the pack, once for the run), and what starts the ranks.
OVERHEAD_MB = 700
_ASKED = ("minutes", "memory_mb")
_Text = Annotated[str, Meta(min_length=1)]


class Pack(Block, frozen=True, kw_only=True):
    """Runs share an allocation, one after another, up to these sums; a block of timed runs is never split."""

    minutes: Annotated[
        int, Meta(ge=1, description="Most minutes that the time limits of a pack's runs add up to")
    ]
    runs: Annotated[int, Meta(ge=1, description="Most runs of a pack")]


class Features(Block, frozen=True, kw_only=True):
    """What preparing a workload's data asks for, times the attempt."""

    minutes: Annotated[int, Meta(ge=1, description="Time limit")]
    memory_mb: Annotated[int, Meta(ge=100, description="Memory in megabytes")]


class SiteFile(Block, frozen=True, kw_only=True):
    """A cluster as its users see it."""

    account: (
        Annotated[
            str,
            Meta(
                min_length=1, description="The account that jobs are charged to; null where you have only one"
            ),
        ]
        | None
    ) = None
    partition: (
        Annotated[
            str, Meta(min_length=1, description="Where runs on CPUs go; null for the cluster's default")
        ]
        | None
    ) = None
    gpu_partition: (
        Annotated[
            str, Meta(min_length=1, description="Where runs on GPUs go; null for the same as partition")
        ]
        | None
    ) = None
    gpu_type: (
        Annotated[
            str,
            Meta(
                extra_json_schema={"pattern": r"^[A-Za-z0-9_.]+$"},
                description="Type of GPU, e.g. h200; null for any (`sinfo -o %G` lists them)",
            ),
        ]
        | None
    ) = None
    qos: Annotated[str, Meta(min_length=1, description="Quality of service; null for the default")] | None = (
        None
    )
    constraint: (
        Annotated[str, Meta(min_length=1, description="Features that nodes must have; null for none")] | None
    ) = None
    setup: Annotated[
        str,
        Meta(
            description="Shell commands before each run, and before preparing data, such as `module load cuda`; one that "
            "fails ends the run"
        ),
    ] = ""
    mpi: Annotated[
        str,
        Meta(
            extra_json_schema={"pattern": r"^[a-z0-9_]+$"},
            description="How srun starts MPI ranks: what `srun --mpi=list` offers and the MPI library understands",
        ),
    ] = "pmix"
    warning_s: Annotated[
        int,
        Meta(
            ge=1,
            description="Seconds before its time limit that a run is told to save a checkpoint (SIGUSR1)",
        ),
    ] = 120
    pack: Pack = Pack(minutes=60, runs=30)
    features: Features = Features(minutes=30, memory_mb=4000)
    limits: Annotated[
        list[dict[str, Any]],
        Meta(
            min_length=1,
            description="Time (minutes) and memory (memory_mb, of each rank) that a run asks for; of the lines that fit it "
            "the last one with the key counts",
        ),
    ]

    def faults(self) -> Iterator[str]:
        """Minutes and memory that are no numbers."""
        for number, line in enumerate(self.limits):
            for key, least in (("minutes", 1), ("memory_mb", 100)):
                value = line.get(key, least)
                if isinstance(value, bool) or not isinstance(value, int):
                    yield f"limits.{number}.{key}: {value!r} should be a whole number"
                elif value < least:
                    yield f"limits.{number}.{key}: {value} is too small; it should be at least {least}"


@dataclass(frozen=True)
class Site:
    """The settings of a site file, and what runs ask for by them.

    sizes: a run's sizes by name, which `limits` may name.
    """

    file: SiteFile
    sizes: Callable[[Run], Mapping[str, int]]

    def minutes(self, run: Run, factor: float = 1) -> int:
        """Time limit of the run in minutes, so many times the first try's."""
        return int(self._asked(run, "minutes") * factor)

    def memory_mb(self, run: Run, attempt: int = 1) -> int:
        """Memory of each node of the run in megabytes: its ranks there, and what starts them."""
        return self._asked(run, "memory_mb") * (run.ranks // run.nodes) * attempt + OVERHEAD_MB

    def partition_of(self, run: Run) -> str | None:
        """Where the run goes; None for the cluster's default."""
        return self.file.gpu_partition or self.file.partition if gpus_per_node(run) else self.file.partition

    def _asked(self, run: Run, key: str) -> int:
        axes = {axis: getattr(run, axis) for axis in _AXES} | dict(self.sizes(run))
        for line in reversed(self.file.limits):
            if key in line and all(_fits(axes.get(axis), line[axis]) for axis in line if axis not in _ASKED):
                return int(line[key])
        raise UserError(
            f"{PATH}: limits gives no {key} for {run.path}; begin it with a line for every run, such as "
            "{minutes: 10, memory_mb: 2000}"
        )


_AXES = (*(axis for axis in POINT if axis not in ("layout", "size")), "backend")


def load_site(sizes: Callable[[Run], Mapping[str, int]], known: tuple[str, ...], path: Path = PATH) -> Site:
    """The site file, checked.

    Args:
        sizes: a run's sizes by name.
        known: all names of sizes.

    Raises:
        UserError: it is missing, is not YAML, or a setting does not fit.
    """
    file = read_file(path)
    names = (*_AXES, *known, *_ASKED)
    for number, line in enumerate(file.limits):
        for key in line:
            if key not in names:
                raise UserError(f"{path}: limits.{number}.{key}: unknown setting{suggestion(key, names)}")
    return Site(file, sizes)


def read_file(path: Path = PATH) -> SiteFile:
    """The settings of the site file, each of its type.

    Raises:
        UserError: as for `load_site`.
    """
    try:
        # A setting that is null is one that is left out.
        given = {
            key: value
            for key, value in load(path).items()
            if value is not None or key not in SiteFile.__struct_fields__
        }
        return parse(SiteFile, given, "")
    except UserError as error:
        raise UserError(str(error) if str(error).startswith(str(path)) else f"{path}: {error}") from None


def gpus_per_node(run: Run) -> int:
    """GPUs of each of the run's nodes, one a rank."""
    return run.ranks // run.nodes if BACKENDS[run.backend].device == "gpu" else 0


def cores_per_node(run: Run) -> int:
    """Cores of each of the run's nodes, one a thread."""
    return run.ranks * run.threads // run.nodes


def _fits(value: Any, wanted: Any) -> bool:
    return value in (wanted if isinstance(wanted, list) else [wanted])
