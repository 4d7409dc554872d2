"""The family `rows`: tables of features, and models that predict a class or numbers of each row."""

from __future__ import annotations

from ketscale.config import METRICS, Family, FileModel, lazily
from ketscale.config.simulators.circuits import CIRCUIT_SIZES, TINY_SIMULATORS, CircuitSimulator
from ketscale.problems.datasets import build
from ketscale.problems.rows.workloads import (
    BarsAndStripes,
    HiddenManifold,
    LinearlySeparable,
    Rows,
    SampleTable,
    Table,
    TwoCurves,
)
from ketscale.problems.vectors.settings import MODELS

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
    metrics=METRICS["classes"],
    tiny={
        "workloads": {"sample-table": {"table": "iris", "split_seed": 0}},
        "axes": {"workload": "sample-table", "model": "vqc", "qubits": 2, "layers": 1, "batch": 16},
        "control": {"model": "mlp", "qubits": 0, "layers": 0, "simulator": "none"},
        "simulators": TINY_SIMULATORS,
    },
    build=build,
    own=FileModel,
    prepare=lazily("ketscale.problems.rows.prepared:prepare"),
    read=lazily("ketscale.problems.rows.prepared:read"),
)
