"""The family `rows`: tables of features, and models that predict a class or numbers of each row."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ketscale.config import Data, Family, FileModel, Settings, Workload
from ketscale.engines.circuits.settings import CIRCUIT_SIZES, TINY_SIMULATORS, CircuitSimulator
from ketscale.problems.datasets import CLASSIFICATION, REGRESSION, REGRESSION_TASK, build
from ketscale.problems.rows.workloads import (
    BarsAndStripes,
    HiddenManifold,
    LinearlySeparable,
    Rows,
    RowsWorkload,
    SampleTable,
    Table,
    TwoCurves,
)
from ketscale.problems.vectors.settings import MODELS

if TYPE_CHECKING:
    from ketscale.problems.baselines import Baseline
    from ketscale.problems.vectors.prepared import PreparedVectors

VERSION = 1  # increase it whenever the arithmetic or the files of prepared rows change


def prepare(workload: Workload, manifest: Path, fetched: Path | None) -> None:
    """Standardise the features and write them with their targets and split; see `vectors.prepared.prepare`."""
    from ketscale.problems.vectors import prepared

    assert isinstance(workload, RowsWorkload)
    prepared.prepare(workload, workload.load(fetched), manifest, VERSION)


def read(settings: Settings, manifest: Path) -> Data:
    """Open and verify the features and their targets."""
    assert isinstance(settings.workload, RowsWorkload)
    return _opened(manifest).data(settings.workload.split_by)


def fit_baselines(manifest: Path) -> Iterable[Baseline]:
    """Fit what stands beside the models: the majority class and logistic regression, or the mean and ridge regression."""
    return _opened(manifest).baselines()


def _opened(manifest: Path) -> PreparedVectors:
    from ketscale.problems import store
    from ketscale.problems.vectors.prepared import FILES, PreparedVectors

    return PreparedVectors.of(store.opened(manifest, FILES, VERSION))


FAMILY = Family(
    name="rows",
    title="tables",
    samples="rows",
    sizes=CIRCUIT_SIZES,
    sampler="shuffled",
    workloads={
        "table": Table,
        "rows": Rows,
        "sample-table": SampleTable,
        "linearly-separable": LinearlySeparable,
        "hidden-manifold": HiddenManifold,
        "two-curves": TwoCurves,
        "bars-and-stripes": BarsAndStripes,
    },
    models=MODELS,
    simulators=(CircuitSimulator,),
    metrics=CLASSIFICATION,
    tasks={REGRESSION: REGRESSION_TASK},
    tiny={
        "workloads": {"sample-table": {"table": "iris", "split_seed": 0}},
        "axes": {"workload": "sample-table", "model": "vqc", "qubits": 2, "layers": 1, "batch": 16},
        "control": {"model": "mlp", "qubits": 0, "layers": 0, "simulator": "none"},
        "simulators": TINY_SIMULATORS,
    },
    build=build,
    own=FileModel,
    loss_unit="nats",
    prepare=prepare,
    read=read,
    baselines=fit_baselines,
)
