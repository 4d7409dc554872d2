"""The node-hours that a folder's runs have used, lost attempts too, and what is left of its budget."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ketscale.errors import UserError
from ketscale.jobs.slurm import accounting
from ketscale.jobs.slurm import site as sites
from ketscale.jobs.status.survey import Seen
from ketscale.words import rounded


@dataclass(frozen=True)
class Spent:
    """What was used so far.

    node_hours: used; by: who says so, sacct of all jobs of this folder, or records of a config's runs (without one, what
    attempts have left), which tell nothing of an attempt before the last that left a checkpoint. in_records: of the runs with
    a result. budget: as the site file has it; None for none. wait_s: the median wait of a job in the queue; None if unknown.
    problem: why sacct does not answer.
    """

    node_hours: float
    by: str
    in_records: float
    budget: float | None
    wait_s: float | None
    problem: str = ""

    @property
    def left(self) -> float | None:
        """What is left of the budget; None without one, and where sacct does not say what was used of it."""
        return None if self.budget is None or self.problem else max(0.0, self.budget - self.node_hours)

    @property
    def words(self) -> str:
        """Used and left, in a line."""
        used = f"{rounded(self.node_hours)} node-hours by {self.by}" if self.node_hours else "nothing"
        if self.problem:
            return f"used: at least {used} ({self.problem})"
        if self.left is None or self.budget is None:
            return f"used: {used}"
        return f"used: {used}; {rounded(self.left)} of {rounded(self.budget)} are left"


def spent(seen: Iterable[Seen], root: Path) -> Spent:
    """What these runs below `root`, or all jobs of that folder where SLURM keeps accounts, have used.

    Raises:
        UserError: the site file exists but is invalid.
    """
    done, attempts = 0.0, dict[object, float]()
    for one in seen:
        if one.state == "done":
            done += one.node_hours
        else:
            # Runs that were trained together have used one process's time.
            key = one.launch or one.run
            attempts[key] = max(attempts.get(key, 0.0), one.node_hours)
    path, account, problem = sites.path_of(root), None, ""
    budget = sites.read_file(path).node_hours if path.exists() else None
    try:
        account = accounting.of_folder(root)
    except UserError as error:
        problem = str(error)
    if account is None or not account.jobs:
        by = "records" if done else "attempts without a record"
        return Spent(done + sum(attempts.values()), by, done, budget, None, problem)
    return Spent(account.node_hours, "sacct", done, budget, None)
