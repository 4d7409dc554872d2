"""A run: one point of the grid, its axes, and the path that names them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from ketscale.errors import UserError
from ketscale.grid.backend import BACKENDS

# RUNS is below the results folder; the others are in a run's folder.
RUNS = "runs"
RECORD = "metrics.json"
HISTORY = "history.csv"
# Its outputs for the test samples.
PREDICTIONS = "predictions.npz"
# The code of a model in a user's own file, as it was trained.
CODE = "code.zip"
# The manifests of a workload's data, below the results folder: what is prepared for runs, and what is fetched for that.
PREPARED = "features/{workload}/features.json"
FETCHED = "data/{workload}/fetched.json"
# What `ketscale try` has found out about a workload's models, below the results folder.
TRIED = "tried/{workload}.json"

# A path's axes; Snakemake's wildcards and `Run.parse` share this pattern.
PATTERN = "{workload}/{model}/{size}-b{batch}/{simulator}/{backend}-n{nodes}r{ranks}t{threads}/{protocol}/seed{seed}"
# All records below a results folder. No deeper ones: a run may keep a copy of its own (`jobs.finished`).
RECORDS = "/".join([RUNS, *("*" for _ in PATTERN.split("/")), RECORD])
NAME = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
# Without leading zeros, with which one run would have several paths.
COUNT = r"(?:0|[1-9][0-9]*)"
POSITIVE = r"[1-9][0-9]*"
CONSTRAINTS = {
    "workload": NAME,
    "model": NAME,
    # Not b, which is the letter of the batch.
    "size": rf"[ac-z]{COUNT}(?:-[ac-z]{COUNT})*",
    "batch": POSITIVE,
    "simulator": NAME,
    "backend": "|".join(BACKENDS),
    "nodes": POSITIVE,
    "ranks": POSITIVE,
    "threads": POSITIVE,
    "protocol": NAME,
    "seed": COUNT,
}
_PATH = re.compile(
    "(?:^|/)"
    + re.sub(r"\{(\w+)\}", lambda m: f"(?P<{m[1]}>{CONSTRAINTS[m[1]]})", PATTERN)
    + f"(?:/{re.escape(RECORD)})?/?\\Z"
)
# Without named groups, for a JSON schema. The parts of a layout are its groups, in the order of `LAYOUT`.
LAYOUT_PATTERN = rf"^({CONSTRAINTS['backend']})-n({POSITIVE})r({POSITIVE})t({POSITIVE})$"


@dataclass(frozen=True, order=True)
class Run:
    """One point of the grid, trained once, with one directory and one record.

    size: the letters and values of the family's size axes, e.g. 'q4-l3'; `grid.decode` gives their names.
    """

    workload: str
    model: str
    size: str
    batch: int
    simulator: str
    backend: str
    nodes: int
    ranks: int
    threads: int
    protocol: str
    seed: int

    @property
    def layout(self) -> str:
        """The ranks, and the place where they run, e.g. 'mpi-n1r2t1'."""
        return f"{self.backend}-n{self.nodes}r{self.ranks}t{self.threads}"

    @property
    def name(self) -> str:
        """The run in one line: its path below results/runs."""
        # Not asdict, which copies every value, and this is asked of thousands of runs.
        return PATTERN.format(**vars(self))

    @property
    def folder(self) -> str:
        """The run's directory, relative to the results folder."""
        return f"{RUNS}/{self.name}"

    @property
    def path(self) -> str:
        """The run's record, relative to the results folder; `parse` is its inverse."""
        return f"{self.folder}/{RECORD}"

    @classmethod
    def parse(cls, path: str) -> Run:
        """The run whose record or folder is `path`.

        Raises:
            UserError: the path does not name a run.
        """
        match = _PATH.search(str(path))
        if match is None:
            raise UserError(
                f"{path}: not the path of a run; it should look like results/{RUNS}/{PATTERN}/{RECORD}"
            )
        return cls.of(match.groupdict())

    @classmethod
    def of(cls, axes: Mapping[str, Any]) -> Run:
        """The run with these axes, such as Snakemake's wildcards (strings are converted to integers where needed)."""
        values: dict[str, Any] = {
            axis: int(axes[axis]) if axis in INTEGERS else str(axes[axis]) for axis in AXES
        }
        return cls(**values)

    def without(self, *axes: str) -> tuple[Any, ...]:
        """The values of the other axes: equal for runs that differ only in `axes`."""
        return tuple(getattr(self, axis) for axis in AXES if axis not in axes)


AXES = tuple(field.name for field in fields(Run))
INTEGERS = frozenset(axis for axis in AXES if CONSTRAINTS[axis] in (COUNT, POSITIVE))
# The axes that make up `Run.layout`.
LAYOUT = ("backend", "nodes", "ranks", "threads")
# The columns that identify a point of a study, whose runs differ only in their seed: the axes, with the layout as
# one.
POINT = tuple(
    "layout" if axis == LAYOUT[0] else axis for axis in AXES if axis != "seed" and axis not in LAYOUT[1:]
)


def layout(text: str) -> dict[str, Any]:
    """Split 'mpi-n1r2t1' into backend, nodes, ranks and threads.

    Raises:
        UserError: the text is not a layout.
    """
    match = re.fullmatch(LAYOUT_PATTERN, text)
    if match is None:
        raise UserError(f"backend {text!r}: write it as NAME-n<nodes>r<ranks>t<threads>, e.g. mpi-n1r2t1")
    values = zip(LAYOUT, match.groups(), strict=True)
    return {axis: int(value) if axis in INTEGERS else value for axis, value in values}
