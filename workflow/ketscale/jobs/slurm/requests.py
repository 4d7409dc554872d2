"""What a scheduler is told about the jobs of a config: the job group ("pack") of each run and the resources it asks for."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ketscale.errors import UserError
from ketscale.grid import Run
from ketscale.jobs import snakemake_internals as internals
from ketscale.jobs.slurm import check, packs, site

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
        asked = bool(study.in_job or workflow.resource_settings.nodes or limited)
        try:
            config = study.config
            self.site = site.load_site(config.sizes, config.size_names)
            self._packs = packs.packs(study.runs, config.timed, self.site, config.is_trial) if asked else {}
        except UserError as error:
            sys.exit(f"Error: {error}")
        # How far the requests of runs may grow (None: that for preparing data), once the call has started. On one machine and
        # inside an allocation they are those of the first attempt.
        self._rooms: Mapping[Run | None, check.Room] = defaultdict(check.Room)
        self.of_train, self.of_features = (self._of_train(), self._of_features()) if asked else ({}, {})
        # A job group's own process runs its commands one after the other: in a group again, each would start Snakemake anew.
        self.group = self._group if asked and not study.in_job else None

    def pack_of(self, run: Run) -> str:
        """The name of the run's job group."""
        return self._packs.get(run) or packs.name_alone(run)

    def check(self, runs: list[Run], features: bool) -> None:
        """Refuse what the cluster would never start of the runs of a call; `features`: it prepares data too.

        Raises:
            UserError: SLURM does not answer, or a request exceeds what its partition has.
        """
        self._rooms = check.check(self.site, {run: self.pack_of(run) for run in runs}, features)

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
            "runtime": self._of_attempt(check.Room.minutes, self.site.minutes),
            "mem_mb": self._of_attempt(check.Room.memory, self.site.memory_mb),
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
        asked = self.site.file.features
        return self._of_site() | {
            "slurm_partition": self.site.file.partition,
            "runtime": self._of_attempt(check.Room.minutes, lambda run: asked.minutes),
            "mem_mb": self._of_attempt(check.Room.memory, lambda run: asked.memory_mb),
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

    def _of_attempt(self, grow: Callable[..., int], first: Callable[[Any], int]) -> Callable[..., int]:
        """A resource that grows with the attempt: by `grow`, a method of `Room`, from the value of `first` for a run."""

        def resource(wildcards: Wildcards, attempt: int) -> int:
            run = self._study.run_of(wildcards) if hasattr(wildcards, "seed") else None
            return grow(self._rooms[run], first(run), attempt)

        return resource

    def _gres(self, run: Run) -> str | None:
        """The GPUs per node, as SLURM's generic resource; None without GPUs."""
        number = site.gpus_per_node(run)
        return ":".join(filter(None, ["gpu", self.site.file.gpu_type, str(number)])) if number else None
