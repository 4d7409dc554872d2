"""The scheduler selects what Snakemake's own greedy one does."""

from __future__ import annotations

import logging
import random
from types import SimpleNamespace
from typing import Any

import pytest
from snakemake.scheduling import greedy

from snakemake_scheduler_plugin_ketscale import Scheduler


@pytest.mark.parametrize("seed", range(20))
def test_jobs_are_selected_as_by_the_greedy_scheduler(seed: int) -> None:
    draw = random.Random(seed)
    left = {"_cores": draw.randint(1, 8), "host": 4, "_job_count": 2**63 - 1}
    priorities = draw.sample(range(100), 12)
    jobs: list[Any] = [
        SimpleNamespace(
            priority=priority,
            scheduler_resources={"_cores": draw.randint(1, 4), "host": draw.choice([1, 4]), "_job_count": 1},
        )
        for priority in priorities
    ]
    settings = greedy.SchedulerSettings(omit_prioritize_by_temp_and_input=True)
    reference = greedy.Scheduler(None, settings, logging.getLogger()).select_jobs(jobs, jobs, left, {})
    selected = Scheduler(None, None, logging.getLogger()).select_jobs(jobs, jobs, left, {})
    assert sorted(job.priority for job in selected) == sorted(job.priority for job in reference)
    assert [job.priority for job in selected] == sorted((job.priority for job in selected), reverse=True)
