"""Compares a site file and the runs of a call with the cluster, before anything is submitted."""

from __future__ import annotations

import getpass
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ketscale.errors import UserError
from ketscale.grid import Run
from ketscale.jobs.slurm.queue import NoCluster, ask, seconds
from ketscale.jobs.slurm.site import PATH, Site, cores_per_node, gpus_per_node

# Snakemake's executor asks for the state of jobs at most every three minutes, and may have to ask again.
_LOOKS_S = 200


@dataclass(frozen=True)
class Partition:
    """A partition: its number of nodes, its largest cores, memory and GPUs of a node, and its longest job."""

    name: str
    default: bool
    nodes: int
    cores: int
    memory_mb: int
    gpus: int
    minutes: float


@dataclass(frozen=True)
class Room:
    """How far a request may grow when a job is retried: up to what its partition has."""

    factor: float  # by which the time limits of all runs of the job group may grow
    memory_mb: int  # of a node


def check(
    site: Site, runs: Mapping[Run, str], features: bool, status_command: str | None
) -> dict[Run | None, Room]:
    """Refuse what the cluster would refuse, or would leave in the queue for ever.

    Args:
        runs: the runs of this call, each with its job group.
        features: whether this call prepares data.
        status_command: the command by which Snakemake's executor asks for the state of jobs, squeue or sacct.

    Returns:
        How far the request of each run may grow, and that for preparing data (under None).

    Raises:
        UserError: one or two lines that name the setting and what the cluster has.
    """
    elsewhere = "run on the cluster's login node, or use `--profile profiles/local`"
    if shutil.which("sbatch") is None:
        raise UserError(f"profile slurm: there is no sbatch on this machine; {elsewhere}")
    try:
        _check_age_of_ended_jobs(status_command)
    except NoCluster as error:
        raise UserError(f"profile slurm: {error}; {elsewhere}") from None
    _check_account(site)
    found = partitions()
    where = _named(site.file.partition, "partition", found)
    if features and site.file.features.minutes > where.minutes:
        raise UserError(
            f"{PATH}: features asks for {site.file.features.minutes} min, but partition {where.name} allows "
            f"{where.minutes:g}; lower it, or set a longer partition"
        )
    if features and site.file.features.memory_mb > where.memory_mb:
        raise UserError(
            f"{PATH}: features asks for {site.file.features.memory_mb} MB, but the nodes of partition {where.name} "
            f"have {where.memory_mb} MB; lower it, or set a larger partition"
        )
    packed: dict[str, int] = {}
    for run, pack in runs.items():
        packed[pack] = packed.get(pack, 0) + site.minutes(run)
    room: dict[Run | None, Room] = {None: Room(where.minutes / site.file.features.minutes, where.memory_mb)}
    for run, pack in runs.items():
        key = "gpu_partition" if gpus_per_node(run) and site.file.gpu_partition else "partition"
        partition = _named(site.partition_of(run), key, found)
        for why in _misfits(site, run, partition, packed[pack]):
            raise UserError(f"{run.path}: {why}")
        room[run] = Room(partition.minutes / packed[pack], partition.memory_mb)
    return room


def _check_age_of_ended_jobs(status_command: str | None) -> None:
    """The executor would wait for ever for a job that squeue forgets between two of its questions."""
    age = re.search(r"^MinJobAge\s*=\s*(\d+) sec", ask("scontrol", "show", "config"), re.MULTILINE)
    if age and int(age[1]) < _LOOKS_S and status_command == "squeue":
        raise UserError(
            f"this cluster forgets jobs {age[1]} s after their end (MinJobAge), and Snakemake may look less often than "
            "that: set `slurm-status-command: sacct` in profiles/slurm/profile.yaml (see docs/cluster.md)"
        )


