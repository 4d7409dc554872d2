"""The site file: the user's description of a cluster, what a run asks for there, and the runs that share an allocation.

Short runs do not each cost a job: they take turns in a job group of Snakemake's, a "pack". Timed runs that differ only in
layout (with the same number of nodes), simulator and batch form a block that is never split, so the two runs of a ratio are
on the same host.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from ketscale.config import Block, Config, load, parse
from ketscale.config.block import Text
from ketscale.errors import UserError, within
from ketscale.grid import BACKENDS, LAYOUT, POINT, Run
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
    return path if path.exists() else Path(__file__).resolve().parents[4] / PATH


def load_site(config: Config, path: Path = PATH) -> Site:
    """The checked site file, for the runs of a config.

    Raises:
        UserError: the file is missing or is not YAML, or a setting is wrong.
    """
    file, names = read_file(path), (*_AXES, *config.size_names, *_REQUESTS)
    for number, line in enumerate(file.limits):
        for key in (key for key in line if key not in names):
            raise UserError(f"{path}: limits.{number}.{key}: unknown setting{suggestion(key, names)}")
    return Site(file, config.sizes)


def read_file(path: Path = PATH) -> SiteFile:
    """The settings of the site file; the axes inside `limits` are not checked.

    Raises:
        UserError: as for `load_site`.
    """
    # A setting that is null is the same as a missing one.
    settings = {key: value for key, value in load(path).items() if value is not None}
    with within(path):
        file = parse(SiteFile, settings, "")
        for number, line in enumerate(file.limits):
            request = {key: line[key] for key in _REQUESTS if key in line}
            parse(Preparation, {"minutes": 1, "memory_mb": 100} | request, f"limits.{number}")
    return file


def gpus_per_node(run: Run) -> int:
    """The run's GPUs per node, one for each rank."""
    return run.ranks // run.nodes if BACKENDS[run.backend].device == "gpu" else 0


def cores_per_node(run: Run) -> int:
    """The run's cores per node, one for each thread."""
    return run.ranks * run.threads // run.nodes


def packs(
    runs: Iterable[Run],
    timed: Callable[[Run], bool],
    site: Site,
    is_trial: Callable[[Run], bool],
) -> dict[Run, str]:
    """The name of each run's job group, which depends on all runs of a config, so that it stays when some are done.

    is_timed: whether a run has its nodes to itself. is_trial: whether it is a trial of a search, for which others wait.
    """
    # By what the runs of a job group share; the allocation asks for the cores and memory of its largest run. Timed runs have
    # their nodes alone, so theirs may differ in cores. No run that waits for a trial is in the trial's job group.
    blocks: dict[str, dict[tuple[object, ...], list[Run]]] = {}
    for run in runs:
        exclusive = timed(run)
        kind = "timed" if exclusive else "trials" if is_trial(run) else "shared"
        gpus = f"g{gpus_per_node(run)}" if gpus_per_node(run) else ""
        cores = "" if exclusive else f"c{cores_per_node(run)}"
        allocation = f"{kind}-n{run.nodes}{gpus}{cores}"
        key = run.without("batch", "simulator", *LAYOUT) if exclusive else (run,)
        blocks.setdefault(allocation, {}).setdefault(key, []).append(run)
    names: dict[Run, str] = {}
    for allocation, of_allocation in blocks.items():
        number = minutes = size = 0
        for block in of_allocation.values():
            more = sum(site.minutes(run) for run in block)
            if size and (minutes + more > site.file.pack.minutes or size + len(block) > site.file.pack.runs):
                number, minutes, size = number + 1, 0, 0
            minutes, size = minutes + more, size + len(block)
            names |= dict.fromkeys(block, f"{allocation}-{number}")
    return names


def name_of_single(run: Run) -> str:
    """The job group of a run that is in no study."""
    return f"single-{hashlib.sha256(run.path.encode()).hexdigest()[:10]}"
