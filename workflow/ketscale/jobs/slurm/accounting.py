"""What SLURM's accounting says of a folder's jobs: the node-hours of every attempt, and how long jobs waited to start."""

from __future__ import annotations

import os
import statistics
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from ketscale.errors import UserError, short
from ketscale.jobs.slurm.queue import SUBMITTED, ask, available

# Everything that accounting still has, attempts that were requeued too.
_ASKED = (
    "-X",
    "-n",
    "-P",
    "-D",
    "-S",
    "1970-01-01",
    "-o",
    "ElapsedRaw,AllocNodes,Eligible,Start,JobName,WorkDir",
)


@dataclass(frozen=True)
class Account:
    """A folder's jobs so far.

    jobs: attempts that have started. node_hours: of all of them. wait_s: the median time from when a job could have
    started to when it did; None if none has started.
    """

    jobs: int
    node_hours: float
    wait_s: float | None


def of_folder(folder: Path) -> Account | None:
    """The account of this user's jobs that Snakemake has submitted in `folder`; None where there is no SLURM to ask.

    Raises:
        UserError: sacct does not answer, or not in the form that was asked for.
    """
    if not available(folder, "sacct"):
        return None
    node_s, waits = 0.0, list[float]()
    here = os.path.realpath(folder)
    for line in ask("sacct", *_ASKED).splitlines():
        try:
            elapsed, nodes, eligible, start, name, where = line.split("|", 5)
            if not SUBMITTED.match(name) or os.path.realpath(where) != here or not int(nodes):
                continue
            node_s += int(elapsed) * int(nodes)
            began, could = datetime.fromisoformat(start), datetime.fromisoformat(eligible)
        except ValueError:
            # A job that never started has no start.
            if line.count("|") < 5:
                raise UserError(
                    f"sacct answered {short(repr(line))}, which is not what was asked for"
                ) from None
            continue
        waits.append(max(0.0, (began - could).total_seconds()))
    return Account(len(waits), node_s / 3600, statistics.median(waits) if waits else None)
