"""The workload sample-table: small real tables that come with scikit-learn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ketscale.optional import needed_for
from ketscale.problems.arrays import Source
from ketscale.problems.own_samples import vectors
from ketscale.problems.vectors.vectors import Vectors

if TYPE_CHECKING:
    from ketscale.problems.rows.workloads import SampleTable


def load(workload: SampleTable) -> Vectors:
    """The table's rows, with a split that is drawn."""
    with needed_for("workload sample-table", "estimators"):
        from sklearn import datasets

    found = getattr(datasets, f"load_{workload.table.replace('-', '_')}")()
    values = np.asarray(found.data, np.float64)
    names = getattr(found, "target_names", None)
    targets = found.target if names is None else np.asarray(names)[found.target]
    return vectors(workload, values, {"labels": Source(targets, workload.table)}, "row")