def _check_account(site: Site) -> None:
    """Check account and QoS. They are known only if SLURM keeps a database of accounts; otherwise sbatch decides."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # it has no name here, so its accounts are not known
        return
    try:
        lines = ask(
            "sacctmgr", "-nP", "show", "associations", f"user={user}", "format=account,qos"
        ).splitlines()
    except UserError:
        return
    if not lines:
        return
    # An account has a line for each cluster and partition.
    yours: dict[str, set[str]] = {}
    for account, _, qos in (line.partition("|") for line in lines):
        yours.setdefault(account, set()).update(qos.split(",") if qos else ())
    names = ", ".join(sorted(yours))
    # Without an account the executor would use that of the user's last job.
    if site.file.account is None and len(yours) > 1:
        raise UserError(f"{PATH}: account is not set; name one of yours: {names}")
    if site.file.account is not None and site.file.account not in yours:
        raise UserError(f"{PATH}: account {site.file.account} is not one of yours: {names}")
    allowed = yours[site.file.account or names]
    if site.file.qos is not None and allowed and site.file.qos not in allowed:
        raise UserError(
            f"{PATH}: qos {site.file.qos} is not one of this account's: {', '.join(sorted(allowed))}"
        )


def partitions() -> dict[str, Partition]:
    """The cluster's partitions by name.

    Raises:
        UserError: SLURM does not answer.
    """
    found: dict[str, Partition] = {}
    for line in ask("sinfo", "-h", "-e", "-o", "%P|%D|%c|%m|%G|%l").splitlines():
        name, nodes, cores, memory, gres, limit = line.split("|")
        title = name.rstrip("*")
        # A partition with different nodes has several lines; the largest value of each kind says what fits.
        old = found.get(title, Partition(title, False, 0, 0, 0, 0, 0))
        found[title] = Partition(
            title,
            name.endswith("*") or old.default,
            old.nodes + int(nodes),
            max(old.cores, int(cores.rstrip("+"))),
            max(old.memory_mb, int(memory.rstrip("+"))),
            max(old.gpus, _gpus(gres)),
            seconds(limit) / 60,
        )
    return found


def _named(name: str | None, key: str, found: Mapping[str, Partition]) -> Partition:
    if name is None:
        default = next((partition for partition in found.values() if partition.default), None)
        if default is None:
            raise UserError(
                f"{PATH}: {key} is not set and the cluster has no default; it has: {', '.join(found)}"
            )
        return default
    if name not in found:
        raise UserError(f"{PATH}: {key} {name} does not exist; the cluster has: {', '.join(found)}")
    return found[name]


def _misfits(site: Site, run: Run, partition: Partition, pack_minutes: int) -> Iterator[str]:
    """What a run asks for that its partition has not."""
    where = f"partition {partition.name}"
    cores, gpus, memory = cores_per_node(run), gpus_per_node(run), site.memory_mb(run)
    if run.nodes > partition.nodes:
        yield f"{run.layout} needs {run.nodes} nodes, but {where} has {partition.nodes}"
    if cores > partition.cores:
        yield (
            f"{run.layout} puts {run.ranks // run.nodes} rank(s) of {run.threads} thread(s) on a node, "
            f"but the nodes of {where} have {partition.cores} cores; ask for more nodes or fewer ranks"
        )
    if gpus > partition.gpus:
        yield (
            f"{run.layout} needs {gpus} GPU(s) per node, but the nodes of {where} have {partition.gpus}; "
            f"set gpu_partition in {PATH}, or ask for fewer ranks per node"
        )
    if memory > partition.memory_mb:
        yield (
            f"needs {memory} MB per node by the limits of {PATH}, but the nodes of {where} have "
            f"{partition.memory_mb} MB; ask for more nodes, or lower memory_mb"
        )
    if pack_minutes > partition.minutes:
        yield (
            f"its job group needs {pack_minutes} min by the limits of {PATH}, but {where} allows "
            f"{partition.minutes:g}; lower minutes (or pack, unless the group is one block of timed runs), or set a "
            "longer partition"
        )


def _gpus(gres: str) -> int:
    """The GPUs in a node's generic resources, such as 'gpu:h200:2(S:0-1),nvme:1'."""
    total = 0
    for item in gres.split(","):
        parts = item.split("(")[0].split(":")
        if parts[0] == "gpu":
            total += int(parts[-1]) if parts[-1].isdigit() else 1
    return total
