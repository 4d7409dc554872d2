"""Jobs of one machine start strictly by priority, as with Snakemake's own greedy scheduler at its default greediness.

That one looks at all ready jobs several times for each job that it selects: with 4,600 ready ones, half of the time from one job to
the next. Snakemake finds this package by its name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from snakemake_interface_scheduler_plugins.base import SchedulerBase  # type: ignore[import-untyped]


class Scheduler(SchedulerBase):
    """Selects jobs by priority, as far as resources last."""

    def select_jobs(
        self,
        selectable_jobs: Sequence[Any],
        remaining_jobs: Sequence[Any],
        available_resources: Mapping[str, Any],
        input_sizes: Mapping[Any, int],
    ) -> Sequence[Any]:
        """See `SchedulerBase`."""
        left, selected = dict(available_resources), []
        for job in sorted(selectable_jobs, key=lambda job: job.priority, reverse=True):
            needs = job.scheduler_resources
            if all(needs.get(name, 0) <= amount for name, amount in left.items()):
                left = {name: amount - needs.get(name, 0) for name, amount in left.items()}
                selected.append(job)
            if not left["_cores"]:
                break
        return selected
