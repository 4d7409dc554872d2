"""The requests of a config's jobs to a scheduler: the job group ("pack") of each run and the resources it asks for."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from ketscale.errors import UserError
from ketscale.grid import Run
from ketscale.jobs import snakemake_internals as internals
from ketscale.jobs.slurm import queue, site

if TYPE_CHECKING:
    from ketscale.dag import Jobs, Wildcards


class Requests:
    """The requests of rules.

    of_train, of_features: resources of rules. group: the function of a run's job group; None outside a call that submits.
    """

    def __init__(self, workflow: Any, study: Jobs) -> None:
        """Read the site file.

        Raises:
            SystemExit: it cannot be used; says why.
        """
        self._workflow, self._study = workflow, study
        # Whether anything may ask what jobs need: a scheduler, to which Snakemake submits only with --jobs; the allocation that
        # this process is in; or a limit of --resources. If nothing does, jobs have no group and none of these resources:
        # Snakemake evaluates each of them for each run, which was a third of a dry run of 20,000 runs.
        limited = {"mem_mb", "runtime"} & workflow.global_resources.keys()
        needed = bool(study.in_job or workflow.resource_settings.nodes or limited)
        try:
            config = study.config
            self.site = site.load_site(config)
            self._packs = site.packs(study.runs, config.timed, self.site, config.is_trial) if needed else {}
        except UserError as error:
            sys.exit(f"Error: {error}")
        self.of_train, self.of_features = (self._of_train(), self._of_features()) if needed else ({}, {})
        # A job group's own process runs its commands one after the other: in a group again, each would start Snakemake.
        self.group = self._group if needed and not study.in_job else None

    def pack_of(self, run: Run) -> str:
        """The name of the run's job group."""
        return self._packs.get(run) or site.name_of_single(run)

    def _group(self, wildcards: Wildcards) -> str:
        """The group of a run: the runs that share an allocation with it."""
        name = self.pack_of(self._study.run_of(wildcards))
        # The profile's group-components for `pack` applies to this group.
        internals.make_one_job(self._workflow, name, "pack")
        return name

    def _of_train(self) -> dict[str, Any]:
        """One task per node, with all cores of the run's ranks there, which srun divides among them."""
        return self._of_site() | {
            "slurm_partition": self._of_run(self.site.partition_of),
            "runtime": lambda wildcards: self.site.minutes(self._study.run_of(wildcards)),
            "mem_mb": lambda wildcards, attempt: self._larger_memory(
                self.site.memory_mb(run := self._study.run_of(wildcards)),
                attempt,
                self.site.partition_of(run),
            ),
            "nodes": self._of_run(lambda run: run.nodes),
            "tasks": self._of_run(lambda run: run.nodes),
            "cpus_per_task": self._of_run(site.cores_per_node),
            "gres": self._of_run(self._gres),
            "tasks_per_gpu": self._of_run(lambda run: 0 if self._gres(run) else None),
            # A timed run has its nodes alone.
            "slurm_extra": self._of_run(lambda run: "--exclusive" if self._study.config.timed(run) else None),
        }

    def _of_features(self) -> dict[str, Any]:
        """Two threads on every machine, so that the features are the same."""
        request = self.site.file.features
        return self._of_site() | {
            "slurm_partition": self.site.file.partition,
            "runtime": request.minutes,
            "mem_mb": lambda wildcards, attempt: self._larger_memory(
                request.memory_mb, attempt, self.site.file.partition
            ),
            "nodes": 1,
            "cpus_per_task": 2,
        }

    def _of_site(self) -> dict[str, Any]:
        file = self.site.file
        return {"slurm_account": file.account, "qos": file.qos, "constraint": file.constraint}

    def _of_run(self, function: Callable[[Run], Any]) -> Callable[[Wildcards], Any]:
        """A resource of the executor's: the value of `function` for a run if there is a scheduler, else None."""
        study = self._study
        return lambda wildcards: function(study.run_of(wildcards)) if study.scheduled() else None

    def _larger_memory(self, memory_mb: int, attempt: int, partition: str | None) -> int:
        """The memory of an attempt where jobs are submitted: double that of the one before, which may have run out of it.

        At most that of the partition's largest node: SLURM never accepts more.
        """
        if attempt == 1 or not self._study.scheduled() or self._study.in_job:
            return memory_mb
        return max(memory_mb, min(memory_mb * 2 ** (attempt - 1), _node_memory_mb(partition)))

    def _gres(self, run: Run) -> str | None:
        """The GPUs per node, as SLURM's generic resource; None without GPUs."""
        number = site.gpus_per_node(run)
        return ":".join(filter(None, ["gpu", self.site.file.gpu_type, str(number)])) if number else None


@cache
def _node_memory_mb(partition: str | None) -> int:
    """The memory of the largest node of a partition, or of all."""
    of = () if partition is None else ("-p", partition)
    return max(int(line.rstrip("+")) for line in queue.ask("sinfo", "-h", "-e", *of, "-o", "%m").split())
