"""The ranks, the machine and the cores of a training process, as it finds them when it starts."""

from __future__ import annotations

import dataclasses
import os
import time
from datetime import UTC, datetime
from typing import Any

import torch

from ketscale import process
from ketscale.config import Settings
from ketscale.engines.compiled.threads import usable
from ketscale.errors import UserError
from ketscale.grid import Run
from ketscale.measure import host, topology
from ketscale.measure.quiet import Watch
from ketscale.parallel.world import World, check_nodes
from ketscale.training.training import Training


@dataclasses.dataclass(frozen=True)
class Context:
    """The place and the start of a training process.

    machine: the host, as records describe it. cores: the logical CPUs of this rank. shared: whether threads of this
    host's ranks share physical cores; None if that is unknown. watch: sees who else uses the cores. clock_s: the start by
    a clock that is never set. startup_s: from the start of the process until data are read.
    """

    world: World
    machine: dict[str, Any]
    cores: list[int]
    shared: bool | None
    watch: Watch
    started: datetime
    clock_s: float
    startup_s: float

    @classmethod
    def detect(cls, settings: Settings, world: World) -> Context:
        """Bind this rank to its cores and look around. Every rank calls this.

        Raises:
            UserError: the ranks are on another number of nodes than the run needs, or are bound otherwise.
        """
        names = world.gather(process.node_name())
        check_nodes(settings.run, names)
        machine = {**host.describe(), "node_type": node_type(settings.run)}
        cores = _bind(settings, world, names.count(process.node_name()))
        start, clock_s = datetime.now(UTC), time.monotonic()
        # The CPUs that the run's ranks on this host may use, a list for each rank.
        here = [
            cpus for name, cpus in world.gather((process.node_name(), cores)) if name == process.node_name()
        ]
        shared = topology.shared_cores(topology.read(), here, torch.get_num_threads())
        watch = Watch({cpu for cpus in here for cpu in cpus}, settings.run.threads * len(here))
        return cls(world, machine, cores, shared, watch, start, clock_s, process.age_s())

    def of_rank(self, trainer: Training | None) -> dict[str, Any]:
        """This rank's entry in a record."""
        gpu = self.world.device.type == "cuda"
        return {
            "rank": self.world.rank,
            "host": process.node_name(),
            "pid": os.getpid(),
            "threads": {"torch": torch.get_num_threads(), "compiled": usable(torch.get_num_threads())}
            | {name: os.environ[name] for name in process.THREAD_VARIABLES},
            "affinity": self.cores,
            "shared_cores": self.shared,
            "gpu_uuid": str(torch.cuda.get_device_properties(self.world.device).uuid) if gpu else None,
            "peak_rss_bytes": host.peak_rss_bytes(),
            "peak_device_bytes": torch.cuda.max_memory_allocated() if gpu else None,
            "seen": (trainer and trainer.clock.usage) or self.watch.usage(),
            "samples": trainer.samples_seen if trainer else 0,
        }


def node_type(run: Run) -> str | None:
    """The type of the cluster's nodes that the run is on, as the site file names it; None outside of a job or without one."""
    if process.slurm_job() is None:
        return None
    from ketscale.jobs.slurm import site

    # A run that is started by hand inside a job needs none.
    if not site.PATH.exists():
        return None
    file = site.read_file(site.PATH)
    return file.gpu_node_type if site.gpus_per_node(run) else file.node_type


def _bind(settings: Settings, world: World, local_ranks: int) -> list[int]:
    """Bind a timed rank to cores of its own. Untimed runs share the host, and the kernel schedules them."""
    protocol, threads = settings.protocol, settings.run.threads
    if not protocol.timed or protocol.mistake == "oversubscribed":
        return sorted(os.sched_getaffinity(0))
    if protocol.mistake != "one-device":
        return host.bind(world.local_rank, local_ranks, threads)
    cores = host.bind(0, local_ranks, threads)
    if any(other != cores for other in world.gather(cores)):
        raise UserError(
            "mistake one-device needs all ranks on the same cores, but the scheduler has bound each rank to cores of "
            "its own: start the ranks unbound (srun --cpu-bind=none, mpiexec -bind-to none)"
        )
    return cores
