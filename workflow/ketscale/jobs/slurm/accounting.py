"""What SLURM's accounting says of a folder's jobs: the node-hours of every attempt."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ketscale.jobs.slurm.queue import SUBMITTED, ask, available


@dataclass(frozen=True)
class Account:
    """A folder's jobs so far: attempts that have started, and the node-hours of all of them."""

    jobs: int
    node_hours: float


def of_folder(folder: Path) -> Account | None:
    """The account of this user's jobs that Snakemake has submitted in `folder`; None where there is no SLURM to ask.

    Raises:
        UserError: sacct does not answer.
    """
    if not available("sacct"):
        return None
    # Everything that accounting still has, attempts that were requeued too.
    columns = "ElapsedRaw,AllocNodes,JobName,WorkDir"
    hours = []
    for line in ask("sacct", "-X", "-n", "-P", "-D", "-S", "1970-01-01", "-o", columns).splitlines():
        elapsed, nodes, name, where = line.split("|", 3)
        ours = SUBMITTED.match(name) and os.path.realpath(where) == os.path.realpath(folder)
        if ours and int(nodes):
            hours.append(int(elapsed) * int(nodes) / 3600)
    return Account(len(hours), sum(hours))
