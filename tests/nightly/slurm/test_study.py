"""The default study on the cluster, as a user runs it: with fewer points and seeds, and with runs across two nodes."""

import copy
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from ketscale import analysis
from tests.nightly.slurm.project import ROOT, Project, target

DEFAULT = yaml.safe_load((ROOT / "config.yaml").read_text())
# The partition allows an hour, for all timed runs of a seed together.
LIMITS = [
    {"minutes": 3, "memory_mb": 1200},
    {"simulator": ["default.qubit"], "minutes": 5},
]
# Enough to tell seeds from each other; `make` trains all.
SEEDS = {"accuracy": [0, 1, 2]}
# Some of the timed runs have a second seed.
SECOND_SEED = ["cpu-n1r1t1", "mpi-n1r2t1"]
TWO_NODES = ["ddp-cpu-n2r2t1", "mpi-n2r2t1"]
# Runs in fp64, with several ranks on a node too.
IN_FP64 = ["ddp-cpu-n2r2t1", "mpi-n2r4t1"]


def on_the_cluster(config: dict) -> dict:
    """The study with fewer seeds and without its slowest points, and with its ranks on two nodes too."""
    changed = copy.deepcopy(config)
    studies = changed["studies"]
    for name, study in studies.items():
        study["axes"] = {**study["axes"], "seed": SEEDS.get(name, 0)}
    changed["protocols"]["timing"]["steps"] = 100
    simulators = ["fused", "default.qubit"]
    studies["simulators"]["points"] = [{"simulator": simulators}]
    del studies["qubits"], studies["batch"]
    layouts = studies["break-even"]["axes"]["backend"]
    studies["break-even"]["points"] = [
        {"backend": [*layouts, *TWO_NODES]},
        {"backend": SECOND_SEED, "seed": 1},
    ]
    of_simulators, of_layouts = studies["parity"]["points"]
    of_simulators["simulator"] = simulators
    of_layouts["backend"] += IN_FP64
    return changed


STUDY = on_the_cluster(DEFAULT)
STUDIED = analysis.of(STUDY)
ASKED = STUDIED.runs


@pytest.fixture(scope="module")
def finished(cluster, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The study, run to its report by `snakemake --profile slurm`."""
    project = Project(tmp_path_factory.mktemp("study") / "project")
    project.site(partition="study", limits=LIMITS)
    project.study(**STUDY)
    features = ROOT / "results/features/digits"
    if features.exists():
        # To pre-train takes a minute here.
        shutil.copytree(features, project.folder / "results/features/digits")
    project.snakemake(seconds=1500)
    return project


def table(folder: Path, name: str) -> pd.DataFrame:
    return pd.read_csv(folder / f"{name}.csv")


def tables_of(project: Project) -> Path:
    return project.folder / "results" / "tables"


def test_every_run_ends_and_the_report_is_made(finished: Project):
    runs = table(tables_of(finished), "runs")
    runs = runs[runs["studies"] != "search"]
    assert len(runs) == sum(not STUDIED.is_trial(run) for run in ASKED) and set(runs["status"]) <= {
        "completed",
        "timed_out",
    }
    # Which timed runs have time enough is a matter of the machine.
    assert runs[runs["status"] == "timed_out"]["timed"].all()
    assert (finished.folder / "results/report.html").stat().st_size > 100_000
    for run in ASKED:
        record = finished.record(run)
        assert record["slurm_job_id"]
        assert len({rank["host"] for rank in record["machine"]["ranks"]}) == run.nodes
        assert all(rank["host"].startswith("node") for rank in record["machine"]["ranks"])


def test_the_points_of_a_ratio_share_a_host(finished: Project):
    runs = [run for run in ASKED if run.protocol == "timing" and run.simulator == "fused"]
    for seed, least in ((0, 4), (1, len(SECOND_SEED))):
        points = [run for run in runs if (run.seed, run.size) == (seed, "q4-l3") and run.nodes == 1]
        assert len(points) >= least
        assert len({finished.record(run)["machine"]["host"] for run in points}) == 1


def test_losses_in_fp64_hold_on_two_nodes(finished: Project):
    speed = table(tables_of(finished), "speed")
    double = speed[(speed["kind"] == "parity") & speed["why"].str.contains("fp64")]
    assert (double["verdict"] == "same").all()
    for place in IN_FP64:
        rows = double[double["layout"] == place]
        assert len(rows) > 0 and (rows["effect"] <= 1e-10).all()


def test_one_missing_seed_is_a_target(finished: Project):
    run = next(run for run in ASKED if run.protocol == "quality" and run.model == "mlp")
    others = {other: (finished.folder / target(other)).stat().st_mtime_ns for other in ASKED if other != run}
    before = finished.record(run)
    (finished.folder / target(run)).unlink()
    finished.snakemake(target(run))
    after = finished.record(run)
    # Before, other seeds may have been trained with it: the same up to rounding.
    assert after["cohort"] == []
    np.testing.assert_allclose(after["losses"], before["losses"], rtol=1e-3)
    assert after["slurm_job_id"] != before["slurm_job_id"]
    assert others == {other: (finished.folder / target(other)).stat().st_mtime_ns for other in others}
